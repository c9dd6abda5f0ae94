package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/ledger"
)

func unknown() error {
	return &fencepost.Error{Op: "create", Reason: fencepost.ReasonProvider, Err: fmt.Errorf("%w: cut", gate.ErrUnknown)}
}

func notYet(r fencepost.Reason) error {
	return &fencepost.Error{Op: "create", Reason: r, Err: fmt.Errorf("%w: 422", gate.ErrNotYet)}
}

// killAt runs a process that dies at the first call of that name, and waits
// until its lease has lapsed.
func (w *world) killAt(name string, before bool) {
	w.t.Helper()
	fate := &mortality{only: name, at: 1, before: before}
	p := w.start(fate)
	for range 600 {
		time.Sleep(time.Second)
		if fate.dead() {
			break
		}
	}
	if !fate.dead() {
		w.t.Fatalf("never came to %s\n%s", name, w.journal)
	}
	p.end(w.t)
	time.Sleep(2 * time.Minute)
}

func TestWhatIsStagedIsPublishedAfterARestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		w.wantRuns()
		w.program.set(func(p *program) { p.pass = false }) // a new run would block
		w.run()
		w.wantRuns("success")
		if n := w.program.count(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestWhatIsStagedIsNotPublishedOnceTheGateMoved(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		move func(p *provider)
	}{
		{"head", func(p *provider) { p.head = commit("44") }},
		{"base", func(p *provider) { p.base = commit("55") }},
		{"rule", func(p *provider) { p.rule++ }},
		{"closed", func(p *provider) { p.state = fencepost.ReasonClosed }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				w.killAt("stage", false)
				w.provider.set(tc.move)
				w.run()
				w.wantRuns()
				w.wantEnd(gate.KindEnded, fencepost.ReasonSuperseded)
				if w.provider.writes() != 0 {
					t.Errorf("%d writes", w.provider.writes())
				}
			})
		})
	}
}

func TestAStagedFailureWithoutAGateStaysWithItsHead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		move func(p *provider)
		want []string
	}{
		{"base moved", func(p *provider) { p.base = commit("55") }, []string{"failure provider"}},
		{"head moved", func(p *provider) { p.head = commit("44") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.limits.Attempts = 1
				w.provider.onRefresh = func(int) error { return reasonError(fencepost.ReasonProvider) }
				w.deliver(7, w.provider.head.ID)
				p := w.start(nil)
				time.Sleep(10 * time.Minute)
				if !strings.Contains(w.journal.kinds(), "staged") || w.provider.writes() != 0 {
					t.Errorf("transcript %s, %d writes", w.journal.kinds(), w.provider.writes())
				}
				w.provider.set(func(p *provider) { p.onRefresh = nil; tc.move(p) })
				w.settle()
				p.end(t)
				w.wantRuns(tc.want...)
			})
		})
	}
}

func TestAGateThatCantBeReadKeepsTheResultStaged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		w.provider.set(func(p *provider) {
			p.onRefresh = func(int) error { return reasonError(fencepost.ReasonProvider) }
		})
		p := w.start(nil)
		time.Sleep(time.Hour)
		w.wantRuns()
		if w.queue.len() != 1 || w.provider.writes() != 0 || !w.alerts.wasRaised("retries_exhausted:provider") {
			t.Errorf("%d entries, %d writes, alerts %v", w.queue.len(), w.provider.writes(), w.alerts.all())
		}
		w.provider.set(func(p *provider) { p.onRefresh = nil })
		w.settle()
		p.end(t)
		w.wantRuns("success")
		if w.alerts.isOpen(gate.AlertRetriesExhausted) {
			t.Errorf("open alerts %v", w.alerts.opened())
		}
	})
}

func TestTwoWorkersWithOneStagedResultPublishItOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		one, two := w.start(nil), w.start(nil)
		w.settle()
		one.end(t)
		two.end(t)
		w.wantRuns("success")
		if w.provider.writes() != 1 {
			t.Errorf("%d writes", w.provider.writes())
		}
	})
}

func TestALostAnswerIsLookedForNotRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// lost says of a write whether it fails before or after it counts.
		lost   func(n int) (before, after error)
		hide   int
		writes int
	}{
		{"taken", func(n int) (error, error) {
			if n == 1 {
				return nil, unknown()
			}
			return nil, nil
		}, 0, 1},
		{"taken, and lists lag behind", func(n int) (error, error) {
			if n == 1 {
				return nil, unknown()
			}
			return nil, nil
		}, 3, 1},
		{"not taken", func(n int) (error, error) {
			if n == 1 {
				return unknown(), nil
			}
			return nil, nil
		}, 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.provider.onCreate = tc.lost
				w.provider.onFind = func() error {
					if w.provider.creates == 1 && tc.hide > 0 {
						w.provider.hide = tc.hide
						tc.hide = 0
					}
					return nil
				}
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns("success")
				if w.provider.writes() != tc.writes {
					t.Errorf("%d writes, want %d", w.provider.writes(), tc.writes)
				}
			})
		})
	}
}

