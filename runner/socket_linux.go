package runner

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A socket is the runner's end of a stage's socket, in the runtime's poller.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

// newSocket returns both ends; theirs is for a child.
func newSocket() (ours *socket, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "runner")
	// Only our end: the stage's is used by blocking calls.
	err = unix.SetNonblock(pair[0], true)
	file := os.NewFile(uintptr(pair[0]), "stage")
	raw, e := file.SyscallConn()
	if err = errors.Join(err, e); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make socket pair: %w", err), theirs.Close(), file.Close())
	}
	return &socket{file: file, raw: raw}, theirs, nil
}

func (s *socket) send(message []byte, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var err error
	e := s.raw.Write(func(fd uintptr) bool {
		err = stage.Send(int(fd), message, fds...)
		return !again(err)
	})
	if err = errors.Join(err, e); err != nil {
		return fmt.Errorf("%w: send: %w", ErrStage, err)
	}
	return nil
}

// receive reads one message into buf; io.EOF when the stage is gone.
func (s *socket) receive(buf []byte) (message []byte, files []*os.File, err error) {
	var fds []int
	e := s.raw.Read(func(fd uintptr) bool {
		message, fds, err = stage.Receive(int(fd), buf)
		return !again(err)
	})
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "output"))
	}
	return message, files, errors.Join(err, e)
}

func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// close ends reads that wait, and tells the stage. A second call does nothing.
func (s *socket) close() error {
	if err := s.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
