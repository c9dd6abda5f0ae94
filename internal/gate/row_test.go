package gate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// spoilings are what can befall an entry of the queue before it is taken up
// again, with the reason for which it would be refused if nothing were known
// of it.
var spoilings = []struct {
	name  string
	spoil func(w *world)
	want  fencepost.Reason
}{
	{"too old", func(*world) { time.Sleep(400 * time.Hour) }, fencepost.ReasonExpired},
	{"revoked key", func(w *world) { w.trust.revoke("a") }, fencepost.ReasonRevoked},
	{"altered body", func(w *world) {
		w.queue.alter(func(r *gate.Recorded) { r.Body = append(r.Body, 'x') })
	}, fencepost.ReasonTampered},
	{"no longer wanted", func(w *world) {
		w.provider.set(func(p *provider) { p.unwanted = true })
	}, fencepost.ReasonEventNotHandled},
	{"gate gone from the configuration", func(w *world) {
		w.queue.alter(func(r *gate.Recorded) { r.Route = "gone" })
		time.Sleep(400 * time.Hour)
	}, fencepost.ReasonExpired},
}

// TestWhatIsDoneIsNeverRefused: the queue's own mark may be lost in a crash.
func TestWhatIsDoneIsNeverRefused(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"forget", "done"} {
		for _, tc := range spoilings {
			t.Run(tc.name+" after "+at, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(t *testing.T, w *world) {
					key := w.deliver(7, w.provider.head.ID)
					w.killAt(at, true)
					tc.spoil(w)
					p := w.start(nil)
					time.Sleep(time.Minute)
					p.end(t)
					w.wantRuns("success")
					w.wantEnd(gate.KindEnded, fencepost.ReasonNone)
					if w.queue.len() != 0 || strings.Contains(w.journal.kinds(), "refused") || len(w.alerts.all()) != 0 {
						t.Errorf("%d left, %s, alerts %v", w.queue.len(), w.journal.kinds(), w.alerts.all())
					}
					if note := w.note(key); note != (gate.Note{}) {
						t.Errorf("note %+v", note)
					}
				})
			})
		}
	}
}

// TestAnEntryThatCantBeReadAnyMoreWasPerhapsDone is the same for damaged
// bytes, of which not even the route is known.
func TestAnEntryThatCantBeReadAnyMoreWasPerhapsDone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		at   string
		kind gate.Kind
		want fencepost.Reason
	}{{"done", gate.KindEnded, fencepost.ReasonNone}, {"put", gate.KindRefused, fencepost.ReasonTampered}} {
		inWorld(t, func(t *testing.T, w *world) {
			w.deliver(7, w.provider.head.ID)
			w.killAt(tc.at, true)
			p := w.start(&mortality{fails: failing("read", reasonError(fencepost.ReasonCorrupt))})
			w.settle()
			p.end(t)
			w.wantEnd(tc.kind, tc.want)
		})
	}
}

func failing(call string, err error) func(string) error {
	return func(name string) error {
		if name == call {
			return err
		}
		return nil
	}
}

func TestWhatIsStagedIsPublishedWhateverItsAge(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		time.Sleep(400 * time.Hour)
		w.run()
		w.wantRuns("success")
		if n := w.program.count(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		key := w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		time.Sleep(400 * time.Hour)
		w.provider.set(func(p *provider) { p.base = commit("55") })
		w.run()
		w.wantRuns()
		w.wantEnd(gate.KindEnded, fencepost.ReasonSuperseded)
		w.wantState(key, ledger.Done)
	})
}

func (w *world) wantState(key fencepost.DeliveryKey, want ledger.State) {
	w.t.Helper()
	row, _, err := w.ledger.Lookup(w.t.Context(), key)
	if err != nil || row.State != want {
		w.t.Errorf("row is %v, %v, want %v", row.State, err, want)
	}
}

func TestARowThatCantBeLookedUpIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range spoilings {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				key := w.deliver(7, w.provider.head.ID)
				w.killAt("done", true)
				tc.spoil(w)
				fate := &mortality{fails: failing("lookup", errors.New("busy"))}
				p := w.start(fate)
				time.Sleep(time.Hour)
				if w.queue.len() != 1 || !w.alerts.wasRaised("retries_exhausted:unavailable") {
					t.Errorf("%d entries, alerts %v\n%s", w.queue.len(), w.alerts.all(), w.journal)
				}
				fate.failWith(nil)
				w.settle()
				p.end(t)
				w.wantState(key, ledger.Done)
				if len(w.alerts.opened()) != 0 {
					t.Errorf("open alerts %v", w.alerts.opened())
				}
			})
		})
	}
}

// TestARepeatPublishesWhatARevokedKeyLeftStaged: without the key nothing
// proves the delivery any more, so it ends; what is staged waits for the same
// bytes under another key.
func TestARepeatPublishesWhatARevokedKeyLeftStaged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		key := w.deliver(7, w.provider.head.ID)
		w.killAt("create", false) // sent, and shown only later
		subject := gate.Subject{Number: 7, Head: w.provider.head.ID, BaseRef: "refs/heads/main"}
		w.trust.revoke("a")
		w.run()
		w.wantEnd(gate.KindRefused, fencepost.ReasonRevoked)
		w.wantState(key, ledger.Staged)
		if w.known(subject) || w.note(key).Sent.IsZero() || !w.alerts.isOpen(gate.AlertInboxExpired) {
			t.Errorf("known %v, note %+v, alerts %v", w.known(subject), w.note(key), w.alerts.opened())
		}
		w.trust.add("b")
		w.provider.set(func(p *provider) { p.hide = 2 })
		if again := w.deliverAs(7, w.provider.head.ID, "b", ""); again != key {
			t.Fatal("the same bytes are another delivery")
		}
		w.run()
		w.wantRuns("success")
		w.wantState(key, ledger.Done)
		if w.provider.writes() != 1 || w.note(key) != (gate.Note{}) || w.alerts.isOpen(gate.AlertInboxExpired) {
			t.Errorf("%d writes, note %+v, alerts %v", w.provider.writes(), w.note(key), w.alerts.opened())
		}
	})
}

