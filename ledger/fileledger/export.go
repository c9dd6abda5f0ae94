package fileledger

import (
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

// A Held is a ledger that nobody has open and that nobody can open until it is
// closed. It is read as it stands; nothing is changed but by [Held.Leave]. It
// implements [ledger.Source].
type Held struct {
	dir    durable.FS
	super  superblock
	held   durable.File
	moved  ledger.Move
	isCopy bool
	shards []*shard
	// running is each shard's running time.
	running []time.Duration
}

var _ ledger.Source = (*Held)(nil)

// Hold takes the ledger in a directory for itself. Its error matches
// [ledger.ErrInUse] while a process has it open, [durable.ErrPoisoned] after a
// failed sync, or is one of [Open]'s; a ledger that was moved can be held.
func Hold(ctx context.Context, dir string) (*Held, error) {
	h, err := holdIn(ctx, durable.OS(filepath.Clean(dir)))
	return h, opError("ledger.hold", err)
}

func holdIn(ctx context.Context, dir durable.FS) (_ *Held, err error) {
	super, err := inspect(dir)
	if err != nil && !errors.Is(err, ledger.ErrMoved) && !errors.Is(err, ErrCopy) {
		return nil, err
	}
	h := &Held{dir: dir, super: super, isCopy: errors.Is(err, ErrCopy)}
	if h.held, err = hold(dir, durable.Exclusive); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.moved, err = readMove(dir, movedName); err != nil || !h.moved.IsZero() {
		return h, err
	}
	if err := nobodyHas(dir); err != nil {
		return nil, err
	}
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if err := root.Close(); err != nil {
		return nil, err
	}
	// Of a copy, inspect has not looked at them.
	if err := checkLocks(dir, super); err != nil {
		return nil, err
	}
	return h, h.read(ctx)
}

// read reads every shard.
func (h *Held) read(ctx context.Context) error {
	for n := range h.super.shards {
		s, err := h.shard(ctx, n)
		if err != nil {
			return err
		}
		h.shards = append(h.shards, s)
		h.running = append(h.running, s.state.stamp.running)
	}
	return nil
}

func (h *Held) shard(ctx context.Context, n int) (*shard, error) {
	s := stillShard(h.dir, h.super, n)
	var err error
	if s.log.head.file, err = h.dir.OpenFile(shardDir(n)+"/"+headName, os.O_RDONLY, 0); err != nil {
		return nil, permission(shardDir(n)+"/"+headName, err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, errors.Join(err, s.closeStill())
	}
	if err := s.read(); err != nil {
		return nil, errors.Join(s.log.corrupt(err), s.closeStill())
	}
	return s, nil
}

// stillShard is a shard that is only read.
func stillShard(dir durable.FS, super superblock, n int) *shard {
	// Nobody asks it what it may know, so its glance is of no size.
	s := &shard{led: &Ledger{super: super}, number: n, glance: newGlance(0)}
	s.log = log{
		dir: durable.Sub(dir, shardDir(n)), name: shardDir(n),
		id: frame.Log{UUID: super.uuid, Shard: uint32(n)}, flag: os.O_RDONLY,
	}
	s.log.head.seed = logSeed(s.log.id)
	return s
}

func (s *shard) closeStill() error {
	err := s.log.close()
	if s.state != nil {
		err = errors.Join(err, s.state.done.close())
	}
	return err
}

// IsCopy reports whether it is a copy for safe keeping: see [ErrCopy].
func (h *Held) IsCopy() bool { return h.isCopy }

// Head implements [ledger.Source]. Of a copy, the fence is the highest that it
// knows of: its original's when the copy was begun, or a later row's.
func (h *Held) Head(ctx context.Context) (ledger.Head, error) {
	head := h.super.head()
	for _, s := range h.shards {
		// Also the LSN that a torn tail may have borne.
		s.addTo(&head, s.log.pos.LSN)
	}
	if !h.isCopy {
		return head, nil
	}
	head.Fence -= min(head.Fence, ledger.CopyFences)
	for r, err := range h.Rows(ctx) {
		if err != nil {
			return ledger.Head{}, err
		}
		head.Fence = max(head.Fence, r.Fence.Uint64())
	}
	return head, nil
}

// head is what a root was made with.
func (s superblock) head() ledger.Head {
	return ledger.Head{UUID: s.uuid, Lease: s.lease, Capacity: s.capacity, Window: s.window}
}

// addTo adds what a shard knows to a head. No fence of it is above lsn.
func (s *shard) addTo(head *ledger.Head, lsn uint64) {
	addTo(head, lsn, s.state.closed, maps.Keys(s.state.retired))
}

func addTo(head *ledger.Head, fence uint64, closed time.Time, retired iter.Seq[ledger.TrustMark]) {
	head.Fence = max(head.Fence, fence)
	head.Closed = later(head.Closed, closed)
	for mark := range retired {
		if at, found := slices.BinarySearchFunc(head.Retired, mark, compareMarks); !found {
			head.Retired = slices.Insert(head.Retired, at, mark)
		}
	}
}

func compareMarks(a, b ledger.TrustMark) int { return slices.Compare(a[:], b[:]) }

// Rows implements [ledger.Source].
func (h *Held) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] {
	each := make([]iter.Seq2[ledger.Row, error], len(h.shards))
	for n, s := range h.shards {
		each[n] = func(yield func(ledger.Row, error) bool) {
			c := startCursor(s.state)
			for !c.end {
				page, err := c.page(s.state, rowsPage)
				if err == nil {
					err = context.Cause(ctx)
				}
				if err != nil {
					yield(ledger.Row{}, s.log.corrupt(err))
					return
				}
				for _, r := range page {
					if !yield(ledger.Still(r, h.running[n]), nil) {
						return
					}
				}
			}
		}
	}
	return merge(each)
}

// merge puts rows that are sorted by key in each of several places into one
// order. An error ends it.
func merge(each []iter.Seq2[ledger.Row, error]) iter.Seq2[ledger.Row, error] {
	type place struct {
		row  ledger.Row
		next func() (ledger.Row, error, bool)
	}
	return func(yield func(ledger.Row, error) bool) {
		var places []*place
		for _, rows := range each {
			next, stop := iter.Pull2(rows)
			defer stop()
			places = append(places, &place{next: next})
		}
		// A place goes when its rows have ended.
		advance := func(p *place) (ok bool, err error) {
			p.row, err, ok = p.next()
			return ok, err
		}
		for i := 0; i < len(places); {
			ok, err := advance(places[i])
			switch {
			case err != nil:
				yield(ledger.Row{}, err)
				return
			case !ok:
				places = slices.Delete(places, i, i+1)
			default:
				i++
			}
		}
		for len(places) > 0 {
			least := 0
			for i, p := range places {
				if compareKeys(p.row.Key, places[least].row.Key) < 0 {
					least = i
				}
			}
			if !yield(places[least].row, nil) {
				return
			}
			ok, err := advance(places[least])
			if err != nil {
				yield(ledger.Row{}, err)
				return
			}
			if !ok {
				places = slices.Delete(places, least, least+1)
			}
		}
	}
}

// Moved implements [ledger.Source].
func (h *Held) Moved(context.Context) (ledger.Move, error) { return h.moved, nil }

// Leave implements [ledger.Source].
func (h *Held) Leave(_ context.Context, m ledger.Move) error {
	// The rename of the mark is the one step: see [durable.WriteFile].
	return opError("ledger.leave", durable.WriteFile(h.dir, movedName, encodeMove(m)))
}

// Close lets the ledger go.
func (h *Held) Close() error {
	var errs []error
	for _, s := range h.shards {
		errs = append(errs, s.closeStill())
	}
	return errors.Join(append(errs, h.held.Close())...)
}

// Snapshot gives rows and head of a ledger that goes on meanwhile, for a copy:
// rows as [ledger.Still] tells them, in the order of their keys, each as it was
// at some time while they were read. head reads what the ledger is when it is
// called: only after the rows does it surely know of every fence that they
// hold.
func (l *Ledger) Snapshot(ctx context.Context) (rows iter.Seq2[ledger.Row, error], head func() (ledger.Head, error)) {
	each := make([]iter.Seq2[ledger.Row, error], len(l.shards))
	for n := range l.shards {
		each[n] = func(yield func(ledger.Row, error) bool) {
			err := l.shardRows(ctx, n, func(r ledger.Row, running time.Duration) bool {
				return yield(ledger.Still(r, running), nil)
			})
			if err != nil && !errors.Is(err, errStopped) {
				yield(ledger.Row{}, opError("ledger.snapshot", err))
			}
		}
	}
	return merge(each), func() (ledger.Head, error) { return l.head(ctx) }
}

func (l *Ledger) head(ctx context.Context) (ledger.Head, error) {
	head := l.super.head()
	for n := range l.shards {
		// Of this shard's own: where ctx ends first, its loop still fills it.
		part := new(ledger.Head)
		o := &op{do: func(_ context.Context, s *shard) error {
			s.addTo(part, s.log.next.LSN)
			return nil
		}}
		if err := l.enqueue(ctx, n, o); err != nil {
			return ledger.Head{}, opError("ledger.head", err)
		}
		addTo(&head, part.Fence, part.Closed, slices.Values(part.Retired))
	}
	return head, nil
}

// startCursor begins to go through a state's rows.
func startCursor(s *state) *cursor {
	c := &cursor{keys: make([]fencepost.DeliveryKey, 0, len(s.rows))}
	for key := range s.rows {
		c.keys = append(c.keys, key)
	}
	slices.SortFunc(c.keys, compareKeys)
	return c
}
