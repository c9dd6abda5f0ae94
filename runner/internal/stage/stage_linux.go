package stage

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// HoldName is the argument zero that turns the executable into a process that
// only waits for the end of its socket: it holds a user namespace open for as
// long as it takes to get hold of it.
const HoldName = "fencepost-hold"

// Play plays the part that this process was started for, to its end, and
// returns the status to exit with, right away: in a PID namespace that end is
// what kills the rest. It returns false in a process that has no part here. The
// calling goroutine must be on the process's first thread.
func Play() (status int, ok bool) {
	if len(os.Args) != 1 {
		return 0, false
	}
	switch os.Args[0] {
	case Name:
		return play(), true
	case HoldName:
		// Whatever comes is the end: nothing is ever sent.
		_, _, _ = receive(SocketFD, make([]byte, 1), KindGo)
		return exitDone, true
	}
	return 0, false
}

// programUmask is what the program inherits, whatever the runner's own is.
const programUmask = 0o022

// Exit statuses of a stage, for the runner's log.
const (
	exitDone     = 0
	exitFailed   = 3
	exitDeserted = 4
)

// play is the whole life of a stage.
func play() int {
	runtime.LockOSThread()
	s := &stage{sock: SocketFD, buf: make([]byte, MaxMessage)}
	if err := s.closeOnExec(); err != nil {
		return exitFailed
	}
	unix.Umask(programUmask)
	l := s.newLauncher()
	if err := s.prepare(); err != nil {
		return s.refuse(err)
	}
	return s.run(l)
}

type stage struct {
	sock int
	// buf takes one message at a time.
	buf  []byte
	base Base
	cfg  Config
	// program, mounts and doors came with the configuration.
	program       int
	mounts, doors []int
	// outputs are descriptors for the runner, see [OutputFDs].
	outputs []int
	// failures are the parts that are missing.
	failures []Failure
}

// closeOnExec keeps every descriptor of this process from the program, also
// what the runner inherited from its own parent.
func (s *stage) closeOnExec() error {
	return unix.CloseRange(uint(s.sock), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}

// prepare builds what belongs to the whole process: mounts, and the outputs.
// Between its two messages a stage may wait for long.
func (s *stage) prepare() error {
	message, _, err := receive(s.sock, s.buf, KindBase)
	if err != nil {
		return err
	}
	if s.base, err = decodeBase(message); err != nil {
		return err
	}
	if !s.base.Plain {
		err = s.buildBase()
	} else if err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		err = failure(PartSubreaper, "become subreaper", err)
	}
	if err != nil {
		return err
	}
	return s.prepareRun()
}

func (s *stage) prepareRun() error {
	message, fds, err := receive(s.sock, s.buf, KindConfig)
	if err != nil {
		return err
	}
	if s.cfg, err = decodeConfig(message); err != nil {
		return err
	}
	if err := s.sortDescriptors(fds); err != nil {
		return err
	}
	if s.base.Plain {
		return nil
	}
	return s.buildRun()
}

// sortDescriptors tells the descriptors apart by their order.
func (s *stage) sortDescriptors(fds []int) error {
	detached := 0
	for _, b := range s.cfg.Binds {
		if b.Detached {
			detached++
		}
	}
	want := detached + s.cfg.Doors
	if !s.base.Plain {
		want++
	}
	if len(fds) != want {
		return fmt.Errorf("%d descriptors, want %d: %w", len(fds), want, unix.EPROTO)
	}
	if !s.base.Plain {
		s.program, fds = fds[0], fds[1:]
	}
	s.mounts, s.doors = fds[:detached], fds[detached:]
	return nil
}

// refuse tells the runner why there will be no run.
func (s *stage) refuse(err error) int {
	if f, ok := errors.AsType[*Failure](err); ok {
		s.failures = append(s.failures, *f)
	}
	ready := Ready{Failures: s.failures, Fatal: true}
	if err := send(s.sock, ready.Encode()); err != nil {
		return exitDeserted
	}
	return exitFailed
}
