package sink

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// heldFor is how long a proof of the hold counts while a program runs: it is
// proven again halfway through.
const heldFor = 2 * runner.MaxHeartbeat

// A Runner runs programs; [runner.Runner] is one.
type Runner interface {
	Run(ctx context.Context, j runner.Job) runner.Record
}

// A Reports keeps what programs report; it is safe for concurrent use.
type Reports interface {
	// Put keeps a copy of data, durably, and returns a reference to it.
	Put(ctx context.Context, data []byte) (ref string, err error)
}

// An Action is the checkout that the program is in, for one run.
type Action struct {
	Checkout runner.Checkout
	// Release is called once, when the run has ended; may be nil. Its error is
	// a leftover.
	Release func() error
}

// ProgramOptions say which program gets the content.
type ProgramOptions struct {
	// Source is the source that the program is for. Required.
	Source fencepost.SourceID
	// StateDir is a directory of the sink's own, such as one in the data
	// directory: absolute; made where it is missing, its parent is not.
	// Required.
	StateDir string
	// Content says what the program gets; it has no Mount.
	Content Content
	// Workspace is where checkouts are made. Required.
	Workspace *gitfetch.Workspace
	// Repository and Ref are facts for the request. Required.
	Repository check.Repository
	Ref        string
	// Action gives the checkout of ActionCommit. Its error has a reason.
	// Required.
	Action       func(ctx context.Context) (Action, error)
	ActionCommit fencepost.CommitID
	// Program is the program's path in the action's tree, with slashes, and
	// SHA256 the digest of its bytes: no other program is started. Required.
	Program string
	SHA256  check.Digest
	// Limits bound one run; zero fields are the runner's.
	Limits runner.Limits
	// Runner runs it. Required.
	Runner Runner
	// Reports keeps the report of a program that took the content; nil for
	// none.
	Reports Reports
	// AllowVolatile takes a file system that keeps nothing over a restart, as
	// in tests and trials.
	AllowVolatile bool
}

func (o ProgramOptions) check() (*rules, error) {
	rules, err := o.Content.compile()
	errs := []error{err, o.Limits.Validate()}
	want := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %w", what, ErrOptions))
		}
	}
	want(!o.Source.IsZero(), "source must be set")
	want(filepath.IsAbs(o.StateDir), "state directory must be absolute")
	want(o.Content.Mount == "", "a program has no mount: it gets the tree as it is")
	want(o.Workspace != nil && o.Runner != nil && o.Action != nil, "workspace, runner and action must be set")
	want(o.Ref != "", "ref must be set")
	want(!o.ActionCommit.IsZero() && o.Program != "" && !o.SHA256.IsZero(), "the program must be pinned by commit, path and digest")
	return rules, errors.Join(errs...)
}

// A Program is a sink that is a program: it is run over the checkout, in the
// runner's sandbox, and its verdict decides. It is safe for concurrent use.
// Close it.
//
// A program that concludes "pass" has taken the content. The fence is in the
// request, for a program that changes something that outlives it. On this
// machine no two run for one source at a time, and none with a lower fence than
// one before.
type Program struct {
	opts  ProgramOptions
	rules *rules

	mu   sync.Mutex
	root *durable.Root // guarded by mu; nil until something is done
	// closed is guarded by mu.
	closed bool
}

// NewProgram checks the options and does nothing else. Its error matches
// [ErrOptions] or [runner.ErrConfig].
func NewProgram(o ProgramOptions) (*Program, error) {
	rules, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("program sink: %w", err)
	}
	return &Program{opts: o, rules: rules}, nil
}

var _ source.Sink = (*Program)(nil)

// A doneState is what a program took last.
type doneState struct {
	Revision string `json:"revision"`
	Content  string `json:"content"`
	Commit   string `json:"commit"`
}

func (p *Program) opened() (*durable.Root, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if p.root != nil {
		return p.root, nil
	}
	parent, name := filepath.Split(filepath.Clean(p.opts.StateDir))
	fsys := durable.OS(parent)
	if err := durable.MkdirAll(fsys, name); err != nil {
		return nil, err
	}
	root, err := durable.OpenRoot(durable.Sub(fsys, name))
	if err != nil {
		return nil, err
	}
	p.root = root
	return root, nil
}

// Close lets go of the state.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.root == nil {
		return nil
	}
	root := p.root
	p.root = nil
	return root.Close()
}

// Probe implements [source.Sink]. Its error matches [ErrPlace].
func (p *Program) Probe(context.Context) error {
	parent := durable.OS(filepath.Dir(filepath.Clean(p.opts.StateDir)))
	if _, err := durable.CheckVolume(parent, "the sink's state", p.opts.AllowVolatile); err != nil {
		return unfit(err, "the file system of the sink's state can't keep it", "use a directory on a local ext4, XFS, btrfs or ZFS")
	}
	root, err := p.opened()
	if err == nil {
		_, err = readState(root, p.opts.Source)
	}
	if err != nil {
		return unfit(err, "the sink's state can't be used", "let the user of this process write it; a damaged one may be moved away, and its fence is lost then")
	}
	return nil
}

// Place implements [source.Sink].
func (p *Program) Place(context.Context) (source.Place, error) {
	return source.Place{Workspace: p.opts.Workspace, Select: p.rules.selector()}, nil
}

