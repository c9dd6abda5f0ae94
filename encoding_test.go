package fencepost_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

// vector is one ```vector block of docs/encoding.md.
type vector struct {
	name, domain, encoding, sum, id string
	fields                          []vectorField
}

type vectorField struct{ kind, value string }

// readVectors reads every vector of docs/encoding.md. The page is the
// specification, so a page without vectors is a failure.
func readVectors(t *testing.T) map[string]vector {
	t.Helper()
	page, err := os.ReadFile("docs/encoding.md")
	if err != nil {
		t.Fatal(err)
	}
	vectors := map[string]vector{}
	for i, block := range strings.Split(string(page), "```vector\n")[1:] {
		text, _, ok := strings.Cut(block, "```")
		if !ok {
			t.Fatalf("vector %d does not end", i)
		}
		v := vector{}
		for line := range strings.Lines(text) {
			kind, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			value = strings.TrimPrefix(value, " ")
			switch kind {
			case "name":
				v.name = value
			case "domain":
				v.domain = value
			case "encoding":
				v.encoding = value
			case "sha256":
				v.sum = value
			case "id":
				v.id = value
			default:
				v.fields = append(v.fields, vectorField{kind, value})
			}
		}
		if _, twice := vectors[v.name]; twice || v.name == "" {
			t.Fatalf("vector %d has no name of its own: %q", i, v.name)
		}
		vectors[v.name] = v
	}
	if len(vectors) < 12 {
		t.Fatalf("docs/encoding.md holds %d vectors, want at least 12", len(vectors))
	}
	return vectors
}

// spell assembles the encoding by the words of the page alone: no code of
// the package takes part.
func (v vector) spell(t *testing.T) []byte {
	t.Helper()
	field := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint64(nil, uint64(len(b))), b...)
	}
	all := field([]byte(v.domain))
	for _, f := range v.fields {
		var b []byte
		switch f.kind {
		case "text":
			b = []byte(f.value)
		case "bytes":
			b = mustHex(t, f.value)
		case "uint", "list":
			n, err := strconv.ParseUint(f.value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			b = binary.BigEndian.AppendUint64(nil, n)
		case "int":
			n, err := strconv.ParseInt(f.value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			b = binary.BigEndian.AppendUint64(nil, uint64(n))
		case "bool":
			b = []byte{map[string]byte{"false": 0, "true": 1}[f.value]}
		case "time":
			if f.value != "-" {
				b = binary.BigEndian.AppendUint64(nil, uint64(mustTime(t, f.value).UnixNano()))
			}
		default:
			t.Fatalf("vector %s: unknown kind %q", v.name, f.kind)
		}
		all = append(all, field(b)...)
	}
	return all
}

// encode drives an Encoder with the same fields.
func (v vector) encode(t *testing.T) [32]byte {
	t.Helper()
	e := fencepost.NewEncoder(v.domain)
	for _, f := range v.fields {
		switch f.kind {
		case "text":
			e.Text(f.value)
		case "bytes":
			e.Bytes(mustHex(t, f.value))
		case "uint":
			n, _ := strconv.ParseUint(f.value, 10, 64)
			e.Uint(n)
		case "list":
			n, _ := strconv.Atoi(f.value)
			e.List(n)
		case "int":
			n, _ := strconv.ParseInt(f.value, 10, 64)
			e.Int(n)
		case "bool":
			e.Bool(f.value == "true")
		case "time":
			if f.value == "-" {
				e.Time(time.Time{})
			} else {
				e.Time(mustTime(t, f.value))
			}
		}
	}
	return e.Sum()
}

func TestEncoderWritesWhatThePageSpecifies(t *testing.T) {
	t.Parallel()
	for name, v := range readVectors(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := hex.EncodeToString(v.spell(t)); got != v.encoding {
				t.Errorf("the page's own fields spell\n%s\nbut its encoding says\n%s", got, v.encoding)
			}
			sum := sha256.Sum256(mustHex(t, v.encoding))
			if got := hex.EncodeToString(sum[:]); got != v.sum {
				t.Errorf("SHA-256 of the page's encoding is %s, page says %s", got, v.sum)
			}
			if got := v.encode(t); hex.EncodeToString(got[:]) != v.sum {
				t.Errorf("Encoder gives %x, page says %s", got, v.sum)
			}
		})
	}
}

func TestDomainTypesDigestWhatThePageSpecifies(t *testing.T) {
	t.Parallel()
	vectors := readVectors(t)
	const body = `{"ref":"refs/heads/main"}`
	overBody := acceptance(t, nil, body, fencepost.Evidence{Replay: fencepost.ReplayBody{}})
	signed := acceptance(t, nil, body, fencepost.Evidence{Replay: fencepost.ReplaySigned{
		Domain: "standard-webhooks", Values: []string{"f5e5f430-f57b-4e6e-9fac-d9128cd7232f"}}})
	someBytes, err := fencepost.NewPublication([]byte(`{"conclusion":"success"}`))
	if err != nil {
		t.Fatal(err)
	}
	none, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
	if err != nil {
		t.Fatal(err)
	}
	headers := fencepost.NewHeaders([]fencepost.Header{
		{Name: "X-Twice", Value: "b"}, {Name: "Content-Type", Value: "application/json"}, {Name: "x-twice", Value: "a"},
	})
	got := map[string][32]byte{
		"replay-identity-body":   overBody.proof.Replay(),
		"replay-identity-signed": signed.proof.Replay(),
		"delivery-key":           overBody.delivery.Key(),
		"binding":                overBody.delivery.Binding(),
		"headers":                headers.Digest(),
		"headers-empty":          fencepost.Headers{}.Digest(),
		"publication-bytes":      someBytes.Digest(),
		"publication-none":       none.Digest(),
	}
	for name, digest := range got {
		if want := vectors[name].sum; hex.EncodeToString(digest[:]) != want {
			t.Errorf("%s is %x, page says %q", name, digest, want)
		}
	}
	if id, want := string(overBody.delivery.ID()), vectors["delivery-key"].id; id != want || want == "" {
		t.Errorf("delivery id is %q, page says %q", id, want)
	}
}

// Two sequences of fields have one digest only if they are one sequence.
func TestEncodingIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a'}), 0, 9), 0, 4)
		a, b := fields.Draw(t, "a"), fields.Draw(t, "b")
		digest := func(fields [][]byte) [32]byte {
			e := fencepost.NewEncoder("fencepost.test/v1")
			for _, f := range fields {
				e.Bytes(f)
			}
			return e.Sum()
		}
		same := slices.EqualFunc(a, b, bytes.Equal)
		if (digest(a) == digest(b)) != same {
			t.Fatalf("%x and %x: alike %v, digests alike %v", a, b, same, !same)
		}
	})
}

func TestEncoderSumCanBeTakenInBetween(t *testing.T) {
	t.Parallel()
	e := fencepost.NewEncoder("fencepost.test/v1").Text("a")
	first, again := e.Sum(), e.Sum()
	if first != again {
		t.Errorf("two sums of one encoding: %x, %x", first, again)
	}
	if whole := fencepost.NewEncoder("fencepost.test/v1").Text("a").Text("b").Sum(); e.Text("b").Sum() != whole {
		t.Error("a sum in between changed what followed")
	}
}

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatalf("hex %q: %v", s, err)
	}
	return b
}

func mustTime(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(fmt.Errorf("time %q: %w", s, err))
	}
	return at
}
