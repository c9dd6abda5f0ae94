package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A scriptedRunner ends each run as it is told.
type scriptedRunner struct {
	jobs []runner.Job
	end  func(ctx context.Context, j runner.Job) runner.Record
}

func (s *scriptedRunner) Run(ctx context.Context, j runner.Job) runner.Record {
	s.jobs = append(s.jobs, j)
	return s.end(ctx, j)
}

func concluded(c check.Conclusion) func(context.Context, runner.Job) runner.Record {
	return func(context.Context, runner.Job) runner.Record {
		return runner.Record{Outcome: runner.Concluded{Result: check.Result{Conclusion: c}, Report: []byte(`{"built":true}`)}}
	}
}

func failedWith(reason fencepost.Reason, err error) func(context.Context, runner.Job) runner.Record {
	return func(context.Context, runner.Job) runner.Record {
		return runner.Record{Outcome: runner.Failed{Reason: reason, Err: err}}
	}
}

// kept reports keep what is put.
type keptReports struct {
	all []string
	err error
}

func (k *keptReports) Put(_ context.Context, data []byte) (string, error) {
	k.all = append(k.all, string(data))
	return fmt.Sprint(len(k.all)), k.err
}

// A programBench is a program sink over a repository.
type programBench struct {
	*testing.T
	repo    *repo
	work    *gitfetch.Workspace
	opts    ProgramOptions
	sink    *Program
	runner  *scriptedRunner
	reports *keptReports
	// released counts actions that were released.
	released atomic.Int64
}

func newProgramBench(t *testing.T, edit func(*ProgramOptions)) *programBench {
	t.Helper()
	b := &programBench{T: t, repo: newRepo(t), runner: &scriptedRunner{end: concluded(check.ConclusionPass)}, reports: &keptReports{}}
	var err error
	b.work, err = gitfetch.OpenWorkspace(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, b.work.Close()) })
	b.opts = ProgramOptions{
		Source: testSource(), StateDir: filepath.Join(t.TempDir(), "state"), Workspace: b.work,
		Repository: check.Repository{Provider: "gitea", ID: "7", Name: "acme/handbook"}, Ref: "refs/heads/main",
		Action: func(context.Context) (Action, error) {
			return Action{Release: func() error { b.released.Add(1); return nil }}, nil
		},
		ActionCommit: fencepost.CommitID{ObjectID: fencepost.ObjectID{9}}, Program: "bin/publish", SHA256: check.DigestOf([]byte("program")),
		Runner: b.runner, Reports: b.reports, AllowVolatile: true,
	}
	if edit != nil {
		edit(&b.opts)
	}
	b.sink = b.another()
	must(t, b.sink.Probe(t.Context()))
	return b
}

func (b *programBench) another() *Program {
	b.Helper()
	p, err := NewProgram(b.opts)
	must(b, err)
	b.Cleanup(func() { must(b, p.Close()) })
	return p
}

func (b *programBench) application(commit fencepost.CommitID, fence uint64) source.Application {
	b.Helper()
	place, err := b.sink.Place(b.Context())
	must(b, err)
	c, err := fetch(b.Context(), b.repo.url, commit, place)
	must(b, err)
	return source.Application{
		Hold: source.Hold{Run: fencepost.RunID{3}, Fence: fence}, Revision: testRevision(), Checkout: c, Guard: granted,
	}
}

func TestAProgramGetsTheCheckoutAndTheFence(t *testing.T) {
	t.Parallel()
	b := newProgramBench(t, func(o *ProgramOptions) {
		o.Content = Content{Include: []string{"docs/**"}, Require: []string{"docs/a"}}
	})
	commit := b.repo.commit(t, files{"docs/a": "1", "x": "2"})
	a := b.application(commit, 41)
	applied, err := b.sink.Apply(t.Context(), a)
	must(t, err)
	if applied.Unchanged || applied.Counts.Files != 1 || applied.Leftover != nil {
		t.Errorf("applied = %+v", applied)
	}
	if len(b.runner.jobs) != 1 || b.released.Load() != 1 {
		t.Fatalf("%d runs, %d releases, want one of each", len(b.runner.jobs), b.released.Load())
	}
	j := b.runner.jobs[0]
	if j.Source == nil || j.Source.Fence != "41" || j.Source.ID != testSource().String() || j.Source.Revision != check.Digest(testRevision()) || j.Delivery != "" {
		t.Errorf("source = %+v, delivery = %q", j.Source, j.Delivery)
	}
	if j.Run != a.Hold.Run.String()+":41" || j.CandidateCommit != commit || j.Base.Commit != commit || j.Head.Tree != a.Checkout.Tree() || j.Base.Ref != "refs/heads/main" {
		t.Errorf("job = %+v", j)
	}
	if j.ProgramSHA256 != b.opts.SHA256 || j.Program != "bin/publish" || j.ActionCommit != b.opts.ActionCommit {
		t.Errorf("the program is not the pinned one: %+v", j)
	}
	if len(b.reports.all) != 1 || b.reports.all[0] != `{"built":true}` {
		t.Errorf("reports = %q", b.reports.all)
	}
	// The same again is not run again, also not by another process.
	applied, err = b.another().Apply(t.Context(), b.application(commit, 42))
	must(t, err)
	if !applied.Unchanged || len(b.runner.jobs) != 1 {
		t.Errorf("the same: %+v after %d runs", applied, len(b.runner.jobs))
	}
	a = b.application(commit, 43)
	a.Revision = fencepost.SourceRevision{8}
	_, err = b.sink.Apply(t.Context(), a)
	must(t, err)
	if len(b.runner.jobs) != 2 {
		t.Errorf("%d runs under another revision, want 2", len(b.runner.jobs))
	}
}

