package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/landlock"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// beginPlain prepares a run on the host's own file system: what namespaces
// would do is missing, and what Landlock, the filter and limits do is there as
// far as the kernel has it.
func (s *linuxSession) beginPlain(ctx context.Context) error {
	out, err := makePlainFiles(s.spec)
	if err != nil {
		return err
	}
	s.out = out
	if err := s.startStage(ctx, stageAttr(), nil); err != nil {
		return err
	}
	dir := s.spec.dir
	ready, err := s.prepare(ctx, stage.Config{
		Plain: true, Work: dir.work(), Program: dir.program(),
		Landlock: s.backend.landlockABI, Seccomp: true, Rules: s.plainRules(),
		Limits: rlimits(s.spec.job.Limits, s.backend.groups),
	})
	if err != nil {
		return err
	}
	closeAll(ready.files)
	s.on[ProtectionTreeKill] = "subreaper"
	if os.Geteuid() != 0 {
		s.on[ProtectionUnprivilegedUser] = ""
	}
	s.noteCommon(ready.failures, os.Geteuid() != 0)
	return nil
}

func (s *linuxSession) plainRules() []landlock.Rule {
	job := s.spec.job
	rules := []landlock.Rule{
		{Path: job.Candidate.Root(), Access: landlock.Read},
		{Path: job.Action.Root(), Access: landlock.Read},
		{Path: s.spec.dir.program(), Access: landlock.Read},
		{Path: s.spec.dir.work(), Access: landlock.Write},
	}
	for _, b := range s.backend.binds {
		rules = append(rules, landlock.Rule{Path: b.Source, Access: landlock.Read})
	}
	for _, name := range sandboxDevices {
		rules = append(rules, landlock.Rule{Path: "/dev/" + name, Access: landlock.Device})
	}
	return rules
}

// drainPlain lets the stage kill what descends from the program, and believes
// only its word that nothing is left.
func (s *linuxSession) drainPlain() error {
	p := s.process
	// A stage that has ended can't be told any more; awaitEnd finds out.
	_ = p.send([]byte{stage.KindKill})
	timer := time.NewTimer(DrainLimit)
	defer timer.Stop()
	select {
	case <-p.drained:
		return p.awaitEnd()
	case <-p.read:
	case <-timer.C:
	}
	if isClosed(p.drained) {
		return p.awaitEnd()
	}
	err := errors.Join(ErrDrain, p.kill())
	if s.group != nil {
		err = errors.Join(err, cgroup.Kill(s.group.Dirs(), DrainLimit))
	}
	return err
}
