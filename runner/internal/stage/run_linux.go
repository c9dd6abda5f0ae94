package stage

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A launcher is the thread that the program is started from. Another one than
// the first is needed, since the first stands for the process: nothing of this
// process stays in the program's Landlock domain, so that with scoped signals
// the program can't signal it.
type launcher struct {
	// disarmed yields what [disarm] could not do, confined the same of
	// [stage.confine], started the program.
	disarmed, confined chan []Failure
	started            chan start
	// confine and leave tell it to go on.
	confine, leave chan struct{}
}

func (s *stage) newLauncher() *launcher {
	l := &launcher{
		disarmed: make(chan []Failure, 1), confined: make(chan []Failure, 1), started: make(chan start, 1),
		confine: make(chan struct{}), leave: make(chan struct{}),
	}
	go l.run(s)
	return l
}

// run ends its thread with itself: it never unlocks it.
func (l *launcher) run(s *stage) {
	runtime.LockOSThread()
	l.disarmed <- disarm()
	<-l.confine
	l.confined <- s.confine()
	<-l.leave
	l.started <- s.spawn()
}

// run starts the program from the launcher and then reaps until the program
// has ended.
func (s *stage) run(l *launcher) int {
	close(l.confine)
	s.failures = append(append(s.failures, <-l.disarmed...), <-l.confined...)
	if s.cfg.Strict && len(s.failures) > 0 {
		return s.refuse(nil)
	}
	ready := Ready{Failures: s.failures}
	if err := send(s.sock, ready.Encode(), s.outputs...); err != nil {
		return exitDeserted
	}
	for _, fd := range s.outputs {
		if err := unix.Close(fd); err != nil {
			return exitFailed
		}
	}
	// The program has the same user: without this it could read and write the
	// memory of its own init where nothing else stops it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return exitFailed
	}
	if _, _, err := receive(s.sock, s.buf, KindGo); err != nil {
		return exitDeserted
	}
	close(l.leave)
	program := <-l.started
	if program.err != nil {
		code := s.reportSpawn(program.err)
		if s.base.Plain {
			code = max(code, s.reportDrained())
		}
		return code
	}
	if s.base.Plain {
		return s.supervisePlain(program)
	}
	return s.superviseNamespace(program)
}

// A start is a program that runs, or why it does not.
type start struct {
	pid, pidfd int
	err        error
}

func (s *stage) spawn() start {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return start{err: err}
	}
	defer unix.Close(null)
	pidfd := -1
	pid, err := syscall.ForkExec(s.cfg.Program, []string{s.cfg.Program}, &syscall.ProcAttr{
		Dir:   s.cfg.Work,
		Env:   []string{},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null)},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	return start{pid: pid, pidfd: pidfd, err: err}
}

// superviseNamespace reaps whatever ends until the program does. The caller
// then ends this process, and the kernel the rest.
func (s *stage) superviseNamespace(p start) int {
	go s.exitWhenDeserted()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return exitFailed
		case pid == p.pid:
			return s.reportExit(status, usage)
		}
	}
}

// exitWhenDeserted ends the process as soon as the runner is gone: the second
// guard beside the parent-death signal, which a change of thread could lose.
// The goroutine ends with the process.
func (s *stage) exitWhenDeserted() {
	_, _, err := receive(s.sock, s.buf, KindKill)
	if err == nil {
		os.Exit(exitDone)
	}
	os.Exit(exitDeserted)
}

func (s *stage) reportSpawn(err error) int {
	errno, ok := errors.AsType[unix.Errno](err)
	if !ok {
		errno = unix.EIO
	}
	return s.report(Exit{Spawn: uint(errno)})
}

func (s *stage) reportExit(status unix.WaitStatus, usage unix.Rusage) int {
	return s.report(Exit{
		Status:     uint32(status),
		UserMicros: usage.Utime.Nano() / 1000, SystemMicros: usage.Stime.Nano() / 1000,
		MaxRSSKiB: int64(usage.Maxrss),
	})
}

func (s *stage) report(x Exit) int {
	if err := send(s.sock, x.Encode()); err != nil {
		return exitDeserted
	}
	return exitDone
}
