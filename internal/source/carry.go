package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// errTimeout is the cause of what took longer than the policy allows.
var errTimeout = &fencepost.Error{
	Op: "source run", Reason: fencepost.ReasonTimeout, Err: errors.New("took longer than the policy allows"),
}

// carryOut is one attempt between its beginning and its end: it proves the
// head, fetches it, and gives it to the sink. It holds no transaction.
func (w *Worker) carryOut(ctx context.Context, src *Source, b Began) result {
	head, err := w.prove(ctx, src, b)
	if err != nil {
		return w.trouble(ctx, err)
	}
	at := b.Source
	if head == at.Applied && at.AppliedRevision == src.Revision {
		return result{ending: Ending{Status: Unchanged, Head: head, Tree: at.AppliedTree}}
	}
	checkout, err := w.fetch(ctx, src, head)
	if err != nil {
		return w.trouble(ctx, err)
	}
	tree, cost := checkout.Tree(), checkout.Stats()
	applied, err := w.apply(ctx, src, b.Hold, checkout)
	if err != nil {
		r := w.trouble(ctx, err)
		r.trouble.Touched = true
		return r
	}
	e := Ending{Status: Complete, Head: head, Tree: tree, Counts: applied.Counts, Refused: applied.Refused}
	e.Counts.Wire, e.Leftover = cost.WireBytes, applied.Leftover != nil
	switch {
	case len(applied.Refused) > 0:
		e.Status, e.Reason = Partial, fencepost.ReasonContent
	case applied.Unchanged:
		e.Status = Unchanged
	}
	return result{ending: e, cost: cost}
}

