package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost"
)

// A Watchdog ends what dead workers left and judges freshness. Every process
// has one, on a ticker of its own: it depends on no queue and no leader, and
// two at once do no harm.
type Watchdog struct {
	// Store holds the rows. Required.
	Store Store
	// Sources are those of the configuration. Required.
	Sources map[fencepost.SourceID]*Source
	// Random draws run ids. Required.
	Random io.Reader
	// Every is the pause between two rounds; default 30 s, and never more than
	// the shortest Timings.Evaluate of the sources.
	Every time.Duration
	// Beat, where set, is called after each whole round: the heartbeat whose
	// absence says that nobody watches.
	Beat func(ctx context.Context)
	// OnError takes the error of a round, which is followed by the next one.
	// Required.
	OnError func(error)
}

// Run watches until ctx ends. Its error is always nil: a watchdog that stops
// at an error would be none.
func (w *Watchdog) Run(ctx context.Context) error {
	tick := time.NewTicker(w.every())
	defer tick.Stop()
	for {
		if err := w.Round(ctx); err != nil && ctx.Err() == nil {
			w.OnError(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *Watchdog) every() time.Duration {
	every := w.Every
	if every <= 0 {
		every = fencepost.DefaultTimings.Evaluate
	}
	for _, src := range w.Sources {
		every = min(every, src.Timings.Evaluate)
	}
	return every
}

// Round judges freshness first, then ends what is stale. It does all that it
// can, and returns the errors of the rest.
func (w *Watchdog) Round(ctx context.Context) error {
	err := errors.Join(w.Freshness(ctx), w.stale(ctx))
	if err == nil && w.Beat != nil {
		w.Beat(ctx)
	}
	return err
}

// watched is how many sources one listing gives; a round goes on while it is
// full, up to the number of sources.
const watched = 256

// Freshness raises and resolves what the ages call for. Start calls it before
// any other work, so that the time in which nobody watched counts.
func (w *Watchdog) Freshness(ctx context.Context) error {
	if len(w.Sources) == 0 {
		return nil
	}
	after := fencepost.MaxFreshness
	for _, src := range w.Sources {
		after = min(after, src.Timings.AlertAfter, stuckAfter(src.Timings))
	}
	return w.each(ctx, "judge freshness", func() ([]fencepost.SourceID, error) {
		return w.Store.Unfresh(ctx, after, len(w.Sources)+watched)
	}, func(s Snapshot, src *Source, _ fencepost.RunID) Change { return OnFreshness(s, src.Policy) })
}

func (w *Watchdog) stale(ctx context.Context) error {
	age := fencepost.DefaultTimings.QueueAge
	for _, src := range w.Sources {
		age = min(age, src.Timings.QueueAge)
	}
	return w.each(ctx, "end what is stale", func() ([]fencepost.SourceID, error) {
		return w.Store.Stale(ctx, age, watched)
	}, func(s Snapshot, src *Source, id fencepost.RunID) Change { return OnWatch(s, src.Policy, id) })
}

func (w *Watchdog) each(
	ctx context.Context, what string, list func() ([]fencepost.SourceID, error),
	decide func(Snapshot, *Source, fencepost.RunID) Change,
) error {
	ids, err := list()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var errs []error
	for _, id := range ids {
		src, ok := w.Sources[id]
		if !ok {
			continue
		}
		run, err := fencepost.NewRunID(w.Random)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := w.Store.Change(ctx, id, Lookup{}, func(s Snapshot) (Change, error) { return decide(s, src, run), nil }); err != nil {
			errs = append(errs, fmt.Errorf("%s: source %s: %w", what, src.Key, err))
		}
	}
	return errors.Join(errs...)
}
