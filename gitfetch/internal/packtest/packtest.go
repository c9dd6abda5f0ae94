// Package packtest builds packs, deltas and trees for tests, well-formed or
// not, byte by byte as the caller says.
package packtest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/pjbgf/sha1cd"
)

// Types of pack entries beside the kinds of objects.
const (
	OfsDelta = 6
	RefDelta = 7
)

// ID returns the id of an object.
func ID(kind object.Kind, content []byte) fencepost.ObjectID {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return fencepost.ObjectID(h.Sum(nil))
}

// A Colliding hash is that of Git's ids, and sees an attack in whatever holds
// the mark.
type Colliding struct {
	sha1cd.CollisionResistantHash
	mark string
	seen []byte
}

// NewColliding returns one.
func NewColliding(mark string) *Colliding {
	return &Colliding{CollisionResistantHash: sha1cd.New().(sha1cd.CollisionResistantHash), mark: mark}
}

// Reset implements [hash.Hash].
func (c *Colliding) Reset() {
	c.seen = c.seen[:0]
	c.CollisionResistantHash.Reset()
}

// Write implements [hash.Hash].
func (c *Colliding) Write(p []byte) (int, error) {
	c.seen = append(c.seen, p...)
	return c.CollisionResistantHash.Write(p)
}

// CollisionResistantSum implements [sha1cd.CollisionResistantHash].
func (c *Colliding) CollisionResistantSum(b []byte) ([]byte, bool) {
	sum, _ := c.CollisionResistantHash.CollisionResistantSum(b)
	return sum, bytes.Contains(c.seen, []byte(c.mark))
}

// A Builder collects entries.
type Builder struct {
	body   bytes.Buffer
	starts []int // in body, of each entry
}

// Offset is where in the pack the next entry begins.
func (b *Builder) Offset() int64 { return 12 + int64(b.body.Len()) }

// Object adds a whole object and returns its id.
func (b *Builder) Object(kind object.Kind, content []byte) fencepost.ObjectID {
	b.Entry(uint8(kind), int64(len(content)), nil, content)
	return ID(kind, content)
}

// Ofs adds an offset delta on the entry that begins at base.
func (b *Builder) Ofs(base int64, delta []byte) {
	b.Entry(OfsDelta, int64(len(delta)), Distance(b.Offset()-base), delta)
}

// Ref adds a delta on the object of that id.
func (b *Builder) Ref(base fencepost.ObjectID, delta []byte) {
	b.Entry(RefDelta, int64(len(delta)), base[:], delta)
}

// Entry adds an entry with a header of that type and size, then middle, then
// content deflated.
func (b *Builder) Entry(typ uint8, size int64, middle, content []byte) {
	b.Raw(Header(typ, size), middle, Deflate(content))
}

// Raw adds an entry of exactly those bytes.
func (b *Builder) Raw(parts ...[]byte) {
	b.starts = append(b.starts, b.body.Len())
	for _, p := range parts {
		b.body.Write(p)
	}
}

// Len is the number of entries.
func (b *Builder) Len() int { return len(b.starts) }

// Bytes returns the pack with its right count and trailer.
func (b *Builder) Bytes() []byte { return b.BytesWith(2, uint32(len(b.starts))) }

// InOrder returns the pack with its entries in another order, each named by its
// number. Deltas by distance are on something else then.
func (b *Builder) InOrder(order []int) []byte {
	ends := append(b.starts[1:len(b.starts):len(b.starts)], b.body.Len())
	var other Builder
	for _, i := range order {
		other.Raw(b.body.Bytes()[b.starts[i]:ends[i]])
	}
	return other.Bytes()
}

