package gitfetch

import (
	"context"
	"errors"
	"os"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// A maker makes what batches hold, one after the other. Not safe for
// concurrent use.
type maker struct {
	w      *writer
	from   *cursor
	buf    []byte
	hasher *object.Hasher // for content whose id was proven before
	below  []link         // directories below the batch's own, each open
}

func (w *writer) maker() *maker {
	return &maker{w: w, from: w.have.cursor(), buf: make([]byte, copyBuffer), hasher: object.NewRehasher()}
}

func (k *maker) close() error { return k.from.close() }

// batch makes a batch, and leaves its directory open.
func (k *maker) batch(ctx context.Context, b batch) error {
	files := int64(0)
	for _, first := range b.nodes {
		for i := first; i < k.w.end[first]; i++ {
			if ctx.Err() != nil {
				return errors.Join(stopped(ctx), k.leave(-1))
			}
			n := &k.w.plan.nodes[i]
			if !k.w.todo[i] || n.mode == object.Link && k.w.t.Policy.Symlinks == SymlinksInside {
				continue
			}
			if n.mode != object.Dir {
				files++
			}
			if err := k.node(b.dir.folder, i); err != nil {
				return errors.Join(err, k.leave(-1))
			}
		}
	}
	if err := k.leave(-1); err != nil {
		return err
	}
	done := k.w.written.Add(files)
	if k.w.progress != nil {
		k.w.progress(done)
	}
	return nil
}

// leave closes directories until node is the innermost, or all that are below
// the batch's own.
func (k *maker) leave(node int32) error {
	var err error
	for len(k.below) > 0 {
		last := k.below[len(k.below)-1]
		if last.node == node {
			break
		}
		k.below = k.below[:len(k.below)-1]
		err = errors.Join(err, host("close directory", last.folder.close()))
	}
	return err
}

// node makes one file or directory. Those of a batch come in the plan's order,
// so its directory is the innermost that is open, or one of those around it.
func (k *maker) node(top folder, i int32) error {
	n := &k.w.plan.nodes[i]
	if err := k.leave(n.parent); err != nil {
		return err
	}
	dir := top
	if len(k.below) > 0 {
		dir = k.below[len(k.below)-1].folder
	}
	if n.mode == object.Dir {
		f, err := k.w.directory(dir, i)
		if err == nil {
			k.below = append(k.below, link{i, f})
		}
		return err
	}
	done, err := k.reuse(dir, i)
	if err != nil || done {
		return err
	}
	return host("write file", k.receive(dir, i))
}

// directory opens a directory, which it makes unless it was made before.
func (w *writer) directory(in folder, i int32) (folder, error) {
	name := w.plan.nodes[i].name
	if !w.made(i) {
		if err := in.mkdir(name); err != nil {
			return folder{}, host("make directory", err)
		}
	}
	f, err := in.folder(name)
	return f, host("open directory", err)
}

// receive makes one file of what was received.
func (k *maker) receive(dir folder, i int32) error {
	n := &k.w.plan.nodes[i]
	if n.size > int64(len(k.buf)) {
		return k.create(dir, i, func(f *os.File) error {
			return k.received(n, func(p []byte) error { _, err := f.Write(p); return err })
		})
	}
	content := k.buf[:0]
	err := k.received(n, func(p []byte) error { content = p; return nil })
	if err != nil {
		return err
	}
	return k.put(dir, i, content)
}

// received gives out the content of a node, part by part.
func (k *maker) received(n *node, give func([]byte) error) error {
	// What was placed lies where others than this process might have come.
	again := k.w.store.Taken(n.object)
	if again {
		k.hasher.Reset(object.Blob, n.size)
	}
	for off := int64(0); off < n.size; {
		p := k.buf[:min(int64(len(k.buf)), n.size-off)]
		if err := k.w.store.ReadAt(n.object, p, off); err != nil {
			return err
		}
		if again {
			k.hasher.Write(p)
		}
		if err := give(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	if again {
		return proven(k.w.store, n.object, k.hasher)
	}
	return nil
}

// put makes a file that holds content. It must not exist.
func (k *maker) put(dir folder, i int32, content []byte) error {
	n := &k.w.plan.nodes[i]
	s, device, err := dir.write(n.name, permissions(n.mode), content)
	if err == nil && device == k.w.tree.device {
		k.w.stamps[i] = s
	}
	return err
}

// create makes a file that fill writes. It must not exist, and nobody can
// write to it but through the handle that fill gets and that is closed here.
func (k *maker) create(dir folder, i int32, fill func(*os.File) error) error {
	n := &k.w.plan.nodes[i]
	f, err := dir.create(n.name, permissions(n.mode))
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil {
			k.w.stamps[i] = k.w.stamp(info)
		}
	}
	return errors.Join(err, f.Close())
}
