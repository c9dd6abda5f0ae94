package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

// moduleRoot walks up to the directory of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); errors.Is(err, os.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		t.Fatalf("no go.mod above the package: %v", err)
	}
}

// TestOwnPages holds that every relative link and anchor in Fencepost's own
// Markdown leads somewhere.
func TestOwnPages(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(moduleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	result, err := links.Check(t.Context(), root.FS(), links.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		if !isBuilt(f.File) {
			t.Errorf("%s:%d: %s: %s %s", f.File, f.Line, f.Link, f.Why, f.Hint)
		}
	}
	if result.Files < 10 || result.Links < 50 {
		t.Errorf("only %d links in %d files; is this the root of the module?", result.Links, result.Files)
	}
}

// isBuilt reports whether a path is one that .gitignore leaves out.
func isBuilt(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return top == "bin" || top == "data" || strings.HasPrefix(top, "fencepost-try")
}
