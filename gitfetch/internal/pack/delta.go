package pack

import (
	"bufio"
	"errors"
	"io"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

const (
	minDelta     = 4
	copyFlag     = 0x80
	copySizeZero = 0x10000 // what a copy of size 0 means
	maxInsert    = 127

	// How often it is asked whether to go on: an instruction of two bytes can
	// mean one byte, or sixteen million.
	stepsPerCheck = 4 << 10
	stepBytes     = 4 << 10 // copied, are as much work as one instruction
)

// A base is the object that a delta copies from.
type base struct {
	kind   object.Kind
	depth  int32 // deltas between this and a whole object
	size   int64
	whole  []byte // the content, where it is small enough
	readAt func(p []byte, off int64) error
}

// A delta is the text of one, read in order: the size of its base and of
// its result, then instructions to copy from the base or to insert. It is
// never held whole.
type delta struct {
	text *bufio.Reader
	left int64        // bytes of text not read yet
	stop func() error // nil: nothing stops it
}

func (d *delta) readByte() (byte, error) {
	if d.left == 0 {
		return 0, malformed("delta ends inside an instruction")
	}
	b, err := d.text.ReadByte()
	if err != nil {
		return 0, d.failure(err)
	}
	d.left--
	return b, nil
}

// next returns the next n bytes, n at most maxInsert. They are valid until
// the next read.
func (d *delta) next(n int) ([]byte, error) {
	if int64(n) > d.left {
		return nil, malformed("delta ends inside an insertion")
	}
	p, err := d.text.Peek(n)
	if err != nil {
		return nil, d.failure(err)
	}
	d.left -= int64(n)
	// What Peek returned stays in the buffer until the next read fills it.
	_, err = d.text.Discard(n)
	return p, err
}

func (d *delta) failure(err error) error {
	if errors.Is(err, io.EOF) {
		return malformed("delta text cut short: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// readSize reads one of the two sizes at the start: seven bits a byte, the
// lowest first.
func (d *delta) readSize() (int64, error) {
	var size int64
	for shift := 0; ; shift += 7 {
		b, err := d.readByte()
		if err != nil {
			return 0, err
		}
		if !fits(b, shift) {
			return 0, malformed("delta size over 63 bits")
		}
		if b == 0 && shift > 0 {
			return 0, malformed("delta size with a zero group at its end")
		}
		size |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return size, nil
		}
	}
}

// readCopy reads what follows the opcode of a copy: up to four bytes of
// offset and three of size, each there only if its bit is set.
func (d *delta) readCopy(op byte) (off, size int64, err error) {
	for i := range 4 {
		if op&(1<<i) != 0 {
			b, err := d.readByte()
			if err != nil {
				return 0, 0, err
			}
			off |= int64(b) << (8 * i)
		}
	}
	for i := range 3 {
		if op&(1<<(4+i)) != 0 {
			b, err := d.readByte()
			if err != nil {
				return 0, 0, err
			}
			size |= int64(b) << (8 * i)
		}
	}
	if size == 0 {
		size = copySizeZero
	}
	return off, size, nil
}

// apply writes the result of the delta on b to out. begin is called with
// the size of the result before anything is written, and may refuse it.
func (d *delta) apply(b *base, out *content, begin func(size int64) error) error {
	if d.left < minDelta {
		return malformed("delta of %d bytes", d.left)
	}
	size, err := d.readSize()
	if err != nil {
		return err
	}
	if size != b.size {
		return malformed("delta for a base of %d bytes on one of %d", size, b.size)
	}
	left, err := d.readSize()
	if err != nil {
		return err
	}
	if err := begin(left); err != nil {
		return err
	}
	work := int64(0)
	for d.left > 0 {
		n, err := d.step(b, out, left)
		if err != nil {
			return err
		}
		left -= n
		if work += 1 + n/stepBytes; work >= stepsPerCheck && d.stop != nil {
			if err := d.stop(); err != nil {
				return err
			}
			work = 0
		}
	}
	if left != 0 {
		return malformed("delta fills its result but for %d bytes", left)
	}
	return nil
}

// step does one instruction, which may write at most left bytes, and returns
// how many it wrote.
func (d *delta) step(b *base, out *content, left int64) (int64, error) {
	op, err := d.readByte()
	if err != nil {
		return 0, err
	}
	if op == 0 {
		return 0, malformed("reserved delta instruction")
	}
	if op&copyFlag == 0 {
		if int64(op) > left {
			return 0, malformed("delta inserts beyond its result")
		}
		p, err := d.next(int(op))
		if err != nil {
			return 0, err
		}
		return int64(op), out.write(p)
	}
	off, size, err := d.readCopy(op)
	if err != nil {
		return 0, err
	}
	if size > left {
		return 0, malformed("delta copies beyond its result")
	}
	if off > b.size || size > b.size-off {
		return 0, malformed("delta copies from beyond its base")
	}
	if b.whole != nil {
		return size, out.write(b.whole[off : off+size])
	}
	return size, out.copyFrom(b.readAt, off, size)
}

// A content takes the content of one object, hashes it, and appends it to
// the spool, a block at a time.
type content struct {
	hasher *object.Hasher
	spool  *spool
	block  []byte // not hashed or spooled yet
}

const blockSize = 64 << 10

func newContent(spool *spool, hasher *object.Hasher) *content {
	return &content{hasher: hasher, spool: spool, block: make([]byte, 0, blockSize)}
}

func (c *content) begin(kind object.Kind, size int64) {
	c.block = c.block[:0]
	c.hasher.Reset(kind, size)
}

func (c *content) write(p []byte) error {
	for len(p) > 0 {
		room, err := c.room()
		if err != nil {
			return err
		}
		n := min(len(room), len(p))
		c.block = append(c.block, p[:n]...)
		p = p[n:]
	}
	return nil
}

// copyFrom appends size bytes that readAt gives from offset off.
func (c *content) copyFrom(readAt func(p []byte, off int64) error, off, size int64) error {
	for size > 0 {
		room, err := c.room()
		if err != nil {
			return err
		}
		n := min(int64(len(room)), size)
		if err := readAt(room[:n], off); err != nil {
			return err
		}
		c.block = c.block[:len(c.block)+int(n)]
		off, size = off+n, size-n
	}
	return nil
}

// room returns the free part of the block, never empty.
func (c *content) room() ([]byte, error) {
	if len(c.block) == cap(c.block) {
		if err := c.flush(); err != nil {
			return nil, err
		}
	}
	return c.block[len(c.block):cap(c.block)], nil
}

func (c *content) flush() error {
	if _, err := c.hasher.Write(c.block); err != nil {
		return err
	}
	_, err := c.spool.Write(c.block)
	c.block = c.block[:0]
	return err
}
