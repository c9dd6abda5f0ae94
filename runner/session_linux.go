package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/procs"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A linuxSession is what sessions in namespaces and plain ones share: a stage,
// its control group, and its entry in the list that a sweep goes by.
type linuxSession struct {
	backend *linuxBackend
	limits  Limits
	name    string
	process *stageProcess
	group   *cgroup.Group
	slot    *slot
	on      map[Protection]string
	kills   int
	// launched: there may be a program.
	launched bool
}

// begin starts the stage in the background: the work before prepare goes on
// meanwhile.
func (b *linuxBackend) begin(l Limits) (session, error) {
	s := linuxSession{backend: b, limits: l, name: b.workspace.runName(), on: map[Protection]string{}}
	if b.namespaced {
		return s.beginNamespaced()
	}
	return s.beginPlain()
}

// startStage makes the control group in the order that the kernel's interface
// asks for: a process is born into one of version 2, and joins one of version
// 1 later.
func (s *linuxSession) startStage(attr *syscall.SysProcAttr) error {
	early := s.backend.groups != nil && s.backend.groups.Version() == 2
	if early {
		if err := s.makeGroup(); err != nil {
			return err
		}
	}
	process, err := startStage(attr, s.group)
	if err != nil {
		return errors.Join(err, s.removeGroup())
	}
	s.process = process
	if s.backend.groups == nil || early {
		return nil
	}
	if err := s.makeGroup(); err != nil {
		return errors.Join(err, s.process.kill(), s.removeGroup())
	}
	return nil
}

func (s *linuxSession) makeGroup() error {
	group, err := s.backend.groups.Create(s.name, cgroup.Limits{
		Memory: s.limits.Memory, Processes: s.limits.Processes + s.backend.groupOverhead(),
	})
	s.group = group
	return err
}

// groupPatience is how long the kernel may take to let go of a group whose
// last process is gone.
const groupPatience = 500 * time.Millisecond

func (s *linuxSession) removeGroup() error {
	if s.group == nil {
		return nil
	}
	return s.group.Remove(groupPatience)
}

// note enters the stage in the list of what a later process would have to
// kill.
func (s *linuxSession) note() error {
	if err := s.process.running(); err != nil {
		return err
	}
	id, err := procs.Identify(s.process.proc.Pid, s.backend.boot)
	if err != nil {
		return err
	}
	s.slot, err = s.backend.stages.enter(id)
	return err
}

// build sends the configuration with its files, and last the doors of the
// control group.
func (s *linuxSession) build(ctx context.Context, cfg *stage.Config, files []*os.File, request []byte) (readyStage, error) {
	if err := s.note(); err != nil {
		return readyStage{}, err
	}
	if s.group != nil {
		doors := s.group.Doors()
		cfg.Doors = len(doors)
		files = append(files, doors...)
	}
	ready, err := s.process.prepare(ctx, cfg, files, request)
	if err != nil {
		return readyStage{}, err
	}
	if ready.Fatal {
		closeAll(ready.files)
		return readyStage{}, &SandboxError{Missing: missingParts(ready.Failures)}
	}
	return ready, nil
}

// noteProtections writes down what does not depend on namespaces. Counted says
// whether the kernel counts the user's processes: it exempts the superuser.
func (s *linuxSession) noteProtections(failures []stage.Failure, counted bool) {
	const each = "rlimit, each process"
	for p, by := range map[Protection]string{
		ProtectionCapabilities: "", ProtectionNoNewPrivileges: "", ProtectionSeccomp: "",
		ProtectionLandlock: fmt.Sprintf("abi %d", s.backend.landlockABI),
		ProtectionCPULimit: each, ProtectionFileLimit: "rlimit", ProtectionMemoryLimit: each,
	} {
		s.on[p] = by
	}
	if counted {
		s.on[ProtectionProcessLimit] = "rlimit"
		s.on[ProtectionUnprivilegedUser] = ""
	}
	lost := map[stage.Part]bool{}
	for _, f := range failures {
		lost[f.Part] = true
		delete(s.on, partProtection(f.Part))
	}
	if lost[stage.PartRlimits] {
		for _, p := range []Protection{ProtectionCPULimit, ProtectionMemoryLimit, ProtectionProcessLimit} {
			delete(s.on, p)
		}
	}
	if s.group == nil || lost[stage.PartCgroup] {
		return
	}
	mem, processes := s.backend.groups.Has()
	by := fmt.Sprintf("cgroup v%d", s.backend.groups.Version())
	if mem {
		s.on[ProtectionMemoryLimit] = by
	}
	if processes {
		s.on[ProtectionProcessLimit] = by
	}
}

func (s *linuxSession) protections() []ProtectionState { return states(s.on) }

func (s *linuxSession) launch() error {
	s.launched = true
	return s.process.socket.send([]byte{stage.KindGo})
}

func (s *linuxSession) ended() <-chan ending { return s.process.ended }

func (s *linuxSession) memoryKills() int { return s.kills }

// countKills is called while the group still exists.
func (s *linuxSession) countKills() {
	if s.group != nil {
		s.kills = s.group.MemoryKills()
	}
}

// settle frees the entry in the list, unless the process may be alive.
func (s *linuxSession) settle(drained error) error {
	s.countKills()
	if drained != nil || s.slot == nil {
		return drained
	}
	return s.slot.leave()
}

// memoryFile makes a file that lives in memory alone.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal makes a memory file's bytes final, for every holder of a descriptor.
func seal(f *os.File) error {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, all); err != nil {
		return fmt.Errorf("seal memory file: %w", err)
	}
	return nil
}
