package fileledger

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

const (
	// queueLength is how many operations wait at a shard before further ones
	// wait to wait.
	queueLength = 1024
	// maxBatch is how many operations share one pass over the locks.
	maxBatch = 512
	// admitPercent of the byte bound is for new rows; the rest is kept for
	// what is known.
	admitPercent = 90
	// failedRetry is when a shard whose last pass failed tries another by
	// itself, so that it is known soon whether it keeps failing.
	failedRetry = time.Second
	// spareRetry is how long a disk that had no room is not asked again.
	spareRetry = time.Second
)

// An op waits at a shard. Exactly one of req, key, do and after is set.
type op struct {
	req ledger.Request
	key fencepost.DeliveryKey
	// do runs in the shard's loop, under the append lock, on the state as it
	// is now.
	do func(context.Context, *shard) error
	// after runs in the shard's loop when the pass has ended, without locks.
	after func(*shard, context.Context) error

	answer ledger.Answer
	row    ledger.Row
	err    error
	done   chan struct{}
}

// shard is one log with the state that it says. All but the first fields is
// owned by its loop.
type shard struct {
	led    *Ledger
	number int
	limit  int   // rows
	bytes  int64 // see Config.MaxBytes
	queue  chan *op

	// broken is why the shard serves nothing any more; nil while it does.
	broken atomic.Pointer[error]
	// failing is how its last passes failed; nil if the last one did not.
	failing atomic.Pointer[failure]
	// upkeep is what went wrong in the last round of maintenance.
	upkeep atomic.Pointer[error]

	glance *glance
	// seen: every key of the log before this LSN is in the glance, or it is
	// blind. While reading, toRead is the next block of the table to be put in.
	seen    uint64
	reading bool
	toRead  int

	log   log
	state *state
	// stale: memory may be ahead of the log, or was never read.
	stale bool
	torn  bool // set by load: the log ends in an unfinished write
	noNew ledger.Instant
	full  bool // the disk had no room for a spare segment, at noNew

	compactAfter ledger.Instant // no compaction before
	making       *making        // nil while no snapshot is made
	frames       int64          // that were read

	scratch []byte
}

// A failure is a row of passes that failed, and the last one's error. One that
// came while writing is not over before something was written.
type failure struct {
	passes  int
	writing bool
	err     error
}

// owner is the number of the shard that a key belongs to.
func (s *shard) owner(key fencepost.DeliveryKey) int { return s.led.owner(key) }

// run serves the queue until ctx ends.
func (s *shard) run(ctx context.Context) {
	tick, stop := s.led.ticker()
	defer stop()
	s.start(ctx)
	batch := make([]*op, 0, maxBatch)
	for {
		select {
		case <-ctx.Done():
			s.note(s.failed(s.giveUp()))
			s.drain()
			return
		case <-tick:
			s.maintain(ctx)
		case <-s.again():
			s.tryAgain(ctx)
		case first := <-s.queue:
			batch = append(batch[:0], first)
			batch = s.gather(batch)
			s.serve(ctx, batch)
			s.tidy(ctx)
			s.aside(ctx)
		case <-s.idle():
			if len(s.queue) == 0 && ctx.Err() == nil {
				s.aside(ctx)
			}
		}
	}
}

// start reads the log, so that health is known before the first operation.
func (s *shard) start(ctx context.Context) {
	err := s.pass(ctx, nil)
	if err == nil {
		err = s.failed(s.locked(ctx, s.removeTemps))
	}
	s.note(err)
}

// idle fires at once while there is something to do aside.
func (s *shard) idle() <-chan time.Time {
	if s.making == nil && !s.reading {
		return nil
	}
	return time.After(0)
}

// aside does a piece of long work, of which there is one between two batches:
// nobody waits for more than that.
func (s *shard) aside(ctx context.Context) {
	switch {
	case s.broken.Load() != nil || s.led.root.Err() != nil:
		s.reading = false
		s.note(s.failed(s.giveUp()))
	case s.making != nil:
		s.note(s.failed(s.retryLater(s.goOn(ctx))))
	case s.reading:
		s.note(s.failed(s.readOn()))
	}
}

// again fires when a pass that failed is due to be tried once more.
func (s *shard) again() <-chan time.Time {
	if s.failing.Load() == nil || s.led.cfg.Maintain < 0 {
		return nil
	}
	return time.After(failedRetry)
}