func TestAKillAroundTheWriteLeavesOneResult(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before %v", before), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				w.killAt("create", before)
				// Looked for more than once, since lists lag behind.
				w.provider.set(func(p *provider) { p.hide = 2 })
				w.run()
				w.wantRuns("success")
			})
		})
	}
}

func TestAfterTheProviderTookItOnlyCompleteIsTriedAgain(t *testing.T) {
	t.Parallel()
	t.Run("shown", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(t *testing.T, w *world) {
			w.deliver(7, w.provider.head.ID)
			w.killAt("complete", true)
			refreshes := w.provider.refreshes
			// Another gate by now: what was published was for the one before.
			w.provider.set(func(p *provider) { p.head = commit("44") })
			w.run()
			w.wantRuns("success")
			w.wantEnd(gate.KindEnded, fencepost.ReasonNone)
			if w.provider.refreshes != refreshes {
				t.Errorf("%d refreshes more", w.provider.refreshes-refreshes)
			}
		})
	})
	t.Run("not shown any more", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(t *testing.T, w *world) {
			w.deliver(7, w.provider.head.ID)
			w.killAt("complete", true)
			w.provider.set(func(p *provider) { p.results = nil })
			p := w.start(nil)
			time.Sleep(time.Hour)
			p.end(t)
			w.wantRuns()
			if w.provider.writes() != 1 || w.queue.len() != 1 || !w.alerts.isOpen(gate.AlertPublishConflict) {
				t.Errorf("%d writes, %d entries, alerts %v", w.provider.writes(), w.queue.len(), w.alerts.opened())
			}
		})
	})
}

func TestDuplicatesFailClosed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		w.provider.set(func(p *provider) { p.foreign = 2 })
		p := w.start(nil)
		time.Sleep(time.Hour)
		w.wantRuns()
		if w.provider.writes() != 0 || !w.alerts.isOpen(gate.AlertPublishConflict) {
			t.Errorf("%d writes, alerts %v", w.provider.writes(), w.alerts.opened())
		}
		p.end(t)
	})
}

func TestAnEndOfAnyKindEndsTheAlertsOfADelivery(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		broken := time.Now().Add(40 * time.Minute)
		alerted := false
		w.provider.onCreate = func(int) (error, error) {
			if time.Now().Before(broken) {
				return reasonError(fencepost.ReasonProvider), nil
			}
			alerted = alerted || w.alerts.isOpen(gate.AlertRetriesExhausted)
			return notYet(fencepost.ReasonCommitGone), nil
		}
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns()
		w.wantEnd(gate.KindEnded, fencepost.ReasonCommitGone)
		if !alerted || w.alerts.isOpen(gate.AlertRetriesExhausted) {
			t.Errorf("raised %v, open %v", w.alerts.all(), w.alerts.opened())
		}
	})
}

func TestACommitThatIsNotVisible(t *testing.T) {
	t.Parallel()
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(t *testing.T, w *world) {
			until := time.Now().Add(30 * time.Second)
			w.provider.onCreate = func(int) (error, error) {
				if time.Now().Before(until) {
					return notYet(fencepost.ReasonProvider), nil
				}
				return nil, nil
			}
			w.deliver(7, w.provider.head.ID)
			w.run()
			w.wantRuns("success")
		})
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(t *testing.T, w *world) {
			w.provider.onCreate = func(int) (error, error) { return notYet(fencepost.ReasonCommitGone), nil }
			w.deliver(7, w.provider.head.ID)
			w.run()
			w.wantRuns()
			w.wantEnd(gate.KindEnded, fencepost.ReasonCommitGone)
			if !w.alerts.wasRaised("provider:commit_gone") {
				t.Errorf("alerts %v", w.alerts.all())
			}
		})
	})
}

// TestAnyCrashLeavesOneResult kills the process at every call of every part,
// before and after the call had its effect, and lets another one go on.
func TestAnyCrashLeavesOneResult(t *testing.T) {
	t.Parallel()
	total := 0
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		fate := &mortality{}
		p := w.start(fate)
		w.settle()
		p.end(t)
		total = fate.calls
	})
	if total < 15 {
		t.Fatalf("%d calls in a whole evaluation", total)
	}
	for n := 1; n <= total; n++ {
		for _, before := range []bool{true, false} {
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				fate := &mortality{at: n, before: before}
				p := w.start(fate)
				time.Sleep(5 * time.Minute)
				p.end(t)
				w.run()
				if t.Failed() || len(w.provider.shown()) != 1 || w.provider.shown()[0].Conclusion != gate.Pass {
					t.Errorf("killed at call %d (%s, before %v): shown %v\n%s", n, fate.died, before, w.provider.shown(), w.journal)
				}
				if w.queue.len() != 0 {
					t.Errorf("killed at call %d (%s): %v left", n, fate.died, w.queue.left())
				}
			})
		}
	}
}

