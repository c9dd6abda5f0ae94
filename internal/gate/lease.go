package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
)

// errDraining is the cause for which work is cancelled at the end of the drain
// time.
var errDraining = errors.New("the pool is stopping")

// A tenure is an execution lease while it is worked under. It is safe for
// concurrent use.
type tenure struct {
	ledger   fencepost.Ledger
	delivery fencepost.AcceptedDelivery

	// renewing is held over a renewal, so that two never cross.
	renewing sync.Mutex

	mu sync.Mutex
	// Guarded by mu, for which nobody waits longer than a moment:
	lease fencepost.Lease
	lost  error
}

var _ runner.Renewer = (*tenure)(nil)

// Renew implements [runner.Renewer]. The first failure is the end of the
// lease, whatever the ledger would say later: invariant 8.
func (t *tenure) Renew(ctx context.Context) (time.Duration, error) {
	t.renewing.Lock()
	defer t.renewing.Unlock()
	lease, lost := t.state()
	if lost != nil {
		return 0, lost
	}
	bounded, cancel := context.WithTimeout(ctx, lease.Window()/4)
	defer cancel()
	answer, err := t.ledger.Renew(bounded, t.delivery, lease)
	switch a := answer.(type) {
	case fencepost.Renewed:
		if err == nil {
			t.set(a.Lease, nil)
			return a.Lease.Window(), nil
		}
	case fencepost.Lost:
		err = errors.Join(err, errors.New("the ledger says so"))
	}
	if ctx.Err() != nil {
		// Nobody waits for this one any more; it proved nothing either way.
		return 0, errorf("renew", fencepost.ReasonLost, "%w: %w", runner.ErrLost, context.Cause(ctx))
	}
	err = errorf("renew", fencepost.ReasonLost, "%w: %w", runner.ErrLost, err)
	t.set(lease, err)
	return 0, err
}

// current returns the lease as it was last renewed, also while it is renewed.
func (t *tenure) current() fencepost.Lease {
	lease, _ := t.state()
	return lease
}

func (t *tenure) state() (fencepost.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease, t.lost
}

func (t *tenure) set(lease fencepost.Lease, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease, t.lost = lease, lost
}

// errDone is the cause for which the renewing ends when what it was for has.
var errDone = errors.New("done")

// during does something while the lease is renewed. What is done is cancelled
// when the lease is lost, and has failed with [fencepost.ReasonLost] then,
// whatever it says itself.
func (t *tenure) during(ctx context.Context, now func() time.Time, do func(ctx context.Context) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(runner.Keep(inner, t, now))
	}()
	err := do(inner)
	// A renewal that this cuts off says nothing about the lease.
	cancel(errDone)
	<-ended
	if cause := context.Cause(inner); cause != errDone && context.Cause(ctx) == nil {
		return &fencepost.Error{Op: "keep lease", Reason: fencepost.ReasonLost, Err: cause}
	}
	return why(ctx, err)
}

// why returns err, or what ended ctx before it where that is why.
func why(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil || cause == nil:
		return err
	case errors.Is(cause, errDraining):
		return &fencepost.Error{Op: "work", Reason: fencepost.ReasonDraining, Err: cause}
	}
	return &fencepost.Error{Op: "work", Reason: fencepost.ReasonUnavailable, Err: fmt.Errorf("%w: %w", cause, err)}
}
