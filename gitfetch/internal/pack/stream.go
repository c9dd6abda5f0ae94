package pack

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
)

// A Source yields the bytes of a pack in pieces of any size. A piece is
// valid until the next call. After the last piece it returns [io.EOF].
type Source interface {
	Next() ([]byte, error)
}

// A stream reads a Source byte by byte or in blocks, counts, and hashes what
// was consumed: the inflater says exactly where an entry ends.
type stream struct {
	src    Source
	piece  []byte // the current piece
	pos    int    // consumed of it
	hashed int    // of it in sum
	before int64  // bytes of all earlier pieces
	sum    hash.Hash
	err    error // first error of src
}

func newStream(src Source) *stream { return &stream{src: src, sum: sha1.New()} }

// offset is the number of bytes consumed.
func (s *stream) offset() int64 { return s.before + int64(s.pos) }

// ReadByte implements [io.ByteReader].
func (s *stream) ReadByte() (byte, error) {
	if s.pos == len(s.piece) {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	b := s.piece[s.pos]
	s.pos++
	return b, nil
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.pos == len(s.piece) {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.piece[s.pos:])
	s.pos += n
	return n, nil
}

// Rest implements [inflate.Source].
func (s *stream) Rest() []byte { return s.piece[s.pos:] }

// Take implements [inflate.Source].
func (s *stream) Take(n int) { s.pos += n }

// Fill implements [inflate.Source].
func (s *stream) Fill() error { return s.fill() }

func (s *stream) fill() error {
	if s.err != nil {
		return s.err
	}
	s.hashConsumed()
	s.before += int64(len(s.piece))
	s.piece, s.pos, s.hashed = nil, 0, 0
	for len(s.piece) == 0 {
		if s.piece, s.err = s.src.Next(); s.err != nil {
			s.piece = nil
			return s.err
		}
	}
	return nil
}

func (s *stream) hashConsumed() {
	s.sum.Write(s.piece[s.hashed:s.pos])
	s.hashed = s.pos
}

// readFull is [io.ReadFull] that knows no clean end.
func (s *stream) readFull(p []byte) error {
	if _, err := io.ReadFull(s, p); err != nil {
		return s.failure(err)
	}
	return nil
}

// failure turns an error of reading the stream into what the caller is told:
// an error of the source as it is, an end as a pack cut short.
func (s *stream) failure(err error) error {
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return s.err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("cut short after %d bytes: %w", s.offset(), io.ErrUnexpectedEOF)
	}
	return err
}

// finish reads the trailer, compares it, and requires the end.
func (s *stream) finish() error {
	s.hashConsumed()
	want := s.sum.Sum(nil)
	var trailer [sha1.Size]byte
	if err := s.readFull(trailer[:]); err != nil {
		return fmt.Errorf("trailer: %w", err)
	}
	if !bytes.Equal(want, trailer[:]) {
		return ErrChecksum
	}
	switch _, err := s.ReadByte(); {
	case err == nil:
		return malformed("bytes after the trailer")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
