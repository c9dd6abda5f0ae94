package pack

import (
	"encoding/binary"
	"math"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

const (
	headerLen  = 12
	version    = 2
	typeOfs    = 6
	typeRef    = 7
	firstShift = 4
)

// readCount reads the pack's header and returns the number of entries.
func (s *stream) readCount() (int64, error) {
	var h [headerLen]byte
	if err := s.readFull(h[:]); err != nil {
		return 0, err
	}
	if string(h[:4]) != "PACK" {
		return 0, malformed("no pack signature")
	}
	if v := binary.BigEndian.Uint32(h[4:]); v != version {
		return 0, malformed("version %d", v)
	}
	return int64(binary.BigEndian.Uint32(h[8:])), nil
}

// readHeader reads the type and inflated size of an entry: in the first byte
// three bits of type and four of size, then seven of size a byte, the lowest
// first. A size has one legal length: no zero group at the end.
func (s *stream) readHeader() (typ uint8, size int64, err error) {
	b, err := s.ReadByte()
	if err != nil {
		return 0, 0, s.failure(err)
	}
	typ, size = b>>4&7, int64(b&15)
	for shift := firstShift; b&0x80 != 0; shift += 7 {
		if b, err = s.ReadByte(); err != nil {
			return 0, 0, s.failure(err)
		}
		if !fits(b, shift) {
			return 0, 0, malformed("entry size over 63 bits")
		}
		if b == 0 {
			return 0, 0, malformed("entry size with a zero group at its end")
		}
		size |= int64(b&0x7f) << shift
	}
	switch typ {
	case uint8(object.Commit), uint8(object.Tree), uint8(object.Blob), uint8(object.Tag), typeOfs, typeRef:
		return typ, size, nil
	}
	return 0, 0, malformed("entry of type %d", typ)
}

// fits reports whether the seven bits of b, shifted, stay within 63.
func fits(b byte, shift int) bool {
	return shift < 63 && int64(b&0x7f) <= math.MaxInt64>>shift
}

// readDistance reads how far before its own entry the base of an offset
// delta begins: seven bits a byte, the highest first, each continuation
// adding one.
func (s *stream) readDistance() (int64, error) {
	b, err := s.ReadByte()
	if err != nil {
		return 0, s.failure(err)
	}
	d := int64(b & 0x7f)
	for b&0x80 != 0 {
		if b, err = s.ReadByte(); err != nil {
			return 0, s.failure(err)
		}
		if d >= 1<<(63-8) {
			return 0, malformed("delta base offset over 63 bits")
		}
		d = (d+1)<<7 | int64(b&0x7f)
	}
	return d, nil
}
