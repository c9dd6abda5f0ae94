package fileledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// A Stat counts what a ledger holds.
type Stat struct {
	// UUID is the root's.
	UUID [16]byte
	// Shards is the number of logs.
	Shards int
	// Rows are counted by state; Capacity is the most there can be.
	Leased, Staged, Done, Capacity int
	// Bytes is what rows are charged with, of at most MaxBytes: see
	// [Config.MaxBytes].
	Bytes, MaxBytes int64
	// Segments is the number of log files that hold frames.
	Segments int
	// LSN is the highest of all shards: how many changes the busiest one has
	// seen.
	LSN uint64
	// Full counts shards that have no room for a new row.
	Full int
}

// Rows is the number of all rows.
func (s Stat) Rows() int { return s.Leased + s.Staged + s.Done }

// Stat counts the rows of all shards, as they stand in the log. Shards that
// are corrupt are left out; the error, which matches [ErrCorrupt], then names
// each, beside what the others hold.
func (l *Ledger) Stat(ctx context.Context) (Stat, error) {
	st := Stat{UUID: l.super.uuid, Shards: l.super.shards, Capacity: l.cfg.Capacity, MaxBytes: l.cfg.MaxBytes}
	var errs []error
	for n := range l.shards {
		// Of this shard's own: where ctx ends first, its loop still fills it.
		part := new(Stat)
		o := &op{do: func(_ context.Context, s *shard) error { return s.stat(part) }}
		if err := l.enqueue(ctx, n, o); err != nil {
			errs = append(errs, err)
			continue
		}
		st.add(part)
	}
	return st, opError("ledger.stat", errors.Join(errs...))
}

// add adds what one shard counted.
func (s *Stat) add(part *Stat) {
	s.Leased += part.Leased
	s.Staged += part.Staged
	s.Done += part.Done
	s.Bytes += part.Bytes
	s.Segments += part.Segments
	s.LSN = max(s.LSN, part.LSN)
	s.Full += part.Full
}

func (s *shard) stat(st *Stat) error {
	full, err := s.noRoom(s.led.cfg.Instant())
	if err != nil {
		return err
	}
	if full {
		st.Full++
	}
	st.Leased += s.state.counts[ledger.Leased]
	st.Staged += s.state.counts[ledger.Staged]
	st.Done += s.state.counts[ledger.Done] + s.state.tabled()
	st.Bytes += s.state.bytes()
	st.Segments += int(s.log.hdr.Segment-s.state.from) + 1
	st.LSN = max(st.LSN, s.log.next.LSN-1)
	return nil
}

// A Health says what is wrong with a ledger; see [ledger.Health]. Corrupt are
// shards.
type Health = ledger.Health

// Health looks at memory alone.
func (l *Ledger) Health() Health {
	const name = "ledger.health"
	h := Health{Poisoned: opError(name, l.root.Err()), Corrupt: map[int]error{}, Failing: map[int]error{}}
	for _, s := range l.shards {
		if p := s.broken.Load(); p != nil {
			h.Corrupt[s.number] = opError(name, *p)
		} else if p := s.failing.Load(); p != nil && p.passes > 1 {
			h.Failing[s.number] = opError(name, p.err)
		}
	}
	var upkeep []error
	for _, s := range l.shards {
		if p := s.upkeep.Load(); p != nil {
			upkeep = append(upkeep, *p)
		}
	}
	h.Maintenance = errors.Join(upkeep...)
	return h
}

// CleanUp removes the rows that may be removed: done, and past their bounded
// replay end on both clocks. It also runs by itself; see [Config.Maintain].
func (l *Ledger) CleanUp(ctx context.Context) error {
	return l.everywhere(ctx, "ledger.clean-up", func(ctx context.Context, s *shard) error { return s.removeRows(ctx) })
}

// Compact writes a snapshot of each shard and removes the log before it. It
// also happens by itself, when a log has grown.
func (l *Ledger) Compact(ctx context.Context) error {
	var errs []error
	for n := range l.shards {
		errs = append(errs, l.enqueue(ctx, n, &op{after: (*shard).compactNow}))
	}
	return opError("ledger.compact", errors.Join(errs...))
}

// everywhere runs f in every shard's loop, under its append lock.
func (l *Ledger) everywhere(ctx context.Context, name string, f func(context.Context, *shard) error) error {
	var errs []error
	for n := range l.shards {
		errs = append(errs, l.enqueue(ctx, n, &op{do: f}))
	}
	return opError(name, errors.Join(errs...))
}

// rowsPage is how many rows Rows takes out of a shard at a time.
const rowsPage = 1024

