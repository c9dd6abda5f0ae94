package githubspec

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
)

// A verdict is a test that notes how it was ended.
type verdict struct {
	testing.TB
	failed, skipped string
}

func (v *verdict) Helper()               {}
func (v *verdict) Fatal(args ...any)     { v.failed = args[0].(string); runtime.Goexit() }
func (v *verdict) Skip(args ...any)      { v.skipped = args[0].(string); runtime.Goexit() }
func (v *verdict) Fatalf(string, ...any) { v.failed = "other"; runtime.Goexit() }

func TestAMissingDescriptionFailsInCI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		err          error
		ci           bool
		fails, skips string
	}{
		{"in CI", fs.ErrNotExist, true, "make deps", ""},
		{"elsewhere", fs.ErrNotExist, false, "", "make deps"},
		{"damaged", errors.New("not JSON"), false, "other", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := &verdict{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				absent(v, test.err, test.ci)
			}()
			<-done
			if !strings.Contains(v.failed, test.fails) || (v.failed == "") != (test.fails == "") {
				t.Errorf("failed with %q, want %q", v.failed, test.fails)
			}
			if !strings.Contains(v.skipped, test.skips) || (v.skipped == "") != (test.skips == "") {
				t.Errorf("skipped with %q, want %q", v.skipped, test.skips)
			}
		})
	}
}