func TestWhatIsStagedOutlivesAChangeOfPolicy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		move func(p *provider)
		want []string
	}{
		{"result", func(*provider) {}, []string{"success"}},
		{"result of a gate that moved on", func(p *provider) { p.base = commit("55") }, nil},
		{"nothing to publish", func(p *provider) { p.state = fencepost.ReasonClosed }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				if tc.name == "nothing to publish" {
					w.provider.set(tc.move)
				}
				key := w.deliver(7, w.provider.head.ID)
				w.killAt("stage", false)
				w.provider.set(func(p *provider) { p.unwanted = true; tc.move(p) })
				w.run()
				w.wantRuns(tc.want...)
				w.wantState(key, ledger.Done)
			})
		})
	}
}

func TestWhatIsStagedWaitsForItsGate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		w.queue.alter(func(r *gate.Recorded) { r.Route = "gone" })
		p := w.start(nil)
		time.Sleep(100 * time.Hour)
		if w.queue.len() != 1 || !w.alerts.isOpen(gate.AlertRetriesExhausted) {
			t.Errorf("%d entries, alerts %v", w.queue.len(), w.alerts.opened())
		}
		w.queue.alter(func(r *gate.Recorded) { r.Route = "docs" })
		w.settle()
		p.end(t)
		w.wantRuns("success")
		if len(w.alerts.opened()) != 0 {
			t.Errorf("open alerts %v", w.alerts.opened())
		}
	})
}

func TestAWaitIsToldOfOnceAndItsAlertEndsWithIt(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"read", "note", "enter", "advance", "stage", "complete", "forget"} {
		for _, tc := range []struct {
			reason fencepost.Reason
			want   gate.AlertCode
		}{
			{fencepost.ReasonCorrupt, gate.AlertLedgerCorrupt},
			{fencepost.ReasonPoisoned, gate.AlertLedgerCorrupt},
			{fencepost.ReasonFull, gate.AlertLedgerCapacity},
			{fencepost.ReasonUnavailable, gate.AlertRetriesExhausted},
		} {
			if call == "read" && tc.reason == fencepost.ReasonCorrupt {
				continue // damaged for good: refused
			}
			if call == "enter" && tc.reason == fencepost.ReasonUnavailable {
				continue // an attempt, which is counted and recorded
			}
			t.Run(call+" "+string(tc.reason), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(t *testing.T, w *world) {
					w.limits.Attempts = 3
					w.deliver(7, w.provider.head.ID)
					fate := &mortality{fails: failing(call, reasonError(tc.reason))}
					p := w.start(fate)
					time.Sleep(8 * time.Minute)
					if !w.alerts.isOpen(tc.want) || len(w.alerts.all()) != 1 {
						t.Errorf("alerts %v, open %v, want one %s", w.alerts.all(), w.alerts.opened(), tc.want)
					}
					if n := strings.Count(w.logs.String(), "msg=waiting"); n > 1 {
						t.Errorf("told of %d times\n%s", n, w.logs)
					}
					if !strings.Contains(w.logs.String(), "reason="+string(tc.reason)) {
						t.Errorf("nothing is logged of it\n%s", w.logs)
					}
					fate.failWith(nil)
					w.settle()
					p.end(t)
					if len(w.alerts.opened()) != 0 {
						t.Errorf("open alerts %v", w.alerts.opened())
					}
				})
			})
		}
	}
}

func TestAnAlertThatIsSharedIsRaisedOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.provider.anyHead = true
		w.deliver(7, commitID("07"))
		w.deliver(8, commitID("08"))
		fate := &mortality{fails: failing("note", reasonError(fencepost.ReasonCorrupt))}
		p := w.start(fate)
		time.Sleep(5 * time.Minute)
		if got := w.alerts.all(); len(got) != 1 || got[0] != "ledger_corrupt:corrupt" {
			t.Errorf("two deliveries wait, alerts %v, want one", got)
		}
		fate.failWith(nil)
		w.settle()
		p.end(t)
		w.wantRuns("success", "success")
		if len(w.alerts.opened()) != 0 {
			t.Errorf("open alerts %v", w.alerts.opened())
		}
	})
}

func TestLeasesThatAreTooShortAreNotAskedForAllTheTime(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.ledger = ledgertest.NewMemory(ledgertest.MemoryConfig{Now: time.Now, Lease: 30 * time.Second})
		w.deliver(7, w.provider.head.ID)
		p := w.start(nil)
		time.Sleep(time.Hour)
		p.end(t)
		if n := strings.Count(w.journal.kinds(), "claimed"); n > 100 {
			t.Errorf("%d claims within the hour", n)
		}
		if !w.alerts.wasRaised("ledger_corrupt:parameters") || w.provider.writes() != 0 {
			t.Errorf("alerts %v, %d writes", w.alerts.all(), w.provider.writes())
		}
	})
}
