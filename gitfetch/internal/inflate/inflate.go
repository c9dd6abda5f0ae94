// Package inflate decompresses zlib streams (RFC 1950, RFC 1951) whose size is
// known beforehand, from input that comes in pieces. It takes no byte beyond a
// stream's end, and gives out no byte beyond the declared size.
//
// That the size is known is what it is fast by: a stream's output is its own
// window, and nothing has to stop and go on in the middle of a symbol. In
// all that it accepts it agrees with [compress/zlib], which the fuzz test
// holds it to.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"io"
)

// Sentinels that errors of this package match.
var (
	// ErrCorrupt: not a zlib stream in a legal form.
	ErrCorrupt = errors.New("corrupt zlib stream")
	// ErrShort: the stream ends before its declared size.
	ErrShort = errors.New("zlib stream shorter than declared")
	// ErrLong: the stream goes on after its declared size.
	ErrLong = errors.New("zlib stream longer than declared")
)

// A Source gives out its bytes in pieces.
type Source interface {
	// Rest is what is left of the piece, which may be nothing.
	Rest() []byte
	// Take consumes n bytes of it.
	Take(n int)
	// Fill gets another piece where nothing is left of the last. At the end it
	// returns [io.EOF].
	Fill() error
}

const (
	// Slack is how many bytes beyond the declared size a buffer must have
	// room for: the fast loop writes whole words.
	Slack = 3 + maxLength + 16

	window    = 32 << 10
	maxLength = 258
	chunk     = 64 << 10 // of output that is given to a sink at a time
)

// A Decoder decompresses one stream after the other. The zero Decoder is
// ready. Not safe for concurrent use.
type Decoder struct {
	src  Source
	in   []byte // the rest of the piece
	pos  int    // consumed of in
	hold uint64 // bits taken from in and not used, the first one lowest
	bits uint   // how many; what is above them in hold is no bit

	out   []byte
	at    int // in out: where the next byte goes
	limit int // in out: where the output must be handed over, or ends
	sink  func([]byte) error
	given int   // in out: before it, all was handed over
	left  int64 // of the declared size, after limit

	litlen, fixedLitlen litlenTable
	dist, fixedDist     distTable
	fixed               bool // the fixed tables are made
	lengths             [maxLitlen + maxDist]uint8
	wide                []byte // output of Stream
	sum                 hash.Hash32
}

// Whole decompresses the next stream of src into buf, which must have room for
// size+[Slack] bytes. Errors of src come back as they are, but for [io.EOF],
// which becomes [io.ErrUnexpectedEOF].
func (d *Decoder) Whole(src Source, buf []byte, size int) ([]byte, error) {
	buf = buf[:size+Slack]
	d.begin(src, buf, size, 0)
	d.sink = nil
	if err := d.stream(); err != nil {
		return nil, err
	}
	return buf[:size], nil
}

// Stream decompresses the next stream of src and hands it to sink in pieces,
// which are valid until sink returns. Errors are those of [Decoder.Whole], and
// sink's own.
func (d *Decoder) Stream(src Source, size int64, sink func([]byte) error) error {
	if d.wide == nil {
		d.wide = make([]byte, window+chunk+Slack)
	}
	first := min(size, window+chunk)
	d.begin(src, d.wide, int(first), size-first)
	d.sink = sink
	return d.stream()
}

func (d *Decoder) begin(src Source, out []byte, limit int, left int64) {
	d.src, d.in, d.pos, d.hold, d.bits = src, src.Rest(), 0, 0, 0
	d.out, d.at, d.given, d.limit, d.left = out, 0, 0, limit, left
}