// BytesWith returns the pack with that version and count.
func (b *Builder) BytesWith(version, count uint32) []byte {
	p := append([]byte("PACK"), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(p[4:], version)
	binary.BigEndian.PutUint32(p[8:], count)
	p = append(p, b.body.Bytes()...)
	return Seal(p)
}

// Seal appends the trailer.
func Seal(p []byte) []byte {
	sum := sha1.Sum(p)
	return append(p, sum[:]...)
}

// writers keeps the tables of compressors, which are large.
var writers = sync.Pool{New: func() any { return zlib.NewWriter(nil) }}

// Deflate returns p as one zlib stream.
func Deflate(p []byte) []byte {
	var buf bytes.Buffer
	w := writers.Get().(*zlib.Writer)
	defer writers.Put(w)
	w.Reset(&buf)
	// A bytes.Buffer takes everything.
	_, _ = w.Write(p)
	_ = w.Close()
	return buf.Bytes()
}

// Stored returns p as one zlib stream that is not compressed, which takes no
// time.
func Stored(p []byte) []byte {
	const most = 0xffff
	z := make([]byte, 0, len(p)+len(p)/most*5+16)
	z = append(z, 0x78, 0x01)
	sum := adler32.Checksum(p)
	for last := false; !last; {
		n := min(len(p), most)
		last = n == len(p)
		final := byte(0)
		if last {
			final = 1
		}
		z = append(z, final, byte(n), byte(n>>8), ^byte(n), ^byte(n>>8))
		z, p = append(z, p[:n]...), p[n:]
	}
	return binary.BigEndian.AppendUint32(z, sum)
}

// Flushed returns one zlib stream of all parts, cut after each of them, and
// without its end: the last block and the checksum.
func Flushed(parts ...[]byte) [][]byte {
	var buf bytes.Buffer
	w := zlib.NewWriter(&buf)
	var out [][]byte
	for _, p := range parts {
		_, _ = w.Write(p)
		_ = w.Flush()
		out = append(out, bytes.Clone(buf.Bytes()))
		buf.Reset()
	}
	return out
}

// Header returns an entry's header.
func Header(typ uint8, size int64) []byte {
	c := typ<<4 | byte(size&15)
	var p []byte
	for size >>= 4; size > 0; size >>= 7 {
		p = append(p, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(p, c)
}

// Distance returns the encoded distance to a base.
func Distance(d int64) []byte {
	p := []byte{byte(d & 0x7f)}
	for d >>= 7; d > 0; d >>= 7 {
		d--
		p = append([]byte{byte(d&0x7f) | 0x80}, p...)
	}
	return p
}

// Delta returns the text of a delta with those sizes and instructions.
func Delta(base, result int64, instructions ...[]byte) []byte {
	p := append(Size(base), Size(result)...)
	for _, i := range instructions {
		p = append(p, i...)
	}
	return p
}

// Size returns a size as it stands at the start of a delta.
func Size(n int64) []byte {
	var p []byte
	for n >= 0x80 {
		p = append(p, byte(n)|0x80)
		n >>= 7
	}
	return append(p, byte(n))
}

// Copy returns the instruction to copy n bytes from offset off.
func Copy(off, n int64) []byte {
	p := []byte{0x80}
	for i := range 4 {
		if b := byte(off >> (8 * i)); b != 0 {
			p[0] |= 1 << i
			p = append(p, b)
		}
	}
	if n == 0x10000 {
		return p
	}
	for i := range 3 {
		if b := byte(n >> (8 * i)); b != 0 {
			p[0] |= 1 << (4 + i)
			p = append(p, b)
		}
	}
	return p
}

// Insert returns the instruction to insert 1 to 127 bytes.
func Insert(p string) []byte { return append([]byte{byte(len(p))}, p...) }

// An Entry is one line of a tree, of any mode and name.
type Entry struct {
	Mode, Name string
	ID         fencepost.ObjectID
}

// Tree returns the content of a tree with those entries in that order.
func Tree(entries ...Entry) []byte {
	var p []byte
	for _, e := range entries {
		p = append(p, e.Mode...)
		p = append(p, ' ')
		p = append(p, e.Name...)
		p = append(p, 0)
		p = append(p, e.ID[:]...)
	}
	return p
}

// Commit returns the content of a commit of that tree.
func Commit(tree fencepost.ObjectID, parents ...fencepost.ObjectID) []byte {
	var p bytes.Buffer
	fmt.Fprintf(&p, "tree %s\n", tree)
	for _, parent := range parents {
		fmt.Fprintf(&p, "parent %s\n", parent)
	}
	p.WriteString("author A <a@example.org> 1700000000 +0000\ncommitter A <a@example.org> 1700000000 +0000\n\nA commit\n")
	return p.Bytes()
}
