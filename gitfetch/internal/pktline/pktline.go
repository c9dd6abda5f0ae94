// Package pktline reads and writes Git's packet lines: four hexadecimal
// digits that count themselves, then that many bytes less four.
//
//	000ahello\n   data, six bytes
//	0004          data, empty: legal to receive
//	0000          flush: the end of a message
//	0001          delim: the end of a section
//	0002          response-end, 0003 invalid: both refused, the first is
//	              never seen on the HTTP wire
//	fff1 … ffff   longer than a packet may be: refused
package pktline

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxPacket is the longest packet, header included.
	// gitprotocol-common, "pkt-line Format".
	MaxPacket = 65520
	// MaxData is the most that one packet carries.
	MaxData = MaxPacket - headerLen

	headerLen = 4
)

// Sentinels that errors of this package match. A short read matches
// [io.ErrUnexpectedEOF] too.
var (
	// ErrMalformed: not a packet line.
	ErrMalformed = errors.New("malformed packet line")
	// ErrTrailing: bytes after the final flush.
	ErrTrailing = errors.New("bytes after the final flush")
)

// A Kind says what a packet is.
type Kind uint8

// The kinds of packets that may arrive over HTTP.
const (
	Data Kind = iota + 1
	Flush
	Delim
)

// String returns the kind's name in Git's documentation.
func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Flush:
		return "flush"
	case Delim:
		return "delim"
	}
	return "unknown"
}

// A Packet is one packet line. Data is nil but for [Data] packets, and is
// valid until the next call of the reader that gave it.
type Packet struct {
	Kind Kind
	Data []byte
}

// Text returns the data less at most one final LF, as text packets are read.
func (p Packet) Text() string {
	b := p.Data
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return string(b)
}

// A Reader reads packets without copying them. Not safe for concurrent use.
type Reader struct {
	br      *bufio.Reader
	pending int // bytes of the last packet, still to be dropped from br
}

// NewReader returns a Reader of r with a buffer of one longest packet.
func NewReader(r io.Reader) *Reader {
	return &Reader{br: bufio.NewReaderSize(r, MaxPacket)}
}

// Next returns the next packet, and [io.EOF] only where r ends before a
// packet begins. Errors of r come back as they are.
func (r *Reader) Next() (Packet, error) {
	if err := r.drop(); err != nil {
		return Packet{}, err
	}
	header, err := r.br.Peek(headerLen)
	if err != nil {
		if len(header) > 0 && errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: header cut short: %w", ErrMalformed, io.ErrUnexpectedEOF)
		}
		return Packet{}, err
	}
	length, err := parseLength(header)
	if err != nil {
		return Packet{}, err
	}
	switch length {
	case 0:
		r.pending = headerLen
		return Packet{Kind: Flush}, nil
	case 1:
		r.pending = headerLen
		return Packet{Kind: Delim}, nil
	}
	whole, err := r.br.Peek(length)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %d of %d bytes: %w", ErrMalformed, len(whole), length, io.ErrUnexpectedEOF)
		}
		return Packet{}, err
	}
	r.pending = length
	return Packet{Kind: Data, Data: whole[headerLen:]}, nil
}

// End returns nil where nothing follows the last packet, and an error that
// matches [ErrTrailing] where something does.
func (r *Reader) End() error {
	if err := r.drop(); err != nil {
		return err
	}
	switch _, err := r.br.Peek(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return ErrTrailing
}

func (r *Reader) drop() error {
	_, err := r.br.Discard(r.pending)
	r.pending = 0
	return err
}

// parseLength returns the length that header states: 0, 1, or 4 to
// [MaxPacket]. Both letter cases are read.
func parseLength(header []byte) (int, error) {
	n := 0
	for _, c := range header[:headerLen] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, fmt.Errorf("%w: length is not hexadecimal", ErrMalformed)
		}
		n = n<<4 | int(c)
	}
	if n == 2 || n == 3 || n > MaxPacket {
		return 0, fmt.Errorf("%w: length %04x", ErrMalformed, n)
	}
	return n, nil
}

// AppendText appends one data packet of s and a final LF. It panics where s
// is longer than a packet carries, which is a bug of the caller.
func AppendText(dst []byte, s string) []byte {
	n := len(s) + 1 + headerLen
	if n > MaxPacket {
		panic("pktline: text longer than a packet")
	}
	dst = appendLength(dst, n)
	dst = append(dst, s...)
	return append(dst, '\n')
}

// AppendData appends one data packet of b. It panics where b is longer than
// a packet carries, which is a bug of the caller.
func AppendData(dst, b []byte) []byte {
	if len(b) > MaxData {
		panic("pktline: data longer than a packet")
	}
	return append(appendLength(dst, len(b)+headerLen), b...)
}

// AppendFlush appends the end of a message.
func AppendFlush(dst []byte) []byte { return append(dst, "0000"...) }

// AppendDelim appends the end of a section.
func AppendDelim(dst []byte) []byte { return append(dst, "0001"...) }

func appendLength(dst []byte, n int) []byte {
	const digits = "0123456789abcdef"
	return append(dst, digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15])
}
