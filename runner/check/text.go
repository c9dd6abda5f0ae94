package check

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
)

// A Digest is a SHA-256 in 64 lower-case hexadecimal digits. The zero Digest
// is of nothing.
type Digest [sha256.Size]byte

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads 64 lower-case hexadecimal digits. Its error matches
// [fencepost.ErrMalformed].
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != hex.EncodedLen(len(d)) || strings.ToLower(s) != s {
		return Digest{}, fmt.Errorf("digest: want 64 lower-case hexadecimal digits: %w", fencepost.ErrMalformed)
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest: want 64 lower-case hexadecimal digits: %w", fencepost.ErrMalformed)
	}
	return d, nil
}

// IsZero reports whether d is of nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] by [ParseDigest].
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// A Time is an instant in the contract's one form: RFC 3339, UTC, exactly
// three digits of seconds' fraction.
type Time time.Time

// MarshalText implements [encoding.TextMarshaler]; it cuts to milliseconds.
func (t Time) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(requestTimeLayout)), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. Its error matches
// [fencepost.ErrMalformed].
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(requestTimeLayout, string(text))
	// Parse is lenient about the fraction: only the spelling that comes out
	// again is the one legal form.
	if err != nil || parsed.Format(requestTimeLayout) != string(text) {
		return fmt.Errorf("time: want the form %s: %w", requestTimeLayout, fencepost.ErrMalformed)
	}
	*t = Time(parsed)
	return nil
}

// Clip returns s, or as much of its beginning as fits into most bytes with an
// ellipsis after it; it never cuts a character. Most must be 3 or more.
func Clip(s string, most int) string {
	const ellipsis = "…"
	if len(s) <= most {
		return s
	}
	cut := most - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}

func validRun(s string) error {
	if s == "" || len(s) > MaxRunChars {
		return fmt.Errorf("run: want 1 to %d characters: %w", MaxRunChars, fencepost.ErrMalformed)
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_.:-", rune(c)) {
			return fmt.Errorf("run: want letters, digits, _ . : -: %w", fencepost.ErrMalformed)
		}
	}
	return nil
}

// validLine refuses the empty string, line ends and other control characters.
func validLine(name, s string, most int) error {
	if s == "" {
		return fmt.Errorf("%s is empty: %w", name, fencepost.ErrMalformed)
	}
	if strings.ContainsAny(s, "\n\r\t") {
		return fmt.Errorf("%s is more than one line: %w", name, fencepost.ErrMalformed)
	}
	if err := validText(s, most); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// validText allows line ends and tabs, and no other control character: what
// goes to a provider's page must not be able to steer a terminal.
func validText(s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%d bytes, at most %d: %w", len(s), most, fencepost.ErrTooLarge)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("not UTF-8: %w", fencepost.ErrMalformed)
	}
	for _, r := range s {
		if (r < ' ' && r != '\n' && r != '\r' && r != '\t') || (r >= 0x7f && r < 0xa0) {
			return fmt.Errorf("control character: %w", fencepost.ErrMalformed)
		}
	}
	return nil
}

func isName(s string) bool {
	if s == "" || len(s) > MaxEvidenceName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}
