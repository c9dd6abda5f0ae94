package fencepost

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// An Encoder writes the canonical, length-prefixed encoding that every
// digest of this package is taken over: the domain, then fields one after
// the other, each as an unsigned 64-bit big-endian byte count and that many
// bytes. docs/encoding.md specifies it byte by byte.
//
// Two sequences of fields encode alike only if they are alike, so no field
// can borrow bytes from its neighbour, and no digest of one domain can be
// taken for one of another.
type Encoder struct{ buf []byte }

// NewEncoder begins an encoding in the given domain, such as
// "fencepost.delivery-key/v1".
func NewEncoder(domain string) *Encoder {
	e := &Encoder{buf: make([]byte, 0, 256)}
	return e.Text(domain)
}

// Bytes appends one field.
func (e *Encoder) Bytes(field []byte) *Encoder {
	e.prefix(len(field))
	e.buf = append(e.buf, field...)
	return e
}

// Text appends one field of the bytes of s.
func (e *Encoder) Text(s string) *Encoder {
	e.prefix(len(s))
	e.buf = append(e.buf, s...)
	return e
}

// Uint appends one field of eight bytes, big-endian.
func (e *Encoder) Uint(n uint64) *Encoder {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return e.Bytes(b[:])
}

// Int appends one field of eight bytes, big-endian two's complement.
func (e *Encoder) Int(n int64) *Encoder { return e.Uint(uint64(n)) }

// Bool appends one field of one byte, 0 or 1.
func (e *Encoder) Bool(b bool) *Encoder {
	if b {
		return e.Bytes([]byte{1})
	}
	return e.Bytes([]byte{0})
}

// Time appends one field: nanoseconds since 1970-01-01T00:00:00Z as
// [Encoder.Int]. The zero time is an empty field.
func (e *Encoder) Time(t time.Time) *Encoder {
	if t.IsZero() {
		return e.Bytes(nil)
	}
	return e.Int(t.UnixNano())
}

// List begins a list of n items, whose fields follow: one field holding n as
// [Encoder.Uint].
func (e *Encoder) List(n int) *Encoder { return e.Uint(uint64(n)) }

// Sum returns the SHA-256 of what was written so far.
func (e *Encoder) Sum() [sha256.Size]byte { return sha256.Sum256(e.buf) }

func (e *Encoder) prefix(n int) {
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(n))
}
