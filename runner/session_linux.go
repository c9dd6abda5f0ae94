package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/procs"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A linuxSession is one program with its stage, control group and files.
type linuxSession struct {
	backend *linuxBackend
	spec    spec
	process *stageProcess
	group   *cgroup.Group
	out     linuxOutputs
	on      map[Protection]string
	// program is the copy as it was before the launch.
	program os.FileInfo
	kills   int
}

// start locks the goroutine to its thread until release: a stage dies with the
// thread that started it, and a thread of its own can't be lost.
func (b *linuxBackend) start(ctx context.Context, s spec) (session, error) {
	runtime.LockOSThread()
	session := &linuxSession{backend: b, spec: s, on: map[Protection]string{}}
	if err := session.begin(ctx); err != nil {
		return nil, errors.Join(err, session.abandon())
	}
	return session, nil
}

func (s *linuxSession) begin(ctx context.Context) error {
	info, err := os.Stat(s.spec.dir.program())
	if err != nil {
		return fmt.Errorf("look at program: %w", errnoOf(err))
	}
	s.program = info
	if err := s.makeGroup(); err != nil {
		return err
	}
	if s.backend.namespaced {
		err = s.beginNamespaced(ctx)
	} else {
		err = s.beginPlain(ctx)
	}
	return err
}

// makeGroup records the group before it exists, so that no moment leaves one
// that nobody knows of.
func (s *linuxSession) makeGroup() error {
	b := s.backend
	if b.groups == nil {
		return nil
	}
	l := s.spec.job.Limits
	if err := s.spec.dir.record(runState{Groups: b.groups.Dirs(s.spec.dir.name)}); err != nil {
		return err
	}
	group, err := b.groups.Create(s.spec.dir.name, cgroup.Limits{Memory: l.Memory, Processes: l.Processes + stageThreads})
	if err != nil {
		return err
	}
	s.group = group
	return nil
}

// beginNamespaced lends the private files to the program's user, or where that
// can't be done lets the program be the runner's own.
func (s *linuxSession) beginNamespaced(ctx context.Context) error {
	private := []stage.Bind{
		{Source: s.spec.job.Candidate.Root(), Target: sandboxCandidate},
		{Source: s.spec.job.Action.Root(), Target: sandboxAction},
		{Source: s.spec.dir.program(), Target: sandboxProgram, File: true},
	}
	mounts := s.lendAll(private)
	defer closeAll(mounts)
	attr := s.backend.namespaces(mounts != nil)
	if err := s.startStage(ctx, attr, mounts); err != nil {
		return err
	}
	cfg := s.backend.rootConfig()
	cfg.Strict = s.backend.cfg.Sandbox == Required
	cfg.Binds = append(cfg.Binds, private...)
	cfg.Program = sandboxProgram
	cfg.Scratch, cfg.Inodes = s.spec.job.Limits.ScratchBytes, s.spec.job.Limits.ScratchFiles
	cfg.Limits = rlimits(s.spec.job.Limits, s.backend.groups)
	ready, err := s.prepare(ctx, cfg)
	if err != nil {
		return err
	}
	if len(ready.files) != stage.OutputFDs {
		closeAll(ready.files)
		return fmt.Errorf("%w: %d output files", ErrStage, len(ready.files))
	}
	s.out = &scratchOutputs{dir: ready.files[0], report: ready.files[1], result: ready.files[2]}
	s.noteNamespaced(mounts != nil, ready.failures)
	return nil
}

// lendAll returns one mount for each of private, and sets their descriptors in
// the stage; nil where not all can be lent.
func (s *linuxSession) lendAll(private []stage.Bind) []*os.File {
	if s.backend.users == nil {
		return nil
	}
	mounts := make([]*os.File, 0, len(private))
	for _, p := range private {
		f, err := s.backend.lend(p.Source)
		if err != nil {
			closeAll(mounts)
			return nil
		}
		mounts = append(mounts, f)
	}
	for i := range private {
		private[i].FD = stage.SocketFD + 1 + i
	}
	return mounts
}

func (s *linuxSession) startStage(ctx context.Context, attr *syscall.SysProcAttr, files []*os.File) error {
	p, err := s.backend.startStage(ctx, attr, s.group, files)
	if err != nil {
		return err
	}
	s.process = p
	id, err := procs.Identify(p.proc.Pid)
	if err != nil {
		return err
	}
	state := runState{Stage: id}
	if s.group != nil {
		state.Groups = s.group.Dirs()
	}
	return s.spec.dir.record(state)
}