// stream reads header, blocks and checksum of one stream.
func (d *Decoder) stream() error {
	defer func() { d.src, d.in, d.out, d.sink = nil, nil, nil, nil }()
	// RFC 1950 §2.2: method, window, check bits, no dictionary.
	head, err := d.take(16)
	if err != nil {
		return err
	}
	cmf, flg := head&0xff, head>>8
	if cmf&15 != 8 || cmf>>4 > 7 || (cmf<<8|flg)%31 != 0 || flg&0x20 != 0 {
		return ErrCorrupt
	}
	if d.sum == nil {
		d.sum = adler32.New()
	}
	d.sum.Reset()
	for last := false; !last; {
		head, err := d.take(3)
		if err != nil {
			return err
		}
		last = head&1 != 0
		switch head >> 1 {
		case 0:
			err = d.stored()
		case 1:
			d.makeFixed()
			err = d.block(&d.fixedLitlen, &d.fixedDist)
		case 2:
			if err = d.readCodes(); err == nil {
				err = d.block(&d.litlen, &d.dist)
			}
		default:
			err = ErrCorrupt
		}
		if err != nil {
			return err
		}
	}
	if d.at > d.limit {
		if err := d.room(); err != nil {
			return err
		}
	}
	if d.left > 0 || d.at < d.limit {
		return ErrShort
	}
	if err := d.handOver(); err != nil {
		return err
	}
	d.align()
	want, err := d.take(32)
	if err != nil {
		return err
	}
	var be [4]byte
	binary.LittleEndian.PutUint32(be[:], uint32(want))
	if binary.BigEndian.Uint32(be[:]) != d.sum.Sum32() {
		return ErrCorrupt
	}
	d.src.Take(d.pos)
	return nil
}

// handOver gives away what is in out and was not given.
func (d *Decoder) handOver() error {
	p := d.out[d.given:d.at]
	d.given = d.at
	d.sum.Write(p) // which never fails
	if d.sink == nil || len(p) == 0 {
		return nil
	}
	return d.sink(p)
}

// room hands over a buffer that is full, or overfull, and keeps the window of
// it. Where the declared size was reached before there is no more room.
func (d *Decoder) room() error {
	over := int64(d.at - d.limit)
	if d.left == 0 || over > d.left {
		return ErrLong
	}
	d.left -= over
	if err := d.handOver(); err != nil {
		return err
	}
	copy(d.out, d.out[d.at-window:d.at])
	more := min(d.left, chunk)
	d.at, d.given = window, window
	d.limit, d.left = window+int(more), d.left-more
	return nil
}

// stored copies a block that is not compressed. RFC 1951 §3.2.4.
func (d *Decoder) stored() error {
	d.align()
	head, err := d.take(32)
	if err != nil {
		return err
	}
	n := int(head & 0xffff)
	if uint64(n) != ^head>>16&0xffff {
		return ErrCorrupt
	}
	for n > 0 {
		if d.at >= d.limit {
			if err := d.room(); err != nil {
				return err
			}
		}
		if d.pos == len(d.in) {
			if err := d.fill(); err != nil {
				return err
			}
		}
		got := copy(d.out[d.at:min(d.limit, d.at+n)], d.in[d.pos:])
		d.pos += got
		d.at += got
		n -= got
	}
	return nil
}

// align drops the bits up to the next byte's begin. Whoever takes bits takes
// no more than he needs, so those are all.
func (d *Decoder) align() { d.hold, d.bits = 0, 0 }

// take returns the next n bits, at most 32. It takes no more bytes for them
// than it needs.
func (d *Decoder) take(n uint) (uint64, error) {
	for d.bits < n {
		if err := d.pull(); err != nil {
			return 0, err
		}
	}
	v := d.hold & (1<<n - 1)
	d.hold, d.bits = d.hold>>n, d.bits-n
	return v, nil
}

// pull takes one more byte. What is above the bits in hold must be zero.
func (d *Decoder) pull() error {
	if d.pos == len(d.in) {
		if err := d.fill(); err != nil {
			return err
		}
	}
	d.hold |= uint64(d.in[d.pos]) << (d.bits & 63)
	d.pos++
	d.bits += 8
	return nil
}

func (d *Decoder) fill() error {
	d.src.Take(d.pos)
	d.in, d.pos = nil, 0
	for len(d.in) == 0 {
		if err := d.src.Fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		d.in = d.src.Rest()
	}
	return nil
}
