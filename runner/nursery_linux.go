package runner

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/procs"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A nursery starts stages. To start one costs more than all the rest of a run:
// the runner's own memory map is copied, namespaces are made, and an
// executable as large as this one starts. So one stage is always kept ready.
// It is used once, as every other.
type nursery struct {
	backend *linuxBackend
	parent  *parent
	// attr makes the attributes of a stage that is kept. Early means that it
	// is told of its base at once: it then lets go of the host while it waits,
	// and pins none of the host's mounts. That needs trees to come as detached
	// mounts, which only a superuser can make.
	attr  func() *syscall.SysProcAttr
	early bool

	mu     sync.Mutex
	spare  *hatched // guarded by mu
	busy   bool     // guarded by mu: one is being made
	closed bool     // guarded by mu
	// makers are the goroutines that make one.
	makers sync.WaitGroup
}

// A hatched is a stage that waits for its configuration, with a control group
// that has no limits yet, and its line in the list that a sweep goes by.
type hatched struct {
	name    string
	process *stageProcess
	group   *cgroup.Group
	slot    *slot
	// based: the stage was told what all runs have in common.
	based bool
}

// take returns a stage that nobody used. Who takes it calls keepOne when the
// processor has less to do.
func (n *nursery) take() (*hatched, error) {
	n.mu.Lock()
	h := n.spare
	n.spare = nil
	n.mu.Unlock()
	if h != nil && h.process.waiting() {
		return h, nil
	}
	if h != nil {
		if err := h.discard(); err != nil {
			return nil, err
		}
	}
	return n.hatch()
}

// keepOne begins to make a spare in the background, unless there is one. When
// that fails the next take tries for itself, and says why.
func (n *nursery) keepOne() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spare != nil || n.busy || n.closed {
		return
	}
	n.busy = true
	n.makers.Go(func() {
		h, err := n.hatch()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy = false
		if err == nil {
			n.spare = h
		}
	})
}

// close ends the spare and the parent of all stages, of which no other may be
// left.
func (n *nursery) close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.makers.Wait()
	var err error
	if n.spare != nil {
		err = n.spare.discard()
	}
	n.parent.close()
	return err
}

// hatch starts a stage. In the kernel's version 2 a process is born into its
// control group, in version 1 it joins later; so the group is made first.
func (n *nursery) hatch() (*hatched, error) {
	h := &hatched{name: n.backend.workspace.runName()}
	if n.backend.groups != nil {
		group, err := n.backend.groups.Create(h.name)
		if err != nil {
			return nil, err
		}
		h.group = group
	}
	process, err := n.parent.start(n.attr(), h.group)
	if err != nil {
		return nil, errors.Join(err, h.removeGroup())
	}
	h.process = process
	err = n.note(h)
	if err == nil && n.early {
		err = h.tell(n.backend.base())
	}
	if err != nil {
		return nil, errors.Join(err, h.discard())
	}
	return h, nil
}

// tell tells the stage what all runs have in common.
func (h *hatched) tell(base stage.Base) error {
	h.based = true
	return h.process.socket.send(base.Encode())
}

// note enters the stage in the list of what a later process would have to
// kill.
func (n *nursery) note(h *hatched) error {
	id, err := procs.Identify(h.process.proc.Pid, n.backend.boot)
	if err != nil {
		return err
	}
	h.slot, err = n.backend.stages.enter(id)
	return err
}

// discard ends a stage that has no program.
func (h *hatched) discard() error {
	return errors.Join(h.settle(h.process.kill()), h.removeGroup())
}

// settle blanks the line in the list, unless the process may be alive.
func (h *hatched) settle(drained error) error {
	if drained != nil || h.slot == nil {
		return drained
	}
	s := h.slot
	h.slot = nil
	return s.leave()
}

func (h *hatched) removeGroup() error {
	if h.group == nil {
		return nil
	}
	return h.group.Remove(groupPatience)
}

// A parent starts processes on one thread, which lives as long as they do: a
// stage in namespaces dies with the thread that started it.
type parent struct {
	orders chan order
	done   chan struct{}
}

type order struct {
	name   string
	attr   *syscall.SysProcAttr
	theirs *os.File
	reply  chan<- delivered
}

type delivered struct {
	proc *os.Process
	err  error
}

func newParent() *parent {
	p := &parent{orders: make(chan order), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *parent) run() {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for o := range p.orders {
		proc, err := spawn(o.name, o.attr, o.theirs)
		o.reply <- delivered{proc, err}
	}
}

func (p *parent) close() {
	close(p.orders)
	<-p.done
}

// spawn starts this executable under another name with its end of a socket,
// which it closes.
func spawn(name string, attr *syscall.SysProcAttr, theirs *os.File) (*os.Process, error) {
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open null device: %w", err)
	}
	defer null.Close()
	proc, err := os.StartProcess("/proc/self/exe", []string{name}, &os.ProcAttr{
		Dir: "/",
		// The stage is small: no collector, one scheduler, which does not ask
		// control groups how many.
		Env:   []string{"GOGC=off", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"},
		Files: []*os.File{null, null, null, theirs},
		Sys:   attr,
	})
	if err != nil {
		return nil, fmt.Errorf("start sandbox process: %w", errnoOf(err))
	}
	return proc, nil
}

// errnoOf drops the path that a failed start carries.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// child starts a process under another name and returns our end of its socket.
func (p *parent) child(name string, attr *syscall.SysProcAttr) (*os.Process, *socket, error) {
	ours, theirs, err := newSocket()
	if err != nil {
		return nil, nil, err
	}
	reply := make(chan delivered, 1)
	p.orders <- order{name: name, attr: attr, theirs: theirs, reply: reply}
	d := <-reply
	if d.err != nil {
		return nil, nil, errors.Join(d.err, ours.close())
	}
	return d.proc, ours, nil
}

// start starts a stage, born into the group where the kernel can do that.
func (p *parent) start(attr *syscall.SysProcAttr, group *cgroup.Group) (*stageProcess, error) {
	if group != nil {
		if fd, ok := group.BirthFD(); ok {
			attr.UseCgroupFD, attr.CgroupFD = true, fd
		}
	}
	proc, socket, err := p.child(stage.Name, attr)
	if err != nil {
		return nil, err
	}
	s := &stageProcess{
		proc: proc, socket: socket,
		ready: make(chan readyStage, 1), ended: make(chan ending, 1),
		drained: make(chan struct{}), gone: make(chan struct{}), read: make(chan struct{}),
	}
	go s.wait()
	go s.receive()
	return s, nil
}