// tryAgain does what the failed pass could not: read, or also write.
func (s *shard) tryAgain(ctx context.Context) {
	var try []*op
	if s.failing.Load().writing {
		try = []*op{{do: func(ctx context.Context, s *shard) error { return s.appendTick(ctx) }}}
	}
	_ = s.pass(ctx, try) // it keeps its error for Health
}

// gather takes what else is waiting.
func (s *shard) gather(batch []*op) []*op {
	for len(batch) < maxBatch {
		select {
		case o := <-s.queue:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// drain refuses what is left in the queue.
func (s *shard) drain() {
	for {
		select {
		case o := <-s.queue:
			o.err = ErrClosed
			close(o.done)
		default:
			return
		}
	}
}

// serve does one pass for a batch and gives the answers.
func (s *shard) serve(ctx context.Context, batch []*op) {
	err := s.pass(ctx, batch)
	for _, o := range batch {
		if err != nil {
			o.err = err
		} else if o.after != nil {
			o.err = s.failed(o.after(s, ctx))
		}
		close(o.done)
	}
}

// pass carries a batch through: decide and append under the append lock, then
// make durable what the answers rest on. With an error nothing is known of
// any of them.
func (s *shard) pass(ctx context.Context, batch []*op) error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	if err := s.led.root.Err(); err != nil {
		return err
	}
	read, wrote := false, false
	err := s.locked(ctx, func() error {
		read = true
		from := s.log.next.LSN
		for _, o := range batch {
			if err := s.do(ctx, o); err != nil {
				return err
			}
		}
		wrote = s.log.next.LSN != from
		return s.log.flush()
	})
	if err == nil {
		// Also where nothing was appended: an answer must not rest on
		// another process's frame that a crash could still take back.
		err = s.log.sync(ctx, s.log.end())
	}
	err = s.failed(err)
	s.score(err, read, wrote)
	return err
}

// score keeps count of passes that fail one after the other: before the log
// was read, or after. What ends a root or a shard for good is told elsewhere.
func (s *shard) score(err error, read, wrote bool) {
	last := s.failing.Load()
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, durable.ErrPoisoned), errors.Is(err, ErrCorrupt):
		s.failing.Store(nil)
	case err == nil:
		if last != nil && (wrote || !last.writing) {
			s.failing.Store(nil)
		}
	case last == nil:
		s.failing.Store(&failure{1, read, err})
	default:
		s.failing.Store(&failure{last.passes + 1, read || last.writing, err})
	}
}

// locked runs f under the append lock, on the state as the log now says it.
func (s *shard) locked(ctx context.Context, f func() error) (err error) {
	if err := s.log.appendLock.lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.log.appendLock.unlock()) }()
	if err := s.refresh(ctx); err != nil {
		s.stale = true
		return err
	}
	if err := f(); err != nil {
		s.stale = true
		return err
	}
	return nil
}

