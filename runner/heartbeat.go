package runner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxHeartbeat is the longest time between two renewals (DESIGN §7).
const MaxHeartbeat = 5 * time.Second

// Keep renews the lease until ctx ends, halfway through each window that a
// renewal proved and at most [MaxHeartbeat] apart; it returns nil then. At the
// first renewal that fails, or that is not over when the window before it
// ends, it returns an error that matches [ErrLost]. It renews once right away.
func Keep(ctx context.Context, lease Renewer, now func() time.Time) error {
	h, err := beginHeartbeat(ctx, lease, now)
	if err != nil {
		return err
	}
	<-h.ctx.Done()
	return h.end()
}

// A heartbeat keeps one lease while a run lasts.
type heartbeat struct {
	lease Renewer
	now   func() time.Time
	// ctx ends when the lease is lost, with the cause, or with its parent.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed when the loop has returned.
	done chan struct{}
}

// beginHeartbeat proves the lease once before it returns.
func beginHeartbeat(ctx context.Context, lease Renewer, now func() time.Time) (*heartbeat, error) {
	h := &heartbeat{lease: lease, now: now, done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	first, err := h.renew(h.ctx)
	if err != nil {
		h.cancel(err)
		return nil, err
	}
	go h.loop(first)
	return h, nil
}

// end stops the loop, waits for it, and returns why the lease was lost, or nil
// if it was held all the time.
func (h *heartbeat) end() error {
	h.cancel(nil)
	<-h.done
	return h.lost()
}

// lost is why the lease is lost; nil while it is not.
func (h *heartbeat) lost() error {
	if l, ok := context.Cause(h.ctx).(*lostError); ok {
		return l
	}
	return nil
}

// A lostError tells our own cancellation from every other.
type lostError struct{ err error }

func (e *lostError) Error() string   { return fmt.Sprintf("%v: %v", ErrLost, e.err) }
func (e *lostError) Unwrap() []error { return []error{ErrLost, e.err} }

// A window is a time for which the lease is proven.
type window struct{ from, until time.Time }

// next is when the window has to be renewed.
func (w window) next() time.Time {
	return w.from.Add(min(w.until.Sub(w.from)/2, MaxHeartbeat))
}

func (h *heartbeat) loop(w window) {
	defer close(h.done)
	for {
		timer := time.NewTimer(w.next().Sub(h.now()))
		select {
		case <-h.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		following, err := h.renewWithin(w)
		if err != nil {
			h.cancel(err)
			return
		}
		w = following
	}
}

// renewWithin renews; when w ends before the answer is there the lease counts
// as lost at that moment, also if Renew has not noticed yet.
func (h *heartbeat) renewWithin(w window) (window, error) {
	ctx, cancel := context.WithTimeoutCause(h.ctx, w.until.Sub(h.now()), errWindow)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == errWindow {
			h.cancel(errWindow)
		}
	})()
	following, err := h.renew(ctx)
	if err != nil {
		return window{}, err
	}
	if !h.now().Before(w.until) {
		return window{}, errWindow
	}
	return following, nil
}

var errWindow = &lostError{errors.New("no answer within the proven window")}

// renew counts the window from before the call.
func (h *heartbeat) renew(ctx context.Context) (window, error) {
	from := h.now()
	valid, err := h.lease.Renew(ctx)
	if err != nil {
		return window{}, &lostError{err}
	}
	if valid <= 0 {
		return window{}, &lostError{fmt.Errorf("renewed for %v", valid)}
	}
	return window{from: from, until: from.Add(valid)}, nil
}
