package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/fencepost/fencepost/internal/durable"
)

// SegmentHeaderSize is what a segment's header takes, in bytes: a page, so
// that writing frames never writes it again.
const SegmentHeaderSize = 4096

const (
	magic        = "fpseg\x00\x00\x01"
	headerCRCAt  = 68
	headerLength = 72
)

// A Seal says where the frames of a segment ended for good.
type Seal struct {
	// Segment is its number; 0 for no segment.
	Segment uint64
	// End is the offset behind its last frame.
	End int64
	// CRC is that of its last frame, or of its header if it has none.
	CRC uint32
}

// A Header is the header of a segment.
type Header struct {
	// Log is the log that the segment belongs to.
	Log Log
	// Segment is its number, from 1.
	Segment uint64
	// First is the LSN of its first frame.
	First uint64
	// Prev seals the segment before.
	Prev Seal
}

// Seed is what the segment's checksums start from.
func (h Header) Seed() Seed { return h.Log.Seed(h.Segment) }

// Start is the position of the segment's first frame.
func (h Header) Start() Position {
	b := h.Encode()
	return Position{
		Offset: SegmentHeaderSize, LSN: h.First,
		CRC: binary.LittleEndian.Uint32(b[headerCRCAt:]),
	}
}

// Next is the header of the segment that follows this one, whose frames end
// at pos.
func (h Header) Next(pos Position) Header {
	return Header{
		Log: h.Log, Segment: h.Segment + 1, First: pos.LSN,
		Prev: Seal{Segment: h.Segment, End: pos.Offset, CRC: pos.CRC},
	}
}

// Encode returns the header's bytes, without the zeros behind it.
func (h Header) Encode() []byte {
	b := make([]byte, headerLength)
	le := binary.LittleEndian
	copy(b, magic)
	copy(b[8:], h.Log.UUID[:])
	le.PutUint32(b[24:], h.Log.Shard)
	le.PutUint64(b[32:], h.Segment)
	le.PutUint64(b[40:], h.First)
	le.PutUint64(b[48:], h.Prev.Segment)
	le.PutUint64(b[56:], uint64(h.Prev.End))
	le.PutUint32(b[64:], h.Prev.CRC)
	le.PutUint32(b[headerCRCAt:], crc32.Checksum(b[:headerCRCAt], castagnoli))
	return b
}

// DecodeHeader reads the header of a segment from its first
// [SegmentHeaderSize] bytes, or fewer if the file is shorter, which is an
// error. Its error matches [ErrBad]; as a segment has its header before it
// has its name, that is corruption of a named one.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) < SegmentHeaderSize {
		return Header{}, &badError{"segment shorter than its header"}
	}
	b = b[:SegmentHeaderSize]
	le := binary.LittleEndian
	h := Header{
		Log:     Log{Shard: le.Uint32(b[24:])},
		Segment: le.Uint64(b[32:]), First: le.Uint64(b[40:]),
		Prev: Seal{Segment: le.Uint64(b[48:]), End: int64(le.Uint64(b[56:])), CRC: le.Uint32(b[64:])},
	}
	copy(h.Log.UUID[:], b[8:])
	switch {
	case string(b[:len(magic)]) != magic:
		return Header{}, &badError{"not a segment of this version"}
	case crc32.Checksum(b[:headerCRCAt], castagnoli) != le.Uint32(b[headerCRCAt:]):
		return Header{}, &badError{"checksum of the segment's header"}
	case le.Uint32(b[28:]) != 0 || !isZero(b[headerLength:]):
		return Header{}, &badError{"segment header malformed"}
	case h.Segment == 0 || h.Prev.Segment >= h.Segment:
		return Header{}, &badError{"segment numbers"}
	case h.Prev.Segment != 0 && h.Prev.End < SegmentHeaderSize:
		return Header{}, &badError{"seal inside of a header"}
	}
	return h, nil
}

// ReadHeader reads the header of the segment in f, which must be number
// segment of log. A header that is not is a [CorruptError] of file.
func ReadHeader(f durable.File, file string, log Log, segment uint64) (Header, error) {
	b := make([]byte, SegmentHeaderSize)
	n, err := readFull(f, b, 0)
	if err != nil {
		return Header{}, fmt.Errorf("read header of %s: %w", file, err)
	}
	h, err := DecodeHeader(b[:n])
	if err == nil && (h.Log != log || h.Segment != segment) {
		err = &badError{"header of another segment"}
	}
	if err != nil {
		return Header{}, &CorruptError{File: file, Offset: 0, Why: err.Error()}
	}
	return h, nil
}

// Install gives a prepared segment its header and its name. f is the open
// file temp, full of zeros, its length synced. After a crash there is the
// whole segment under name, or none; after a nil error it is there. The
// segment before must be synced already, up to h.Prev.End.
//
// After an error the segment may be there all the same, and seals the one
// before: nothing may be appended to that until Install has succeeded, with
// the same header, or the log would end before what was appended.
//
//	write header, sync        the file is a whole segment
//	rename temp to name
//	sync the directory        the name is durable: frames may follow
func Install(fsys durable.FS, f durable.File, temp, name string, h Header) error {
	if _, err := f.WriteAt(h.Encode(), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
