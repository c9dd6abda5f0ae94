package gitfetch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// MaxManifestBytes is the longest manifest that is written or read. One of
// 200,000 paths takes some 16 MiB.
const MaxManifestBytes = 64 << 20

// ErrManifest: a manifest is not whole, not of this version, or not what its
// commit names. A fetch without it is all that is lost.
var ErrManifest = errors.New("manifest not usable")

const (
	// manifestMagic ends in the version of the format.
	manifestMagic = "fpman\x00\x00\x01"

	flagSynced = 1 // of a manifest

	flagOut     = 1 // of a node
	flagStamped = 2

	noParent = math.MaxUint32
)

// A Manifest says what a checkout was when it was fetched: its commit, every
// path with mode, id and size, and by what a file can be told to be unaltered
// since. It is made by [Checkout.WriteManifest], kept beside the directory, and
// handed to a later fetch in [Have]. Immutable; safe for concurrent use.
//
// docs/formats.md has the format.
type Manifest struct {
	commit  fencepost.CommitID
	content []byte // of the commit
	parents []fencepost.CommitID
	policy  Policy
	synced  bool
	device  uint64
	nodes   []node
	stamps  []stamp
	texts   map[int32]string // of links that were made or written as files

	first, next []int32 // children of a node, in order; 0 is none
	trees       map[fencepost.ObjectID]int32
	files       map[fileKey]int32 // and links, that are there
	out         int64
}

// A fileKey is what two files agree in that can be one.
type fileKey struct {
	id   fencepost.ObjectID
	mode object.Mode
}

// A stamp is by what a file is recognised: as long as it is the same inode
// and was not written to, it is the same file. Zero is unknown.
type stamp struct {
	ino   uint64
	mtime int64 // ns
}

// Commit returns the commit whose tree it is.
func (m *Manifest) Commit() fencepost.CommitID { return m.commit }

// Tree returns the commit's tree.
func (m *Manifest) Tree() fencepost.TreeID { return fencepost.TreeID{ObjectID: m.nodes[0].id} }

// LeftOut counts the files and links that [Request.Select] left out.
func (m *Manifest) LeftOut() int64 { return m.out }

// Verify is [Checkout.Verify] for the tree that now stands at dir.
func (m *Manifest) Verify(ctx context.Context, dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return sealed("gitfetch.verify", host("directory", err))
	}
	c := &Checkout{commit: m.commit, nodes: m.nodes, policy: m.policy, base: abs, name: "."}
	return c.Verify(ctx)
}

