package stage

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/procs"
)

// supervisePlain reaps until the program has ended or the runner wants an end,
// then kills every descendant until none is left, and says so.
func (s *stage) supervisePlain(p start) int {
	go s.killWhenTold(p.pidfd)
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return exitFailed
		case pid != p.pid:
			continue
		}
		// A runner that is gone must not keep us from killing.
		code := s.reportExit(status, usage)
		drain()
		return max(code, s.reportDrained())
	}
}

// killWhenTold kills the program when the runner says so or is gone, which
// ends [stage.supervisePlain]'s wait. The goroutine ends with the process.
func (s *stage) killWhenTold(pidfd int) {
	// Whatever came, wanted or not, is no reason to let the program run on.
	_, _, _ = receive(s.sock, s.buf, KindKill)
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
}

// drainPause is how long descendants are given to die before the next look.
const drainPause = time.Millisecond

// drain kills and reaps until this process has no child. Being the subreaper,
// it then has no descendant either.
func drain() {
	self := unix.Getpid()
	for {
		procs.KillDescendants(self)
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		<-time.After(drainPause)
	}
}

func (s *stage) reportDrained() int {
	if err := send(s.sock, []byte{KindDrained}); err != nil {
		return exitDeserted
	}
	return exitDone
}
