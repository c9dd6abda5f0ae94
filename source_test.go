package fencepost_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

func TestParseSourceID(t *testing.T) {
	t.Parallel()
	const whole = "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11"
	id, err := fencepost.ParseSourceID(whole)
	if err != nil || id.String() != whole || id.IsZero() || id[0] != 0x5a || id[15] != 0x11 {
		t.Fatalf("%v = %x, %v", id, id[:], err)
	}
	for name, text := range map[string]string{
		"empty":             "",
		"capitals":          strings.ToUpper(whole),
		"braces":            "{" + whole + "}",
		"no hyphens":        strings.ReplaceAll(whole, "-", ""),
		"hyphen misplaced":  "5a0e3a4e6-b0c-4f0e-9d7b-0c1f5f1c9a11",
		"hyphen for digit":  "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a1-",
		"no digit":          "5a0e3a4g-6b0c-4f0e-9d7b-0c1f5f1c9a11",
		"short":             whole[:35],
		"long":              whole + "1",
		"blank":             whole[:35] + " ",
		"all zero":          "00000000-0000-0000-0000-000000000000",
		"urn":               "urn:uuid:" + whole,
		"digit not in 0-9":  "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a\u0661",
		"more bytes hidden": "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a\x00\x00",
	} {
		if id, err := fencepost.ParseSourceID(text); !errors.Is(err, fencepost.ErrMalformed) || !id.IsZero() {
			t.Errorf("%s: %v, %v, want ErrMalformed and no id", name, id, err)
		}
	}
}

func TestParseSourceRevision(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("0f", 32)
	r, err := fencepost.ParseSourceRevision(whole)
	if err != nil || r.String() != whole || r.IsZero() {
		t.Fatalf("%v, %v", r, err)
	}
	for name, text := range map[string]string{
		"empty": "", "short": whole[:62], "odd": whole[:63], "long": whole + "00", "capitals": strings.ToUpper(whole),
		"no digit": "g" + whole[1:], "all zero": strings.Repeat("0", 64), "prefix": "sha256:" + whole[7:],
	} {
		if r, err := fencepost.ParseSourceRevision(text); !errors.Is(err, fencepost.ErrMalformed) || !r.IsZero() {
			t.Errorf("%s: %v, %v, want ErrMalformed and no revision", name, r, err)
		}
	}
}

func TestParseRunID(t *testing.T) {
	t.Parallel()
	const whole = "run_ifq7mzoskrk3gl362r2hhjozee"
	id, err := fencepost.ParseRunID(whole)
	if err != nil || id.String() != whole || id.IsZero() {
		t.Fatalf("%v, %v", id, err)
	}
	for name, text := range map[string]string{
		"empty": "", "prefix alone": "run_", "other prefix": "evl" + whole[3:], "no prefix": whole[4:], "capitals": "run_" + strings.ToUpper(whole[4:]),
		"short": whole[:29], "long": whole + "a", "padding": whole + "======", "no base32": whole[:29] + "1", "all zero": "run_" + strings.Repeat("a", 26),
		// Its last two bits belong to no byte: two texts for one id.
		"bits to spare": whole[:29] + "f", "line end": whole + "\n", "line end within": whole[:10] + "\n" + whole[10:],
	} {
		if id, err := fencepost.ParseRunID(text); !errors.Is(err, fencepost.ErrMalformed) || !id.IsZero() {
			t.Errorf("%s: %v, %v, want ErrMalformed and no id", name, id, err)
		}
	}
}

func TestNewRunIDDrawsUntilItIsOne(t *testing.T) {
	t.Parallel()
	random := io.MultiReader(bytes.NewReader(make([]byte, 32)), strings.NewReader("0123456789abcdef"))
	id, err := fencepost.NewRunID(random)
	if err != nil || string(id[:]) != "0123456789abcdef" {
		t.Errorf("%v, %v, want the first draw that is not all zero", id, err)
	}
	if id, err := fencepost.NewRunID(strings.NewReader("short")); !errors.Is(err, io.ErrUnexpectedEOF) || !id.IsZero() {
		t.Errorf("%v, %v, want the error of the source and no id", id, err)
	}
}

// TestSourceNamesRoundTrip: what is printed parses to the same value, and what
// parses prints as the same text.
func TestSourceNamesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes")
		id, run := fencepost.SourceID(raw[:16]), fencepost.RunID(raw[16:])
		revision := fencepost.SourceRevision(raw)
		if got, err := fencepost.ParseSourceID(id.String()); got != id || (err != nil) != id.IsZero() {
			t.Fatalf("%v became %v, %v", id, got, err)
		}
		if got, err := fencepost.ParseRunID(run.String()); got != run || (err != nil) != run.IsZero() {
			t.Fatalf("%v became %v, %v", run, got, err)
		}
		if got, err := fencepost.ParseSourceRevision(revision.String()); got != revision || (err != nil) != revision.IsZero() {
			t.Fatalf("%v became %v, %v", revision, got, err)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[0-9a-fA-F-]{34,38}`), rapid.StringMatching(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
			rapid.StringMatching(`run_[a-z2-7]{26}`), rapid.StringMatching(`[0-9a-f]{64}`), rapid.String(),
		).Draw(t, "text")
		if id, err := fencepost.ParseSourceID(text); err == nil && id.String() != text {
			t.Fatalf("source id %q prints as %s", text, id)
		}
		if id, err := fencepost.ParseRunID(text); err == nil && id.String() != text {
			t.Fatalf("run id %q prints as %s", text, id)
		}
		if r, err := fencepost.ParseSourceRevision(text); err == nil && r.String() != text {
			t.Fatalf("revision %q prints as %s", text, r)
		}
	})
}
