package sourcedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// Errors of [Store.Change], beside those of [source.Store].
var (
	// ErrTaken: a fence of a run, delivery, request or job stands already for
	// something else. Nothing was stored.
	ErrTaken = errors.New("a fence stands for something else already")
	// ErrIllegal: the transition asked for what no row may become; a bug of
	// the transition. Nothing was stored.
	ErrIllegal = errors.New("illegal change")
)

// errMissed: a row is not what was read any more. The transaction is tried
// again.
var errMissed = fmt.Errorf("a row changed since it was read: %w", store.ErrBusy)

// An Enqueuer puts jobs into a queue in the same database.
type Enqueuer interface {
	// Enqueue inserts the job in tx, unless it is waiting there already. It
	// may be called for the same job again, never with another payload.
	Enqueue(ctx context.Context, tx *sql.Tx, j source.JobRow) error
}

// Hooks hear of what was stored, after it was. They are called by the
// goroutine that stored it, and must not block; nil ones are not called.
type Hooks struct {
	// Alert hears of each alert that was raised while none of its code and
	// source was open, and of each that was resolved.
	Alert func(Alert)
	// Job hears of each job that was put in the queue, so that a queue of this
	// process can be woken.
	Job func(source.JobRow)
}

// An Alert is what is known of one code and source.
type Alert struct {
	Source fencepost.SourceID
	source.AlertRow
	// Since is when it was raised; Until when it was resolved, zero while it
	// is open.
	Since, Until time.Time
	// Raised counts how often a change that stored something raised it since;
	// 1 or more.
	Raised int64
}

// Open reports whether the cause is there, as far as is known.
func (a Alert) Open() bool { return a.Until.IsZero() }

// A Store implements [source.Store]. It is safe for concurrent use.
type Store struct {
	db    *store.DB
	queue Enqueuer
	hooks Hooks
	// optimistic leaves out the row lock that only says who waits.
	optimistic bool
}

var _ source.Store = (*Store)(nil)

// New returns a store in a database, with a queue in the same one.
func New(db *store.DB, q Enqueuer, h Hooks) *Store { return &Store{db: db, queue: q, hooks: h} }

// A Bound makes changes in one transaction. It means nothing after the
// function that it was given to has returned, and is not safe for concurrent
// use.
type Bound struct {
	s    *Store
	tx   *store.Tx
	memo map[fencepost.SourceID]int64
	// alerts and jobs are told to the hooks once they are stored.
	alerts []Alert
	jobs   []source.JobRow
}

// Change is [Store.Change] as part of the transaction: of its errors those that
// match [store.ErrBusy] must be returned by the function, which is then called
// again.
func (b *Bound) Change(ctx context.Context, id fencepost.SourceID, l source.Lookup, t source.Transition) error {
	snap, err := b.read(ctx, id, l)
	if err != nil {
		return err
	}
	change, err := t(snap)
	if err != nil {
		return err
	}
	if err := legal(snap, change); err != nil {
		return err
	}
	if change, err = b.effective(ctx, id, change); err != nil || nothing(change) {
		return err
	}
	return b.settled(id, snap.Source.Version, b.store(ctx, snap, change))
}

// settled sorts a refusal by a unique constraint: the first time the row may
// have come after the snapshot, and the transition is to see it; with the same
// snapshot again it never will.
func (b *Bound) settled(id fencepost.SourceID, version int64, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	if seen, ok := b.memo[id]; ok && seen == version {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	b.memo[id] = version
	return errMissed
}

// Change implements [source.Store].
func (s *Store) Change(ctx context.Context, id fencepost.SourceID, l source.Lookup, t source.Transition) error {
	return s.Together(ctx, func(ctx context.Context, b *Bound) error { return b.Change(ctx, id, l, t) })
}

// Group implements [source.Store].
func (s *Store) Group(ctx context.Context, fn func(context.Context, source.Changer) error) error {
	return s.Together(ctx, func(ctx context.Context, b *Bound) error { return fn(ctx, b) })
}

// Together runs fn, whose changes are stored all or not at all. It may be
// called several times. Errors are those of fn and of [Store.Change].
func (s *Store) Together(ctx context.Context, fn func(ctx context.Context, b *Bound) error) error {
	memo := map[fencepost.SourceID]int64{}
	var b *Bound
	err := s.db.Write(ctx, "change source", func(ctx context.Context, tx *store.Tx) error {
		b = &Bound{s: s, tx: tx, memo: memo}
		return fn(ctx, b)
	})
	if err != nil {
		return contended(err)
	}
	for _, a := range b.alerts {
		if s.hooks.Alert != nil {
			s.hooks.Alert(a)
		}
	}
	for _, j := range b.jobs {
		if s.hooks.Job != nil {
			s.hooks.Job(j)
		}
	}
	return nil
}

// contended says so of an error that is nothing but others' changes.
func contended(err error) error {
	if errors.Is(err, errMissed) {
		return fmt.Errorf("%w: %w", source.ErrContention, err)
	}
	return err
}