func TestHowAProgramEndsDecides(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		end    func(context.Context, runner.Job) runner.Record
		reason fencepost.Reason // empty: lost
		detail string
	}{
		"block":        {concluded(check.ConclusionBlock), fencepost.ReasonRefused, DetailProgram},
		"timeout":      {failedWith(fencepost.ReasonTimeout, runner.ErrWall), fencepost.ReasonTimeout, DetailProgram},
		"other digest": {failedWith(fencepost.ReasonProgramDigest, runner.ErrProgram), fencepost.ReasonProgramDigest, DetailProgram},
		"no output":    {failedWith(fencepost.ReasonMissingOutput, cause), fencepost.ReasonMissingOutput, DetailProgram},
		"lost":         {failedWith(fencepost.ReasonLost, runner.ErrLost), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newProgramBench(t, nil)
			commit := b.repo.commit(t, files{"a": "1"})
			b.runner.end = c.end
			a := b.application(commit, 1)
			_, err := b.sink.Apply(t.Context(), a)
			if c.reason == "" {
				if !errors.Is(err, source.ErrLost) {
					t.Errorf("err = %v, want ErrLost", err)
				}
			} else {
				wantSinkError(t, err, c.reason, c.detail)
			}
			if _, err := os.Stat(a.Checkout.Root()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the checkout is still there: %v", err)
			}
			// It took nothing: the next attempt runs it again.
			b.runner.end = concluded(check.ConclusionPass)
			applied, err := b.sink.Apply(t.Context(), b.application(commit, 2))
			must(t, err)
			if applied.Unchanged || len(b.runner.jobs) != 2 || b.released.Load() != 2 {
				t.Errorf("applied = %+v, %d runs, %d releases", applied, len(b.runner.jobs), b.released.Load())
			}
		})
	}
}

func TestAProgramIsNotStarted(t *testing.T) {
	t.Parallel()
	cause := &fencepost.Error{Op: "fetch action", Reason: fencepost.ReasonAcquisition}
	for name, c := range map[string]struct {
		spoil func(b *programBench, a *source.Application)
		check func(t *testing.T, err error)
	}{
		"with a lower fence": {func(_ *programBench, a *source.Application) { a.Hold.Fence = 4 }, wantLost},
		"without the hold": {func(_ *programBench, a *source.Application) {
			a.Guard = func(context.Context) error { return source.ErrLost }
		}, wantLost},
		"without its action": {func(b *programBench, _ *source.Application) {
			b.sink.opts.Action = func(context.Context) (Action, error) { return Action{}, cause }
		}, func(t *testing.T, err error) { wantSinkError(t, err, fencepost.ReasonAcquisition, DetailProgram) }},
		"without what is required": {func(b *programBench, _ *source.Application) {
			rules, err := Content{Require: []string{"no"}}.compile()
			must(b, err)
			b.sink.rules = rules
		}, func(t *testing.T, err error) { wantSinkError(t, err, fencepost.ReasonContent, DetailRequire) }},
		"over more than was wanted": {func(b *programBench, _ *source.Application) {
			rules, err := Content{Include: []string{"a"}}.compile()
			must(b, err)
			b.sink.rules = rules
		}, func(t *testing.T, err error) { wantSinkError(t, err, fencepost.ReasonUnavailable, DetailCheckout) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newProgramBench(t, nil)
			_, err := b.sink.Apply(t.Context(), b.application(b.repo.commit(t, files{"a": "1"}), 5))
			must(t, err)
			a := b.application(b.repo.commit(t, files{"a": "2", "b": "3"}), 6)
			c.spoil(b, &a)
			_, err = b.sink.Apply(t.Context(), a)
			c.check(t, err)
			if len(b.runner.jobs) != 1 {
				t.Errorf("%d runs, want one", len(b.runner.jobs))
			}
		})
	}
}