// Apply implements [source.Sink]: it runs the program.
func (p *Program) Apply(ctx context.Context, a source.Application) (applied source.Applied, err error) {
	if err := checked(a); err != nil {
		return source.Applied{}, err
	}
	defer func() { applied, err = released(a.Checkout, applied, err) }()
	root, err := p.opened()
	if err != nil {
		return source.Applied{}, sinkError(ctx, DetailState, err)
	}
	unlock, err := lockFile(ctx, root, lockName)
	if err != nil {
		return source.Applied{}, sinkError(ctx, DetailLock, err)
	}
	defer func() { applied.Leftover = errors.Join(applied.Leftover, leftover(unlock())) }()
	applied, err = p.apply(ctx, root, a)
	return applied, sinkError(ctx, DetailState, err)
}

// apply is Apply with the lock held: nobody else runs a program for this source
// on this machine.
func (p *Program) apply(ctx context.Context, root *durable.Root, a source.Application) (source.Applied, error) {
	seen, err := raiseFence(root, p.opts.Source, a.Hold.Fence, 0)
	if err != nil {
		return source.Applied{}, err
	}
	sel, err := p.rules.choose(a.Checkout)
	if err != nil {
		return source.Applied{}, err
	}
	if len(sel.left) > 0 {
		return source.Applied{}, &source.SinkError{
			Reason: fencepost.ReasonUnavailable, Detail: DetailCheckout, Err: errors.New("the checkout has more than was wanted"),
		}
	}
	applied := source.Applied{Counts: source.Counts{Files: int64(len(sel.files)), Bytes: sel.bytes}}
	done := doneState{Revision: a.Revision.String(), Content: hexOf(sel.digest()), Commit: a.Checkout.Commit().String()}
	if seen.Done != nil && seen.Done.Revision == done.Revision && seen.Done.Content == done.Content && seen.Done.Commit == done.Commit {
		applied.Unchanged = true
		return applied, nil
	}
	if err := guarded(ctx, a.Guard); err != nil {
		return source.Applied{}, err
	}
	left, err := p.run(ctx, a)
	if err != nil {
		return source.Applied{}, errors.Join(err, left)
	}
	applied.Leftover = left
	// A crash before this is on the disk runs the program once more: it has to
	// bear that, as every idempotent receiver.
	seen.Done = &done
	return applied, writeState(root, seen)
}

// run runs the program once. left is what could not be cleaned up.
func (p *Program) run(ctx context.Context, a source.Application) (left, err error) {
	action, err := p.opts.Action(ctx)
	if err != nil {
		return nil, &source.SinkError{Reason: fencepost.ReasonOf(err), Detail: DetailProgram, Err: err}
	}
	record := p.opts.Runner.Run(ctx, p.job(a, action.Checkout))
	left = leftover(record.Cleanup)
	if action.Release != nil {
		left = errors.Join(left, leftover(action.Release()))
	}
	switch o := record.Outcome.(type) {
	case runner.Concluded:
		if o.Result.Conclusion != check.ConclusionPass {
			return left, &source.SinkError{Reason: fencepost.ReasonRefused, Detail: DetailProgram, Err: errors.New("the program blocked")}
		}
		return left, p.keep(ctx, o.Report)
	case runner.Failed:
		if o.Reason == fencepost.ReasonLost {
			return left, fmt.Errorf("run program: %w: %w", source.ErrLost, o.Err)
		}
		if ctx.Err() != nil {
			return left, fmt.Errorf("run program: %w: %w", context.Cause(ctx), o.Err)
		}
		return left, &source.SinkError{Reason: o.Reason, Detail: DetailProgram, Err: o.Err}
	}
	return left, &source.SinkError{Reason: fencepost.ReasonUnavailable, Detail: DetailProgram, Err: errors.New("the run has no outcome")}
}

func (p *Program) keep(ctx context.Context, report []byte) error {
	if p.opts.Reports == nil {
		return nil
	}
	if _, err := p.opts.Reports.Put(ctx, report); err != nil {
		return &source.SinkError{Reason: fencepost.ReasonEvidence, Detail: DetailReport, Err: err}
	}
	return nil
}

func (p *Program) job(a source.Application, action runner.Checkout) runner.Job {
	commit, tree := a.Checkout.Commit(), a.Checkout.Tree()
	fence := strconv.FormatUint(a.Hold.Fence, 10)
	return runner.Job{
		Run:        a.Hold.Run.String() + ":" + fence,
		Source:     &check.Source{ID: p.opts.Source.String(), Revision: check.Digest(a.Revision), Fence: fence},
		Repository: p.opts.Repository,
		Base:       check.Base{Ref: p.opts.Ref, Commit: commit, Tree: tree},
		Head:       check.Revision{Commit: commit, Tree: tree},

		CandidateCommit: commit, ActionCommit: p.opts.ActionCommit,
		Candidate: a.Checkout, Action: action,
		Program: p.opts.Program, ProgramSHA256: p.opts.SHA256,
		Limits: p.opts.Limits,
		Lease: runner.RenewerFunc(func(ctx context.Context) (time.Duration, error) {
			return heldFor, a.Guard(ctx)
		}),
	}
}
