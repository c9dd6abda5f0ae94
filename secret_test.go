package fencepost_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/fencepost/fencepost"
)

const canary = "canary-Kai4eiv7eeYe-canary"

// holder has a secret in every place where a printer may find one.
type holder struct {
	Value    fencepost.Secret
	Pointer  *fencepost.Secret
	List     []fencepost.Secret
	Array    [1]fencepost.Secret
	Map      map[string]fencepost.Secret `xml:"-"` // encoding/xml knows no maps
	Any      any
	Attr     fencepost.Secret `xml:",attr" json:"attr" yaml:"attr"`
	hidden   fencepost.Secret
	hiddenIn struct{ s fencepost.Secret }
}

func newHolder() holder {
	s := fencepost.NewSecret([]byte(canary))
	h := holder{Value: s, Pointer: &s, List: []fencepost.Secret{s}, Array: [1]fencepost.Secret{s},
		Map: map[string]fencepost.Secret{"k": s}, Any: s, Attr: s, hidden: s}
	h.hiddenIn.s = s
	return h
}

// leaks reports whether out shows the canary in any spelling that a printer
// may give it.
func leaks(out string) bool {
	decimal := strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]byte(canary))), " "), "[]")
	lower := strings.ToLower(out)
	for _, shape := range []string{
		canary, hex.EncodeToString([]byte(canary)), fmt.Sprintf("% x", canary),
		base64.StdEncoding.EncodeToString([]byte(canary)), decimal,
		strings.ReplaceAll(decimal, " ", ","), strings.ReplaceAll(decimal, " ", ", "),
		strings.ReplaceAll(decimal, " ", "\n"),
	} {
		if strings.Contains(lower, strings.ToLower(shape)) {
			return true
		}
	}
	return false
}

func TestLeaksSeesALeak(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"%s", "%x", "%X", "% x", "%v", "%q", "%+q"} {
		if out := fmt.Sprintf(format, canary); !leaks(out) {
			t.Errorf("%s of the text: %q is not seen", format, out)
		}
		if out := fmt.Sprintf(format, []byte(canary)); !leaks(out) {
			t.Errorf("%s of the bytes: %q is not seen", format, out)
		}
	}
}

func TestSecretIsRedactedUnderEveryVerb(t *testing.T) {
	t.Parallel()
	h := newHolder()
	values := map[string]any{"value": h.Value, "pointer": h.Pointer, "list": h.List, "array": h.Array,
		"map": h.Map, "holder": h, "pointer to holder": &h, "error": fmt.Errorf("with %v: %w", h.Value, fencepost.ErrMalformed)}
	for verb := range 128 {
		for _, flags := range []string{"", "+", "#", " ", "-", "0", "+#", "# ", "60", ".3", "40.4"} {
			format := "%" + flags + string(rune(verb))
			for name, value := range values {
				if out := fmt.Sprintf(format, value); leaks(out) {
					t.Errorf("%q of %s leaks: %s", format, name, out)
				}
			}
		}
	}
	// %T and %p never reach a value's own Format; what they give is no secret.
	for _, verb := range "vsqxXdobcUeEfFgGt" {
		if out := fmt.Sprintf("%"+string(verb), h.Value); out != "[redacted]" {
			t.Errorf("%%%c = %q", verb, out)
		}
	}
	if out := fmt.Sprint(h.Value) + h.Value.String() + h.Value.GoString(); out != strings.Repeat("[redacted]", 3) {
		t.Errorf("Sprint, String, GoString = %q", out)
	}
}

func TestSecretIsRedactedByEveryEncoder(t *testing.T) {
	t.Parallel()
	encoders := map[string]func(any) ([]byte, error){
		"json": json.Marshal,
		"xml":  xml.Marshal,
		"yaml": func(v any) ([]byte, error) { return yaml.Marshal(v) },
		"yaml as json": func(v any) ([]byte, error) {
			return yaml.MarshalWithOptions(v, yaml.JSON())
		},
		"gob": func(v any) ([]byte, error) {
			if h, ok := v.(holder); ok {
				h.Any = nil // gob wants interface values registered
				v = h
			}
			var out bytes.Buffer
			err := gob.NewEncoder(&out).Encode(v)
			return out.Bytes(), err
		},
		"slog text": func(v any) ([]byte, error) {
			var out bytes.Buffer
			slog.New(slog.NewTextHandler(&out, nil)).Error("m", "v", v, slog.Group("g", "v", v))
			return out.Bytes(), nil
		},
		"slog json": func(v any) ([]byte, error) {
			var out bytes.Buffer
			slog.New(slog.NewJSONHandler(&out, nil)).With("w", v).Error("m", "v", v)
			return out.Bytes(), nil
		},
	}
	h := newHolder()
	for name, encode := range encoders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, value := range map[string]any{"value": h.Value, "pointer": h.Pointer, "list": h.List, "holder": h} {
				out, err := encode(value)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				if leaks(string(out)) {
					t.Errorf("%s leaks: %q", what, out)
				}
				if !bytes.Contains(out, []byte("redacted")) {
					t.Errorf("%s does not say that something was redacted: %q", what, out)
				}
			}
		})
	}
}

func TestNewSecretTakesTheBytesOver(t *testing.T) {
	t.Parallel()
	given := []byte(canary)
	s := fencepost.NewSecret(given)
	if string(s.Reveal()) != canary || s.Len() != len(canary) {
		t.Errorf("Reveal = %q, Len = %d", s.Reveal(), s.Len())
	}
	if !bytes.Equal(given, make([]byte, len(canary))) {
		t.Errorf("the caller's bytes were left: %q", given)
	}
}

func TestZeroEmptiesAllCopies(t *testing.T) {
	t.Parallel()
	s := fencepost.NewSecret([]byte(canary))
	dup, view := s, s.Reveal()
	s.Zero()
	if dup.Len() != 0 || len(dup.Reveal()) != 0 {
		t.Errorf("a copy still holds %d bytes", dup.Len())
	}
	if !bytes.Equal(view, make([]byte, len(canary))) {
		t.Error("the bytes themselves were left")
	}
	s.Zero()
	fencepost.Secret{}.Zero()
	if (fencepost.Secret{}).Len() != 0 {
		t.Error("the zero secret is not empty")
	}
}

func TestSecretEqual(t *testing.T) {
	t.Parallel()
	secret := func(s string) fencepost.Secret { return fencepost.NewSecret([]byte(s)) }
	for _, test := range []struct {
		a, b fencepost.Secret
		want bool
	}{
		{secret("a"), secret("a"), true}, {secret("a"), secret("b"), false}, {secret("a"), secret("ab"), false},
		{fencepost.Secret{}, secret(""), true}, {fencepost.Secret{}, secret("a"), false},
	} {
		if got := test.a.Equal(test.b); got != test.want {
			t.Errorf("Equal(%q, %q) = %v, want %v", test.a.Reveal(), test.b.Reveal(), got, test.want)
		}
	}
}
