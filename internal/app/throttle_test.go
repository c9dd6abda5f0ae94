package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
)

// A lapsing lease is lost when it is not renewed within its window.
type lapsing struct {
	window   time.Duration
	deadline time.Time
}

var errLapsed = errors.New("the lease has lapsed")

func lease(window time.Duration) *lapsing {
	return &lapsing{window: window, deadline: time.Now().Add(window)}
}

func (l *lapsing) Renew(context.Context) (time.Duration, error) {
	if !time.Now().Before(l.deadline) {
		return 0, errLapsed
	}
	l.deadline = time.Now().Add(l.window)
	return l.window, nil
}

// A busyRunner takes its time, and renews once before it begins.
type busyRunner struct{ takes time.Duration }

func (r busyRunner) Run(ctx context.Context, j runner.Job) runner.Record {
	if _, err := j.Lease.Renew(ctx); err != nil {
		return runner.Record{Outcome: runner.Failed{Reason: fencepost.ReasonLost, Err: err}}
	}
	time.Sleep(r.takes)
	return runner.Record{Outcome: runner.Concluded{}}
}

// Waiting is a part of a run, and the lease must last through it (DESIGN §7).
func TestALeaseIsKeptWhileItsRunWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = 60 * time.Second
		tr := throttle{runner: busyRunner{3 * window}, room: make(chan struct{}, 1), now: time.Now}
		first := make(chan runner.Record, 1)
		go func() { first <- tr.Run(t.Context(), runner.Job{Lease: lease(window)}) }()
		synctest.Wait()
		second := tr.Run(t.Context(), runner.Job{Lease: lease(window)})
		for _, r := range []runner.Record{<-first, second} {
			if _, ok := r.Outcome.(runner.Concluded); !ok {
				t.Errorf("a run ended as %+v, want concluded", r.Outcome)
			}
		}
		if len(tr.room) != 0 {
			t.Errorf("%d places are still taken, want none", len(tr.room))
		}
	})
}

func TestARunThatWaitsForRoomEndsWithItsLeaseOrItsContext(t *testing.T) {
	t.Parallel()
	refused := runner.RenewerFunc(func(context.Context) (time.Duration, error) { return 0, errLapsed })
	for name, tc := range map[string]struct {
		lease  runner.Renewer
		within time.Duration
		reason fencepost.Reason
		cause  error
	}{
		"lease lost": {refused, time.Hour, fencepost.ReasonLost, errLapsed},
		"context":    {nil, 5 * time.Minute, fencepost.ReasonUnavailable, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := throttle{runner: busyRunner{}, room: make(chan struct{}, 1), now: time.Now}
				tr.room <- struct{}{} // nobody leaves
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				l := tc.lease
				if l == nil {
					l = lease(time.Minute)
				}
				failed, ok := tr.Run(ctx, runner.Job{Lease: l}).Outcome.(runner.Failed)
				if !ok || failed.Reason != tc.reason || !errors.Is(failed.Err, tc.cause) {
					t.Errorf("ended as %+v, want %s because of %v", failed, tc.reason, tc.cause)
				}
				if len(tr.room) != 1 {
					t.Errorf("%d places are taken, want the one of the run that goes on", len(tr.room))
				}
			})
		})
	}
}
