package pack

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestBothWaysToApplyADeltaAgree holds the way through memory, which most
// deltas take, against the one that large ones take.
func TestBothWaysToApplyADeltaAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(rapid.StringN(1, 300, 300).Draw(t, "base"))
		text := makeDelta(content, []byte(rapid.StringN(1, 300, 600).Draw(t, "result")))
		if rapid.Bool().Draw(t, "damaged") {
			// Behind the two sizes, which are read before.
			at := rapid.IntRange(min(4, len(text)-1), len(text)-1).Draw(t, "at")
			text[at] = rapid.Byte().Draw(t, "byte")
			if rapid.Bool().Draw(t, "cut") {
				text = text[:at]
			}
		}
		want, wantErr := applyTo(content, text, true)
		b := &base{size: int64(len(content)), whole: content}
		r := newResolver(&Store{}, Options{}, &budget{})
		size, ok := r.fits(b, text)
		if !ok {
			return // the other way is taken
		}
		got := make([]byte, size)
		err := applyWhole(content, text, got)
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%x on %q: %q, %v; the other way %q, %v", text, content, got, err, want, wantErr)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}
