package gitfetch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"golang.org/x/sync/errgroup"
)

// Verify reads everything that is on disk again, hashes it, and compares the
// root's tree with [Checkout.Tree]. Collision attacks were looked for when the
// ids were first computed. What the policy left out or changed (a skipped
// gitlink, a link made as a file) and what [Request.Select] left out enters as
// what it stands for. An error that matches [ErrAltered] names the first path
// found to differ; [ErrRemoved] means there is nothing to verify.
//
// A file whose owner may execute it counts as mode 100755; other permission
// bits are not looked at, except that a write bit counts as altered.
func (c *Checkout) Verify(ctx context.Context) error {
	const op = "gitfetch.verify"
	if c.gone() {
		return sealed(op, ErrRemoved)
	}
	root, err := os.OpenRoot(c.Root())
	if errors.Is(err, fs.ErrNotExist) {
		return sealed(op, &AlteredError{Path: ".", What: "missing"})
	}
	if err != nil {
		return sealed(op, host("open checkout", err))
	}
	v := &verifier{c: c, ids: make([]fencepost.ObjectID, len(c.nodes))}
	err = v.verify(ctx, root)
	return sealed(op, errors.Join(err, host("close checkout", root.Close())))
}

// A verifier computes the id of each node from the disk alone; the nodes
// only say what must be there.
type verifier struct {
	c   *Checkout
	ids []fencepost.ObjectID // each index is written by one goroutine
}

// verify hashes the files of the directories, some at a time, and then
// computes the trees from the leaves up.
func (v *verifier) verify(ctx context.Context, root *os.Root) error {
	children := make(map[int32][]int32)
	for i := 1; i < len(v.c.nodes); i++ {
		parent := v.c.nodes[i].parent
		children[parent] = append(children[parent], int32(i))
	}
	var group errgroup.Group
	group.SetLimit(min(maxWriters, runtime.GOMAXPROCS(0)))
	var first firstError
	for i := range v.c.nodes {
		if v.c.nodes[i].mode != object.Dir || v.c.nodes[i].out {
			continue
		}
		dir := int32(i)
		group.Go(func() error {
			first.set(dir, v.directory(ctx, root, dir, children[dir]))
			return nil
		})
	}
	if err := errors.Join(group.Wait(), first.err); err != nil {
		return err
	}
	return v.trees(children)
}

// A firstError keeps the error of the directory that comes first, whichever
// was found first.
type firstError struct {
	mu  sync.Mutex
	dir int32
	err error
}

func (f *firstError) set(dir int32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && (f.err == nil || dir < f.dir) {
		f.dir, f.err = dir, err
	}
}

