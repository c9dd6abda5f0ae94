package hostpath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

func TestStripDropsThePathAndKeepsTheCause(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "canary")
	_, open := os.Open(missing)
	for name, err := range map[string]error{
		"open":   open,
		"rename": os.Rename(missing, missing+"2"),
		"mkdir":  os.Mkdir(filepath.Join(missing, "x"), 0o700),
	} {
		got := hostpath.Strip(err)
		if !errors.Is(got, fs.ErrNotExist) || strings.Contains(got.Error(), "canary") {
			t.Errorf("%s: %v", name, got)
		}
	}
	if hostpath.Strip(nil) != nil {
		t.Error("nil became an error")
	}
}
