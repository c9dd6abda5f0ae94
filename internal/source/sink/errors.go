package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
)

// sinkError turns what went wrong into what a [source.Sink] returns: a lost
// hold as it is, and everything else with its reason and a word of detail,
// unless it has them already.
func sinkError(ctx context.Context, detail string, err error) error {
	if err == nil || errors.Is(err, source.ErrLost) {
		return err
	}
	if _, ok := errors.AsType[*source.SinkError](err); ok {
		return err
	}
	reason := fencepost.ReasonUnavailable
	switch {
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded), ctx.Err() == context.DeadlineExceeded:
		reason = fencepost.ReasonTimeout
	case errors.Is(err, durable.ErrNoSpace):
		reason, detail = fencepost.ReasonFull, DetailRoom
	case errors.Is(err, durable.ErrPoisoned):
		reason, detail = fencepost.ReasonPoisoned, DetailSync
	case errors.Is(err, errSync):
		detail = DetailSync
	case errors.Is(err, errState):
		reason, detail = fencepost.ReasonCorrupt, DetailState
	case errors.Is(err, errForeign), errors.Is(err, errNotOurs):
		detail = DetailPlace
	}
	return &source.SinkError{Reason: reason, Detail: detail, Err: err}
}

// guarded proves the hold. Whatever is not a proof is a loss, but for the end
// of the sink's own time.
func guarded(ctx context.Context, guard func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err := guard(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, source.ErrLost):
		return fmt.Errorf("prove hold: %w: %w", context.Cause(ctx), err)
	}
	return fmt.Errorf("prove hold: %w: %w", source.ErrLost, err)
}

// leftover is err as something that could not be removed.
func leftover(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", source.ErrLeftover, err)
}

// checked refuses an application that lacks what every sink needs.
func checked(a source.Application) error {
	switch {
	case a.Checkout == nil || a.Guard == nil || a.Revision.IsZero():
		return &source.SinkError{
			Reason: fencepost.ReasonUnavailable, Detail: DetailCheckout,
			Err: fmt.Errorf("application without checkout, guard or revision: %w", fencepost.ErrZeroValue),
		}
	case a.Hold.Fence == 0:
		return fmt.Errorf("application without a fence: %w", source.ErrLost)
	}
	return nil
}