// directory hashes the files of one directory, and refuses what else is in
// it.
func (v *verifier) directory(ctx context.Context, root *os.Root, i int32, children []int32) (err error) {
	name := pathOf(v.c.nodes, i)
	dir, err := openDir(root, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return v.altered(i, "kind")
	}
	if err != nil {
		return host("open directory", err)
	}
	defer func() { err = errors.Join(err, host("close directory", dir.Close())) }()
	if err := v.listing(dir, i, children); err != nil {
		return err
	}
	buf := make([]byte, copyBuffer)
	hasher := object.NewRehasher()
	for _, child := range children {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		switch n := &v.c.nodes[child]; {
		case n.out:
			v.ids[child] = n.id
		case n.mode == object.Dir:
			err = v.kind(dir, child)
		case n.mode == object.Gitlink:
			v.ids[child] = n.id
		case n.mode == object.Link && v.c.policy.Symlinks == SymlinksInside:
			err = v.link(dir, child, hasher)
		default:
			err = v.file(dir, child, hasher, buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listing requires that a directory holds its children and nothing else. It
// reads no more names than there should be, and one.
func (v *verifier) listing(dir *os.Root, i int32, children []int32) error {
	want := make(map[string]struct{}, len(children))
	for _, child := range children {
		if n := &v.c.nodes[child]; n.mode != object.Gitlink && !n.out {
			want[n.name] = struct{}{}
		}
	}
	f, err := dir.Open(".")
	if err != nil {
		return host("open directory", err)
	}
	names, err := f.Readdirnames(len(want) + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return host("read directory", err)
	}
	for _, name := range names {
		if _, ok := want[name]; !ok {
			return &AlteredError{Path: clip(path.Join(pathOf(v.c.nodes, i), name)), What: "unexpected"}
		}
		delete(want, name)
	}
	for _, child := range children {
		if _, missing := want[v.c.nodes[child].name]; missing {
			return v.altered(child, "missing")
		}
	}
	return nil
}

// kind requires that a directory is one, and no link to one.
func (v *verifier) kind(dir *os.Root, i int32) error {
	info, err := dir.Lstat(v.c.nodes[i].name)
	if err != nil {
		return host("look at directory", err)
	}
	if !info.IsDir() {
		return v.altered(i, "kind")
	}
	return nil
}

func (v *verifier) link(dir *os.Root, i int32, hasher *object.Hasher) error {
	text, err := dir.Readlink(v.c.nodes[i].name)
	if err != nil {
		return v.altered(i, "kind")
	}
	v.ids[i], err = hasher.ID(object.Blob, []byte(text))
	if err != nil || v.ids[i] != v.c.nodes[i].id {
		return v.altered(i, "content")
	}
	return nil
}

func (v *verifier) file(dir *os.Root, i int32, hasher *object.Hasher, buf []byte) (err error) {
	n := &v.c.nodes[i]
	info, err := dir.Lstat(n.name)
	if err != nil {
		return host("look at file", err)
	}
	if !info.Mode().IsRegular() {
		return v.altered(i, "kind")
	}
	f, err := dir.Open(n.name)
	if err != nil {
		return host("open file", err)
	}
	defer func() { err = errors.Join(err, host("close file", f.Close())) }()
	// Looked at again through the handle: the name may have changed hands.
	if info, err = f.Stat(); err != nil {
		return host("look at file", err)
	}
	perm := info.Mode().Perm()
	program := perm&0o100 != 0
	switch {
	case !info.Mode().IsRegular():
		return v.altered(i, "kind")
	case perm&0o222 != 0, runtime.GOOS != "windows" && program != (n.mode == object.Program):
		return v.altered(i, "mode")
	case info.Size() != n.size:
		return v.altered(i, "content")
	}
	hasher.Reset(object.Blob, n.size)
	if _, err := io.CopyBuffer(hasher, io.LimitReader(onlyReader{f}, n.size+1), buf); err != nil {
		return host("read file", err)
	}
	v.ids[i], err = hasher.Sum()
	if err != nil || v.ids[i] != n.id {
		return v.altered(i, "content")
	}
	return nil
}

// onlyReader hides the file's other methods from io.Copy, which would take
// buffers of its own.
type onlyReader struct{ io.Reader }

// trees computes the ids of all directories from those of what is in them;
// nodes of a directory come after it, so the last comes first.
func (v *verifier) trees(children map[int32][]int32) error {
	hasher := object.NewRehasher()
	var content []byte
	for i := len(v.c.nodes) - 1; i >= 0; i-- {
		if v.c.nodes[i].mode != object.Dir {
			continue
		}
		if v.c.nodes[i].out {
			v.ids[i] = v.c.nodes[i].id
			continue
		}
		content = content[:0]
		for _, child := range children[int32(i)] {
			n := &v.c.nodes[child]
			content = object.AppendEntry(content, n.mode, n.name, v.ids[child])
		}
		id, err := hasher.ID(object.Tree, content)
		if err != nil || id != v.c.nodes[i].id {
			return v.altered(int32(i), "tree")
		}
		v.ids[i] = id
	}
	return nil
}

func (v *verifier) altered(i int32, what string) error {
	p := clip(pathOf(v.c.nodes, i))
	if p == "" {
		p = "."
	}
	return &AlteredError{Path: p, What: what}
}
