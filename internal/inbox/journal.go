package inbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// A segment is one file of a log.
type segment struct {
	number uint64
	name   string
	file   durable.File
	size   int64
	header frame.Header
	// end is where its frames end, once nothing is appended to it any more.
	end frame.Position

	// Guarded by the inbox's mu: how many entries have their frame here, how
	// many reads are under way, and whether bytes of it do not verify.
	live    int
	readers int
	damaged bool
}

// A journal is the log of one slot, whose lock this process holds.
type journal struct {
	box  *Inbox
	slot int
	lock durable.File
	id   frame.Log

	// segments are the log's, oldest first; guarded by box.mu.
	segments []*segment

	// Guarded by qmu.
	qmu sync.Mutex
	// next collects the requests of the next commit.
	next *batch
	// marks are done marks that the next commit takes along.
	marks [][]byte
	// busy is set while somebody leads a commit.
	busy bool
	// commits counts them.
	commits uint64
	// gathering says how many requests a batch waits for.
	gathering gathering
	// unpromised is set while frames stand in the log that no later frame
	// says were synced.
	unpromised bool

	// Owned by the leader.
	active  *segment       // nil before the first append
	pos     frame.Position // in active
	synced  int64          // in active: what a sync has covered
	headers []byte         // of one write
	parts   [][]byte       // of one write
	// last is the header that the next segment's header follows, and its
	// end; sealed has them before there is an active segment.
	sealed seal
}

// A seal is what the next segment must say of those before.
type seal struct {
	header frame.Header // zero for an empty log
	end    frame.Position
	// broken is set if the segment is damaged: its seal must not hold, or
	// recovery would pass over what is behind the damage.
	broken bool
}

const (
	logsDir   = "logs"
	segSuffix = ".seg"
	// damagedSuffix ends the names of segments that are set aside.
	damagedSuffix = ".damaged"
	// reserve is what entries leave free of a segment for done marks.
	reserve = 4 << 10
	// markSegment is the size of a segment that is made for marks alone.
	markSegment = 64 << 10
	pageSize    = 4096
)

// segmentName is the name of a segment inside of the inbox.
func segmentName(slot int, number uint64) string {
	return path.Join(logsDir, fmt.Sprintf("%03d-%016d%s", slot, number, segSuffix))
}

// parseSegmentName reads a name inside of logs; ok is false for anything but
// a segment's.
func parseSegmentName(name string) (slot int, number uint64, ok bool) {
	base, isSegment := strings.CutSuffix(name, segSuffix)
	before, after, _ := strings.Cut(base, "-")
	s, slotErr := strconv.ParseUint(before, 10, 16)
	n, numberErr := strconv.ParseUint(after, 10, 64)
	if !isSegment || slotErr != nil || numberErr != nil || n == 0 ||
		path.Join(logsDir, name) != segmentName(int(s), n) {
		return 0, 0, false
	}
	return int(s), n, true
}

// isEntry reports whether a frame of this type stores an entry.
func isEntry(typ uint8) bool { return typ == frameEntry || typ == frameMoved }

// limit is how far into the segment a frame of this type may reach.
func (s *segment) limit(typ uint8) int64 {
	if isEntry(typ) {
		return s.size - reserve
	}
	return s.size
}

// rotate starts a new segment with room for a frame of need bytes. The
// frames of the one before are synced. Its error matches [ErrFull] if there
// is no room.
func (j *journal) rotate(typ uint8, need int64) error {
	size, err := j.room(typ, need)
	if err != nil {
		return err
	}
	header := j.nextHeader()
	name := segmentName(j.slot, header.Segment)
	temp := name + durable.TempSuffix
	f, err := j.box.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, durable.FilePerm)
	if err != nil {
		return j.box.refusal(err)
	}
	if err := f.Allocate(size); err != nil {
		// What it did get would be missing to others.
		return errors.Join(j.box.refusal(err), f.Close(), j.box.root.Remove(temp))
	}
	// From here on the new segment may be there, whatever Install says, and
	// its header seals the old one: nothing may be appended to that any more.
	j.seal()
	if err := frame.Install(j.box.root, f, temp, name, header); err != nil {
		// What is left of it is written over by the next attempt.
		return errors.Join(j.box.refusal(err), f.Close())
	}
	s := &segment{number: header.Segment, name: name, file: f, size: size, header: header}
	j.box.mu.Lock()
	j.segments = append(j.segments, s)
	j.box.disk += size
	j.box.mu.Unlock()
	j.active, j.pos, j.synced = s, header.Start(), frame.SegmentHeaderSize
	return nil
}

// seal ends the active segment at the last position.
func (j *journal) seal() {
	if j.active == nil {
		return
	}
	j.sealed = seal{header: j.active.header, end: j.pos}
	j.box.mu.Lock()
	j.active.end = j.pos
	j.box.mu.Unlock()
	j.active = nil
}