// TestAnyErrorOfAnyPartLeavesOneResult lets each call fail once, before or
// after its effect, while the process lives on.
func TestAnyErrorOfAnyPartLeavesOneResult(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"read", "note", "claim", "enter", "refresh", "fetch", "run", "renew", "put", "advance", "stage", "find", "create",
		"complete", "forget", "done",
	} {
		for n := 1; n <= 3; n++ {
			for _, before := range []bool{true, false} {
				inWorld(t, func(t *testing.T, w *world) {
					key := w.deliver(7, w.provider.head.ID)
					fate := &mortality{only: name, at: n, before: before, survives: true}
					if name == "create" {
						w.provider.onCreate = func(int) (error, error) { return nil, nil }
					}
					p := w.start(fate)
					w.settle()
					p.end(t)
					got := w.provider.shown()
					if len(got) != 1 || got[0].Conclusion != gate.Pass {
						t.Errorf("%s %d failed, before %v: shown %v\n%s", name, n, before, got, w.journal)
					}
					// What left the queue is done in the ledger too: nobody would
					// take it up any more.
					if row, _, err := w.ledger.Lookup(t.Context(), key); err != nil || row.State != ledger.Done || w.queue.len() != 0 {
						t.Errorf("%s %d failed, before %v: %v, %v, %d in the queue", name, n, before, row.State, err, w.queue.len())
					}
				})
			}
		}
	}
}

func TestPublishingEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{true, false} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				if restarted {
					w.killAt("stage", false)
				}
				var end time.Duration
				w.provider.set(func(p *provider) {
					p.inRefresh = func(ctx context.Context) {
						if at, ok := ctx.Deadline(); ok {
							end = time.Until(at)
						}
					}
				})
				w.run()
				w.wantRuns("success")
				if end <= 0 || end > time.Minute*7/8 {
					t.Errorf("the gate was read with %v left", end)
				}
			})
		})
	}
}

func TestNothingIsRememberedOfWhatIsDone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		key := w.deliver(7, w.provider.head.ID)
		w.run()
		if note := w.note(key); note != (gate.Note{}) {
			t.Errorf("note %+v", note)
		}
	})
}

// TestOurOwnShareIsNoWait: by the bubble's clock, all that passes from receipt
// to result is the provider's own time, and of that no more than is needed.
func TestOurOwnShareIsNoWait(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.provider.far = time.Second
		start := time.Now()
		w.deliver(7, w.provider.head.ID)
		p := w.start(nil)
		var took time.Duration
		for took < time.Minute && w.queue.len() > 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			took = time.Since(start)
		}
		p.end(t)
		w.wantRuns("success")
		// Two refreshes, a third one beside the look-up, and the write.
		if want := 4 * w.provider.far; took < want || took > want+time.Millisecond {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

func TestALookUpThatFindsLeavesNoReadingBehind(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		// As if an earlier process had written it and lost its note.
		row, _, err := w.ledger.Lookup(t.Context(), w.queue.keys()[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.provider.Create(t.Context(), row.Publication.Bytes()); err != nil {
			t.Fatal(err)
		}
		w.provider.set(func(p *provider) {
			p.onRefresh = func(int) error { return reasonError(fencepost.ReasonProvider) }
		})
		w.run()
		w.wantRuns("success")
		w.wantEnd(gate.KindEnded, fencepost.ReasonNone)
	})
}

// TestAWorkerThatWasOvertakenSendsNothing: between its look-up and its write
// another one had the delivery, and has announced a write of its own.
func TestAWorkerThatWasOvertakenSendsNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		key := w.deliver(7, commitID("11"))
		looks, before := 0, 0
		w.provider.onFind = func() error { looks++; return nil }
		w.provider.onCreate = func(int) (error, error) { before = looks; return nil, nil }
		refreshes := 0
		w.provider.inRefresh = func(ctx context.Context) {
			if refreshes++; refreshes != 3 { // the one before the write
				return
			}
			book, err := notebook.Open(w.disk.Process(), notebook.Limits{}, time.Now)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = book.Change(ctx, key, func(n *gate.Note) { n.Sent = time.Now() })
			if err := errors.Join(err, book.Close()); err != nil {
				t.Error(err)
			}
		}
		w.run()
		w.wantRuns("success")
		if w.provider.writes() != 1 || before < 4 {
			t.Errorf("%d writes, the first after %d looks, want one, after it was looked for as what may have been sent", w.provider.writes(), before)
		}
	})
}
