package gate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func TestWhatIsNoLongerAuthenticNeverBecomesWork(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		spoil func(w *world)
		want  fencepost.Reason
		alert string
	}{
		{"revoked key", func(w *world) { w.trust.revoke("a") }, fencepost.ReasonRevoked, "inbox_expired:revoked"},
		{"altered body", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) { r.Body = append(r.Body, 'x') })
		}, fencepost.ReasonTampered, "inbox_expired:tampered"},
		{"altered header", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) {
				r.Headers = fencepost.NewHeaders([]fencepost.Header{{Name: "x-signature", Value: "a:00"}})
			})
		}, fencepost.ReasonTampered, "inbox_expired:tampered"},
		{"altered anchor of a good request", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) { r.Anchor = "b" })
		}, fencepost.ReasonNone, ""},
		{"too old", func(*world) { time.Sleep(25 * time.Hour) }, fencepost.ReasonExpired, "inbox_expired:expired"},
		{"old enough to be work", func(*world) { time.Sleep(24 * time.Hour) }, fencepost.ReasonNone, ""},
		{"no longer wanted", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) { *r = w.record(7, "unwanted") })
		}, fencepost.ReasonEventNotHandled, "missed_delivery:event_not_handled"},
		{"gate gone from the configuration", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) { r.Route = "gone" })
		}, fencepost.ReasonExpired, "inbox_expired:expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				tc.spoil(w)
				p := w.start(nil)
				time.Sleep(25 * time.Hour)
				p.end(t)
				if w.queue.len() != 0 {
					t.Fatalf("left %v\n%s", w.queue.left(), w.journal)
				}
				if tc.want == fencepost.ReasonNone {
					w.wantRuns("success")
					return
				}
				w.wantRuns()
				w.wantEnd(gate.KindRefused, tc.want)
				if strings.Contains(w.journal.kinds(), "claimed") || w.program.count() != 0 {
					t.Errorf("it became work: %s", w.journal.kinds())
				}
				if !w.alerts.wasRaised(tc.alert) {
					t.Errorf("alerts %v, want %s", w.alerts.raised, tc.alert)
				}
				if e := w.journal.all()[0]; e.Delivery == "" {
					t.Errorf("event %+v does not name its delivery", e)
				}
			})
		})
	}
}

// A verifier that can't tell yet refuses nobody: the delivery waits, for as
// long as one may.
func TestWhatCantBeVerifiedYetWaits(t *testing.T) {
	t.Parallel()
	pending := &fencepost.Error{Op: "verify", Reason: fencepost.ReasonUnavailable, Err: errors.New("no key yet")}
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.trust.failing(pending)
		p := w.start(nil)
		time.Sleep(3 * time.Hour)
		if w.queue.len() != 1 || strings.Contains(w.journal.kinds(), "claimed") {
			t.Fatalf("left %v\n%s", w.queue.left(), w.journal)
		}
		w.trust.failing(nil)
		w.settle()
		p.end(t)
		w.wantRuns("success")
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.trust.failing(pending)
		p := w.start(nil)
		time.Sleep(25 * time.Hour)
		p.end(t)
		if w.queue.len() != 0 {
			t.Fatalf("left %v", w.queue.left())
		}
		w.wantRuns()
		w.wantEnd(gate.KindRefused, fencepost.ReasonExpired)
	})
}

func TestWhatIsRefusedInMidFlowIsUnknownAgain(t *testing.T) {
	t.Parallel()
	for _, spoil := range []func(w *world){
		func(w *world) { w.trust.revoke("a") },
		func(w *world) { w.queue.alter(func(r *gate.Recorded) { r.Body = append(r.Body, 'x') }) },
	} {
		inWorld(t, func(t *testing.T, w *world) {
			key := w.deliver(7, w.provider.head.ID)
			w.killAt("stage", true)
			subject := gate.Subject{Number: 7, Head: w.provider.head.ID, BaseRef: "refs/heads/main"}
			if !w.known(subject) {
				t.Error("not known while it is worked on")
			}
			spoil(w)
			w.run()
			w.wantRuns()
			if w.known(subject) || w.note(key) != (gate.Note{}) {
				t.Errorf("known %v, note %+v: healing would not ask for it", w.known(subject), w.note(key))
			}
		})
	}
}

func TestARefusalIsRecordedBeforeItIsForgotten(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.trust.revoke("a")
		w.journal.setFail(errors.New("disk full"))
		p := w.start(nil)
		time.Sleep(10 * time.Minute)
		if w.queue.len() != 1 {
			t.Error("forgotten unrecorded")
		}
		w.journal.setFail(nil)
		w.settle()
		p.end(t)
		w.wantEnd(gate.KindRefused, fencepost.ReasonRevoked)
	})
}

