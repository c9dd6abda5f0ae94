package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A linuxSession is what sessions in namespaces and plain ones share.
type linuxSession struct {
	*hatched
	backend *linuxBackend
	limits  Limits
	on      map[Protection]string
	kills   int
	// launched: there may be a program.
	launched bool
}

// begin takes a stage and gives its control group the run's limits.
func (b *linuxBackend) begin(l Limits) (session, error) {
	h, err := b.nursery.take()
	if err != nil {
		return nil, err
	}
	s := linuxSession{hatched: h, backend: b, limits: l, on: map[Protection]string{}}
	if s.group != nil {
		err = s.group.Limit(cgroup.Limits{Memory: l.Memory, Processes: l.Processes + b.groupOverhead()})
	}
	var whole session
	switch {
	case err != nil:
	case b.namespaced:
		whole, err = s.beginNamespaced()
	default:
		whole, err = s.beginPlain()
	}
	if err != nil {
		b.nursery.keepOne()
		return nil, errors.Join(err, h.discard())
	}
	return whole, nil
}

// groupPatience is how long the kernel may take to let go of a group whose
// last process is gone.
const groupPatience = 500 * time.Millisecond

// build sends the configuration with its files, and last the doors of the
// control group.
func (s *linuxSession) build(ctx context.Context, cfg *stage.Config, files []*os.File, request requester) (readyStage, error) {
	if !s.based {
		if err := s.tell(s.backend.base()); err != nil {
			return readyStage{}, err
		}
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
	err := s.process.socket.send([]byte{stage.KindGo})
	// From here to its end a run only waits.
	s.backend.nursery.keepOne()
	return err
}

func (s *linuxSession) ended() <-chan ending { return s.process.ended }

func (s *linuxSession) memoryKills() int { return s.kills }

// drained counts what the group says while it exists, and settles the stage.
func (s *linuxSession) drained(err error) error {
	s.backend.nursery.keepOne() // where nothing was launched
	if s.group != nil {
		s.kills = s.group.MemoryKills()
	}
	return s.settle(err)
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
