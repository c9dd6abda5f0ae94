package stage

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Wanted reports whether this process was started as a stage.
func Wanted() bool { return len(os.Args) == 1 && os.Args[0] == Name }

// HoldName is the argument zero that turns the executable into a process that
// only waits for the end of its socket: it holds a user namespace open for as
// long as it takes to get hold of it.
const HoldName = "fencepost-hold"

// HoldWanted reports whether this process was started to hold a namespace.
func HoldWanted() bool { return len(os.Args) == 1 && os.Args[0] == HoldName }

// Hold returns when the other end of the socket is closed.
func Hold() {
	_, _ = receive(SocketFD, KindGo)
}

// Exit statuses of a stage, for the runner's log.
const (
	exitDone     = 0
	exitFailed   = 3
	exitDeserted = 4
)

// Main is the whole life of a stage; it returns the exit status. The calling
// goroutine must be on the process's first thread, and the caller must end the
// process right away: in a PID namespace that end is what kills the rest.
func Main() int {
	runtime.LockOSThread()
	s := &stage{sock: SocketFD}
	if err := s.closeOnExec(); err != nil {
		return exitFailed
	}
	if err := s.prepare(); err != nil {
		return s.refuse(err)
	}
	return s.run()
}

type stage struct {
	sock int
	cfg  Config
	// outputs are descriptors for the runner, see [OutputFDs].
	outputs []int
	// failures are the parts that are missing in a run that goes on.
	failures []Failure
}

// closeOnExec keeps every descriptor of this process from the program: the
// socket, detached mounts, and whatever the runner inherited from its own
// parent.
func (s *stage) closeOnExec() error {
	return unix.CloseRange(uint(s.sock), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}

// prepare builds what belongs to the whole process: mounts, and the outputs.
func (s *stage) prepare() error {
	message, err := receive(s.sock, KindConfig)
	if err != nil {
		return err
	}
	if err := Decode(message, &s.cfg); err != nil {
		return err
	}
	if s.cfg.Plain {
		return s.preparePlain()
	}
	request, err := receive(s.sock, KindRequest)
	if err != nil {
		return err
	}
	return s.buildRoot(request[1:])
}

func (s *stage) preparePlain() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failure(PartSubreaper, "become subreaper", err)
	}
	return nil
}

// refuse tells the runner why there will be no run.
func (s *stage) refuse(err error) int {
	if f, ok := errors.AsType[*Failure](err); ok {
		s.failures = append(s.failures, *f)
	}
	message, err := Encode(KindReady, Ready{Failures: s.failures, Fatal: true})
	if err != nil {
		return exitFailed
	}
	if err := send(s.sock, message); err != nil {
		return exitDeserted
	}
	return exitFailed
}

// tolerate notes a missing part, and reports whether the run may go on.
func (s *stage) tolerate(f *Failure) bool {
	if s.cfg.Strict {
		return false
	}
	s.failures = append(s.failures, *f)
	return true
}
