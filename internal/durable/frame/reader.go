package frame

import (
	"errors"
	"fmt"
	"io"
)

// readAhead is how much a [Reader] reads at a time, in bytes.
const readAhead = 256 << 10

// A Reader reads the frames of one segment in order, also while they are
// being appended. It is not safe for concurrent use.
type Reader struct {
	src        io.ReaderAt
	file       string
	seed       Seed
	maxPayload int
	size       int64 // of the file, in bytes
	pos        Position
	promised   int64
	seal       *Seal

	// buf holds the bytes from bufAt on.
	buf   []byte
	bufAt int64
}

// NewReader reads the segment with header h from src, which is size bytes
// long; file is its name, for errors. Payloads are at most maxPayload bytes
// long; a longer one is no frame.
func NewReader(src io.ReaderAt, file string, size int64, h Header, maxPayload int) *Reader {
	return &Reader{
		src: src, file: file, seed: h.Seed(), size: size,
		maxPayload: min(maxPayload, MaxPayload),
		pos:        h.Start(), promised: SegmentHeaderSize,
	}
}

// At moves the Reader to a position that it or another Reader of the same
// segment has been at.
func (r *Reader) At(pos Position) { r.pos, r.buf = pos, nil }

// Seal says what the next segment's header says of this one: frames end at
// s.End, which was synced, and nothing behind it counts.
func (r *Reader) Seal(s Seal) {
	r.seal = &s
	r.Promise(s.End)
}

// Promise says that everything up to an offset is known to have been synced.
func (r *Reader) Promise(synced int64) { r.promised = max(r.promised, synced) }

// Promised is the highest offset known to have been synced, from frames read
// so far, Seal and Promise.
func (r *Reader) Promised() int64 { return r.promised }

// Position is where the next frame is expected.
func (r *Reader) Position() Position { return r.pos }

// Next returns the next frame. [io.EOF] means that there is none yet: the
// place where it would begin holds zeros, or is the segment's end or seal. An
// error that matches [ErrBad] means that something else is there. After
// either, [Reader.Judge] tells what that means; Next may also be called again,
// and then looks anew. Any other error is the source's.
func (r *Reader) Next() (Frame, error) {
	f, err := r.next()
	if err != nil {
		r.buf = nil // what is there may change until the next look
	}
	return f, err
}

func (r *Reader) next() (Frame, error) {
	if r.seal != nil && r.pos.Offset >= r.seal.End {
		if r.pos.Offset > r.seal.End || r.pos.CRC != r.seal.CRC {
			return Frame{}, &badError{"frames differ from what the seal says"}
		}
		return Frame{}, io.EOF
	}
	b, err := r.bytes(r.pos.Offset, HeaderSize)
	if err != nil {
		return Frame{}, err
	}
	if isZero(b) {
		return Frame{}, io.EOF
	}
	if len(b) < HeaderSize {
		return Frame{}, &badError{"cut off by the segment's end"}
	}
	f, h, err := r.frame(r.pos.Offset)
	if err != nil {
		return Frame{}, err
	}
	if f.LSN != r.pos.LSN {
		return Frame{}, &badError{"LSN out of order"}
	}
	if h.prev != r.pos.CRC {
		return Frame{}, &badError{"chain broken"}
	}
	r.pos = Position{Offset: r.pos.Offset + Size(len(f.Payload)), LSN: f.LSN + 1, CRC: h.crc}
	r.Promise(f.Synced)
	return f, nil
}

// frame returns the frame at offset if its own bytes verify, whatever stands
// before it.
func (r *Reader) frame(offset int64) (Frame, header, error) {
	b, err := r.bytes(offset, HeaderSize)
	if err != nil {
		return Frame{}, header{}, err
	}
	if len(b) < HeaderSize {
		return Frame{}, header{}, &badError{"cut off by the segment's end"}
	}
	h, err := parseHeader(b, offset, r.maxPayload)
	if err != nil {
		return Frame{}, header{}, err
	}
	size := int(Size(int(h.length) - HeaderSize))
	if b, err = r.bytes(offset, size); err != nil {
		return Frame{}, header{}, err
	}
	if len(b) < size {
		return Frame{}, header{}, &badError{"cut off by the segment's end"}
	}
	if err := r.seed.verify(h, b); err != nil {
		return Frame{}, header{}, err
	}
	return h.frame(b, offset), h, nil
}