// room says how large the new segment is to be, if bounds and disk allow one.
func (j *journal) room(typ uint8, need int64) (int64, error) {
	b := j.box
	size := max(b.cfg.SegmentBytes, frame.SegmentHeaderSize+need+reserve)
	free := max(b.cfg.MinFree, 0)
	if !isEntry(typ) {
		free = 0 // what frees room later may use the last of it
		if j != b.own {
			size = min(size, markSegment)
		}
	}
	size = (size + pageSize - 1) &^ (pageSize - 1)
	b.mu.Lock()
	over := b.disk+size > b.cfg.MaxBytes
	b.mu.Unlock()
	if typ == frameEntry && over {
		return 0, &FullError{Bound: BoundBytes, RetryAfter: b.cfg.RetryAfter}
	}
	v, err := b.root.Volume()
	if err != nil {
		return 0, err
	}
	if v.Free < size+free {
		return 0, &FullError{Bound: BoundDisk, RetryAfter: b.cfg.RetryAfter}
	}
	return size, nil
}

// nextHeader is the header of the segment that follows the newest one.
func (j *journal) nextHeader() frame.Header {
	last := j.sealed
	if j.active != nil {
		last = seal{header: j.active.header, end: j.pos}
	}
	if last.header.Segment == 0 {
		return frame.Header{Log: j.id, Segment: 1, First: 1}
	}
	h := last.header.Next(last.end)
	if last.broken {
		h.Prev.End += frame.Align
	}
	return h
}

// refusal turns a full disk into a [FullError].
func (b *Inbox) refusal(err error) error {
	if errors.Is(err, durable.ErrNoSpace) {
		return &FullError{Bound: BoundDisk, RetryAfter: b.cfg.RetryAfter, Err: err}
	}
	return err
}

// A request is one frame to be appended.
type request struct {
	typ uint8
	// meta and body are the payload.
	meta, body []byte
	// entry is what the frame stores, if it does.
	entry *entry

	// Set by the leader before the batch is done.
	err    error
	seg    *segment
	offset int64
	lsn    uint64
}

func (r *request) size() int64 { return frame.Size(len(r.meta) + len(r.body)) }

// A batch is requests that are committed together.
type batch struct {
	requests []*request
	// done is closed when each request has its error, or nil: then it is on
	// stable storage.
	done chan struct{}
	// lead makes whoever receives from it the leader of this batch.
	lead chan struct{}
	// want is how many requests the leader waits for, and full has a token
	// when they are there. Guarded by qmu.
	want int
	full chan struct{}
}