// Rows goes through all rows: shard by shard, each sorted by key. A row that
// comes, goes or changes meanwhile may be seen as before or as after. An
// error ends the iteration, except that a corrupt shard's is followed by the
// next shard's rows.
func (l *Ledger) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] {
	return func(yield func(ledger.Row, error) bool) {
		for n := range l.shards {
			err := l.shardRows(ctx, n, func(r ledger.Row, _ time.Duration) bool { return yield(r, nil) })
			if errors.Is(err, errStopped) {
				return
			}
			if err == nil {
				continue
			}
			err = opError("ledger.rows", err)
			if !yield(ledger.Row{}, err) || fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
				return
			}
		}
	}
}

// errStopped: whoever iterates has had enough.
var errStopped = errors.New("stopped")

// shardRows goes through the rows of a shard, each with the shard's running
// time when it was read.
func (l *Ledger) shardRows(ctx context.Context, n int, yield func(ledger.Row, time.Duration) bool) error {
	var c *cursor
	start := func(_ context.Context, s *shard) error {
		c = startCursor(s.state)
		return nil
	}
	if err := l.enqueue(ctx, n, &op{do: start}); err != nil {
		return err
	}
	for !c.end {
		var page []ledger.Row
		var running time.Duration
		o := &op{do: func(_ context.Context, s *shard) (err error) {
			running = s.state.stamp.running
			page, err = c.page(s.state, rowsPage)
			return err
		}}
		if err := l.enqueue(ctx, n, o); err != nil {
			return err
		}
		for _, r := range page {
			if !yield(r, running) {
				return errStopped
			}
		}
	}
	return nil
}

func compareKeys(a, b fencepost.DeliveryKey) int { return bytes.Compare(a[:], b[:]) }

// A cursor goes through a shard's rows in the order of their keys, while they
// change and move from memory to the table.
type cursor struct {
	keys  []fencepost.DeliveryKey // of what was in memory at first, still to come
	after fencepost.DeliveryKey   // the last one that was seen
	end   bool
}

// page returns up to limit of the next rows.
func (c *cursor) page(s *state, limit int) ([]ledger.Row, error) {
	old, err := s.done.after(c.after, limit)
	if err != nil {
		return nil, err
	}
	more := len(old) == limit
	rows := make([]ledger.Row, 0, limit)
	for len(rows) < limit {
		fromTable := len(old) > 0 && (len(c.keys) == 0 || compareKeys(old[0].Key, c.keys[0]) <= 0)
		switch {
		case fromTable && s.retired[old[0].Trust]:
			c.after, old = old[0].Key, old[1:]
		case fromTable:
			if len(c.keys) > 0 && old[0].Key == c.keys[0] {
				c.keys = c.keys[1:] // it has moved there
			}
			rows = append(rows, old[0])
			c.after, old = old[0].Key, old[1:]
		case more && len(old) == 0:
			return rows, nil // what the table holds next is not read yet
		case len(c.keys) == 0:
			c.end = true
			return rows, nil
		default:
			r, err := s.row(c.keys[0])
			if err != nil {
				return nil, err
			}
			if r.State != ledger.Unclaimed {
				rows = append(rows, r)
			}
			c.after, c.keys = c.keys[0], c.keys[1:]
		}
	}
	return rows, nil
}

// after returns up to limit rows whose keys come after key.
func (t *doneTable) after(key fencepost.DeliveryKey, limit int) ([]ledger.Row, error) {
	var rows []ledger.Row
	if t == nil {
		return nil, nil
	}
	// The block before the first whose first key is above key may hold
	// later keys too.
	first := sort.Search(t.blocks(), func(i int) bool {
		return bytes.Compare(t.prefix(i), key[:indexKeyBytes]) >= 0
	}) - 1
	for block := max(first, 0); block < t.blocks() && len(rows) < limit; block++ {
		raw, err := t.block(block)
		if err != nil {
			return nil, err
		}
		for size := t.layout.rowSize; len(raw) > 0; raw = raw[size:] {
			if bytes.Compare(raw[:len(key)], key[:]) <= 0 {
				continue
			}
			r, err := t.decode(block, raw[:size])
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows[:min(len(rows), limit)], nil
}

// String is for people.
func (s Stat) String() string {
	return fmt.Sprintf("%d of %d rows (%d leased, %d staged, %d done), %d bytes of %d, %d shards, %d segments",
		s.Rows(), s.Capacity, s.Leased, s.Staged, s.Done, s.Bytes, s.MaxBytes, s.Shards, s.Segments)
}
