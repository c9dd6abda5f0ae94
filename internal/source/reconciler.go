package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
)

// A Reconciler observes sources whose time has come. Several processes may
// have one each: the store gives each source to one at a time.
type Reconciler struct {
	// Store holds the rows. Required.
	Store Store
	// Sources are those of the configuration. Required.
	Sources map[fencepost.SourceID]*Source
	// Random draws run ids. Required.
	Random io.Reader
	// Now is the process's clock. Required.
	Now func() time.Time
	// Log takes what goes wrong. Required.
	Log *slog.Logger
	// Parallel is how many observations are under way at a time; default 16.
	Parallel int
	// Batch is how many sources are claimed, and stored, at a time; default 64.
	Batch int
	// Jitter is a number of [0, 1) that spreads the observations; rand.Float64
	// where it is nil.
	Jitter func() float64
}

// Tick observes every source that is due, batch by batch, until none is or
// ctx ends. Its error is the store's.
func (r *Reconciler) Tick(ctx context.Context) error {
	for {
		n, err := r.round(ctx)
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
		if n < r.batch() || ctx.Err() != nil {
			return nil
		}
	}
}

func (r *Reconciler) batch() int {
	if r.Batch > 0 {
		return r.Batch
	}
	return 64
}

func (r *Reconciler) parallel() int {
	if r.Parallel > 0 {
		return r.Parallel
	}
	return 16
}

// claim is how long a batch is claimed for: its sources are observed parallel at
// a time, each for as long as the longest observation may take.
func (r *Reconciler) claim() time.Duration {
	var longest time.Duration
	for _, src := range r.Sources {
		longest = max(longest, src.Timings.Observe)
	}
	return longest * time.Duration(2+r.batch()/r.parallel())
}

// A sighting is one observation of a round.
type sighting struct {
	src  *Source
	row  SourceRow
	head fencepost.CommitID
	// began is when the look did, by the process's clock.
	began time.Time
	err   error
}

// round observes one batch and returns how many sources it had.
func (r *Reconciler) round(ctx context.Context) (int, error) {
	rows, err := r.Store.Due(ctx, r.batch(), r.claim())
	if err != nil {
		return 0, err
	}
	seen := make([]sighting, len(rows))
	var group errgroup.Group
	group.SetLimit(r.parallel())
	for i, row := range rows {
		src, ok := r.Sources[row.ID]
		if !ok || src.Revision != row.Revision {
			// Of another process's configuration: left to it until its claim ends.
			continue
		}
		group.Go(func() error {
			began := r.Now()
			defer caught(r.Log, src, func() { seen[i] = sighting{src: src, row: row, began: began, err: errPanic} })
			o, err := bounded(ctx, src.Timings.Observe, src.Remote.Observe)
			seen[i] = sighting{src: src, row: row, head: o.Head, began: began, err: err}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return len(rows), nil
	}
	return len(rows), r.store(ctx, seen)
}

// store writes a round down: what had no news in one transaction, the rest one
// by one.
func (r *Reconciler) store(ctx context.Context, seen []sighting) error {
	var quiet []Check
	var errs []error
	for _, s := range seen {
		switch {
		case s.src == nil:
		case s.err == nil && unremarkable(s.row, s.head):
			quiet = append(quiet, Check{Source: s.row, Observed: s.head, Next: r.next(s.src)})
		default:
			if err := r.decide(ctx, s); err != nil {
				errs = append(errs, fmt.Errorf("source %s: %w", s.src.Key, err))
			}
		}
	}
	if len(quiet) > 0 {
		errs = append(errs, r.Store.Checked(ctx, quiet))
	}
	return errors.Join(errs...)
}

// unremarkable: there is nothing to decide, and no alert to resolve.
func unremarkable(row SourceRow, head fencepost.CommitID) bool {
	return head == row.Applied && row.AppliedRevision == row.Revision && row.UnmetSince.IsZero() &&
		row.Trouble == fencepost.ReasonNone
}

func (r *Reconciler) decide(ctx context.Context, s sighting) error {
	id, err := fencepost.NewRunID(r.Random)
	if err != nil {
		return err
	}
	p := s.src.Policy
	o := Observed{Head: s.head, Reason: reasonOf(ctx, s.err), Age: r.Now().Sub(s.began), Next: r.next(s.src), NewRun: id}
	if s.err != nil {
		r.Log.Warn("observation failed", "source", string(p.Key), "reason", string(o.Reason))
	} else if o.Named, err = r.Store.Named(ctx, p.ID, s.head); err != nil {
		return err
	}
	// The window of the row's time, not of ours: what matters is that all
	// processes name it alike.
	var key string
	for {
		again := false
		err := r.Store.Change(ctx, p.ID, Lookup{Request: key}, func(s Snapshot) (Change, error) {
			if w := Window(s.Now, p); w != key {
				key, again = w, true
				return Change{}, nil
			}
			again = false
			return OnObservation(s, p, o)
		})
		if errors.Is(err, ErrRevision) {
			return nil
		}
		if err != nil || !again {
			return err
		}
	}
}

// next is the pause until a source's next observation. It is a twelfth less
// than the policy's, as the next tick comes up to so much later, and up to a
// further eighth, so that many don't keep step.
func (r *Reconciler) next(src *Source) time.Duration {
	jitter := r.Jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	every := src.Timings.Reconcile
	return every - every/12 - time.Duration(jitter()*float64(every/8))
}