func TestAJournalThatFailsStopsNoWork(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.journal.setFail(errors.New("disk full"))
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("success")
	})
}

func TestWorkThatHasBegunMayTakeLonger(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("put", true)
		time.Sleep(40 * time.Hour)
		w.run()
		w.wantRuns("success")
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("put", true)
		time.Sleep(73 * time.Hour)
		w.run()
		w.wantRuns()
		w.wantEnd(gate.KindRefused, fencepost.ReasonExpired)
	})
}

func TestABusyDeliveryIsWaitedFor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.takes = 40 * time.Second
		w.deliver(7, w.provider.head.ID)
		one := w.start(nil)
		time.Sleep(time.Second)
		two := w.start(nil)
		w.settle()
		one.end(t)
		two.end(t)
		w.wantRuns("success")
		if n := w.program.count(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestADeadWorkersDeliveryIsTakenOver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.takes = 30 * time.Second
		w.deliver(7, w.provider.head.ID)
		fate := &mortality{}
		one := w.start(fate)
		time.Sleep(10 * time.Second)
		fate.kill()
		two := w.start(nil)
		w.settle()
		one.end(t)
		two.end(t)
		w.wantRuns("success")
	})
}

func TestARepeatWakesWhatWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		down := true
		w.provider.onRefresh = func(int) error {
			if down {
				return &gate.WaitError{Until: time.Now().Add(12 * time.Hour), Err: reasonError(fencepost.ReasonRateLimited)}
			}
			return nil
		}
		key := w.deliver(7, w.provider.head.ID)
		p := w.start(nil)
		time.Sleep(10 * time.Minute)
		w.provider.set(func(*provider) { down = false })
		if !p.pool.Wake(key) {
			t.Error("nothing waits")
		}
		synctest.Wait()
		w.wantRuns("success")
		if p.pool.Wake(key) {
			t.Error("something waits after the end")
		}
		p.end(t)
	})
}

func TestAFullLedgerIsAnAnswer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.ledger = ledgertest.NewMemory(ledgertest.MemoryConfig{Now: time.Now, Capacity: 1})
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.deliver(8, w.provider.head.ID)
		p := w.start(nil)
		time.Sleep(time.Hour)
		if w.queue.len() != 1 || !w.alerts.isOpen(gate.AlertLedgerCapacity) {
			t.Errorf("%d entries, alerts %v", w.queue.len(), w.alerts.opened())
		}
		p.end(t)
		w.wantRuns("success")
	})
}

func TestDrainLetsWorkEndWithinItsTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		takes time.Duration
		runs  int
	}{{"in time", 20 * time.Second, 1}, {"too long", 50 * time.Second, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.limits.Drain = 30 * time.Second
				w.program.takes = tc.takes
				w.deliver(7, w.provider.head.ID)
				p := w.start(nil)
				time.Sleep(time.Second)
				w.deliver(7, commitID("77"))
				time.Sleep(4 * time.Second)
				start := time.Now()
				p.end(t)
				if took := time.Since(start); took > 31*time.Second {
					t.Errorf("drained in %v", took)
				}
				if got := len(w.provider.shown()); got != tc.runs {
					t.Errorf("%d results\n%s", got, w.journal)
				}
				// What was not begun, or was cut off, is recorded still.
				if left := w.queue.len(); left != 2-tc.runs {
					t.Errorf("%d left", left)
				}
				w.program.set(func(p *program) { p.takes = 0 })
				w.run()
				w.wantRuns("success")
				if n := strings.Count(w.journal.kinds(), "ended:superseded"); n != 1 {
					t.Errorf("%d superseded", n)
				}
			})
		})
	}
}

func TestManyDeliveriesWithManyDeaths(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		const many = 60
		w.limits.Workers = 8
		w.provider.anyHead = true
		w.program.takes = 2 * time.Second
		for n := range int64(many) {
			w.deliver(n+1, commitID(fmt.Sprintf("%02x", n+1)))
		}
		for i := range 6 {
			fate := &mortality{at: 40 + 37*i, before: i%2 == 0}
			p := w.start(fate)
			time.Sleep(3 * time.Minute)
			p.end(t)
		}
		w.run()
		seen := map[int64]int{}
		for _, v := range w.provider.shown() {
			seen[v.Subject.Number]++
		}
		for n := range int64(many) {
			if seen[n+1] != 1 {
				t.Errorf("request %d has %d results", n+1, seen[n+1])
			}
		}
	})
}
