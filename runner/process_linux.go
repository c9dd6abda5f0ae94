package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/stage"
)

// setupLimit is how long a stage may take to build a sandbox.
const setupLimit = 10 * time.Second

// A stageProcess is one stage and the runner's end of its socket. Whoever has
// it calls kill or awaitEnd in the end.
type stageProcess struct {
	proc   *os.Process
	socket *socket
	// ready yields one; ended at least one, of which the first counts.
	ready chan readyStage
	ended chan ending
	// drained is closed when the stage says that nothing is left.
	drained chan struct{}
	// gone is closed when the process was reaped. In a PID namespace the
	// kernel allows that only after every other process in it.
	gone chan struct{}
	// read is closed when the reader of the socket has returned.
	read chan struct{}
}

type readyStage struct {
	stage.Ready
	files []*os.File
}

// sandboxUser is the user and group that a program sees itself as.
const sandboxUser = 1000

// otherUser is the host's user that programs of a superuser's runner are:
// nobody, by the number that every system gives it.
const otherUser = 65534

// namespaces are the attributes of a stage in namespaces. Lent means that the
// program is otherUser of the host, and else that it is the runner's user.
func namespaces(lent bool) *syscall.SysProcAttr {
	attr := plain()
	// Its end is the end of all in its namespace, so it dies with the thread
	// that started it.
	attr.Pdeathsig = syscall.SIGKILL
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	uid, gid := os.Geteuid(), os.Getegid()
	if lent {
		uid, gid = otherUser, otherUser
		attr.Credential = &syscall.Credential{Uid: sandboxUser, Gid: sandboxUser}
		attr.GidMappingsEnableSetgroups = true
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: sandboxUser, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: sandboxUser, HostID: gid, Size: 1}}
	// What the stage needs to build the sandbox; the program gets none of it.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	return attr
}

// plain are the attributes of a stage outside namespaces. It must outlive its
// parent: it sees the end of its socket then, and kills what descends from it.
func plain() *syscall.SysProcAttr {
	// Signals of a terminal don't reach it.
	return &syscall.SysProcAttr{Setsid: true}
}

func (p *stageProcess) wait() {
	defer close(p.gone)
	// Its status says nothing that matters: the socket told the program's.
	_, _ = p.proc.Wait()
}

// waiting reports whether the stage still waits for its configuration.
func (p *stageProcess) waiting() bool { return !isClosed(p.read) && !isClosed(p.gone) }

// receive reads the stage's messages until its end is closed.
func (p *stageProcess) receive() {
	defer close(p.read)
	buf := make([]byte, maxFromStage)
	for {
		message, files, err := p.socket.receive(buf)
		if err != nil {
			closeAll(files)
			p.tell(ending{err: fmt.Errorf("%w: it ended", ErrStage)})
			return
		}
		if !p.handle(message, files) {
			closeAll(files)
			p.tell(ending{err: fmt.Errorf("%w: protocol", ErrStage)})
			return
		}
	}
}

// maxFromStage bounds what a stage says: failures at most.
const maxFromStage = 4 << 10

// handle takes one message; false means that the stage does not keep the
// protocol.
func (p *stageProcess) handle(message []byte, files []*os.File) bool {
	switch message[0] {
	case stage.KindReady:
		r, err := stage.DecodeReady(message)
		if err != nil || len(p.ready) > 0 {
			return false
		}
		p.ready <- readyStage{Ready: r, files: files}
		return true
	case stage.KindExit:
		x, err := stage.DecodeExit(message)
		if err != nil || len(files) > 0 {
			return false
		}
		p.tell(endingOf(x))
		return true
	case stage.KindDrained:
		if len(files) > 0 || isClosed(p.drained) {
			return false
		}
		close(p.drained)
		return true
	}
	return false
}

// tell yields an ending; the first one counts, and what follows it is only the
// end of the stage itself.
func (p *stageProcess) tell(how ending) {
	select {
	case p.ended <- how:
	default:
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func endingOf(x stage.Exit) ending {
	if x.Spawn != 0 {
		return ending{err: fmt.Errorf("%w: %w", ErrSpawn, unix.Errno(x.Spawn))}
	}
	ws := unix.WaitStatus(x.Status)
	exit := &ProgramExit{
		Status: ws.ExitStatus(),
		User:   time.Duration(x.UserMicros) * time.Microsecond, System: time.Duration(x.SystemMicros) * time.Microsecond,
		MaxRSS: x.MaxRSSKiB << 10,
	}
	if ws.Signaled() {
		exit.Signal = int(ws.Signal())
	}
	return ending{exit: exit}
}

// prepare sends what to build for a run and waits until it stands. A request
// is waited for while the stage builds the rest.
func (p *stageProcess) prepare(ctx context.Context, cfg *stage.Config, files []*os.File, request requester) (readyStage, error) {
	// A stage that could not build its base has said so and ended: then
	// nothing can be sent, and the answer is there.
	sent := p.socket.send(cfg.Encode(), files...)
	if request != nil {
		text, err := request()
		if err != nil {
			return readyStage{}, err
		}
		if sent == nil {
			sent = p.socket.send(append([]byte{stage.KindRequest}, text...))
		}
	}
	timer := time.NewTimer(setupLimit)
	defer timer.Stop()
	select {
	case r := <-p.ready:
		return r, nil
	case how := <-p.ended:
		select {
		case r := <-p.ready:
			return r, nil
		default:
			return readyStage{}, errors.Join(how.err, sent)
		}
	case <-timer.C:
		return readyStage{}, fmt.Errorf("%w: not ready after %v", ErrStage, setupLimit)
	case <-ctx.Done():
		return readyStage{}, context.Cause(ctx)
	}
}

// kill kills the stage, and with it everything in its PID namespace, and
// returns when that is proven.
func (p *stageProcess) kill() error {
	err := p.proc.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, p.awaitEnd())
}

// awaitEnd waits for the process's end and for the reader of its socket.
func (p *stageProcess) awaitEnd() error {
	timer := time.NewTimer(DrainLimit)
	defer timer.Stop()
	var err error
	select {
	case <-p.gone:
	case <-timer.C:
		// The process is still reaped as soon as the kernel lets it end.
		err = ErrDrain
	}
	err = errors.Join(err, p.socket.close())
	<-p.read
	select {
	case r := <-p.ready:
		closeAll(r.files)
	default:
	}
	return err
}
