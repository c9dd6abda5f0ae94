package gitfetch

import (
	"bufio"
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

	// manifestBuffer is how many bytes of one are written at a time.
	manifestBuffer = 64 << 10

	flagSynced = 1 // of a manifest

	flagOut     = 1 // of a node
	flagStamped = 2
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
	m := &manifestWriter{c: c, w: bufio.NewWriterSize(w, manifestBuffer), crc: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
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
	buf []byte // of the node being written
	err error  // of w; the first one
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
	b := append(m.buf[:0], byte(n.mode), flags)
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
	m.buf = b
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
