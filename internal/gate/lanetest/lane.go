package lanetest

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// The methods of a lane by which calls are told apart.
const (
	spanRefresh = "refresh"
	spanFind    = "find"
	spanCreate  = "create"
	spanRetract = "retract"
	spanEnded   = "ended"
)

// A named is a lane whose calls say which of its methods makes them. What a lane
// does not implement does nothing, as the orchestrator has it.
type named struct {
	gate.Lane
	// process is told of each end that the lane is told of.
	told                            func(d fencepost.DeliveryID, why fencepost.Reason)
	refreshes, finds, creates, rest atomic.Int64
}

func span(ctx context.Context, name string, n *atomic.Int64) context.Context {
	return context.WithValue(ctx, spanKey{}, name+" "+strconv.FormatInt(n.Add(1), 10))
}

// Refresh implements [gate.Refresher].
func (l *named) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	return l.Lane.Refresh(span(ctx, spanRefresh, &l.refreshes), s)
}

// Find implements [gate.Publisher].
func (l *named) Find(ctx context.Context, document []byte) (gate.Published, bool, error) {
	return l.Lane.Find(span(ctx, spanFind, &l.finds), document)
}

// Create implements [gate.Publisher].
func (l *named) Create(ctx context.Context, document []byte) (gate.Published, error) {
	return l.Lane.Create(span(ctx, spanCreate, &l.creates), document)
}

// Retract implements [gate.Retracter].
func (l *named) Retract(ctx context.Context, document []byte) error {
	if r, ok := l.Lane.(gate.Retracter); ok {
		return r.Retract(span(ctx, spanRetract, &l.rest), document)
	}
	return nil
}

// Ended implements [gate.Awaited].
func (l *named) Ended(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	l.told(d, why)
	if a, ok := l.Lane.(gate.Awaited); ok {
		return a.Ended(span(ctx, spanEnded, &l.rest), d, why)
	}
	return nil
}
