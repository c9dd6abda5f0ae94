package links_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

// endTree is a tree whose files end a context when they have been read.
type endTree struct {
	fs.FS
	end context.CancelCauseFunc
	why error
}

func (e endTree) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	if err != nil || name == "." {
		return f, err
	}
	return endFile{f, e}, nil
}

type endFile struct {
	fs.File
	tree endTree
}

func (f endFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if errors.Is(err, io.EOF) {
		f.tree.end(f.tree.why)
	}
	return n, err
}

// TestParsingStops ends the context when a page was read whose parsing would
// take hours. A page that can't be stopped makes this test run out of time.
func TestParsingStops(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{
		"quotes in quotes":        ">",
		"destinations of links":   "[a](",
		"many definitions":        "[a]: b\n'\n",
		"code without an end":     "\\```\n",
		"emphasis that won't end": "\n_*",
		"emphasis in a heading":   "*#_a",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := errors.New("nobody waits")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			const size = 8 << 20
			page := strings.Repeat(unit, size/len(unit))
			tree := endTree{fstest.MapFS{"a.md": {Data: []byte(page)}}, cancel, gone}
			if _, err := links.Check(ctx, tree, links.Limits{FileBytes: size}); !errors.Is(err, gone) {
				t.Errorf("err = %v, want %v", err, gone)
			}
		})
	}
}
