package gitfetch

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

const (
	// batchNodes and batchBytes are what one goroutine makes at a time: enough
	// that waking it is cheap beside that, and little enough that none of them
	// is still at it long after the others.
	batchNodes = 96
	batchBytes = 1 << 20
)

// A dirHandle is an open directory with those who still use it.
type dirHandle struct {
	folder folder
	node   int32
	uses   atomic.Int32
}

func (d *dirHandle) release() error {
	if d.uses.Add(-1) > 0 {
		return nil
	}
	return host("close directory", d.folder.close())
}

// A batch is what one goroutine makes in one directory: files, and directories
// with all that is below them.
type batch struct {
	dir   *dirHandle
	nodes []int32
	count int   // of them, with what is below them
	bytes int64 // of the files among those
}

// A walker makes the large directories of a plan in order, and hands out what
// is in each of them.
type walker struct {
	w     *writer
	out   chan<- batch
	stack []batch // from the root to where it is; what waits in each to be made
}

// walk goes through the whole plan. What is handed out is let go of by who
// gets it.
func (w *writer) walk(ctx context.Context, root *os.Root, out chan<- batch) error {
	top, err := folderOf(root)
	if err != nil {
		return host("open directory", err)
	}
	k := &walker{w: w, out: out}
	k.push(top, 0)
	for i := int32(1); int(i) < len(w.plan.nodes) && err == nil; {
		i, err = k.step(ctx, i)
	}
	if err == nil {
		err = k.leave(ctx, -1)
	}
	return errors.Join(err, k.abandon())
}

func (k *walker) push(f folder, node int32) {
	d := &dirHandle{folder: f, node: node}
	d.uses.Store(1)
	k.stack = append(k.stack, batch{dir: d})
}

// step deals with a node, and returns the one to go on with.
func (k *walker) step(ctx context.Context, i int32) (next int32, err error) {
	if !k.w.todo[i] {
		return k.w.end[i], nil
	}
	n := &k.w.plan.nodes[i]
	if err := k.leave(ctx, n.parent); err != nil {
		return i, err
	}
	top := &k.stack[len(k.stack)-1]
	bytes, small := k.w.small(i)
	if !small {
		f, err := k.w.directory(top.dir.folder, i)
		if err != nil {
			return i, err
		}
		k.push(f, i)
		return i + 1, nil
	}
	next = k.w.end[i]
	top.nodes = append(top.nodes, i)
	top.count += int(next - i)
	top.bytes += bytes
	if top.count >= batchNodes || top.bytes >= batchBytes {
		err = k.flush(ctx, top)
	}
	return next, err
}

// small reports whether a node is one goroutine's with all that is below it,
// and how many bytes that comes to: a file always is.
func (w *writer) small(i int32) (bytes int64, small bool) {
	nodes := w.plan.nodes
	if nodes[i].mode != object.Dir {
		return nodes[i].size, true
	}
	if w.end[i]-i > batchNodes {
		return 0, false
	}
	for at := i + 1; at < w.end[i]; at++ {
		bytes += nodes[at].size
	}
	return bytes, bytes <= batchBytes
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
			return err
		}
	}
	return nil
}

// flush hands out what waits in b.
func (k *walker) flush(ctx context.Context, b *batch) error {
	if len(b.nodes) == 0 {
		return nil
	}
	b.dir.uses.Add(1)
	select {
	case k.out <- *b:
		*b = batch{dir: b.dir}
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
		err = errors.Join(err, b.dir.release())
	}
	k.stack = nil
	return err
}
