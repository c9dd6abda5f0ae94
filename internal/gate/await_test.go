package gate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// waiting keeps what was told to who waits: of each delivery, the first.
type waiting struct {
	mu sync.Mutex
	// Guarded by mu:
	told  map[fencepost.DeliveryID]fencepost.Reason
	calls int
	// onTell is called first, with the number of the call from 1.
	onTell func(n int) error
}

func (w *waiting) reason(d fencepost.DeliveryID) (fencepost.Reason, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why, ok := w.told[d]
	return why, ok
}

// An awaitedLane is a lane whose sender waits.
type awaitedLane struct {
	mortalLane
	waiting *waiting
}

func (l awaitedLane) Ended(_ context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	_, err := call(l.fate, "ended", func() (struct{}, error) {
		w := l.waiting
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls++
		if w.onTell != nil {
			if err := w.onTell(w.calls); err != nil {
				return struct{}{}, err
			}
		}
		if _, ok := w.told[d]; !ok {
			w.told[d] = why
		}
		return struct{}{}, nil
	})
	return err
}

func awaitedWorld(w *world) *waiting {
	w.waiting = &waiting{told: map[fencepost.DeliveryID]fencepost.Reason{}}
	return w.waiting
}

func TestEveryEndIsToldToWhoWaits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		spoil func(w *world)
		want  fencepost.Reason
	}{
		{"a result", func(*world) {}, fencepost.ReasonNone},
		{"superseded", func(w *world) { w.provider.set(func(p *provider) { p.state = fencepost.ReasonClosed }) }, fencepost.ReasonClosed},
		{"revoked key", func(w *world) { w.trust.revoke("a") }, fencepost.ReasonRevoked},
		{"altered", func(w *world) {
			w.queue.alter(func(r *gate.Recorded) { r.Body = append(r.Body, 'x') })
		}, fencepost.ReasonTampered},
		{"too old", func(*world) { time.Sleep(25 * time.Hour) }, fencepost.ReasonExpired},
		{"no longer wanted", func(w *world) { w.provider.set(func(p *provider) { p.unwanted = true }) }, fencepost.ReasonEventNotHandled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				told := awaitedWorld(w)
				key := w.deliver(7, w.provider.head.ID)
				told.onTell = func(int) error {
					if w.queue.len() != 1 {
						t.Error("told after the delivery has left the queue")
					}
					return nil
				}
				tc.spoil(w)
				w.run()
				if why, ok := told.reason(key.ID()); !ok || why != tc.want || told.calls != 1 {
					t.Errorf("told %v %q, %d times; want %q once\n%s", ok, why, told.calls, tc.want, w.journal)
				}
			})
		})
	}
}

// Where no gate is known there is no lane that could tell, and no route at
// which anybody could ask.
func TestAnEndOfNoGateIsToldToNobody(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		told := awaitedWorld(w)
		w.deliver(7, w.provider.head.ID)
		w.queue.alter(func(r *gate.Recorded) { r.Route = "gone" })
		p := w.start(nil)
		time.Sleep(25 * time.Hour)
		p.end(t)
		if w.queue.len() != 0 || told.calls != 0 {
			t.Errorf("%d left, %d told", w.queue.len(), told.calls)
		}
	})
}

func TestAnEndThatCantBeToldIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		told := awaitedWorld(w)
		key := w.deliver(7, w.provider.head.ID)
		told.onTell = func(n int) error {
			if n < 4 {
				return &fencepost.Error{Op: "tell", Reason: fencepost.ReasonFull, Err: errors.New("no room")}
			}
			return nil
		}
		w.run()
		if why, ok := told.reason(key.ID()); !ok || why != fencepost.ReasonNone || told.calls != 4 {
			t.Errorf("told %v %q, after %d times", ok, why, told.calls)
		}
		w.wantRuns("success")
		if n := w.program.count(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	})
}

// Whatever call a process dies at on the way to the end, the end is told, and
// as what it was first.
func TestACrashAroundTheEndLeavesItTold(t *testing.T) {
	t.Parallel()
	for _, state := range []fencepost.Reason{fencepost.ReasonNone, fencepost.ReasonClosed} {
		for _, at := range []string{"complete", "ended", "forget", "done"} {
			for _, before := range []bool{true, false} {
				t.Run(fmt.Sprintf("%q at %s, before %v", state, at, before), func(t *testing.T) {
					t.Parallel()
					inWorld(t, func(t *testing.T, w *world) {
						told := awaitedWorld(w)
						key := w.deliver(7, w.provider.head.ID)
						w.provider.set(func(p *provider) { p.state = state })
						w.killAt(at, before)
						w.run()
						why, ok := told.reason(key.ID())
						// Only who dies between the ledger's end and telling it
						// does not know any more why it ended.
						lost := at == "complete" && !before || at == "ended" && before
						if !ok || why != state && !(lost && why == fencepost.ReasonNone) {
							t.Errorf("told %v %q, want %q\n%s", ok, why, state, w.journal)
						}
						if n := w.program.count(); n > 1 {
							t.Errorf("%d runs", n)
						}
					})
				})
			}
		}
	}
}
