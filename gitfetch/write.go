package gitfetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync/atomic"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"golang.org/x/sync/errgroup"
)

const (
	dirPerm     fs.FileMode = 0o700
	filePerm    fs.FileMode = 0o444
	programPerm fs.FileMode = 0o555

	maxWriters = 4
	copyBuffer = 64 << 10
)

// A writer makes the files of a plan. Every name goes through the handle of
// its own directory, which follows no link and finds nothing there before:
// each directory and file is made anew, or the writing fails.
type writer struct {
	t        *target
	store    *pack.Store
	have     *have // nil: there is none
	plan     *plan
	tree     *newTree
	early    *placer // nil: nothing is written yet
	todo     []bool  // of nodes: something is to be done for it or below it
	end      []int32 // of nodes: the first one after it that is not below it
	stamps   []stamp // of nodes; each index is written by one goroutine
	written  atomic.Int64
	reused   reused
	progress func(files int64)
}

// look finds out what is left to be done.
func (w *writer) look() {
	nodes := w.plan.nodes
	for i := range nodes {
		w.todo[i] = !nodes[i].out && nodes[i].mode != object.Gitlink
	}
	if w.early != nil {
		for i, d := range w.early.folders {
			w.todo[i] = w.todo[i] && !d.made
		}
		for _, f := range w.early.placed {
			w.todo[f.node] = false
			w.stamps[f.node] = f.stamp
		}
		w.written.Add(int64(len(w.early.placed)))
	}
	for i := len(nodes) - 1; i > 0; i-- {
		parent := nodes[i].parent
		w.end[i] = max(w.end[i], int32(i+1))
		w.end[parent] = max(w.end[parent], w.end[i])
		w.todo[parent] = w.todo[parent] || w.todo[i]
	}
}

// made reports whether a directory is there already.
func (w *writer) made(i int32) bool {
	if w.early == nil {
		return false
	}
	d := w.early.folders[i]
	return d != nil && d.made
}

// write fills the directory root.
func (w *writer) write(ctx context.Context, root *os.Root) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	batches := make(chan batch, maxWriters)
	group.Go(func() error {
		defer close(batches)
		return w.walk(ctx, root, batches)
	})
	for range min(maxWriters, runtime.GOMAXPROCS(0)) {
		group.Go(func() error {
			k := w.maker()
			var err error
			for b := range batches {
				// After an error the rest is only let go of.
				if err == nil {
					err = k.batch(ctx, b)
				}
				if err = errors.Join(err, b.dir.release()); err != nil {
					cancel(err)
				}
			}
			return errors.Join(err, k.close())
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.writeLinks(ctx, root)
}

// stamp returns by what a file of the tree is recognised, where that is
// possible.
func (w *writer) stamp(info fs.FileInfo) stamp {
	if s, device, ok := stampOf(info); ok && device == w.tree.device {
		return s
	}
	return stamp{}
}

// writeLinks makes the links of the inside policy, after everything else, so
// that nothing is ever written through one.
func (w *writer) writeLinks(ctx context.Context, root *os.Root) error {
	if w.plan.links == 0 || w.t.Policy.Symlinks != SymlinksInside {
		return nil
	}
	for i := range w.plan.nodes {
		n := &w.plan.nodes[i]
		if n.mode != object.Link || n.out {
			continue
		}
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		text, err := linkText(w.store, w.have, n)
		if err != nil {
			return err
		}
		if err := w.writeLink(root, int32(i), text); err != nil {
			return err
		}
	}
	return nil
}

// linkText returns what a link says.
func linkText(store *pack.Store, have *have, n *node) (string, error) {
	if n.object == noObject {
		return have.text(n.have)
	}
	b, err := store.Content(n.object, nil)
	if err == nil && store.Taken(n.object) {
		hasher := object.NewRehasher()
		hasher.Reset(object.Blob, int64(len(b)))
		hasher.Write(b)
		err = proven(store, n.object, hasher)
	}
	return string(b), host("read spool", err)
}

func (w *writer) writeLink(root *os.Root, i int32, text string) (err error) {
	name := pathOf(w.plan.nodes, i)
	dir, err := openDir(root, path.Dir(name))
	if err != nil {
		return host("open directory", err)
	}
	defer func() { err = errors.Join(err, host("close directory", dir.Close())) }()
	return host("make link", dir.Symlink(text, path.Base(name)))
}

// openDir opens a directory below root and follows no link to it.
func openDir(root *os.Root, name string) (*os.Root, error) {
	at, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	for _, part := range splitPath(name) {
		info, err := at.Lstat(part)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: part, Err: errNotDir}
		}
		var next *os.Root
		if err == nil {
			next, err = at.OpenRoot(part)
		}
		if err = errors.Join(err, at.Close()); err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

var errNotDir = errors.New("not a directory")
