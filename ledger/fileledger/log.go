package fileledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

const (
	segSuffix = ".seg"
	// spareName is the next segment, full of zeros and synced ahead of need.
	spareName = "next.tmp"
)

func segName(n uint64) string { return fmt.Sprintf("%012d%s", n, segSuffix) }

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// log is one shard's row of segments, as far as this process has read it. It
// is owned by the shard's loop; methods that say so need the append lock.
type log struct {
	dir     durable.FS // the shard's directory
	name    string     // of that, for errors
	id      frame.Log
	flag    int // how segments are opened, as package os says
	segSize int64

	appendLock, syncLock lockFile
	head                 head

	seg  durable.File // the last segment known
	hdr  frame.Header
	size int64          // of seg, in bytes
	pos  frame.Position // the end of the frames that are in seg
	next frame.Position // the end of those in buf behind them
	buf  []byte         // frames to be written at pos

	synced mark // known to be durable, with all before
	spare  bool // there is a spare segment
}

func (l *log) place() place { return place{l.hdr.Segment, l.pos} }
func (l *log) end() mark    { return l.place().mark() }

// corrupt names the shard in err, and what it is about there.
func (l *log) corrupt(err error) error {
	if c, ok := errors.AsType[*frame.CorruptError](err); ok {
		return &CorruptError{File: l.name + "/" + c.File, Offset: c.Offset, Why: c.Why}
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return &CorruptError{File: l.name + "/" + c.File, Offset: c.Offset, Why: c.Why, Mend: c.Mend}
	}
	if _, told := errors.AsType[*RootError](err); told {
		return err
	}
	if errors.Is(err, fs.ErrPermission) {
		return permission(l.name, err)
	}
	return fmt.Errorf("%s: %w", l.name, err)
}

// openSegment opens segment n of a log and reads its header.
func openSegment(dir durable.FS, id frame.Log, n uint64, flag int) (durable.File, frame.Header, int64, error) {
	f, err := dir.OpenFile(segName(n), flag, 0)
	if err != nil {
		return nil, frame.Header{}, 0, err
	}
	hdr, err := frame.ReadHeader(f, segName(n), id, n)
	if err != nil {
		return nil, frame.Header{}, 0, errors.Join(err, f.Close())
	}
	size, err := f.Size()
	if err != nil {
		return nil, frame.Header{}, 0, errors.Join(err, f.Close())
	}
	return f, hdr, size, nil
}

func (l *log) use(f durable.File, hdr frame.Header, size int64) error {
	old := l.seg
	l.seg, l.hdr, l.size = f, hdr, size
	l.setPos(hdr.Start())
	// What a header seals was synced before the header was.
	if start := (mark{hdr.Segment, frame.SegmentHeaderSize}); l.synced.before(start) {
		l.synced = start
	}
	if old == nil {
		return nil
	}
	return old.Close()
}

func (l *log) setPos(pos frame.Position) { l.pos, l.next, l.buf = pos, pos, l.buf[:0] }

// hasFrame reports whether anything but zeros stands where the next frame
// goes. It is one small read: what every pass over the log costs.
func (l *log) hasFrame() (bool, error) {
	var b [frame.HeaderSize]byte
	n, err := l.seg.ReadAt(b[:], l.pos.Offset)
	if err != nil && err != io.EOF {
		return false, err
	}
	return b != [frame.HeaderSize]byte{} && n > 0, nil
}

// reader reads the last segment from the known end up to limit.
func (l *log) reader(limit int64) *frame.Reader {
	r := frame.NewReader(l.seg, segName(l.hdr.Segment), limit, l.hdr, maxPayload)
	r.At(l.pos)
	return r
}

// errGone: what this process knows of the log was compacted away; the shard
// has to be read anew.
var errGone = errors.New("segment was compacted away")

// catchUp reads what other processes have appended, calling apply for each
// frame. The append lock is held.
//
// While the machine is up, a write that was cut short by its process's death
// has left its beginning, so that zeros are the end without a further look.
func (l *log) catchUp(ctx context.Context, apply func(frame.Frame) error) error {
	for {
		more, err := l.hasFrame()
		if err != nil {
			return err
		}
		if more {
			if err := l.replayKnown(apply); err != nil {
				return err
			}
			if more, err = l.hasFrame(); err != nil {
				return err
			}
		}
		var r *frame.Reader
		bad := false
		if more {
			r = l.reader(l.size)
			if bad, err = l.replay(r, apply); err != nil {
				return err
			}
		}
		followed, err := l.follow(r)
		if err != nil {
			return err
		}
		if followed {
			continue
		}
		if !bad {
			return nil
		}
		return l.sealTorn(ctx, r)
	}
}

