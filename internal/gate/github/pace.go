package github

import (
	"context"
	"time"
)

// A pacer lets one write go at a time, and none sooner than the interval after
// the one before. contracts/github.md §5
type pacer struct {
	now      func() time.Time
	interval time.Duration
	// slot holds the one permission with the time of the last write's end.
	slot chan time.Time
}

func newPacer(interval time.Duration, now func() time.Time) *pacer {
	p := &pacer{now: now, interval: interval, slot: make(chan time.Time, 1)}
	p.slot <- time.Time{}
	return p
}

// begin waits for the turn. The caller calls done when its write has ended.
// The wait is bounded by ctx alone.
func (p *pacer) begin(ctx context.Context) (done func(), err error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case last := <-p.slot:
		if err := pause(ctx, min(last.Add(p.interval).Sub(p.now()), p.interval)); err != nil {
			p.slot <- last
			return nil, err
		}
		return func() { p.slot <- p.now() }, nil
	}
}

// pause waits for d, or for the end of ctx and returns its cause.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
