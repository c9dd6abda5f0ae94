package gitfetch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

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
	p := &manifestParser{rest: body[len(manifestMagic):], m: &Manifest{texts: make(map[int32]string)}}
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
	// A file is read into memory of its size, and not into more and more of it.
	if f, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			b.Grow(int(min(info.Size(), MaxManifestBytes)) + bytes.MinRead)
		}
	}
	n, err := b.ReadFrom(io.LimitReader(r, MaxManifestBytes+1))
	if err != nil {
		return nil, host("read manifest", err)
	}
	if n > MaxManifestBytes {
		return nil, badManifest("too long")
	}
	return b.Bytes(), nil
}

func badManifest(what string) error { return fmt.Errorf("%w: %s", ErrManifest, what) }

// usualNodeBytes is what a file takes at least, and few nodes less: memory is
// made ready for no more of them than there can be.
const usualNodeBytes = 37

// A manifestParser reads a manifest whose checksum is right. It believes
// nothing else of it.
type manifestParser struct {
	rest  []byte
	text  string // ends as rest does
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

// words is take for text, which stays.
func (p *manifestParser) words(n int) string {
	at := len(p.text) - len(p.rest)
	return p.text[at : at+len(p.take(n))]
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
	m.content = bytes.Clone(p.take(int(length)))
	likely := min(int(count), len(p.rest)/usualNodeBytes)
	m.nodes, m.stamps = make([]node, 0, likely), make([]stamp, 0, likely)
	// One string for all names, of which each is a part.
	p.text = string(p.rest)
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
	p.m.nodes = append(p.m.nodes, node{mode: object.Mode(head[0]), parent: int32(le.Uint32(head[4:])), object: noObject, have: noNode})
	n := &p.m.nodes[i]
	flags := head[1]
	n.name = p.words(int(le.Uint16(head[2:])))
	n.out = flags&flagOut != 0
	if err := p.place(i, n, flags); err != nil {
		return err
	}
	s, err := p.content(i, n, flags)
	if err != nil {
		return err
	}
	p.m.stamps = append(p.m.stamps, s)
	return nil
}

// content reads what a node says of what is there: its id, its size, by what it
// is recognised, and the text of a link.
func (p *manifestParser) content(i int32, n *node, flags byte) (s stamp, err error) {
	le := binary.LittleEndian
	if n.mode != object.Dir {
		id := p.take(len(n.id))
		if id == nil {
			return s, badManifest("cut short")
		}
		n.id = fencepost.ObjectID(id)
	}
	if isFile(n.mode) {
		size := p.take(8)
		if size == nil {
			return s, badManifest("cut short")
		}
		if n.size = int64(le.Uint64(size)); n.size < 0 {
			return s, badManifest("size")
		}
	}
	if flags&flagStamped != 0 {
		b := p.take(16)
		if b == nil {
			return s, badManifest("cut short")
		}
		s = stamp{ino: le.Uint64(b), mtime: int64(le.Uint64(b[8:]))}
	}
	if n.mode == object.Link && !n.out {
		if n.size == 0 || n.size > maxLink || n.size > int64(len(p.rest)) {
			return s, badManifest("text of a link")
		}
		p.m.texts[i] = p.words(int(n.size))
	}
	return s, nil
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
	case n.mode < object.File || n.mode > object.Gitlink || !isComponent(n.name):
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

// isComponent reports whether name is one of a directory's own entries.
func isComponent(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// prove computes the ids of all directories from the leaves up, and requires
// that the commit hashes to its id and names the root.
func (m *Manifest) prove() error {
	dirs := 0
	for i := range m.nodes {
		if m.nodes[i].mode == object.Dir {
			dirs++
		}
	}
	m.trees, m.files = make(map[fencepost.ObjectID]int32, dirs), make(map[fileKey]int32, len(m.nodes)-dirs)
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
	var content []byte
	for i := len(m.nodes) - 1; i >= 0; i-- {
		n := &m.nodes[i]
		switch {
		case n.mode == object.Dir:
			content = m.tree(int32(i), content)
			if n.id, err = hasher.ID(object.Tree, content); err != nil {
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