func newBatch() *batch {
	return &batch{done: make(chan struct{}), lead: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

// join puts requests into the next batch. It reports whether the caller has
// to lead it: the first to come while no commit is under way does, and whoever
// comes meanwhile waits for the next, which one of them will lead. Every
// caller calls [journal.await] next.
func (j *journal) join(requests ...*request) (b *batch, leads bool) {
	j.qmu.Lock()
	defer j.qmu.Unlock()
	b = j.next
	b.requests = append(b.requests, requests...)
	if b.want > 0 && len(b.requests) >= b.want {
		signal(b.full)
	}
	leads = !j.busy
	j.busy = true
	return b, leads
}

// await returns when the batch is committed; the errors are in its requests.
func (j *journal) await(b *batch, leads bool) {
	if !leads {
		select {
		case <-b.done:
			return
		case <-b.lead:
		}
	}
	j.gather(b)
	j.qmu.Lock()
	j.next = newBatch()
	marks := j.marks
	j.marks = nil
	j.qmu.Unlock()

	j.lead(b, marks)

	j.qmu.Lock()
	defer j.qmu.Unlock()
	j.commits++
	if len(j.next.requests) > 0 {
		j.next.lead <- struct{}{}
	} else {
		j.busy = false
	}
}

// lead commits a batch, with done marks in front: they are small, and free
// room. Marks that could not be written wait for a later commit.
func (j *journal) lead(b *batch, marks [][]byte) {
	requests := b.requests
	if len(marks) > 0 {
		requests = make([]*request, 0, len(marks)+len(b.requests))
		for _, m := range marks {
			requests = append(requests, &request{typ: frameDone, meta: m})
		}
		requests = append(requests, b.requests...)
	}
	j.commit(requests)
	var again [][]byte
	for _, r := range requests[:len(marks)] {
		if r.err != nil {
			again = append(again, r.meta)
		}
	}
	j.qmu.Lock()
	j.marks = append(again, j.marks...)
	// Every frame promises what stood before its commit. Entries want such a
	// promise; a mark or a promise may be lost.
	hasEntry := slices.ContainsFunc(requests, func(r *request) bool { return isEntry(r.typ) })
	j.unpromised = hasEntry || (j.unpromised && requests[0].err != nil)
	j.qmu.Unlock()
	if last := requests[len(requests)-1]; last.typ == frameSynced && last.err == nil {
		last.err = j.hint()
	}
	j.box.settle(b.requests)
	close(b.done)
}

// commit appends frames and syncs them.
func (j *journal) commit(requests []*request) {
	var noRoom error
	var write []*request
	end := int64(0) // behind what is in write
	flush := func() {
		j.write(write)
		write = nil
	}
	for _, r := range requests {
		size := r.size()
		fits := j.active != nil && max(end, j.pos.Offset)+size <= j.active.limit(r.typ)
		if !fits && noRoom == nil {
			flush()
			end = 0
			// A write that failed has taken the active segment away.
			if noRoom = j.rotate(r.typ, size); noRoom == nil {
				fits = true
			}
		}
		if !fits {
			r.err = noRoom
			continue
		}
		write = append(write, r)
		end = max(end, j.pos.Offset) + size
	}
	flush()
}

// write appends frames, which fit, to the active segment, and syncs it.
func (j *journal) write(requests []*request) {
	if len(requests) == 0 {
		return
	}
	fail := func(err error) {
		for _, r := range requests {
			r.err = err
		}
	}
	seed, pos := j.active.header.Seed(), j.pos
	need := len(requests) * frame.HeaderSize
	if cap(j.headers) < need {
		j.headers = make([]byte, need)
	}
	parts := j.parts[:0]
	for i, r := range requests {
		h := (*[frame.HeaderSize]byte)(j.headers[i*frame.HeaderSize : need])
		r.seg, r.offset, r.lsn = j.active, pos.Offset, pos.LSN
		pos = seed.Header(h, pos, frame.Frame{Type: r.typ, Synced: j.synced}, r.meta, r.body)
		for _, p := range [...][]byte{h[:], r.meta, r.body, frame.Padding(len(r.meta) + len(r.body))} {
			if len(p) > 0 {
				parts = append(parts, p)
			}
		}
	}
	_, err := j.active.file.WriteVecAt(parts, j.pos.Offset)
	clear(parts) // keep nobody's body
	j.parts = parts[:0]
	if err != nil {
		// Something of it may stand there. Nothing is written over it.
		j.seal()
		fail(j.box.refusal(err))
		return
	}
	if err := j.active.file.Sync(); err != nil {
		fail(err)
		return
	}
	j.pos, j.synced = pos, pos.Offset
}

// markDone has an entry's done mark written by a later commit.
func (j *journal) markDone(serial uint64, outcome fencepost.Reason) {
	j.qmu.Lock()
	defer j.qmu.Unlock()
	j.marks = append(j.marks, encodeDone(serial, outcome))
}

// flush commits the marks that wait, and a frame that promises all before
// it. There is nothing to do if neither is needed.
func (j *journal) flush() error {
	j.qmu.Lock()
	idle := len(j.marks) == 0 && !j.unpromised
	j.qmu.Unlock()
	if idle {
		return nil
	}
	r := &request{typ: frameSynced}
	j.await(j.join(r))
	return r.err
}

// A hint, in the file of the slot's lock, says up to where the newest segment
// is known to be synced: evidence that does not perish with that segment. It
// is written when the log falls idle, and needs no sync of its own, since one
// that is missing or old says less, never more.
//
//	segment  8
//	offset   8
//	crc      4  CRC-32C of these 16 bytes, seeded as the segment's frames are
const hintSize = 20

func encodeHint(id frame.Log, segment uint64, offset int64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, segment)
	b = binary.LittleEndian.AppendUint64(b, uint64(offset))
	return binary.LittleEndian.AppendUint32(b, id.Seed(segment).Sum(b))
}

// hint writes what is synced now; the leader calls it.
func (j *journal) hint() error {
	_, err := j.lock.WriteAt(encodeHint(j.id, j.active.number, j.synced), 0)
	return err
}

// takeHint reads the hint that the process before has left, and removes it
// durably: its segment may be removed from now on. Segment 0 is no hint.
func (j *journal) takeHint() (segment uint64, offset int64, err error) {
	b := make([]byte, hintSize)
	n, err := j.lock.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, 0, err
	}
	if n < hintSize || bytes.Equal(b, make([]byte, hintSize)) {
		return 0, 0, nil
	}
	segment, offset = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
	if !bytes.Equal(b, encodeHint(j.id, segment, offset)) {
		segment, offset = 0, 0
	}
	return segment, offset, j.dropHint()
}

// dropHint removes the hint durably.
func (j *journal) dropHint() error {
	_, err := j.lock.WriteAt(make([]byte, hintSize), 0)
	return errors.Join(err, j.lock.Sync())
}

// close frees the files and the slot.
func (j *journal) close() error {
	var errs []error
	for _, s := range j.segments {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(append(errs, j.lock.Close())...)
}
