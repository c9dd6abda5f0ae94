package notebook

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/gate"
)

func FuzzParse(f *testing.F) {
	good, err := format(map[string]note{"k": {Starts: 1, Sent: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), ' '))
	f.Add([]byte(magic + "1 \n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parse[note](data)
		if err != nil {
			return
		}
		again, err := format(entries)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parse[note](again)
		if err != nil || !cmp.Equal(entries, back) {
			t.Errorf("%v:\n%s", err, cmp.Diff(entries, back))
		}
	})
}

func TestFormatIsGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version int
		entries map[string]note
		body    string
	}{
		{
			1, map[string]note{"b": {Starts: 2}, "a": {Reason: "provider", Written: "7"}},
			`{"a":{"reason":"provider","written":"7"},"b":{"starts":2}}`,
		},
		{
			2, map[string]note{"b": {Starts: 2}, "a": {Job: gate.Job{ID: 302, Pipeline: 574, Source: "push"}}},
			`{"a":{"job":{"id":"302","pipeline":"574","source":"push"}},"b":{"starts":2}}`,
		},
	} {
		got, err := format(c.entries)
		if err != nil {
			t.Fatal(err)
		}
		if want := file(c.version, c.body); string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		back, err := parse[note](got)
		if err != nil || !cmp.Equal(c.entries, back) {
			t.Errorf("%v:\n%s", err, cmp.Diff(c.entries, back))
		}
	}
}

func file(version int, body string) string {
	return fmt.Sprintf("fencepost.notebook/v%d %x\n%s", version, sha256.Sum256([]byte(body)), body)
}

func TestOfAVersionThatItIsNotIsRefused(t *testing.T) {
	t.Parallel()
	const without, with = `{"a":{"starts":2}}`, `{"a":{"job":{"id":"302","pipeline":"574"}}}`
	for _, data := range []string{file(2, without), file(1, with), file(3, with), file(0, without)} {
		if entries, err := parse[note]([]byte(data)); err == nil {
			t.Errorf("%q is read as %v", data, entries)
		}
	}
}