// WriteManifest writes what a later fetch needs to reuse this checkout. What
// it says of the files is from when they were made; whoever changes one after
// that changes what no longer matches. An error that is not of w matches
// [ErrManifest], or [ErrAltered] where a link is not what was made.
func (c *Checkout) WriteManifest(w io.Writer) error {
	const op = "gitfetch.write_manifest"
	if c.gone() {
		return sealed(op, ErrRemoved)
	}
	m := &manifestWriter{c: c, w: bufio.NewWriter(w), crc: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	err := m.write()
	if err == nil {
		err = m.w.Flush()
	}
	return sealed(op, err)
}

type manifestWriter struct {
	c   *Checkout
	w   *bufio.Writer
	crc hash.Hash32
	n   int64
	err error // of w; the first one
}

// put writes bytes and takes them into the checksum.
func (m *manifestWriter) put(p []byte) {
	if m.err == nil {
		m.n += int64(len(p))
		m.crc.Write(p)
		_, m.err = m.w.Write(p)
	}
}

func (m *manifestWriter) write() error {
	c := m.c
	le := binary.LittleEndian
	b := append([]byte(nil), manifestMagic...)
	b = le.AppendUint64(b, c.device)
	b = append(b, c.commit.ObjectID[:]...)
	flags := byte(0)
	if c.synced {
		flags |= flagSynced
	}
	b = append(b, byte(c.policy.Symlinks), byte(c.policy.Gitlinks), byte(c.policy.Names), flags)
	b = le.AppendUint32(b, uint32(len(c.content)))
	b = le.AppendUint32(b, uint32(len(c.nodes)))
	m.put(append(b, c.content...))
	root, err := os.OpenRoot(c.Root())
	if err != nil {
		return host("open checkout", err)
	}
	for i := range c.nodes {
		if err == nil {
			err = m.node(root, int32(i))
		}
	}
	if err = errors.Join(err, host("close checkout", root.Close()), m.err); err != nil {
		return err
	}
	if m.n+crc32.Size > MaxManifestBytes {
		return fmt.Errorf("%w: over %d bytes", ErrManifest, MaxManifestBytes)
	}
	_, err = m.w.Write(le.AppendUint32(nil, m.crc.Sum32()))
	return err
}

func (m *manifestWriter) node(root *os.Root, i int32) error {
	n := &m.c.nodes[i]
	le := binary.LittleEndian
	if len(n.name) > math.MaxUint16 {
		return fmt.Errorf("%w: a name of %d bytes", ErrManifest, len(n.name))
	}
	var flags byte
	s := m.c.stampOf(i)
	if n.out {
		flags |= flagOut
	} else if s.ino != 0 {
		flags |= flagStamped
	}
	b := append(make([]byte, 0, 128), byte(n.mode), flags)
	b = le.AppendUint16(b, uint16(len(n.name)))
	b = le.AppendUint32(b, uint32(n.parent)) // -1 is noParent
	b = append(b, n.name...)
	if n.mode != object.Dir {
		b = append(b, n.id[:]...)
	}
	if isFile(n.mode) {
		b = le.AppendUint64(b, uint64(n.size))
	}
	if flags&flagStamped != 0 {
		b = le.AppendUint64(b, s.ino)
		b = le.AppendUint64(b, uint64(s.mtime))
	}
	if n.mode == object.Link && !n.out {
		text, err := m.link(root, i)
		if err != nil {
			return err
		}
		b = append(b, text...)
	}
	m.put(b)
	return m.err
}

// link reads what a link says from the disk, where it must be as it was made.
func (m *manifestWriter) link(root *os.Root, i int32) (_ []byte, err error) {
	name := pathOf(m.c.nodes, i)
	altered := &AlteredError{Path: clip(name), What: "content"}
	dir, err := openDir(root, path.Dir(name))
	if err != nil {
		return nil, altered
	}
	defer func() { err = errors.Join(err, host("close directory", dir.Close())) }()
	n := &m.c.nodes[i]
	var text []byte
	if m.c.policy.Symlinks == SymlinksInside {
		var s string
		s, err = dir.Readlink(n.name)
		text = []byte(s)
	} else {
		text, err = readSmall(dir, n.name, n.size)
	}
	if err != nil {
		return nil, altered
	}
	if id, err := object.NewRehasher().ID(object.Blob, text); err != nil || id != n.id {
		return nil, altered
	}
	return text, nil
}

// readSmall reads a file of exactly that size, which fits into memory.
func readSmall(dir *os.Root, name string, size int64) ([]byte, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	text := make([]byte, size+1)
	n, err := io.ReadFull(f, text)
	if errors.Is(err, io.ErrUnexpectedEOF) && int64(n) == size {
		err = nil
	} else if err == nil {
		err = io.ErrShortBuffer
	}
	return text[:size], errors.Join(err, f.Close())
}

// ReadManifest reads what [Checkout.WriteManifest] wrote, to its end. The
// commit and every directory in it are hashed: what it returns is the tree of
// its commit, with files that may have been altered since. An error that is
// not of r matches [ErrManifest].
func ReadManifest(r io.Reader) (*Manifest, error) {
	m, err := readManifest(r)
	return m, sealed("gitfetch.read_manifest", err)
}

func readManifest(r io.Reader) (*Manifest, error) {
	b, err := readLimited(r)
	if err != nil {
		return nil, err
	}
	if len(b) < len(manifestMagic) || string(b[:len(manifestMagic)]) != manifestMagic {
		return nil, badManifest("it is none, or of another version")
	}
	body, sum := b[:max(len(b)-crc32.Size, 0)], b[max(len(b)-crc32.Size, 0):]
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(sum) {
		return nil, badManifest("checksum")
	}
	p := &manifestParser{rest: body[len(manifestMagic):], m: &Manifest{
		texts: make(map[int32]string),
		trees: make(map[fencepost.ObjectID]int32),
		files: make(map[fileKey]int32),
	}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	if err := p.m.prove(); err != nil {
		return nil, err
	}
	return p.m, nil
}

func readLimited(r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, MaxManifestBytes+1))
	if err != nil {
		return nil, host("read manifest", err)
	}
	if n > MaxManifestBytes {
		return nil, badManifest("too long")
	}
	return b.Bytes(), nil
}

