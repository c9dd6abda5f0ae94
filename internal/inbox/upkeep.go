package inbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// Run, which must not be called twice, keeps the inbox in order until ctx ends: it writes the marks that wait,
// removes segments that nothing needs, moves what keeps old ones alive, and
// adopts the logs of processes that died. It returns nil when ctx has ended,
// and the [durable.PoisonedError] when a sync has failed. Other trouble is
// tried again, and shows in [Inbox.Health] meanwhile.
func (b *Inbox) Run(ctx context.Context) error {
	adopt := time.NewTicker(b.cfg.AdoptEvery)
	defer adopt.Stop()
	settle := time.NewTimer(b.cfg.Settle)
	defer settle.Stop()
	var work <-chan struct{} // b.work, unless the timer runs
	for ctx.Err() == nil {
		adopting := false
		select {
		case <-adopt.C: // before all else: what waits for it waits longest
			adopting = true
		default:
		}
		if !adopting {
			select {
			case <-ctx.Done():
				return nil
			case <-b.shut:
				return nil
			case <-work:
				work = nil
				settle.Reset(b.cfg.Settle)
				continue
			case <-settle.C:
				work = b.work
			case <-adopt.C:
				adopting = true
			}
		}
		var err error
		if adopting {
			err = b.adoptNow(ctx)
		} else {
			err = b.tidy(ctx)
		}
		b.mu.Lock()
		if adopting {
			b.adopting = err
		} else {
			b.tidying = err
		}
		b.mu.Unlock()
		if errors.Is(err, durable.ErrPoisoned) {
			return err
		}
	}
	return nil
}

// adoptNow is adopt for a caller that is not counted yet.
func (b *Inbox) adoptNow(ctx context.Context) error {
	if b.begin() != nil {
		return nil // closed: Run ends next
	}
	defer b.users.Done()
	return b.adopt(ctx)
}

// tidy does what waits, once.
func (b *Inbox) tidy(ctx context.Context) error {
	if b.begin() != nil {
		return nil
	}
	defer b.users.Done()
	var errs []error
	for _, j := range b.journals() {
		errs = append(errs, b.unlessFull(j.flush()), b.unlessFull(b.empty(ctx, j)))
	}
	return errors.Join(append(errs, b.disown())...)
}

// unlessFull passes over an error for want of room: nothing is wrong, what is
// done makes room, and it is tried again.
func (b *Inbox) unlessFull(err error) error {
	if errors.Is(err, ErrFull) {
		signal(b.work)
		return nil
	}
	return err
}

