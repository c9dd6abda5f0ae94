package fencepost

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// A SourceID names a source for ever, whatever its key, repository or policy
// become: a UUID of RFC 9562 in its lower-case form, never all zero.
type SourceID [16]byte

// ParseSourceID parses 36 characters such as
// "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11". Its error matches [ErrMalformed].
func ParseSourceID(s string) (SourceID, error) {
	var id SourceID
	malformed := fmt.Errorf("source id: want a lower-case UUID: %w", ErrMalformed)
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return SourceID{}, malformed
	}
	digits := strings.ReplaceAll(s, "-", "")
	if len(digits) != hex.EncodedLen(len(id)) || !isLowerHex(digits) {
		return SourceID{}, malformed
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil || id.IsZero() {
		return SourceID{}, malformed
	}
	return id, nil
}

// IsZero reports whether id names no source.
func (id SourceID) IsZero() bool { return id == SourceID{} }

// String returns the form that [ParseSourceID] takes.
func (id SourceID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// A SourceRevision is the digest of a whole source policy. Work that was
// asked for under another revision is never applied (DESIGN §9).
type SourceRevision [32]byte

// ParseSourceRevision parses 64 lower-case hexadecimal digits. Its error
// matches [ErrMalformed].
func ParseSourceRevision(s string) (SourceRevision, error) {
	var r SourceRevision
	if len(s) != hex.EncodedLen(len(r)) || !isLowerHex(s) {
		return SourceRevision{}, fmt.Errorf("source revision: want 64 lower-case hexadecimal digits: %w", ErrMalformed)
	}
	if _, err := hex.Decode(r[:], []byte(s)); err != nil || r.IsZero() {
		return SourceRevision{}, fmt.Errorf("source revision: %w", ErrMalformed)
	}
	return r, nil
}

// IsZero reports whether r is the revision of nothing.
func (r SourceRevision) IsZero() bool { return r == SourceRevision{} }

// String returns 64 lower-case hexadecimal digits.
func (r SourceRevision) String() string { return hex.EncodeToString(r[:]) }

// A RunID names one run log of a source.
type RunID [16]byte

// NewRunID draws a run id from random. It fails only if random does.
func NewRunID(random io.Reader) (RunID, error) {
	var id RunID
	for id.IsZero() {
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return RunID{}, fmt.Errorf("draw run id: %w", err)
		}
	}
	return id, nil
}

// ParseRunID parses the form that [RunID.String] gives. Its error matches
// [ErrMalformed].
func ParseRunID(s string) (RunID, error) {
	var id RunID
	rest, ok := strings.CutPrefix(s, "run_")
	raw, err := base32Lower.DecodeString(rest)
	if !ok || err != nil || len(raw) != len(id) || base32Lower.EncodeToString(raw) != rest {
		return RunID{}, fmt.Errorf("run id: want run_ and 26 characters of a-z and 2-7: %w", ErrMalformed)
	}
	copy(id[:], raw)
	if id.IsZero() {
		return RunID{}, fmt.Errorf("run id: %w", ErrMalformed)
	}
	return id, nil
}

// IsZero reports whether id names no run.
func (id RunID) IsZero() bool { return id == RunID{} }

// String returns "run_" and 26 characters of a-z and 2-7.
func (id RunID) String() string { return "run_" + base32Lower.EncodeToString(id[:]) }