func badManifest(what string) error { return fmt.Errorf("%w: %s", ErrManifest, what) }

// A manifestParser reads a manifest whose checksum is right. It believes
// nothing else of it.
type manifestParser struct {
	rest  []byte
	m     *Manifest
	chain []int32 // directories from the root to where the last node is
}

// take returns the next n bytes, or nil where there are fewer.
func (p *manifestParser) take(n int) []byte {
	if n > len(p.rest) {
		p.rest = nil
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}

func (p *manifestParser) parse() error {
	const fixed = 8 + len(fencepost.ObjectID{}) + 4 + 4 + 4
	b := p.take(fixed)
	if b == nil {
		return badManifest("cut short")
	}
	le := binary.LittleEndian
	m := p.m
	m.device = le.Uint64(b)
	m.commit.ObjectID = fencepost.ObjectID(b[8:28])
	m.policy = Policy{Symlinks: Symlinks(b[28]), Gitlinks: Gitlinks(b[29]), Names: Names(b[30])}
	if full, err := m.policy.orDefaults(); err != nil || full != m.policy || b[31]&^flagSynced != 0 {
		return badManifest("policy or flags")
	}
	m.synced = b[31]&flagSynced != 0
	length, count := le.Uint32(b[32:]), le.Uint32(b[36:])
	if int64(length) > int64(len(p.rest)) || int64(count) > int64(len(p.rest)) || count == 0 {
		return badManifest("cut short")
	}
	m.content = p.take(int(length))
	for i := range count {
		if err := p.node(int32(i)); err != nil {
			return err
		}
	}
	if len(p.rest) != 0 {
		return badManifest("more than it counts")
	}
	return nil
}

// node reads one node. Nodes stand in the order of a walk, so the parent of
// each is on the way from the root to the one before.
func (p *manifestParser) node(i int32) error {
	head := p.take(8)
	if head == nil {
		return badManifest("cut short")
	}
	le := binary.LittleEndian
	n := node{mode: object.Mode(head[0]), parent: int32(le.Uint32(head[4:])), object: noObject, have: noNode}
	flags := head[1]
	n.name = string(p.take(int(le.Uint16(head[2:]))))
	n.out = flags&flagOut != 0
	if err := p.place(i, &n, flags); err != nil {
		return err
	}
	var s stamp
	if n.mode != object.Dir {
		id := p.take(len(n.id))
		if id == nil {
			return badManifest("cut short")
		}
		n.id = fencepost.ObjectID(id)
	}
	if isFile(n.mode) {
		size := p.take(8)
		if size == nil {
			return badManifest("cut short")
		}
		if n.size = int64(le.Uint64(size)); n.size < 0 {
			return badManifest("size")
		}
	}
	if flags&flagStamped != 0 {
		b := p.take(16)
		if b == nil {
			return badManifest("cut short")
		}
		s = stamp{ino: le.Uint64(b), mtime: int64(le.Uint64(b[8:]))}
	}
	if n.mode == object.Link && !n.out {
		if n.size == 0 || n.size > maxLink || n.size > int64(len(p.rest)) {
			return badManifest("text of a link")
		}
		p.m.texts[i] = string(p.take(int(n.size)))
	}
	p.m.nodes = append(p.m.nodes, n)
	p.m.stamps = append(p.m.stamps, s)
	return nil
}

// place requires that a node is where a walk would come to it next.
func (p *manifestParser) place(i int32, n *node, flags byte) error {
	if i == 0 {
		if n.mode != object.Dir || n.parent != -1 || n.name != "" || flags&^flagOut != 0 {
			return badManifest("root")
		}
		p.chain = append(p.chain, 0)
		return nil
	}
	for len(p.chain) > 0 && p.chain[len(p.chain)-1] != n.parent {
		p.chain = p.chain[:len(p.chain)-1]
	}
	switch {
	case len(p.chain) == 0 || len(p.chain) > maxDepth:
		return badManifest("order of paths")
	case n.mode < object.File || n.mode > object.Gitlink || n.name == "" || bytes.ContainsAny([]byte(n.name), "/\x00"):
		return badManifest("mode or name")
	case flags&^(flagOut|flagStamped) != 0, flags == flagOut|flagStamped, flags&flagStamped != 0 && !isFile(n.mode):
		return badManifest("flags of a path")
	case p.m.nodes[n.parent].out && !n.out && n.mode != object.Gitlink:
		return badManifest("a path in a directory that was left out")
	}
	if n.mode == object.Dir {
		p.chain = append(p.chain, i)
	}
	return nil
}

// prove computes the ids of all directories from the leaves up, and requires
// that the commit hashes to its id and names the root.
func (m *Manifest) prove() error {
	hasher := object.NewHasher()
	id, err := hasher.ID(object.Commit, m.content)
	if err != nil || id != m.commit.ObjectID {
		return badManifest("commit")
	}
	facts, err := object.ParseCommit(m.content)
	if err != nil {
		return badManifest("commit")
	}
	m.parents = facts.Parents
	m.link()
	for i := len(m.nodes) - 1; i >= 0; i-- {
		n := &m.nodes[i]
		switch {
		case n.mode == object.Dir:
			if n.id, err = hasher.ID(object.Tree, m.tree(int32(i), nil)); err != nil {
				return badManifest("directory")
			}
			m.trees[n.id] = int32(i)
		case n.out && isFile(n.mode):
			m.out++
		case n.mode == object.Link:
			text := m.texts[int32(i)]
			if id, err := hasher.ID(object.Blob, []byte(text)); err != nil || id != n.id {
				return badManifest("link")
			}
			m.files[fileKey{n.id, n.mode}] = int32(i)
		case isFile(n.mode):
			m.files[fileKey{n.id, n.mode}] = int32(i)
		}
	}
	if m.nodes[0].id != facts.Tree.ObjectID {
		return badManifest("root")
	}
	return nil
}

// find returns the node that holds an object of that id for an entry of that
// mode: a file or link of the same mode where there is one. noNode: none.
func (m *Manifest) find(mode object.Mode, id fencepost.ObjectID) int32 {
	if mode == object.Dir {
		if i, ok := m.trees[id]; ok {
			return i
		}
		return noNode
	}
	for _, mode := range []object.Mode{mode, object.File, object.Program, object.Link} {
		if i, ok := m.files[fileKey{id, mode}]; ok {
			return i
		}
	}
	return noNode
}

// link threads the children of each directory.
func (m *Manifest) link() {
	m.first, m.next = make([]int32, len(m.nodes)), make([]int32, len(m.nodes))
	last := make([]int32, len(m.nodes))
	for i := 1; i < len(m.nodes); i++ {
		parent := m.nodes[i].parent
		if last[parent] == 0 {
			m.first[parent] = int32(i)
		} else {
			m.next[last[parent]] = int32(i)
		}
		last[parent] = int32(i)
	}
}

// tree returns the object of a directory, in dst's memory where it fits.
func (m *Manifest) tree(dir int32, dst []byte) []byte {
	dst = dst[:0]
	for i := m.first[dir]; i != 0; i = m.next[i] {
		n := &m.nodes[i]
		dst = object.AppendEntry(dst, n.mode, n.name, n.id)
	}
	return dst
}
