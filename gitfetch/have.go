package gitfetch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
)

// errAltered: a file of the earlier checkout is not what it was.
var errAltered = errors.New("file of the earlier checkout altered")

// A have is an earlier checkout with its directory open.
type have struct {
	m    *Manifest
	root *os.Root
}

// openHave opens an earlier checkout, or returns nil where its directory can't
// be opened.
func openHave(h *Have) *have {
	if h == nil || h.Manifest == nil {
		return nil
	}
	root, err := os.OpenRoot(h.Dir)
	if err != nil {
		return nil
	}
	return &have{m: h.Manifest, root: root}
}

// partial reports whether files were left out of it.
func (h *have) partial() bool { return h != nil && h.m.out > 0 }

func (h *have) close() error { return host("close earlier checkout", h.root.Close()) }

// A cursor opens files of an earlier checkout, directory by directory. It
// follows no link. Not safe for concurrent use.
type cursor struct {
	h      *have
	chain  []link         // directories from the root down, each open
	hasher *object.Hasher // for what is held against an id that was proven before
}

type link struct {
	node   int32
	folder folder
}

// facts are what is known of a file that is there.
type facts struct {
	stamp  stamp
	device uint64
	size   int64
	mode   fs.FileMode
}

// cursor returns one that is nowhere yet; of a nil have it stays so.
func (h *have) cursor() *cursor { return &cursor{h: h, hasher: object.NewRehasher()} }

func (c *cursor) close() error { return c.leave(0) }

// leave closes all directories but the first ones.
func (c *cursor) leave(keep int) error {
	var err error
	for len(c.chain) > keep {
		last := len(c.chain) - 1
		err = errors.Join(err, host("close directory", c.chain[last].folder.close()))
		c.chain = c.chain[:last]
	}
	return err
}

// enter opens the directory of a node.
func (c *cursor) enter(i int32) (folder, error) {
	nodes := c.h.m.nodes
	dir := nodes[i].parent
	if last := len(c.chain) - 1; last >= 0 && c.chain[last].node == dir {
		return c.chain[last].folder, nil
	}
	var down []int32 // directories from dir up
	for at := dir; at >= 0; at = nodes[at].parent {
		down = append(down, at)
	}
	slices.Reverse(down)
	keep := 0
	for keep < len(c.chain) && keep < len(down) && c.chain[keep].node == down[keep] {
		keep++
	}
	if err := c.leave(keep); err != nil {
		return folder{}, err
	}
	for _, at := range down[keep:] {
		var f folder
		var err error
		if at == 0 {
			f, err = folderOf(c.h.root)
		} else {
			f, err = c.chain[len(c.chain)-1].folder.folder(nodes[at].name)
		}
		if err != nil {
			return folder{}, fmt.Errorf("%w: %w", errAltered, host("open directory", err))
		}
		c.chain = append(c.chain, link{at, f})
	}
	return c.chain[len(c.chain)-1].folder, nil
}

// open opens a regular file for reading.
func (c *cursor) open(i int32) (*os.File, error) {
	dir, err := c.enter(i)
	if err != nil {
		return nil, err
	}
	f, err := dir.file(c.h.m.nodes[i].name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAltered, host("open file", err))
	}
	return f, nil
}

// small returns the content of a node in buf, if it is what it was and fits.
func (c *cursor) small(i int32, buf []byte) (content []byte, fits bool, err error) {
	n := &c.h.m.nodes[i]
	if text, ok := c.h.m.texts[i]; ok || n.size >= int64(len(buf)) {
		return []byte(text), ok, nil
	}
	dir, err := c.enter(i)
	if err != nil {
		return nil, true, err
	}
	got, err := dir.read(n.name, buf[:n.size+1])
	if err != nil {
		return nil, true, fmt.Errorf("%w: %w", errAltered, host("read file", err))
	}
	if id, err := c.hasher.ID(object.Blob, buf[:got]); err != nil || int64(got) != n.size || id != n.id {
		return nil, true, errAltered
	}
	return buf[:got], true, nil
}

// openRegular opens a regular file and follows no link.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = errNotRegular
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var errNotRegular = errors.New("not a regular file")

// prove copies the content of a node to w and requires that it is what it was.
func (c *cursor) prove(i int32, w io.Writer, buf []byte) (err error) {
	n := &c.h.m.nodes[i]
	if text, ok := c.h.m.texts[i]; ok {
		_, err := io.WriteString(w, text)
		return err
	}
	f, err := c.open(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host("close file", f.Close())) }()
	c.hasher.Reset(object.Blob, n.size)
	var got int64
	for got <= n.size {
		k, err := f.Read(buf)
		got += int64(k)
		c.hasher.Write(buf[:k])
		if _, err := w.Write(buf[:k]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errAltered, host("read file", err))
		}
	}
	if id, err := c.hasher.Sum(); got != n.size || err != nil || id != n.id {
		return errAltered
	}
	return nil
}

// text returns the content of a node that is to be a link.
func (h *have) text(i int32) (string, error) {
	if text, ok := h.m.texts[i]; ok {
		return text, nil
	}
	if h.m.nodes[i].size > maxLink {
		return "", errAltered // the budgets were held against the size before
	}
	c := h.cursor()
	var text limited
	err := c.prove(i, &text, make([]byte, maxLink+1))
	return string(text), errors.Join(err, c.close())
}

// limited collects no more than a link can say.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	if len(*l)+len(p) > 2*maxLink {
		return 0, errAltered
	}
	*l = append(*l, p...)
	return len(p), nil
}

// A bases finds what deltas of a thin pack are on. Not safe for concurrent use.
type bases struct {
	h    *have
	from *cursor
	node int32
	file *os.File
	tree []byte
}

func (h *have) bases() *bases { return &bases{h: h, from: h.cursor(), node: noNode} }

func (b *bases) close() error {
	err := b.from.close()
	if b.file != nil {
		err = errors.Join(err, host("close file", b.file.Close()))
		b.file = nil
	}
	return err
}

// find is a [pack.Options.Base].
func (b *bases) find(id fencepost.ObjectID) (pack.Outside, bool) {
	m := b.h.m
	if id == m.commit.ObjectID {
		return inMemory(object.Commit, m.content), true
	}
	if i := m.find(object.Dir, id); i != noNode {
		b.tree = m.tree(i, b.tree)
		return inMemory(object.Tree, b.tree), true
	}
	i := m.find(object.File, id)
	if i == noNode {
		return pack.Outside{}, false
	}
	if text, ok := m.texts[i]; ok {
		return inMemory(object.Blob, []byte(text)), true
	}
	return pack.Outside{Kind: object.Blob, Size: m.nodes[i].size, ReadAt: func(p []byte, off int64) error {
		return b.read(i, p, off)
	}}, true
}

func inMemory(kind object.Kind, content []byte) pack.Outside {
	return pack.Outside{Kind: kind, Size: int64(len(content)), ReadAt: func(p []byte, off int64) error {
		copy(p, content[off:])
		return nil
	}}
}

func (b *bases) read(i int32, p []byte, off int64) error {
	if b.file != nil && b.node != i {
		err := b.file.Close()
		if b.file = nil; err != nil {
			return host("close file", err)
		}
	}
	if b.file == nil {
		f, err := b.from.open(i)
		if err != nil {
			return err
		}
		b.file, b.node = f, i
	}
	if n, err := b.file.ReadAt(p, off); n < len(p) {
		return fmt.Errorf("%w: %w", errAltered, host("read file", err))
	}
	return nil
}