func wantLost(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, source.ErrLost) {
		t.Errorf("err = %v, want ErrLost", err)
	}
}

func TestALostHoldEndsAProgram(t *testing.T) {
	t.Parallel()
	b := newProgramBench(t, nil)
	a := b.application(b.repo.commit(t, files{"a": "1"}), 1)
	asked := 0
	a.Guard = func(context.Context) error {
		if asked++; asked > 1 {
			return source.ErrLost
		}
		return nil
	}
	b.runner.end = func(ctx context.Context, j runner.Job) runner.Record {
		_, err := j.Lease.Renew(ctx)
		return runner.Record{Outcome: runner.Failed{Reason: fencepost.ReasonLost, Err: err}}
	}
	_, err := b.sink.Apply(t.Context(), a)
	wantLost(t, err)
}

func TestAReportThatCanNotBeKeptIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newProgramBench(t, nil)
	b.reports.err = errors.New("full")
	_, err := b.sink.Apply(t.Context(), b.application(b.repo.commit(t, files{"a": "1"}), 1))
	wantSinkError(t, err, fencepost.ReasonEvidence, DetailReport)
}

func TestProgramOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := newProgramBench(t, nil).opts
	for name, edit := range map[string]func(*ProgramOptions){
		"source": func(o *ProgramOptions) { o.Source = fencepost.SourceID{} }, "state": func(o *ProgramOptions) { o.StateDir = "x" },
		"mount": func(o *ProgramOptions) { o.Content.Mount = "a" }, "runner": func(o *ProgramOptions) { o.Runner = nil },
		"ref": func(o *ProgramOptions) { o.Ref = "" }, "digest": func(o *ProgramOptions) { o.SHA256 = check.Digest{} },
		"pattern": func(o *ProgramOptions) { o.Content.Require = []string{"["} },
	} {
		o := good
		edit(&o)
		if _, err := NewProgram(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v, want ErrOptions", name, err)
		}
	}
	good.Limits.Wall = time.Hour
	if _, err := NewProgram(good); !errors.Is(err, runner.ErrConfig) {
		t.Errorf("limits: %v, want ErrConfig", err)
	}
}

// publishScript passes if the request is of a source with fence 7 and the tree
// has a file page.
const publishScript = `#!/bin/sh
set -eu
field() { sed -n "s/.*$1\"\([^\"]*\)\".*/\1/p" request.json; }
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
run=$(field '"run":')
root=$(field '"candidate":{[^}]*"root":')
if [ "$(field '"source":{"fence":')" = 7 ] && [ -f "$root/page" ]; then
  conclusion=pass status=0
else
  conclusion=block status=1
fi
printf '{}' > report.json
printf '{"schema":"fencepost.result/v1","run":"%s","request_sha256":"%s","report_sha256":"%s","conclusion":"%s","title":"t","summary":""}' \
  "$run" "$(digest request.json)" "$(digest report.json)" "$conclusion" > result.json
exit $status
`

// TestARealProgramRuns runs a program in the runner's sandbox.
func TestARealProgramRuns(t *testing.T) {
	t.Parallel()
	r, err := runner.Open(t.Context(), runner.Config{
		Entry: entry, Scratch: filepath.Join(t.TempDir(), "scratch"), Sandbox: runner.BestEffort, Now: time.Now,
	})
	if errors.Is(err, runner.ErrUnsupported) {
		t.Skipf("no programs here: %v", err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	b := newProgramBench(t, func(o *ProgramOptions) { o.Runner, o.SHA256 = r, check.DigestOf([]byte(publishScript)) })
	action := b.repo.commit(t, files{"bin/publish*": publishScript})
	b.sink.opts.ActionCommit = action
	b.sink.opts.Action = func(ctx context.Context) (Action, error) {
		c, err := fetch(ctx, b.repo.url, action, source.Place{Workspace: b.work})
		if err != nil {
			return Action{}, err
		}
		return Action{Checkout: c, Release: c.Remove}, nil
	}
	good, bad := b.repo.commit(t, files{"page": "p"}), b.repo.commit(t, files{"other": "p"})
	applied, err := b.sink.Apply(t.Context(), b.application(good, 7))
	must(t, err)
	must(t, applied.Leftover)
	_, err = b.sink.Apply(t.Context(), b.application(bad, 8))
	wantSinkError(t, err, fencepost.ReasonRefused, DetailProgram)
	if len(b.reports.all) != 1 || strings.TrimSpace(b.reports.all[0]) != "{}" {
		t.Errorf("reports = %q", b.reports.all)
	}
}
