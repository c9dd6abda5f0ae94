package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// setupLimit is how long a stage may take to build a sandbox.
const setupLimit = 10 * time.Second

// A stageProcess is one stage and the runner's end of its socket.
type stageProcess struct {
	proc *os.Process
	conn *net.UnixConn
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
	failures []stage.Failure
	fatal    bool
	files    []*os.File
}

// sandboxUser is the user and group that a program sees itself as.
const sandboxUser = 1000

// otherUser is the host's user that programs of a superuser's runner are:
// nobody, by the number that every system gives it.
const otherUser = 65534

// namespaces are the attributes of a stage in namespaces. Lent means that the
// program is otherUser of the host, and else that it is the runner's user.
func (b *linuxBackend) namespaces(lent bool) *syscall.SysProcAttr {
	attr := stageAttr()
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

// stageAttr are the attributes of every stage: it dies with the thread that
// started it, and signals of a terminal don't reach it.
func stageAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
}

// startStage starts this executable as a stage. The calling goroutine must be
// locked to its thread until the process is gone. Files become descriptors
// from stage.SocketFD+1 on; they stay the caller's.
func (b *linuxBackend) startStage(ctx context.Context, attr *syscall.SysProcAttr, group *cgroup.Group, files []*os.File) (*stageProcess, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if group != nil {
		if fd, ok := group.BirthFD(); ok {
			attr.UseCgroupFD, attr.CgroupFD = true, fd
		}
	}
	proc, conn, err := spawn(stage.Name, attr, files)
	if err != nil {
		return nil, err
	}
	p := &stageProcess{
		proc: proc, conn: conn,
		ready: make(chan readyStage, 1), ended: make(chan ending, 1),
		drained: make(chan struct{}), gone: make(chan struct{}), read: make(chan struct{}),
	}
	go p.wait()
	go p.receive()
	if group != nil && !attr.UseCgroupFD {
		if err := group.Add(proc.Pid); err != nil {
			return nil, errors.Join(err, p.kill())
		}
	}
	return p, nil
}

// spawn starts this executable under another name, with one end of a new
// socket.
func spawn(name string, attr *syscall.SysProcAttr, files []*os.File) (*os.Process, *net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "stage"), os.NewFile(uintptr(pair[1]), "runner")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if e := ours.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open null device: %w", err), conn.Close())
	}
	defer null.Close()
	proc, err := os.StartProcess("/proc/self/exe", []string{name}, &os.ProcAttr{
		Dir: "/",
		// The stage is short-lived and small: no collector, one scheduler.
		Env:   []string{"GOGC=off", "GOMAXPROCS=1", "GOTRACEBACK=none"},
		Files: append([]*os.File{null, null, null, theirs}, files...),
		Sys:   attr,
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start sandbox process: %w", errnoOf(err)), conn.Close())
	}
	return proc, conn.(*net.UnixConn), nil
}

// errnoOf drops the path that a failed start carries.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

func (p *stageProcess) wait() {
	defer close(p.gone)
	// Its status says nothing that matters: the socket told the program's.
	_, _ = p.proc.Wait()
}

// receive reads the stage's messages until its end is closed.
func (p *stageProcess) receive() {
	defer close(p.read)
	buf := make([]byte, stage.MaxMessage)
	oob := make([]byte, unix.CmsgSpace(stage.OutputFDs*4))
	for {
		n, oobn, _, _, err := p.conn.ReadMsgUnix(buf, oob)
		files, ferr := descriptors(oob[:oobn])
		if err != nil || n == 0 || ferr != nil {
			closeAll(files)
			p.tell(ending{err: fmt.Errorf("%w: it ended", ErrStage)})
			return
		}
		if !p.handle(buf[:n], files) {
			closeAll(files)
			p.tell(ending{err: fmt.Errorf("%w: protocol", ErrStage)})
			return
		}
	}
}

// handle takes one message; false means that the stage does not keep the
// protocol.
func (p *stageProcess) handle(message []byte, files []*os.File) bool {
	switch message[0] {
	case stage.KindReady:
		var r stage.Ready
		if stage.Decode(message, &r) != nil || len(p.ready) > 0 {
			return false
		}
		p.ready <- readyStage{failures: r.Failures, fatal: r.Fatal, files: files}
		return true
	case stage.KindExit:
		var x stage.Exit
		if stage.Decode(message, &x) != nil || len(files) > 0 {
			return false
		}
		p.tell(endingOf(x))
		return true
	case stage.KindDrained:
		if len(message) != 1 || len(files) > 0 || isClosed(p.drained) {
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

func descriptors(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "output"))
		}
	}
	return files, nil
}

// prepare sends what to build and waits until it stands.
func (p *stageProcess) prepare(ctx context.Context, cfg stage.Config, request []byte) (readyStage, error) {
	message, err := stage.Encode(stage.KindConfig, &cfg)
	if err != nil {
		return readyStage{}, err
	}
	if err := p.send(message); err != nil {
		return readyStage{}, err
	}
	if !cfg.Plain {
		if err := p.send(append([]byte{stage.KindRequest}, request...)); err != nil {
			return readyStage{}, err
		}
	}
	timer := time.NewTimer(setupLimit)
	defer timer.Stop()
	select {
	case r := <-p.ready:
		return r, nil
	case how := <-p.ended:
		return readyStage{}, how.err
	case <-timer.C:
		return readyStage{}, fmt.Errorf("%w: not ready after %v", ErrStage, setupLimit)
	case <-ctx.Done():
		return readyStage{}, context.Cause(ctx)
	}
}

func (p *stageProcess) send(message []byte) error {
	if _, err := p.conn.Write(message); err != nil {
		return fmt.Errorf("%w: %w", ErrStage, errnoOf(err))
	}
	return nil
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
	err = errors.Join(err, p.conn.Close())
	<-p.read
	return err
}
