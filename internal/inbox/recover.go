package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// A scan is what recovery reads of one log.
type scan struct {
	journal *journal
	entries map[uint64]*entry // by serial; the newest copy of each
	done    map[uint64]bool   // serials
	lsn     uint64            // the highest seen
	// synced is how far the newest segment is known to be synced.
	synced int64
}

// recover reads the log of a slot that this process has taken, and enters
// what is not done into the index. Everything that it enters is on stable
// storage. Damage is reported and is no error.
func (b *Inbox) recover(ctx context.Context, j *journal) error {
	if err := b.list(j); err != nil {
		return err
	}
	s := &scan{journal: j, entries: map[uint64]*entry{}, done: map[uint64]bool{}}
	segment, offset, err := j.takeHint()
	if err != nil {
		return err
	}
	switch newest := j.newest(); {
	case segment > newest:
		b.damaged(nil, &frame.CorruptError{File: segmentName(j.slot, segment), Offset: 0, Why: "the file is missing"})
	case segment == newest:
		s.synced = offset
	}
	for i, seg := range j.segments {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := b.scanSegment(s, i); err != nil {
			return fmt.Errorf("recover %s: %w", seg.name, err)
		}
	}
	if n := len(j.segments); n > 0 {
		last := j.segments[n-1]
		j.sealed = seal{header: last.header, end: last.end, broken: last.damaged}
		// Behind the damage there may be frames with higher numbers.
		j.sealed.end.LSN = max(last.end.LSN, s.lsn+1)
	}
	b.enterScan(s)
	return nil
}

// newest is the number of the newest segment, 0 if there is none.
func (j *journal) newest() uint64 {
	if n := len(j.segments); n > 0 {
		return j.segments[n-1].number
	}
	return 0
}

// list opens the segments of a log, and removes what an unfinished rotation
// left.
func (b *Inbox) list(j *journal) error {
	infos, err := b.root.ReadDir(logsDir)
	if err != nil {
		return err
	}
	mine := fmt.Sprintf("%03d-", j.slot)
	for _, info := range infos {
		name := path.Join(logsDir, info.Name)
		slot, number, ok := parseSegmentName(info.Name)
		switch {
		case !strings.HasPrefix(info.Name, mine):
		case strings.HasSuffix(info.Name, durable.TempSuffix):
			if err := b.root.Remove(name); err != nil {
				return err
			}
		case strings.HasSuffix(info.Name, damagedSuffix):
			b.damaged(nil, setAside(name))
		case ok && slot == j.slot:
			f, err := b.root.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			seg := &segment{number: number, name: name, file: f, size: info.Size}
			b.mu.Lock()
			j.segments = append(j.segments, seg)
			b.disk += seg.size
			b.mu.Unlock()
		}
	}
	slices.SortFunc(j.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	for _, seg := range j.segments {
		if err := b.readHeader(j, seg); err != nil {
			return err
		}
	}
	return nil
}

// readHeader reads a segment's header. Without a sound one its frames can
// still be found, by their own checksums.
func (b *Inbox) readHeader(j *journal, seg *segment) error {
	h, err := frame.ReadHeader(seg.file, seg.name, j.id, seg.number)
	if damage, ok := errors.AsType[*frame.CorruptError](err); ok {
		seg.header = frame.Header{Log: j.id, Segment: seg.number}
		b.damaged(seg, damage)
		return nil
	}
	seg.header = h
	return err
}

// asideName is the name under which a damaged segment is kept, with the place
// of the damage.
func asideName(name string, offset int64) string {
	return fmt.Sprintf("%s.%d%s", name, offset, damagedSuffix)
}

// setAside is the report of a segment that was set aside earlier.
func setAside(name string) *frame.CorruptError {
	base := strings.TrimSuffix(name, damagedSuffix)
	at := base[strings.LastIndexByte(base, '.')+1:]
	offset, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		offset = 0
	}
	return &frame.CorruptError{
		File: name, Offset: offset,
		Why: "it was set aside as evidence; look into it and remove it",
	}
}

// scanSegment reads all frames of a segment and judges its end.
func (b *Inbox) scanSegment(s *scan, i int) error {
	j, seg := s.journal, s.journal.segments[i]
	size, err := seg.file.Size()
	if err != nil {
		return err
	}
	r := frame.NewReader(seg.file, seg.name, size, seg.header, frame.MaxPayload)
	last := i == len(j.segments)-1
	if !last {
		if next := j.segments[i+1]; next.number != seg.number+1 {
			missing := segmentName(j.slot, seg.number+1)
			b.damaged(nil, &frame.CorruptError{File: missing, Offset: 0, Why: "the file is missing"})
		} else if next.header.Prev.Segment == seg.number {
			r.Seal(next.header.Prev)
		}
	}
	if last {
		r.Promise(s.synced)
	}
	end := r.Position().Offset
	see := func(f frame.Frame) {
		if err := s.see(seg, f); err != nil {
			b.damaged(seg, &frame.CorruptError{File: seg.name, Offset: f.Offset, Why: err.Error()})
		}
		end = f.Offset + frame.Size(len(f.Payload))
	}
	for {
		f, err := r.Next()
		if err == io.EOF || errors.Is(err, frame.ErrBad) {
			break
		}
		if err != nil {
			return err
		}
		see(f)
	}
	seg.end = r.Position()
	promised := r.Promised()
	if err := b.judge(seg, r, see); err != nil {
		return err
	}
	if last && end > promised {
		// Whoever wrote this may have died before its sync, or after a sync
		// that failed and before it could say so.
		return durable.Redo(seg.file, promised, end)
	}
	return nil
}

// judge looks at what is behind the last frame. Behind damage, what verifies
// counts; behind a torn tail nothing does, for it was never acknowledged, and
// the seal will pass over it.
func (b *Inbox) judge(seg *segment, r *frame.Reader, see func(frame.Frame)) error {
	_, err := r.Judge(nil)
	damage, corrupt := errors.AsType[*frame.CorruptError](err)
	switch {
	case corrupt && !seg.damaged:
		b.damaged(seg, damage)
	case !corrupt && err != nil:
		return err
	}
	if !seg.damaged {
		return nil
	}
	_, err = r.Judge(see)
	if errors.Is(err, frame.ErrCorrupt) {
		return nil
	}
	return err
}

// see takes in one frame, which verifies.
func (s *scan) see(seg *segment, f frame.Frame) error {
	s.lsn = max(s.lsn, f.LSN)
	switch f.Type {
	case frameEntry, frameMoved:
		r, err := decodeFrame(f)
		if err != nil {
			return err
		}
		s.entries[r.serial] = &entry{
			key: r.Key, binding: r.Binding,
			received: r.Received.UnixNano(), end: endNanos(r.Lifetime.End()),
			log: s.journal, serial: r.serial,
			seg: seg, offset: f.Offset, size: frame.Size(len(f.Payload)),
		}
	case frameDone:
		serial, _, err := decodeDone(f.Payload)
		if err != nil {
			return err
		}
		s.done[serial] = true
	case frameSynced:
	default:
		return fmt.Errorf("frame of unknown type %d", f.Type)
	}
	return nil
}

// enterScan enters what a log holds into the index.
func (b *Inbox) enterScan(s *scan) {
	b.mu.Lock()
	for _, serial := range slices.Sorted(maps.Keys(s.entries)) {
		if s.done[serial] {
			continue
		}
		e := s.entries[serial]
		b.index.enter(e)
		b.index.placeAt(e, e.seg, e.offset, e.size)
		b.index.store(e)
		b.replace(e)
	}
	b.mu.Unlock()
	signal(b.news)
	signal(b.work)
}
