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
	batchFiles = 32
	batchBytes = 1 << 20
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
	stamps   []stamp // of nodes; each index is written by one goroutine
	written  atomic.Int64
	reused   reused
	progress func(files int64)
}

// A dirHandle is an open directory with those who still use it.
type dirHandle struct {
	root *os.Root
	node int32
	uses atomic.Int32
}

func (d *dirHandle) release() error {
	if d.uses.Add(-1) > 0 {
		return nil
	}
	return d.root.Close()
}

// A batch is consecutive nodes of one directory.
type batch struct {
	dir   *dirHandle
	files []int32
	bytes int64
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
		if w.todo[i] {
			w.todo[nodes[i].parent] = true
		}
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
	batches := make(chan batch)
	group.Go(func() error {
		defer close(batches)
		return w.walk(ctx, root, batches)
	})
	for range min(maxWriters, runtime.GOMAXPROCS(0)) {
		group.Go(func() error {
			buf := make([]byte, copyBuffer)
			from := w.have.cursor()
			var err error
			for b := range batches {
				// After an error the rest is only let go of.
				if err == nil {
					err = w.writeBatch(ctx, b, from, buf)
				}
				if err = errors.Join(err, host("close directory", b.dir.release())); err != nil {
					cancel(err)
				}
			}
			return errors.Join(err, from.close())
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.writeLinks(ctx, root)
}

// walk makes the directories in order and hands out the files of each.
func (w *writer) walk(ctx context.Context, root *os.Root, out chan<- batch) error {
	top, err := root.OpenRoot(".")
	if err != nil {
		return host("open directory", err)
	}
	k := &walker{w: w, out: out}
	k.push(top, 0)
	for i := 1; i < len(w.plan.nodes) && err == nil; i++ {
		err = k.step(ctx, int32(i))
	}
	if err == nil {
		err = k.leave(ctx, -1)
	}
	return errors.Join(err, k.abandon())
}

// A walker is the state of one walk: the chain of open directories down to
// where it is, each with the files that nobody writes yet.
type walker struct {
	w     *writer
	out   chan<- batch
	stack []batch
}

func (k *walker) push(root *os.Root, node int32) {
	d := &dirHandle{root: root, node: node}
	d.uses.Store(1)
	k.stack = append(k.stack, batch{dir: d})
}

func (k *walker) step(ctx context.Context, i int32) error {
	n := &k.w.plan.nodes[i]
	if !k.w.todo[i] {
		return nil
	}
	if err := k.leave(ctx, n.parent); err != nil {
		return err
	}
	top := &k.stack[len(k.stack)-1]
	switch {
	case n.mode == object.Link && k.w.t.Policy.Symlinks == SymlinksInside:
	case n.mode == object.Dir:
		if !k.w.made(i) {
			if err := top.dir.root.Mkdir(n.name, dirPerm); err != nil {
				return host("make directory", err)
			}
		}
		root, err := openDir(top.dir.root, n.name)
		if err != nil {
			return host("open directory", err)
		}
		k.push(root, i)
	default:
		top.files = append(top.files, i)
		top.bytes += n.size
		if len(top.files) >= batchFiles || top.bytes >= batchBytes {
			return k.flush(ctx, top)
		}
	}
	return nil
}

// leave closes directories until node is the innermost, or all for -1.
func (k *walker) leave(ctx context.Context, node int32) error {
	for len(k.stack) > 0 {
		top := &k.stack[len(k.stack)-1]
		if top.dir.node == node {
			return nil
		}
		if err := k.flush(ctx, top); err != nil {
			return err
		}
		k.stack = k.stack[:len(k.stack)-1]
		if err := top.dir.release(); err != nil {
			return host("close directory", err)
		}
	}
	return nil
}

// flush hands the files that wait in b to a worker.
func (k *walker) flush(ctx context.Context, b *batch) error {
	if len(b.files) == 0 {
		return nil
	}
	b.dir.uses.Add(1)
	select {
	case k.out <- *b:
		b.files, b.bytes = nil, 0
		return nil
	case <-ctx.Done():
		b.dir.uses.Add(-1)
		return stopped(ctx)
	}
}

// abandon closes what an error left open.
func (k *walker) abandon() error {
	var err error
	for _, b := range k.stack {
		err = errors.Join(err, host("close directory", b.dir.release()))
	}
	k.stack = nil
	return err
}

func (w *writer) writeBatch(ctx context.Context, b batch, from *cursor, buf []byte) error {
	into := &reuser{w: w, dir: b.dir.root, from: from, buf: buf}
	for _, i := range b.files {
		if ctx.Err() != nil {
			return errors.Join(stopped(ctx), into.close())
		}
		done, err := into.reuse(i)
		if err == nil && !done {
			err = w.writeFile(b.dir.root, i, buf)
		}
		if err != nil {
			return errors.Join(err, into.close())
		}
	}
	if err := into.close(); err != nil {
		return err
	}
	done := w.written.Add(int64(len(b.files)))
	if w.progress != nil {
		w.progress(done)
	}
	return nil
}

// writeFile makes one file of what was received.
func (w *writer) writeFile(dir *os.Root, i int32, buf []byte) error {
	n := &w.plan.nodes[i]
	// What was placed lies where others than this process might have come.
	var hasher *object.Hasher
	if w.store.Taken(n.object) {
		hasher = object.NewRehasher()
		hasher.Reset(object.Blob, n.size)
	}
	return w.makeFile(dir, i, func(f *os.File) error {
		for off := int64(0); off < n.size; {
			p := buf[:min(int64(len(buf)), n.size-off)]
			if err := w.store.ReadAt(n.object, p, off); err != nil {
				return err
			}
			if hasher != nil {
				hasher.Write(p)
			}
			if _, err := f.Write(p); err != nil {
				return err
			}
			off += int64(len(p))
		}
		if hasher != nil {
			return proven(w.store, n.object, hasher)
		}
		return nil
	})
}

// makeFile makes one file, which must not exist, and which nobody can write
// to but through the handle that fill gets and that is closed here.
func (w *writer) makeFile(dir *os.Root, i int32, fill func(*os.File) error) error {
	n := &w.plan.nodes[i]
	f, err := dir.OpenFile(n.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, permissions(n.mode))
	if err != nil {
		return host("make file", err)
	}
	err = fill(f)
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			w.stamps[i] = w.stamp(info)
		}
	}
	return host("write file", errors.Join(err, f.Close()))
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