// bounded runs one step within its own time.
func bounded[T any](ctx context.Context, limit time.Duration, step func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	v, err := step(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return v, err
}

// prove finds the head and holds it against what was announced, what was
// applied, and the policy. An older or superseded commit is never applied.
func (w *Worker) prove(ctx context.Context, src *Source, b Began) (fencepost.CommitID, error) {
	o, err := bounded(ctx, src.Timings.Observe, src.Remote.Observe)
	if err != nil {
		return fencepost.CommitID{}, fmt.Errorf("observe: %w", err)
	}
	at := b.Source
	if !src.AcceptUnannounced && o.Head != at.Applied {
		named, err := w.Store.Named(ctx, src.ID, o.Head)
		if err != nil {
			return fencepost.CommitID{}, fmt.Errorf("look for the announcement: %w", err)
		}
		if !named {
			return fencepost.CommitID{}, refuse(fencepost.ReasonUnannouncedHead)
		}
	}
	if err := w.covers(ctx, src, o.Head, at); err != nil {
		return fencepost.CommitID{}, err
	}
	return o.Head, w.follows(ctx, src, o.Head, at)
}

// covers holds the head against the last announcement: a provider that shows
// yesterday's head has not answered.
func (w *Worker) covers(ctx context.Context, src *Source, head fencepost.CommitID, at SourceRow) error {
	if at.Announced.IsZero() || at.Announced == head {
		return nil
	}
	how, err := w.relate(ctx, src, head, at.Announced)
	if err != nil {
		return err
	}
	switch how {
	case Same, Ahead:
		return nil
	case Behind:
		return refuse(fencepost.ReasonHeadContradiction)
	case Apart, Unknown:
		// Either the head is old, or what was announced was forced away since:
		// a further look tells, unless nobody knows how the two stand. Then it
		// is for a policy that takes forced branches.
		again := head == at.Applied || how == Apart && head == at.Observed
		patience := time.Duration(0)
		if how == Unknown && head == at.Applied {
			// A provider that lags shows just that, for as long as it does: nothing
			// is settled before somebody was told. From AlertAfter on that may still
			// wait for the next evaluation, and this would end what it is about.
			patience = fencepost.Total(src.Timings.Sums().Alert)
		}
		if again && at.ObservedAt.Sub(at.AnnouncedAt) >= patience || head != at.Applied && src.AcceptForced {
			return nil
		}
		return refuse(fencepost.ReasonHeadContradiction)
	}
	return refuse(fencepost.ReasonHeadContradiction)
}

// follows holds the head against what was applied.
func (w *Worker) follows(ctx context.Context, src *Source, head fencepost.CommitID, at SourceRow) error {
	if at.Applied.IsZero() || at.Applied == head {
		return nil
	}
	how, err := w.relate(ctx, src, head, at.Applied)
	if err != nil {
		return err
	}
	switch how {
	case Same, Ahead:
		return nil
	case Behind:
		// Moved back by force, or an answer of yesterday: an announcement alone
		// tells them apart.
		if src.AcceptForced && head == at.Announced {
			return nil
		}
		return refuse(fencepost.ReasonHeadContradiction)
	case Apart, Unknown:
		if src.AcceptForced {
			return nil
		}
		return refuse(fencepost.ReasonNotFastForward)
	}
	return refuse(fencepost.ReasonNotFastForward)
}

func (w *Worker) relate(ctx context.Context, src *Source, head, other fencepost.CommitID) (Ancestry, error) {
	how, err := bounded(ctx, src.Timings.Observe, func(ctx context.Context) (Ancestry, error) {
		return src.Remote.Contains(ctx, head, other)
	})
	if err != nil {
		return 0, fmt.Errorf("relate heads: %w", err)
	}
	return how, nil
}

func refuse(why fencepost.Reason) error {
	return &fencepost.Error{Op: "prove head", Reason: why, Err: errors.New(string(why))}
}

// fetch gets the head's tree to where the sink wants it.
func (w *Worker) fetch(ctx context.Context, src *Source, head fencepost.CommitID) (*gitfetch.Checkout, error) {
	return bounded(ctx, src.Timings.Checkout, func(ctx context.Context) (*gitfetch.Checkout, error) {
		place, err := src.Sink.Place(ctx)
		if err != nil {
			return nil, fmt.Errorf("prepare sink: %w", err)
		}
		checkout, err := src.Remote.Fetch(ctx, head, place)
		if err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
		return checkout, nil
	})
}

// apply gives the checkout to the sink, which owns it from then on.
func (w *Worker) apply(ctx context.Context, src *Source, h Hold, c *gitfetch.Checkout) (Applied, error) {
	return bounded(ctx, src.Timings.Sink, func(ctx context.Context) (Applied, error) {
		applied, err := src.Sink.Apply(ctx, Application{
			Hold: h, Revision: src.Revision, Checkout: c,
			Guard: func(ctx context.Context) error { return w.Store.Holds(ctx, h) },
		})
		if err != nil {
			return Applied{}, fmt.Errorf("apply: %w", err)
		}
		return applied, nil
	})
}

// trouble turns an attempt's error into what is stored of it.
func (w *Worker) trouble(ctx context.Context, err error) result {
	t := &Trouble{
		Reason:   reasonOf(ctx, err),
		Leftover: errors.Is(err, ErrLeftover) || errors.Is(err, gitfetch.ErrCleanup),
	}
	var budget *gitfetch.BudgetError
	var sink *SinkError
	var behind *BehindError
	switch {
	case errors.As(err, &behind) && !errors.Is(context.Cause(ctx), ErrLost):
		// Whether the hold stands, the store knows: then it is the sink that
		// knows of more fences.
		t.Reason, t.Detail, t.Seen = fencepost.ReasonSuperseded, "fence", behind.Seen
	case errors.As(err, &sink):
		t.Detail = sink.Detail
	case errors.As(err, &budget):
		// Another attempt would use as much.
		t.Detail = string(budget.Budget)
		if t.Reason == fencepost.ReasonAcquisition && !passing(budget.Budget) {
			t.Reason = fencepost.ReasonContent
		}
	}
	return result{trouble: t}
}

// passing says whether another attempt may well stay within a budget.
func passing(b gitfetch.Budget) bool {
	return b == gitfetch.BudgetConnect || b == gitfetch.BudgetIdle || b == gitfetch.BudgetTotal
}

// reasonOf is the reason of an attempt's error: that the hold is gone comes
// first, then that the process stops, then what the step says.
func reasonOf(ctx context.Context, err error) fencepost.Reason {
	var sink *SinkError
	switch {
	case errors.Is(err, ErrLost) || errors.Is(context.Cause(ctx), ErrLost):
		return fencepost.ReasonLost
	case errors.Is(err, errTimeout) || errors.Is(context.Cause(ctx), errTimeout):
		return fencepost.ReasonTimeout
	case ctx.Err() != nil:
		return fencepost.ReasonDraining
	case errors.As(err, &sink):
		return sink.Reason
	}
	return fencepost.ReasonOf(err)
}
