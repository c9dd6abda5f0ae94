package pack

import "io"

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

// A spool is an append-only store of bytes: the last of them in memory, the
// rest in a file that is made when it is first needed.
// Reading is safe for concurrent use once nothing is appended any more.
type spool struct {
	create  func() (File, error)
	file    File
	flushed int64 // bytes in file
	tail    []byte
}

func newSpool(create func() (File, error)) *spool { return &spool{create: create} }

// end is the offset at which the next byte goes.
func (s *spool) end() int64 { return s.flushed + int64(len(s.tail)) }

// Write appends p.
func (s *spool) Write(p []byte) (int, error) {
	limit := spoolBuffer
	if s.file == nil {
		limit = spoolWhole
	}
	if len(s.tail)+len(p) > limit {
		if err := s.flush(); err != nil {
			return 0, err
		}
		if len(p) >= spoolBuffer {
			return len(p), s.put(p)
		}
	}
	s.tail = append(s.tail, p...)
	return len(p), nil
}

func (s *spool) flush() error {
	err := s.put(s.tail)
	s.tail = s.tail[:0]
	if cap(s.tail) > spoolBuffer {
		s.tail = nil // it is not needed that large again
	}
	return err
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
	if len(p) == 0 {
		return nil
	}
	copy(p, s.tail[off-s.flushed:])
	return nil
}

func (s *spool) close() error {
	s.tail = nil
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}
