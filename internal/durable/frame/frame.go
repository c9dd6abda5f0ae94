package frame

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 40
	// Align is what offset and length of a frame with its padding are
	// multiples of, in bytes.
	Align = 8
	// MaxPayload is the longest payload that the format carries, in bytes.
	MaxPayload = 1 << 30

	crcAt = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Log names a log: the UUID of its root, and the shard in it.
type Log struct {
	UUID  [16]byte
	Shard uint32
}

// A Seed is what the checksums of one segment start from.
type Seed uint32

// Seed returns the seed of a segment of the log.
func (l Log) Seed(segment uint64) Seed {
	var b [28]byte
	copy(b[:], l.UUID[:])
	binary.LittleEndian.PutUint32(b[16:], l.Shard)
	binary.LittleEndian.PutUint64(b[20:], segment)
	return Seed(crc32.Checksum(b[:], castagnoli))
}

// Sum is the checksum of b, started from the seed, for what a store keeps
// about a segment elsewhere.
func (s Seed) Sum(b []byte) uint32 { return crc32.Update(uint32(s), castagnoli, b) }

// A Position is a place between frames of one segment: the end of one, and
// where the next goes.
type Position struct {
	// Offset is in bytes from the start of the segment.
	Offset int64
	// LSN is the next frame's.
	LSN uint64
	// CRC is that of the frame before, or of the segment's header.
	CRC uint32
}

// A Frame is what a log stores.
type Frame struct {
	// Type is the payload's, from 1.
	Type uint8
	// Flags are the payload's.
	Flags uint8
	// Synced is the offset in the same segment up to which all bytes were
	// synced when the frame was made: evidence, should they be missing later.
	Synced int64
	// Payload is what the log is for. One that comes from a [Reader] is valid
	// until the Reader's next call.
	Payload []byte

	// Offset and LSN are where it stands; [Seed.Append] takes them from its
	// position.
	Offset int64
	LSN    uint64
}

// Size is what a payload of n bytes takes of a segment: header, payload and
// padding, in bytes.
func Size(n int) int64 { return int64(HeaderSize+n+Align-1) &^ (Align - 1) }

var zeros [Align]byte

// Padding is what must follow a payload of n bytes.
func Padding(n int) []byte { return zeros[:-n&(Align-1)] }

// Append appends the frame that goes to pos, whole, to dst, and returns the
// position behind it.
func (s Seed) Append(dst []byte, pos Position, f Frame) ([]byte, Position) {
	var h [HeaderSize]byte
	next := s.Header(&h, pos, f, f.Payload)
	dst = append(dst, h[:]...)
	dst = append(dst, f.Payload...)
	return append(dst, Padding(len(f.Payload))...), next
}

// Header makes the header of the frame that goes to pos and whose payload is
// the parts, one after the other; f.Payload is not looked at. It returns the
// position behind the frame. The frame is the header, the parts and
// [Padding], for a write that copies nothing. The payload must be at most
// [MaxPayload] long, and f.Type must not be 0.
func (s Seed) Header(h *[HeaderSize]byte, pos Position, f Frame, parts ...[]byte) Position {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxPayload || f.Type == 0 {
		panic("frame: payload or type outside of the format")
	}
	*h = [HeaderSize]byte{}
	le := binary.LittleEndian
	le.PutUint32(h[0:], uint32(HeaderSize+n))
	h[4], h[5] = f.Type, f.Flags
	le.PutUint64(h[8:], pos.LSN)
	le.PutUint32(h[16:], pos.CRC)
	le.PutUint64(h[24:], uint64(f.Synced))
	crc := crc32.Update(uint32(s), castagnoli, h[:crcAt])
	for _, p := range parts {
		crc = crc32.Update(crc, castagnoli, p)
	}
	le.PutUint32(h[crcAt:], crc)
	return Position{Offset: pos.Offset + Size(n), LSN: pos.LSN + 1, CRC: crc}
}

// A header is a frame's header as it was read.
type header struct {
	length, prev, crc uint32
	typ, flags        uint8
	lsn               uint64
	synced            int64
}

// isZero reports whether b holds zeros only.
func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// parseHeader reads a header of [HeaderSize] bytes that is to stand at
// offset. It checks what needs neither the payload nor the frame before.
func parseHeader(b []byte, offset int64, maxPayload int) (header, error) {
	le := binary.LittleEndian
	h := header{
		length: le.Uint32(b[0:]), typ: b[4], flags: b[5],
		lsn: le.Uint64(b[8:]), prev: le.Uint32(b[16:]),
		synced: int64(le.Uint64(b[24:])), crc: le.Uint32(b[crcAt:]),
	}
	switch {
	case h.length < HeaderSize:
		return header{}, &badError{"length below a header's"}
	case int64(h.length) > HeaderSize+int64(maxPayload):
		return header{}, &badError{"length over the bound"}
	case h.typ == 0, le.Uint16(b[6:]) != 0, le.Uint32(b[20:]) != 0, le.Uint32(b[36:]) != 0:
		return header{}, &badError{"header malformed"}
	case h.synced < SegmentHeaderSize || h.synced > offset:
		return header{}, &badError{"synced offset outside of what lies before"}
	}
	return h, nil
}

// verify checks the checksum of a whole frame, with its padding.
func (s Seed) verify(h header, b []byte) error {
	crc := crc32.Update(uint32(s), castagnoli, b[:crcAt])
	crc = crc32.Update(crc, castagnoli, b[HeaderSize:h.length])
	if crc != h.crc {
		return &badError{"checksum"}
	}
	if !isZero(b[h.length:]) {
		return &badError{"padding"}
	}
	return nil
}

// Decode reads the one frame that b holds, which stands at offset in its
// segment. It checks the frame's own bytes, not its place in the chain. The
// payload is part of b. Its error matches [ErrBad].
func (s Seed) Decode(b []byte, offset int64) (Frame, error) {
	if len(b) < HeaderSize {
		return Frame{}, &badError{"shorter than a header"}
	}
	h, err := parseHeader(b, offset, MaxPayload)
	if err != nil {
		return Frame{}, err
	}
	if int64(len(b)) != Size(int(h.length)-HeaderSize) {
		return Frame{}, &badError{"length"}
	}
	if err := s.verify(h, b); err != nil {
		return Frame{}, err
	}
	return h.frame(b, offset), nil
}

// frame is the frame of a header whose checksum was verified.
func (h header) frame(b []byte, offset int64) Frame {
	return Frame{
		Type: h.typ, Flags: h.flags, Synced: h.synced,
		Payload: b[HeaderSize:h.length], Offset: offset, LSN: h.lsn,
	}
}