// refresh reads what the log says that memory does not.
func (s *shard) refresh(ctx context.Context) error {
	now := s.led.cfg.Instant()
	if !s.stale {
		err := s.log.catchUp(ctx, s.apply)
		if err == nil {
			s.looked(now)
		}
		if !errors.Is(err, errGone) {
			return err
		}
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	s.stale = false
	s.looked(now)
	return nil
}

// looked says that the log was read up to its end.
func (s *shard) looked(now ledger.Instant) {
	s.seen = s.log.pos.LSN
	s.glance.looked(now)
}

// failed keeps a corruption for good: the shard stops, the others go on.
func (s *shard) failed(err error) error {
	if err == nil {
		return nil
	}
	err = s.log.corrupt(err)
	if errors.Is(err, ErrCorrupt) {
		s.broken.CompareAndSwap(nil, &err)
	}
	return err
}

func (s *shard) do(ctx context.Context, o *op) error {
	switch {
	case o.after != nil:
		return nil
	case o.do != nil:
		return o.do(ctx, s)
	case o.req == nil:
		var err error
		o.row, err = s.state.row(o.key)
		return err
	}
	return s.decide(ctx, o)
}

// decide takes one request through the table and appends what changed.
func (s *shard) decide(ctx context.Context, o *op) error {
	d := o.req.On()
	row, err := s.state.row(d.Key())
	if err != nil {
		return err
	}
	now := s.state.stamp.at(s.led.cfg.Instant())
	at := ledger.Moment{
		Wall: s.led.cfg.Now(), Now: now.now, Running: now.running,
		ClosedThrough: s.state.closed, Lease: s.led.cfg.Lease,
	}
	fresh, err := s.fresh(o.req, row)
	if err != nil {
		return err
	}
	if _, ok := o.req.(ledger.ClaimRequest); ok {
		if row.State == ledger.Unclaimed {
			at.Retired = s.state.retired[ledger.MarkOf(d.TrustSet())]
			at.NoRoom, err = s.noRoom(now.now)
		} else {
			at.HolderDead = s.holderDead(row, now.now)
		}
		if err != nil {
			return err
		}
	}
	next, answer := ledger.Decide(row, o.req, at, fresh)
	o.answer = answer
	if next.Equal(row) {
		return nil
	}
	return s.append(ctx, record{stamp: now, row: next, key: next.Key}, row)
}

// fresh is what a lease granted now is made of: its fence is the LSN of the
// frame that will say so.
func (s *shard) fresh(req ledger.Request, row ledger.Row) (ledger.Fresh, error) {
	fence, err := fencepost.ParseFence(s.log.next.LSN)
	if err != nil {
		return ledger.Fresh{}, err
	}
	f := ledger.Fresh{Fence: fence, Holder: s.led.slots.own}
	if _, ok := req.(ledger.ClaimRequest); ok && row.State == ledger.Unclaimed {
		if f.Evaluation, err = s.led.newEvaluation(); err != nil {
			return ledger.Fresh{}, err
		}
	}
	return f, nil
}

// append adds a record that changes prev.
func (s *shard) append(ctx context.Context, r record, prev ledger.Row) error {
	if err := ledger.CheckEdge(prev, r.row); err != nil {
		return err // a bug: better no answer than an illegal log
	}
	payload, err := r.append(s.scratch[:0])
	if err != nil {
		return err
	}
	s.scratch = payload[:0]
	s.glance.add(r.key)
	if err := s.log.add(ctx, r.frameType(), payload); err != nil {
		return err
	}
	s.state.store(r, prev)
	return nil
}

// holderDead looks whether the holder of a lease that still stands is gone.
func (s *shard) holderDead(row ledger.Row, now ledger.Instant) bool {
	t := row.Execution
	if row.State == ledger.Staged {
		t = row.Publishing
	}
	if t.IsZero() || t.Deadline.Boot != now.Boot || t.Deadline.At < now.At {
		return false // passed anyway
	}
	if t.Holder == s.led.slots.own && s.led.abandoned.Has(row.Evaluation, row.Fence) {
		return true
	}
	dead, err := s.led.slots.dead(t.Holder)
	s.note(s.failed(err)) // doubt is no proof: the lease ends by the clock
	return dead && err == nil
}

// noRoom reports whether there is no capacity for a new row: of rows, of
// bytes, or on the disk, where a whole empty segment is kept for the work
// that is known (RELIABILITY I8).
func (s *shard) noRoom(now ledger.Instant) (bool, error) {
	if s.state.count() >= s.limit || s.state.bytes()+reserve > s.bytes/100*admitPercent {
		return true, nil
	}
	if s.log.spare {
		return false, nil
	}
	if s.full && s.noNew.Boot == now.Boot && now.At-s.noNew.At < spareRetry {
		return true, nil
	}
	err := s.log.makeSpare()
	s.full = errors.Is(err, durable.ErrNoSpace)
	if s.full {
		s.noNew = now
		return true, nil
	}
	return false, err
}

// tidy does between batches what must not wait for the clock.
func (s *shard) tidy(ctx context.Context) {
	if s.broken.Load() != nil || s.stale || s.led.root.Err() != nil {
		return
	}
	if s.making == nil && s.needsCompaction() {
		s.note(s.failed(s.compact(ctx)))
	}
}

// maintain does what the clock asks for.
func (s *shard) maintain(ctx context.Context) {
	s.upkeep.Store(nil)
	s.note(s.cleanUp(ctx))
	s.tidy(ctx)
}

// note keeps the error of work that nobody waits for, as [shard.failed] has
// told it, for [Ledger.Health].
func (s *shard) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	s.upkeep.Store(&err)
}

// logID is the log of a shard.
func (l *Ledger) logID(n int) frame.Log { return frame.Log{UUID: l.super.uuid, Shard: uint32(n)} }
