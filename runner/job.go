package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// A Checkout is a verified tree on disk that nothing changes while a run has
// it. gitfetch's satisfies it.
type Checkout interface {
	// Commit and Tree are what the checkout holds.
	Commit() fencepost.CommitID
	Tree() fencepost.TreeID
	// Root is the absolute directory of the tree.
	Root() string
	// Verify reads everything again and fails unless it is exactly Tree. It
	// returns soon after its context ends.
	Verify(context.Context) error
}

// A Renewer proves again that the lease of the evaluation is held.
type Renewer interface {
	// Renew returns for how long, from the start of the call, the lease is
	// proven. Any error, and a window that is not positive, means that it is
	// lost. It returns soon after its context ends.
	Renew(context.Context) (time.Duration, error)
}

// RenewerFunc makes a [Renewer] of a function.
type RenewerFunc func(context.Context) (time.Duration, error)

// Renew calls f.
func (f RenewerFunc) Renew(ctx context.Context) (time.Duration, error) { return f(ctx) }

// A Job is what to run over what. There is no ready-made request in it: the
// runner derives that from checkouts that it verified itself (DESIGN §7).
type Job struct {
	// Run names the run: 1 to 128 letters, digits and _ . : -. The result must
	// repeat it.
	Run string
	// Delivery is the public name of the delivery that led to the run of a gate.
	// Either it or Source is required.
	Delivery fencepost.DeliveryID
	// Source is the source that the run is for; nil for a gate.
	Source *check.Source
	// Repository, Base and Head are facts for the request.
	Repository check.Repository
	Base       check.Base
	Head       check.Revision

	// CandidateCommit and ActionCommit are the commits that must be judged and
	// run; the checkouts must hold exactly them.
	CandidateCommit, ActionCommit fencepost.CommitID
	// Candidate is judged, Action holds the program.
	Candidate, Action Checkout
	// Program is the program's path in the action's tree, with slashes, and
	// ProgramSHA256 the pinned digest of its bytes.
	Program       string
	ProgramSHA256 check.Digest

	// Evidence holds facts for the request; nil is an empty list.
	Evidence []check.Evidence
	// Limits for this run; zero fields are the runner's.
	Limits Limits
	// Lease is renewed before the launch and until the run's end.
	Lease Renewer
}

func (j *Job) validate(defaults Limits) error {
	if j.Candidate == nil || j.Action == nil || j.Lease == nil {
		return fmt.Errorf("job without checkout or lease: %w", ErrConfig)
	}
	if !filepath.IsLocal(filepath.FromSlash(j.Program)) || strings.Contains(j.Program, `\`) {
		return fmt.Errorf("program must be a path within the action's tree: %w", ErrConfig)
	}
	if j.ProgramSHA256.IsZero() {
		return fmt.Errorf("program without a pinned digest: %w", ErrConfig)
	}
	j.Limits = j.Limits.or(defaults)
	return j.Limits.Validate()
}

// request derives the request, valid and encoded, for the roots that the
// program will see.
func (j *Job) request(roots roots, issued time.Time) ([]byte, error) {
	evidence := j.Evidence
	if evidence == nil {
		evidence = []check.Evidence{}
	}
	req := check.Request{
		Schema: check.RequestSchema, Run: j.Run, Delivery: j.Delivery, Source: j.Source,
		Repository: j.Repository, Base: j.Base, Head: j.Head,
		Candidate: check.Candidate{Commit: j.Candidate.Commit(), Tree: j.Candidate.Tree(), Root: roots.candidate},
		Action:    check.Action{Commit: j.Action.Commit(), Root: roots.action, ProgramSHA256: j.ProgramSHA256},
		IssuedAt:  check.Time(issued), Deadline: check.Time(issued.Add(j.Limits.Wall)),
		Evidence: evidence,
	}
	b, err := req.Encode()
	if err != nil {
		return nil, fmt.Errorf("derive request: %w: %w", err, ErrConfig)
	}
	return b, nil
}

// verify proves both checkouts again, side by side, right before the launch.
// Of two errors the candidate's is returned.
func (j *Job) verify(ctx context.Context) error {
	var action error
	var other sync.WaitGroup
	other.Go(func() { action = verify(ctx, "action", j.Action, j.ActionCommit) })
	candidate := verify(ctx, "candidate", j.Candidate, j.CandidateCommit)
	other.Wait()
	if candidate != nil {
		return candidate
	}
	return action
}

func verify(ctx context.Context, name string, c Checkout, want fencepost.CommitID) error {
	if want.IsZero() || c.Commit() != want {
		return fmt.Errorf("%s is not the commit of the job: %w", name, ErrCheckout)
	}
	if !filepath.IsAbs(c.Root()) {
		return fmt.Errorf("%s has no absolute root: %w", name, ErrCheckout)
	}
	if err := c.Verify(ctx); err != nil {
		return fmt.Errorf("verify %s: %w: %w", name, err, ErrCheckout)
	}
	return nil
}
