package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fencepost/fencepost/runner/internal/landlock"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A plainSession runs its program on the host's own file system: what
// namespaces would do is missing, and what Landlock, the filter and limits do
// is there as far as the kernel has it.
type plainSession struct {
	linuxSession
	dir    *runDir
	loaded *plainProgram
	out    *plainOutputs
}

func (s linuxSession) beginPlain() (session, error) {
	p := &plainSession{linuxSession: s}
	dir, err := s.backend.workspace.makeRun(s.name)
	if err != nil {
		return nil, err
	}
	p.dir = dir
	return p, nil
}

func (s *plainSession) load(ctx context.Context, job *Job) (err error) {
	s.loaded, err = loadPlain(ctx, job, s.dir.program())
	return err
}

func (s *plainSession) prepare(ctx context.Context, job *Job, request requester) (err error) {
	if s.out, err = makePlainFiles(s.dir, job, request); err != nil {
		return err
	}
	ready, err := s.build(ctx, &stage.Config{
		Work: s.dir.work(), Program: s.dir.program(),
		Landlock: s.backend.landlockABI, Rules: s.rules(job),
		Limits: rlimits(s.limits, s.backend.groups),
	}, nil, nil)
	if err != nil {
		return err
	}
	closeAll(ready.files)
	s.on[ProtectionTreeKill] = "subreaper"
	s.noteProtections(ready.Failures, os.Geteuid() != 0)
	return nil
}

func (s *plainSession) rules(job *Job) []landlock.Rule {
	rules := []landlock.Rule{
		{Path: job.Candidate.Root(), Access: landlock.Read},
		{Path: job.Action.Root(), Access: landlock.Read},
		{Path: s.dir.program(), Access: landlock.Read},
		{Path: s.dir.work(), Access: landlock.Write},
	}
	for _, b := range s.backend.binds {
		rules = append(rules, landlock.Rule{Path: b.Source, Access: landlock.Read})
	}
	for _, name := range sandboxDevices {
		rules = append(rules, landlock.Rule{Path: "/dev/" + name, Access: landlock.Device})
	}
	return rules
}

func (s *plainSession) drain() error { return s.drained(s.drainTree()) }

// drainTree lets the stage kill what descends from the program, and believes
// only its word that nothing is left.
func (s *plainSession) drainTree() error {
	p := s.process
	if !s.launched {
		return p.kill()
	}
	// A stage that has ended can't be told any more; what follows shows.
	_ = p.socket.send([]byte{stage.KindKill})
	timer := time.NewTimer(DrainLimit)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-p.read:
	case <-timer.C:
	}
	if isClosed(p.drained) {
		return p.awaitEnd()
	}
	// The stage goes on killing, so it is left alone; only its group can be
	// emptied over its head.
	err := errors.Join(ErrDrain, p.socket.close())
	if s.group != nil {
		err = errors.Join(err, s.group.Kill(DrainLimit))
	}
	return err
}

func (s *plainSession) unaltered() error { return s.loaded.unaltered() }

func (s *plainSession) outputs() outputs { return s.out }

func (s *plainSession) release() error {
	errs := []error{s.removeGroup()}
	if s.out != nil {
		errs = append(errs, s.out.close())
	}
	return errors.Join(append(errs, s.dir.remove())...)
}