// sealTorn goes on behind what an unfinished write has left.
func (l *log) sealTorn(ctx context.Context, r *frame.Reader) error {
	torn, err := l.judge(r)
	if err != nil || !torn {
		return err
	}
	return l.rotate(ctx)
}

// replayKnown applies the frames up to where the head says that the tail is,
// so that no more is read than was written.
func (l *log) replayKnown(apply func(frame.Frame) error) error {
	tail, _, ok, err := l.head.read(tailRecordAt)
	if err != nil {
		return err
	}
	if !ok || tail.segment != l.hdr.Segment || tail.offset <= l.pos.Offset || tail.offset > l.size {
		return nil
	}
	_, err = l.replay(l.reader(tail.offset), apply)
	return err
}

// replay applies frames until there is none. It reports whether something
// else stands there.
func (l *log) replay(r *frame.Reader, apply func(frame.Frame) error) (bad bool, err error) {
	for {
		f, err := r.Next()
		if err == io.EOF || errors.Is(err, frame.ErrBad) {
			l.setPos(r.Position())
			return err != io.EOF, nil
		}
		if err != nil {
			return false, err
		}
		err = apply(f)
		if wrongFrame(err) {
			err = &CorruptError{File: segName(l.hdr.Segment), Offset: f.Offset, Why: err.Error()}
		}
		if err != nil {
			return false, err
		}
	}
}

// wrongFrame reports whether err is about what a frame says, and not about
// reading something.
func wrongFrame(err error) bool {
	return errors.Is(err, errRecord) || errors.Is(err, ledger.ErrMalformedRow) || errors.Is(err, ledger.ErrIllegalRow)
}

// follow goes on to the next segment, if there is one. r is where the last
// one was read, or nil where it holds no more.
func (l *log) follow(r *frame.Reader) (bool, error) {
	n := l.hdr.Segment + 1
	if _, err := l.dir.Stat(segName(n)); err != nil {
		if !isNotExist(err) {
			return false, err
		}
		// Nobody follows this one; unless it was compacted away with its
		// followers, when its own name is gone too.
		if _, err := l.dir.Stat(segName(n - 1)); isNotExist(err) {
			return false, errGone
		} else if err != nil {
			return false, err
		}
		return false, nil
	}
	f, hdr, size, err := openSegment(l.dir, l.id, n, l.flag)
	if err != nil {
		return false, err
	}
	err = l.checkSeal(r, hdr)
	if err == nil {
		// Who made it may have died before its name was durable.
		err = l.dir.SyncDir(".")
	}
	if err != nil {
		return false, errors.Join(err, f.Close())
	}
	return true, l.use(f, hdr, size)
}

// checkSeal holds the end of the last segment to what the next one's header
// says of it.
func (l *log) checkSeal(r *frame.Reader, next frame.Header) error {
	s := next.Prev
	if s.Segment == l.hdr.Segment && s.End == l.pos.Offset && s.CRC == l.pos.CRC && next.First == l.pos.LSN {
		return nil
	}
	if r == nil {
		r = l.reader(l.size)
	}
	if s.Segment == l.hdr.Segment && s.End > l.pos.Offset {
		r.Seal(s)
		if _, err := r.Judge(nil); err != nil {
			return err
		}
	}
	return &CorruptError{
		File: segName(next.Segment), Offset: 0,
		Why: fmt.Sprintf("it seals the segment before at %d, whose frames end at %d", s.End, l.pos.Offset),
	}
}

// judge tells a torn tail from a clean end; corruption is an error. The head
// is evidence too: what it says was synced was.
func (l *log) judge(r *frame.Reader) (torn bool, err error) {
	m, _, ok, err := l.head.read(syncRecordAt)
	if err != nil {
		return false, err
	}
	if ok && m.segment == l.hdr.Segment {
		r.Promise(m.offset)
	}
	if l.synced.segment == l.hdr.Segment {
		r.Promise(l.synced.offset)
	}
	v, err := r.Judge(nil)
	return v == frame.Torn, err
}