func (s *linuxSession) prepare(ctx context.Context, cfg stage.Config) (readyStage, error) {
	ready, err := s.process.prepare(ctx, cfg, s.spec.request)
	if err != nil {
		return readyStage{}, err
	}
	if ready.fatal {
		closeAll(ready.files)
		return readyStage{}, &SandboxError{Missing: missingParts(ready.failures)}
	}
	return ready, nil
}

// noteNamespaced writes down what a namespaced run has.
func (s *linuxSession) noteNamespaced(lent bool, failures []stage.Failure) {
	for _, p := range []Protection{
		ProtectionUserNamespace, ProtectionPIDNamespace, ProtectionMountNamespace, ProtectionNetworkNamespace,
		ProtectionIPCNamespace, ProtectionUTSNamespace, ProtectionPrivateRoot, ProtectionReadOnlyTrees,
	} {
		s.on[p] = ""
	}
	s.on[ProtectionScratchLimit] = "tmpfs"
	s.on[ProtectionTreeKill] = "pid namespace"
	if lent || os.Geteuid() != 0 {
		s.on[ProtectionUnprivilegedUser] = ""
	}
	s.noteCommon(failures, lent || os.Geteuid() != 0)
}

// noteCommon writes down what does not depend on namespaces. Counted says
// whether the kernel counts the user's processes: it exempts the superuser.
func (s *linuxSession) noteCommon(failures []stage.Failure, counted bool) {
	s.on[ProtectionCapabilities] = ""
	s.on[ProtectionNoNewPrivileges] = ""
	s.on[ProtectionSeccomp] = ""
	s.on[ProtectionLandlock] = fmt.Sprintf("abi %d", s.backend.landlockABI)
	s.on[ProtectionCPULimit] = "rlimit, each process"
	s.on[ProtectionFileLimit] = "rlimit"
	s.on[ProtectionMemoryLimit] = "rlimit, each process"
	if counted {
		s.on[ProtectionProcessLimit] = "rlimit"
	}
	for _, f := range failures {
		delete(s.on, partProtection(f.Part))
		if f.Part == stage.PartRlimits {
			maps.DeleteFunc(s.on, func(_ Protection, by string) bool { return by == "rlimit" || by == "rlimit, each process" })
		}
	}
	if s.group == nil {
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

func (s *linuxSession) launch() error { return s.process.send([]byte{stage.KindGo}) }

func (s *linuxSession) ended() <-chan ending { return s.process.ended }

func (s *linuxSession) drain() error {
	var err error
	if s.backend.namespaced {
		err = s.process.kill()
	} else {
		err = s.drainPlain()
	}
	if s.group != nil {
		s.kills = s.group.MemoryKills()
	}
	return err
}

func (s *linuxSession) memoryKills() int { return s.kills }

func (s *linuxSession) outputs() outputs { return s.out }

// unaltered looks at the copy again. In a namespace it was mounted read-only,
// and nobody else may write the run's directory.
func (s *linuxSession) unaltered() error {
	if s.backend.namespaced {
		return nil
	}
	return unaltered(s.spec.dir.program(), s.program, s.spec.job.ProgramSHA256)
}

func (s *linuxSession) release() error {
	defer runtime.UnlockOSThread()
	var errs []error
	if s.out != nil {
		errs = append(errs, s.out.close())
	}
	if s.group != nil {
		errs = append(errs, s.group.Remove(groupPatience))
	}
	return errors.Join(errs...)
}

// abandon ends what begin left unfinished.
func (s *linuxSession) abandon() error {
	var err error
	if s.process != nil {
		err = s.process.kill()
	}
	return errors.Join(err, s.release())
}

// linuxOutputs are outputs that are closed at the end.
type linuxOutputs interface {
	outputs
	close() error
}

// scratchOutputs are files in the file system of a namespaced run's working
// directory, which lives until the last of them is closed.
type scratchOutputs struct{ dir, report, result *os.File }

func (o *scratchOutputs) open(name string) *os.File {
	if name == check.ReportFile {
		return o.report
	}
	return o.result
}

// replaced compares what the name stands for with the handle. The request is
// mounted over its name and can't be replaced.
func (o *scratchOutputs) replaced(name string) bool {
	if name == check.RequestFile {
		return false
	}
	var held, named unix.Stat_t
	if err := unix.Fstat(int(o.open(name).Fd()), &held); err != nil {
		return true
	}
	if err := unix.Fstatat(int(o.dir.Fd()), name, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true
	}
	return held.Dev != named.Dev || held.Ino != named.Ino
}

func (o *scratchOutputs) close() error {
	return errors.Join(o.dir.Close(), o.report.Close(), o.result.Close())
}
