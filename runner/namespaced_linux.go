package runner

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A namespacedSession runs its program in namespaces of its own. It leaves
// nothing on disk: the program's copy and the working directory live in
// memory, and end with the namespaces.
type namespacedSession struct {
	linuxSession
	// lent: the program is another user of the host than the runner.
	lent bool
	// copied is the program.
	copied *os.File
	out    *scratchOutputs
}

func (s linuxSession) beginNamespaced() (session, error) {
	n := &namespacedSession{linuxSession: s, lent: s.backend.users != nil}
	copied, err := memoryFile("program")
	if err != nil {
		return nil, err
	}
	n.copied = copied
	return n, nil
}

func (s *namespacedSession) load(ctx context.Context, job *Job) error {
	if err := copyProgram(ctx, job, s.copied); err != nil {
		return err
	}
	return seal(s.copied)
}

func (s *namespacedSession) prepare(ctx context.Context, job *Job, request requester) error {
	trees := []stage.Bind{
		{Source: job.Candidate.Root(), Target: sandboxCandidate},
		{Source: job.Action.Root(), Target: sandboxAction},
	}
	mounts, err := s.lend(trees)
	if err != nil {
		return err
	}
	defer closeAll(mounts)
	cfg := s.backend.runConfig(s.limits)
	cfg.Strict = s.backend.cfg.Sandbox == Required
	cfg.Binds = trees
	ready, err := s.build(ctx, &cfg, append([]*os.File{s.copied}, mounts...), request)
	if err != nil {
		return err
	}
	if len(ready.files) != stage.OutputFDs {
		closeAll(ready.files)
		return fmt.Errorf("%w: %d output files", ErrStage, len(ready.files))
	}
	s.out = &scratchOutputs{dir: ready.files[0], report: ready.files[1], result: ready.files[2]}
	s.noteNamespaces()
	s.noteProtections(ready.Failures, s.lent || os.Geteuid() != 0)
	if s.backend.cfg.Sandbox == Required {
		return s.complete()
	}
	return nil
}

// complete fails unless every protection is on that a sandbox must have. Which
// user of the host the program is may depend on a file system.
func (s *namespacedSession) complete() error {
	var missing []Missing
	for _, p := range Protections() {
		if _, on := s.on[p]; !on && p != ProtectionUnprivilegedUser {
			missing = append(missing, Missing{p, unix.EOPNOTSUPP})
		}
	}
	if missing != nil {
		return &SandboxError{Missing: missing}
	}
	return nil
}

// lend makes the trees readable for another user, as detached mounts in the
// order of trees. Where a file system can't do that the program has to be the
// runner's own user, and the stage is started once more.
func (s *namespacedSession) lend(trees []stage.Bind) ([]*os.File, error) {
	if !s.lent {
		return nil, nil
	}
	mounts := make([]*os.File, 0, len(trees))
	for i := range trees {
		m, err := s.backend.lend(trees[i].Source)
		if err != nil {
			closeAll(mounts)
			return nil, s.restart(trees)
		}
		mounts = append(mounts, m)
		trees[i].Detached = true
	}
	return mounts, nil
}

func (s *namespacedSession) restart(trees []stage.Bind) error {
	for i := range trees {
		trees[i].Detached = false
	}
	if err := s.settle(s.process.kill()); err != nil {
		return err
	}
	process, err := s.backend.nursery.parent.start(namespaces(false), s.group)
	if err != nil {
		return err
	}
	s.process, s.lent = process, false
	base := s.backend.base()
	base.Leave = false
	return errors.Join(s.backend.nursery.note(s.hatched), s.tell(base))
}

func (s *namespacedSession) noteNamespaces() {
	for _, p := range []Protection{
		ProtectionUserNamespace, ProtectionPIDNamespace, ProtectionMountNamespace, ProtectionNetworkNamespace,
		ProtectionIPCNamespace, ProtectionUTSNamespace, ProtectionPrivateRoot, ProtectionReadOnlyTrees,
	} {
		s.on[p] = ""
	}
	s.on[ProtectionScratchLimit] = "tmpfs"
	s.on[ProtectionTreeKill] = "pid namespace"
}

func (s *namespacedSession) drain() error { return s.drained(s.process.kill()) }

// unaltered has nothing to look at: the program's file was on a file system
// that was read-only and is gone.
func (s *namespacedSession) unaltered() error { return nil }

func (s *namespacedSession) outputs() outputs { return s.out }

func (s *namespacedSession) release() error {
	errs := []error{s.copied.Close(), s.removeGroup()}
	if s.out != nil {
		errs = append(errs, s.out.close())
	}
	return errors.Join(errs...)
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
