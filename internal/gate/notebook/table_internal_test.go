package notebook

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzParse(f *testing.F) {
	good, err := format(map[string]note{"k": {Starts: 1, Sent: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), ' '))
	f.Add([]byte(magic + "\n{}"))
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
	got, err := format(map[string]note{"b": {Starts: 2}, "a": {Reason: "provider", Written: "7"}})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"a":{"reason":"provider","written":"7"},"b":{"starts":2}}`
	sum := sha256.Sum256([]byte(body))
	if want := fmt.Sprintf("fencepost.notebook/v1 %x\n%s", sum, body); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
