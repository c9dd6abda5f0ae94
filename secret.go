package fencepost

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is bytes that print as "[redacted]" under every fmt verb and
// every encoder, and that can be zeroed (DESIGN §10). Copies share the bytes,
// so zeroing one empties all. The zero Secret is empty. Not safe for use
// concurrent with [Secret.Zero].
//
// Zeroing reaches the Secret's own bytes. What a caller of [Secret.Reveal]
// copied, or the runtime moved, is beyond it.
//
// The bytes are behind a function because printers call no method on an
// unexported field, and fmt, asked for a verb that a pointer doesn't have,
// prints what the pointer points to. No printer looks into a function.
type Secret struct{ box func() *[]byte }

// NewSecret copies b and zeroes it.
func NewSecret(b []byte) Secret {
	own := make([]byte, len(b))
	copy(own, b)
	clear(b)
	return Secret{box: func() *[]byte { return &own }}
}

// Len is the number of bytes.
func (s Secret) Len() int { return len(s.Reveal()) }

// Reveal returns the bytes themselves, not a copy. The caller must neither
// keep, change nor print them.
func (s Secret) Reveal() []byte {
	if s.box == nil {
		return nil
	}
	return *s.box()
}

// Equal compares in time that depends on the lengths alone.
func (s Secret) Equal(t Secret) bool {
	return subtle.ConstantTimeCompare(s.Reveal(), t.Reveal()) == 1
}

// Zero overwrites the bytes and empties the secret and all its copies.
func (s Secret) Zero() {
	if s.box == nil {
		return
	}
	b := s.box()
	clear(*b)
	*b = nil
}

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// Format writes "[redacted]" under every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText implements [encoding.TextMarshaler] with "[redacted]", and
// with it the JSON, YAML and XML encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalBinary implements [encoding.BinaryMarshaler] with "[redacted]", and
// with it encoding/gob.
func (s Secret) MarshalBinary() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer] with "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