// empty removes what it can of a log, from its oldest segment on. It looks at
// each segment once at most: what it moves, it does not move again.
func (b *Inbox) empty(ctx context.Context, j *journal) error {
	b.mu.Lock()
	last := uint64(0)
	if n := len(j.segments); n > 0 {
		last = j.segments[n-1].number
	}
	b.mu.Unlock()
	for ctx.Err() == nil {
		oldest, moving := b.oldest(j)
		switch {
		case oldest == nil || oldest.number > last:
			return nil
		case len(moving) > 0:
			if moved, err := b.move(j, moving); err != nil || moved == 0 {
				return err
			}
		default:
			if err := b.remove(j, oldest); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldest returns the oldest segment of a log if it can be removed, or once
// the entries are moved that keep it. Otherwise it returns nil.
func (b *Inbox) oldest(j *journal) (*segment, []*entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(j.segments) == 0 || j.segments[0].readers > 0 {
		return nil, nil
	}
	oldest := j.segments[0]
	if len(j.segments) == 1 && j.appending(oldest) {
		return nil, nil
	}
	if oldest.live == 0 {
		return oldest, nil
	}
	if !b.worthMoving(j, oldest) {
		return nil, nil
	}
	return oldest, b.entriesIn(oldest)
}

// appending reports whether entries may still be appended to the segment: the
// newest of the own log. That of an adopted log gets marks alone, which mean
// nothing without the entries.
func (j *journal) appending(s *segment) bool {
	return j == j.box.own && s.end == (frame.Position{})
}

// worthMoving reports whether the entries that keep the oldest segment should
// be moved: when it is damaged; or when dead bytes are most of all bytes, half
// of the bound is used, and at least half of the segment is dead, so that the
// entries of two such fit into one. mu is held.
func (b *Inbox) worthMoving(j *journal, oldest *segment) bool {
	if oldest.damaged {
		return true
	}
	if j.appending(oldest) || b.disk <= b.cfg.MaxBytes/2 || b.index.bytes > b.disk/2 {
		return false
	}
	var live int64
	for _, e := range b.entriesIn(oldest) {
		live += e.size
	}
	return live <= (oldest.limit(frameEntry)-frame.SegmentHeaderSize)/2
}

// entriesIn lists the entries whose frames are in a segment; mu is held.
func (b *Inbox) entriesIn(seg *segment) []*entry {
	var in []*entry
	for e := range b.index.stored() {
		if e.seg == seg {
			in = append(in, e)
		}
	}
	slices.SortFunc(in, func(a, b *entry) int { return int(a.offset - b.offset) })
	return in
}

// move appends copies of entries to the log, so that their old segment is
// free, and returns how many. One that does not verify any more stays where
// it is, reported, until it is done.
func (b *Inbox) move(j *journal, entries []*entry) (moved int, err error) {
	for _, e := range entries {
		f, err := b.load(e)
		switch {
		case errors.Is(err, ErrNotLeased), errors.Is(err, frame.ErrCorrupt):
			continue
		case err != nil:
			return moved, err
		}
		body := f.Payload
		if f.Type == frameMoved {
			body = body[serialSize:]
		}
		r := &request{
			typ: frameMoved, entry: e,
			meta: binary.LittleEndian.AppendUint64(nil, e.serial), body: body,
		}
		j.await(j.join(r))
		if r.err != nil {
			return moved, fmt.Errorf("move inbox entry: %w", r.err)
		}
		moved++
	}
	return moved, nil
}

// remove takes the oldest segment, which nothing needs, out of its log. Each
// removal is durable before the next, so that a crash never leaves a gap.
func (b *Inbox) remove(j *journal, seg *segment) error {
	b.mu.Lock()
	damaged, last := seg.damaged, len(j.segments) == 1
	var offset int64
	for _, d := range b.damage {
		if d.File == seg.name {
			offset = d.Offset
		}
	}
	b.mu.Unlock()
	if last {
		// Nobody may look for it by the hint.
		if err := j.dropHint(); err != nil {
			return err
		}
	}
	var err error
	if damaged {
		err = b.root.Rename(seg.name, asideName(seg.name, offset))
	} else {
		err = b.root.Remove(seg.name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.root.SyncDir(logsDir); err != nil {
		return err
	}
	if j != b.own && seg == j.active { // nobody else appends there
		j.seal()
	}
	b.mu.Lock()
	j.segments = slices.Delete(j.segments, 0, 1)
	b.disk -= seg.size
	b.mu.Unlock()
	return seg.file.Close()
}

// adopt takes the logs of processes that have died.
func (b *Inbox) adopt(ctx context.Context) error {
	infos, err := b.root.ReadDir(logsDir)
	if err != nil {
		return err
	}
	mine := map[int]bool{}
	for _, j := range b.journals() {
		mine[j.slot] = true
	}
	var errs []error
	for _, info := range infos {
		slot, _, ok := parseSegmentName(info.Name)
		if !ok || slot >= slotCount || mine[slot] {
			continue
		}
		mine[slot] = true // once
		errs = append(errs, b.adoptSlot(ctx, slot))
	}
	return errors.Join(errs...)
}

// adoptSlot adopts one log, unless its process is alive.
func (b *Inbox) adoptSlot(ctx context.Context, slot int) error {
	j, err := b.takeSlot(slot)
	if err != nil || j == nil {
		return err
	}
	if err := b.recover(ctx, j); err != nil {
		return errors.Join(fmt.Errorf("adopt slot %d: %w", slot, err), b.forget(j))
	}
	b.mu.Lock()
	b.adopted = append(b.adopted, j)
	b.mu.Unlock()
	return nil
}

// forget closes a log that could not be adopted whole.
func (b *Inbox) forget(j *journal) error {
	b.mu.Lock()
	for _, s := range j.segments {
		b.disk -= s.size
	}
	b.mu.Unlock()
	return j.close()
}

// disown frees the slots of adopted logs that are empty.
func (b *Inbox) disown() error {
	var empty []*journal
	b.mu.Lock()
	b.adopted = slices.DeleteFunc(b.adopted, func(j *journal) bool {
		if len(j.segments) > 0 {
			return false
		}
		empty = append(empty, j)
		return true
	})
	b.mu.Unlock()
	var errs []error
	for _, j := range empty {
		errs = append(errs, j.close())
	}
	return errors.Join(errs...)
}
