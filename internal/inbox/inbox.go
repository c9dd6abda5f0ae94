package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// An Inbox holds recorded requests until they are done. It is safe for
// concurrent use; [Inbox.Run] should run for as long as it is open.
type Inbox struct {
	cfg  Config
	root *durable.Root
	uuid [16]byte
	own  *journal

	// users are calls under way, which Close waits for.
	users sync.WaitGroup
	// shut is closed by Close.
	shut chan struct{}
	// news has a token while entries may be ready, for one who waits.
	news chan struct{}
	// work has a token while there is something for upkeep.
	work chan struct{}

	mu sync.Mutex
	// Guarded by mu.
	index   index
	adopted []*journal
	disk    int64 // bytes of all segments
	damage  []*frame.CorruptError
	// What the last round of upkeep, and of adopting, could not do.
	tidying, adopting error
	closed            bool
}

// An Item is an entry that was handed out.
type Item struct {
	// ID names it; see [ParseItemID].
	ID ItemID
	// Key is the delivery's.
	Key fencepost.DeliveryKey
	// Received is when it came, UTC.
	Received time.Time
}

// Stats is what an inbox holds.
type Stats struct {
	// Entries is how many are not done, and Leased how many of those are
	// handed out.
	Entries, Leased int
	// Bytes is the size of all segment files, done entries and free room
	// included.
	Bytes int64
	// Oldest is the receipt time of the oldest entry that is not handed out;
	// zero if there is none.
	Oldest time.Time
}

// begin counts a call that uses the files, unless the inbox is closed. The
// caller then calls users.Done.
func (b *Inbox) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.users.Add(1)
	return nil
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Next hands out the entry that was received first among those that are not
// handed out, waiting for one. Its error is ctx's cause, or [ErrClosed].
func (b *Inbox) Next(ctx context.Context) (Item, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return Item{}, err
		}
		b.mu.Lock()
		closed := b.closed
		var e *entry
		if !closed {
			e = b.index.lease()
		}
		more := len(b.index.queue) > 0
		b.mu.Unlock()
		switch {
		case closed:
			return Item{}, ErrClosed
		case e != nil:
			if more {
				signal(b.news)
			}
			return e.item(), nil
		}
		select {
		case <-b.news:
		case <-b.shut:
		case <-ctx.Done():
		}
	}
}

// leasedEntry returns an entry that is handed out; mu is held.
func (b *Inbox) leasedEntry(id ItemID) (*entry, error) {
	e := b.index.leased[id]
	if e == nil {
		return nil, fmt.Errorf("inbox item %s: %w", id, ErrNotLeased)
	}
	return e, nil
}

// Release puts an item back, to be handed out again.
func (b *Inbox) Release(id ItemID) error {
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err == nil {
		b.index.release(e)
	}
	b.mu.Unlock()
	signal(b.news)
	return err
}

// Done forgets an item for good; outcome is kept beside it for people, and
// may be empty. It does not wait for the disk: after a crash the item may be
// handed out once more, so whoever works on it must know that it is
// completed. Its error matches [ErrNotLeased] or [ErrClosed].
func (b *Inbox) Done(id ItemID, outcome fencepost.Reason) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.users.Done()
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err == nil {
		b.index.drop(e)
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	e.log.markDone(e.serial, outcome)
	signal(b.work)
	return nil
}

// Read returns what was recorded of an item that is handed out. The caller
// owns the result. Its error matches [ErrNotLeased] or [ErrClosed]; bytes
// that do not verify are a [frame.CorruptError], which [Inbox.Health] reports
// from then on; such an item can only be Done.
func (b *Inbox) Read(ctx context.Context, id ItemID) (Recorded, error) {
	if err := context.Cause(ctx); err != nil {
		return Recorded{}, err
	}
	if err := b.begin(); err != nil {
		return Recorded{}, err
	}
	defer b.users.Done()
	payload, typ, err := b.readFrame(id)
	if err != nil {
		return Recorded{}, err
	}
	if typ == frameMoved {
		payload = payload[serialSize:]
	}
	return Decode(payload)
}

// readFrame returns the verified payload of an item's frame.
func (b *Inbox) readFrame(id ItemID) ([]byte, uint8, error) {
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err != nil {
		b.mu.Unlock()
		return nil, 0, err
	}
	b.mu.Unlock()
	f, err := b.load(e)
	return f.Payload, f.Type, err
}

// load reads the frame of an entry and verifies it whole.
func (b *Inbox) load(e *entry) (frame.Frame, error) {
	b.mu.Lock()
	if e.state == gone || e.state == flying {
		b.mu.Unlock()
		return frame.Frame{}, ErrNotLeased
	}
	seg, offset, size := e.seg, e.offset, e.size
	seg.readers++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		seg.readers--
		b.mu.Unlock()
		signal(b.work) // the segment may have waited for this
	}()
	buf := make([]byte, size)
	n, err := seg.file.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return frame.Frame{}, fmt.Errorf("read inbox entry: %w", err)
	}
	f, err := seg.header.Seed().Decode(buf[:n], offset)
	if err == nil {
		var s stored
		if s, err = decodeFrame(f); err == nil && (s.serial != e.serial || s.Key != e.key || s.Binding != e.binding) {
			err = errors.New("another entry than was recorded")
		}
	}
	if err != nil {
		damage := &frame.CorruptError{File: seg.name, Offset: offset, Why: err.Error()}
		b.damaged(seg, damage)
		return frame.Frame{}, damage
	}
	return f, nil
}

// damaged reports damage of a segment, which may be nil if there is none to
// keep.
func (b *Inbox) damaged(seg *segment, damage *frame.CorruptError) {
	b.mu.Lock()
	if seg != nil {
		seg.damaged = true
	}
	known := slices.ContainsFunc(b.damage, func(d *frame.CorruptError) bool {
		return d.File == damage.File && d.Offset == damage.Offset
	})
	if !known {
		b.damage = append(b.damage, damage)
	}
	b.mu.Unlock()
	if !known {
		b.cfg.OnDamage(damage)
	}
}

// Health returns nil if all is well: no failed sync, no damage, no trouble in
// the upkeep. Otherwise it joins the [durable.PoisonedError], each
// [frame.CorruptError], and the last trouble. A damaged inbox still serves
// what verifies and records what is new.
func (b *Inbox) Health() error {
	errs := []error{b.root.Err()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.damage {
		errs = append(errs, d)
	}
	return errors.Join(append(errs, b.tidying, b.adopting)...)
}

// Stats returns what the inbox holds now.
func (b *Inbox) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Entries: b.index.count, Leased: len(b.index.leased), Bytes: b.disk}
	if len(b.index.queue) > 0 {
		s.Oldest = time.Unix(0, b.index.queue[0].received).UTC()
	}
	return s
}
