package pack

import (
	"io"
	"slices"
)

// A File is what a spool writes to: an [os.File], mostly.
type File interface {
	io.WriterAt
	io.ReaderAt
	io.Closer
}

// spoolWhole is how much the spool holds before it makes a file: a pack that
// inflates to less never touches the disk. spoolBuffer is how much it holds
// back after that.
const (
	spoolWhole  = 2 << 20
	spoolBuffer = 512 << 10
)

// spoolChunk is what memory is taken by: nothing is moved when more is needed.
const spoolChunk = 128 << 10

// A spool is an append-only store of bytes: the last of them in memory, the
// rest in a file that is made when it is first needed. Reading is safe for
// concurrent use once nothing is appended any more.
type spool struct {
	create  func() (File, error)
	file    File
	flushed int64    // bytes in file
	tail    [][]byte // each but the last one is a full chunk
	held    int      // bytes in tail
	free    [][]byte // chunks to go on with
}

func newSpool(create func() (File, error)) *spool { return &spool{create: create} }

// end is the offset at which the next byte goes.
func (s *spool) end() int64 { return s.flushed + int64(s.held) }

// Write appends p.
func (s *spool) Write(p []byte) (int, error) {
	limit := spoolBuffer
	if s.file == nil {
		limit = spoolWhole
	}
	if s.held+len(p) > limit {
		if err := s.flush(); err != nil {
			return 0, err
		}
		if len(p) >= spoolBuffer {
			return len(p), s.put(p)
		}
	}
	s.hold(p)
	return len(p), nil
}

// hold appends p to the tail.
func (s *spool) hold(p []byte) {
	s.held += len(p)
	for len(p) > 0 {
		last := len(s.tail) - 1
		if last < 0 || len(s.tail[last]) == spoolChunk {
			s.tail = append(s.tail, s.chunk())
			last++
		}
		n := min(len(p), spoolChunk-len(s.tail[last]))
		s.tail[last] = append(s.tail[last], p[:n]...)
		p = p[n:]
	}
}

// chunk returns an empty one.
func (s *spool) chunk() []byte {
	last := len(s.free) - 1
	if last < 0 {
		return make([]byte, 0, spoolChunk)
	}
	c := s.free[last]
	s.free = s.free[:last]
	return c[:0]
}

// flush writes the tail to the file, and keeps as much memory as is needed to
// go on.
func (s *spool) flush() error {
	for _, chunk := range s.tail {
		if err := s.put(chunk); err != nil {
			return err
		}
	}
	s.free = append(s.free, s.tail...)
	s.free = slices.Clone(s.free[:min(len(s.free), spoolBuffer/spoolChunk)])
	s.tail, s.held = nil, 0
	return nil
}

func (s *spool) put(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if s.file == nil {
		file, err := s.create()
		if err != nil {
			return err
		}
		s.file = file
	}
	if _, err := s.file.WriteAt(p, s.flushed); err != nil {
		return err
	}
	s.flushed += int64(len(p))
	return nil
}

// readAt fills p from offset off, all of which must have been appended.
func (s *spool) readAt(p []byte, off int64) error {
	if off < s.flushed {
		n := min(int64(len(p)), s.flushed-off)
		if got, err := s.file.ReadAt(p[:n], off); int64(got) < n {
			return err
		}
		p, off = p[n:], off+n
	}
	for at := off - s.flushed; len(p) > 0; {
		n := copy(p, s.tail[at/spoolChunk][at%spoolChunk:])
		p, at = p[n:], at+int64(n)
	}
	return nil
}

func (s *spool) close() error {
	s.tail, s.free = nil, nil
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}