// add puts a frame behind those that are to be written, starting a new
// segment where it does not fit. The append lock is held.
func (l *log) add(ctx context.Context, frameType uint8, payload []byte) error {
	if l.next.Offset+frame.Size(len(payload)) > l.size {
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.rotate(ctx); err != nil {
			return err
		}
		if l.next.Offset+frame.Size(len(payload)) > l.size {
			return fmt.Errorf("a frame of %d bytes in segments of %d: %w", len(payload), l.size, errRecord)
		}
	}
	synced := int64(frame.SegmentHeaderSize)
	if l.synced.segment == l.hdr.Segment {
		synced = l.synced.offset
	}
	l.buf, l.next = l.hdr.Seed().Append(l.buf, l.next, frame.Frame{Type: frameType, Synced: synced, Payload: payload})
	return nil
}

// flush writes what was added. The append lock is held.
func (l *log) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	if _, err := l.seg.WriteAt(l.buf, l.pos.Offset); err != nil {
		return err
	}
	l.setPos(l.next)
	return l.head.write(tailRecordAt, l.end(), 0)
}

// rotate seals the last segment at the known end and starts the next. The
// append lock is held, and nothing waits to be written.
func (l *log) rotate(ctx context.Context) error {
	if err := l.makeSpare(); err != nil {
		return err
	}
	// Sealing promises that all before the seal is durable.
	if err := l.sync(ctx, l.end()); err != nil {
		return err
	}
	f, err := l.dir.OpenFile(spareName, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	hdr := l.hdr.Next(l.pos)
	// A crash in here leaves a spare with a header, which is written over,
	// or the new segment without a frame: both go on.
	if err := frame.Install(l.dir, f, spareName, segName(hdr.Segment), hdr); err != nil {
		return errors.Join(err, f.Close())
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.spare = false
	return l.use(f, hdr, size)
}

// makeSpare prepares the next segment. If there is no room, what there is of
// it is given back. The append lock is held.
func (l *log) makeSpare() error {
	if l.spare {
		return nil
	}
	if info, err := l.dir.Stat(spareName); err == nil && info.Size >= min(MinSegment, l.segSize) {
		// Another process made it. Its zeros may not be synced yet: rotate
		// syncs them with the header.
		l.spare = true
		return nil
	}
	err := makeSegmentFile(l.dir, spareName, l.segSize)
	if err != nil {
		if errors.Is(err, durable.ErrPoisoned) {
			return err
		}
		return errors.Join(err, removeIfThere(l.dir, spareName))
	}
	l.spare = true
	return nil
}

func makeSegmentFile(dir durable.FS, name string, size int64) error {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	return errors.Join(durable.ZeroFill(f, size), f.Close())
}

// sync makes everything up to target durable, unless it is known to be. One
// process syncs at a time; what it covers needs no sync of the others.
//
// RELIABILITY §3.4: under the sync lock, a place that was read before a sync
// which succeeded is durable, with all before it.
func (l *log) sync(ctx context.Context, target mark) (err error) {
	if !l.synced.before(target) {
		return nil
	}
	if err := l.syncLock.lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.syncLock.unlock()) }()

	done, flags, known, err := l.head.read(syncRecordAt)
	if err != nil {
		return err
	}
	if known && !done.before(target) {
		l.synced = done
		return nil
	}
	reach, err := l.reach(target)
	if err != nil {
		return err
	}
	if !known {
		done = mark{}
	}
	if err := l.head.write(syncRecordAt, done, headSyncing); err != nil {
		return err
	}
	if known && flags&headSyncing == 0 {
		err = l.seg.Sync()
	} else {
		// Whoever synced last died over it, or is not known: its sync may
		// have failed, and the next one would say nothing of it.
		from := int64(frame.SegmentHeaderSize)
		if done.segment == reach.segment {
			from = max(from, done.offset)
		}
		err = durable.Redo(l.seg, from, reach.offset)
	}
	if err != nil {
		return err
	}
	l.synced = reach
	return l.head.write(syncRecordAt, reach, 0)
}

// reach is how far a sync that is begun now is known to reach: to target, or
// to the tail that others have written since, in the same segment.
func (l *log) reach(target mark) (mark, error) {
	tail, _, ok, err := l.head.read(tailRecordAt)
	if err != nil {
		return mark{}, err
	}
	if ok && tail.segment == target.segment && target.offset < tail.offset && tail.offset <= l.size {
		return tail, nil
	}
	return target, nil
}

func (l *log) close() error {
	errs := []error{l.appendLock.close(), l.syncLock.close()}
	for _, f := range []durable.File{l.seg, l.head.file} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
