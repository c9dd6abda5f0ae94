package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// A patience is a context that ends when it was asked that often whether it
// has.
type patience struct {
	context.Context
	left int
}

// Err implements [context.Context].
func (p *patience) Err() error {
	if p.left--; p.left < 0 {
		return context.Canceled
	}
	return nil
}

// A wholePack gives out a pack in one piece.
type wholePack struct{ rest []byte }

// Next implements [pack.Source].
func (w *wholePack) Next() ([]byte, error) {
	if len(w.rest) == 0 {
		return nil, io.EOF
	}
	b := w.rest
	w.rest = nil
	return b, nil
}

// storeOf takes a pack in.
func storeOf(t *testing.T, b *packtest.Builder) *pack.Store {
	t.Helper()
	const most = 64 << 20
	name := filepath.Join(t.TempDir(), "spool")
	store, err := pack.Read(&wholePack{b.Bytes()}, pack.Options{
		Limits: pack.Limits{Objects: 1 << 20, InflatedBytes: most, DeltaDepth: 50, CommitBytes: most, TreeBytes: most, BlobBytes: most},
		Create: func() (pack.File, error) { return os.Create(name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestAPlanOfOneLargeDirectoryEndsWithItsContext: its names are judged one
// after the other, which can take long, and nothing else is done meanwhile.
func TestAPlanOfOneLargeDirectoryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var b packtest.Builder
	blob := b.Object(object.Blob, []byte("x"))
	var entries []packtest.Entry
	for i := range 3 * namesPerCheck {
		entries = append(entries, packtest.Entry{Mode: "100644", Name: fmt.Sprintf("f%05d", i), ID: blob})
	}
	commit := b.Object(object.Commit, packtest.Commit(b.Object(object.Tree, packtest.Tree(entries...))))
	req := Request{Commit: fencepost.CommitID{ObjectID: commit}, URL: "https://git.example/r"}
	target, err := req.checkFetch()
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(target, storeOf(t, &b), nil)
	if err := p.tree(&patience{t.Context(), 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want %v", err, context.Canceled)
	}
	if want := int64(2 * namesPerCheck); p.paths != want {
		t.Errorf("%d names were judged, want %d", p.paths, want)
	}
}