// bytes returns n bytes from offset on, fewer at the end of the segment. They
// are valid until the next call.
func (r *Reader) bytes(offset int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(r.size-offset, 0)))
	if at := offset - r.bufAt; at >= 0 && at+int64(n) <= int64(len(r.buf)) {
		return r.buf[at : at+int64(n)], nil
	}
	want := int(min(int64(max(n, readAhead)), max(r.size-offset, 0)))
	if cap(r.buf) < want {
		r.buf = make([]byte, want)
	}
	got, err := readFull(r.src, r.buf[:want], offset)
	r.buf, r.bufAt = r.buf[:got], offset
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", r.file, offset, err)
	}
	return r.buf[:min(n, got)], nil
}

// readFull reads until b is full or the source ends.
func readFull(src io.ReaderAt, b []byte, off int64) (int, error) {
	n, err := src.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// A Verdict says what is behind the last frame of a segment.
type Verdict int

const (
	// Clean: nothing.
	Clean Verdict = iota + 1
	// Torn: something that nobody was ever told was there.
	Torn
	// Corrupt: something that was promised as synced, and is lost.
	Corrupt
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Clean:
		return "clean"
	case Torn:
		return "torn"
	case Corrupt:
		return "corrupt"
	}
	return "none"
}

// Judge looks at everything behind the Reader's position, after Next has
// found no frame there. With [Corrupt] the error is a [CorruptError]; any
// other error is the source's, and leaves the verdict open. A frame that
// verifies behind that place is evidence alone: found is called for each of
// them, if it is not nil.
func (r *Reader) Judge(found func(Frame)) (Verdict, error) {
	_, err := r.next()
	switch {
	case err == nil:
		return 0, fmt.Errorf("judge %s at %d: there is a frame", r.file, r.pos.Offset)
	case errors.Is(err, io.EOF) && r.seal != nil && r.pos.Offset == r.seal.End:
		return Clean, nil
	case err != io.EOF && !errors.Is(err, ErrBad):
		return 0, err
	}
	why := err
	if why == io.EOF {
		why = errors.New("zeros")
	}
	clean, err := r.search(found)
	if err != nil {
		return 0, err
	}
	switch {
	case r.seal != nil || r.promised > r.pos.Offset:
		return Corrupt, &CorruptError{
			File: r.file, Offset: r.pos.Offset,
			Why: fmt.Sprintf("%v, but %d bytes were synced", why, r.promised),
		}
	case clean:
		return Clean, nil
	}
	return Torn, nil
}

// search looks for frames at every place behind the position where one could
// begin, and collects their promises. It reports whether there are only
// zeros.
func (r *Reader) search(found func(Frame)) (clean bool, err error) {
	clean = true
	for offset := r.pos.Offset; offset < r.size; {
		b, err := r.bytes(offset, HeaderSize)
		if err != nil {
			return false, err
		}
		if len(b) == 0 {
			return clean, nil // the file is shorter than it was
		}
		if isZero(b[:min(len(b), Align)]) {
			offset += r.zeroRun(offset)
			continue
		}
		clean = false
		f, _, err := r.frame(offset)
		switch {
		case err == nil:
			r.Promise(f.Synced)
			if found != nil {
				found(f)
			}
			offset += Size(len(f.Payload))
		case errors.Is(err, ErrBad):
			offset += Align
		default:
			return false, err
		}
	}
	return clean, nil
}

// zeroRun is how many zero bytes of the buffer follow offset, in multiples of
// [Align]; at least one.
func (r *Reader) zeroRun(offset int64) int64 {
	n := int64(0)
	for b := r.buf[offset-r.bufAt:]; len(b) > 0; b = b[min(len(b), Align):] {
		if !isZero(b[:min(len(b), Align)]) {
			break
		}
		n += Align
	}
	return max(n, Align)
}
