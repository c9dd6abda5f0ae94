//go:build unix

package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

func TestRunConcludesAsTheProgramDoes(t *testing.T) {
	t.Parallel()
	r := open(t)
	for script, want := range map[string]check.Conclusion{"pass": check.ConclusionPass, "block": check.ConclusionBlock} {
		rec := r.Run(t.Context(), newJob(t, script))
		wantConcluded(t, rec, want)
		if rec.Exit == nil || rec.Exit.Status != want.ExitStatus() || rec.Exit.Signal != 0 {
			t.Errorf("%s: exit %+v", script, rec.Exit)
		}
		if rec.Started.IsZero() || rec.Duration <= 0 {
			t.Errorf("%s: started %v, took %v", script, rec.Started, rec.Duration)
		}
	}
}

func TestRequestIsDerivedFromTheJob(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "pass")
	job.Evidence = []check.Evidence{{Name: "draft", Value: "false"}}
	job.Limits.Wall = 30 * time.Second
	before := time.Now()
	rec := r.Run(t.Context(), job)
	got := wantConcluded(t, rec, check.ConclusionPass)
	req, err := check.DecodeRequest(rec.Request)
	if err != nil {
		t.Fatal(err)
	}
	issued, deadline := time.Time(req.IssuedAt), time.Time(req.Deadline)
	if issued.Before(before.Truncate(time.Millisecond)) || issued.After(time.Now()) || deadline.Sub(issued) != 30*time.Second {
		t.Errorf("issued %v, deadline %v", issued, deadline)
	}
	want := check.Request{
		Schema: check.RequestSchema, Run: job.Run, Delivery: job.Delivery, Repository: job.Repository,
		Base: job.Base, Head: job.Head,
		Candidate: check.Candidate{Commit: job.CandidateCommit, Tree: treeID("6"), Root: "/candidate"},
		Action:    check.Action{Commit: job.ActionCommit, Root: "/action", ProgramSHA256: job.ProgramSHA256},
		IssuedAt:  req.IssuedAt, Deadline: req.Deadline, Evidence: job.Evidence,
	}
	encoded, err := want.Encode()
	if err != nil || string(encoded) != string(rec.Request) {
		t.Errorf("request %s, want %s (%v)", rec.Request, encoded, err)
	}
	if got.Result.RequestSHA256 != check.DigestOf(rec.Request) {
		t.Error("the program saw another request")
	}
}

// DESIGN §7, the table of outcomes.
func TestOutputAgainstTheContract(t *testing.T) {
	t.Parallel()
	r := open(t)
	for script, want := range map[string]struct {
		reason fencepost.Reason
		cause  error
	}{
		"exit 0":                       {fencepost.ReasonMissingOutput, runner.ErrOutput},
		"exit 1":                       {fencepost.ReasonMissingOutput, runner.ErrOutput},
		"exit 3":                       {fencepost.ReasonMissingOutput, runner.ErrOutput},
		"passthen 1":                   {fencepost.ReasonMismatch, runner.ErrOutput},
		"passthen 2":                   {fencepost.ReasonMismatch, runner.ErrOutput},
		"blockthen 0":                  {fencepost.ReasonMismatch, runner.ErrOutput},
		"blockthen 137":                {fencepost.ReasonMismatch, runner.ErrOutput},
		"signal 9":                     {fencepost.ReasonUnavailable, runner.ErrSignalled},
		"signal 15":                    {fencepost.ReasonUnavailable, runner.ErrSignalled},
		"result torn":                  {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result duplicate":             {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result unknown":               {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result trailing":              {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result utf8":                  {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result badreport":             {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result emptyreport":           {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result huge":                  {fencepost.ReasonOversizedOutput, runner.ErrOutput},
		"result title":                 {fencepost.ReasonOversizedOutput, fencepost.ErrTooLarge},
		"result hugereport":            {fencepost.ReasonOversizedOutput, runner.ErrOutput},
		"result sparse":                {fencepost.ReasonOversizedOutput, runner.ErrOutput},
		"result run":                   {fencepost.ReasonMismatch, runner.ErrOutput},
		"result request":               {fencepost.ReasonMismatch, runner.ErrOutput},
		"result report":                {fencepost.ReasonMismatch, runner.ErrOutput},
		"result conclusion":            {fencepost.ReasonMismatch, runner.ErrOutput},
		"replace rename result.json":   {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace rename report.json":   {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace remove result.json":   {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace recreate report.json": {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace symlink result.json":  {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace hardlink result.json": {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace directory report.json": {
			fencepost.ReasonRuntimeTampered, runner.ErrTampered,
		},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			wantFailed(t, r.Run(t.Context(), newJob(t, script)), want.reason, want.cause)
		})
	}
}

func TestSecondNameOfAnOutputReplacesNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	wantConcluded(t, r.Run(t.Context(), newJob(t, "replace alias result.json")), check.ConclusionPass)
}

func TestProgramMustBeThePinnedOne(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, spoil := range map[string]func(*testing.T, *runner.Job){
		"digest":    func(_ *testing.T, j *runner.Job) { j.ProgramSHA256[0] ^= 1 },
		"missing":   func(_ *testing.T, j *runner.Job) { j.Program = "bin/other" },
		"directory": func(_ *testing.T, j *runner.Job) { j.Program = "bin" },
		"too large": func(_ *testing.T, j *runner.Job) { j.Limits.ProgramBytes = 1000 },
		"link inside": func(t *testing.T, j *runner.Job) {
			j.Program = "bin/link"
			symlink(t, "check", filepath.Join(j.Action.Root(), "bin", "link"))
		},
		"link outside": func(t *testing.T, j *runner.Job) {
			j.Program = "out/check"
			symlink(t, "/usr/bin", filepath.Join(j.Action.Root(), "out"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := newJob(t, "pass")
			spoil(t, &job)
			rec := r.Run(t.Context(), job)
			wantFailed(t, rec, fencepost.ReasonProgramDigest, runner.ErrProgram)
			if !rec.Started.IsZero() || rec.Request != nil {
				t.Error("something was started")
			}
		})
	}
}

func symlink(t *testing.T, text, path string) {
	t.Helper()
	if err := os.Symlink(text, path); err != nil {
		t.Fatal(err)
	}
}

func TestCheckoutsAreVerifiedAgain(t *testing.T) {
	t.Parallel()
	r := open(t)
	changed := errors.New("content changed")
	for name, c := range map[string]struct {
		spoil func(*runner.Job)
		want  error
	}{
		"candidate changed": {func(j *runner.Job) {
			j.Candidate.(*fakeCheckout).verify = func(context.Context) error { return changed }
		}, changed},
		"action changed": {func(j *runner.Job) {
			j.Action.(*fakeCheckout).verify = func(context.Context) error { return changed }
		}, changed},
		"other candidate": {func(j *runner.Job) { j.CandidateCommit = commitID("a") }, runner.ErrCheckout},
		"other action":    {func(j *runner.Job) { j.ActionCommit = commitID("a") }, runner.ErrCheckout},
		"no commit":       {func(j *runner.Job) { j.CandidateCommit = fencepost.CommitID{} }, runner.ErrCheckout},
		"relative root":   {func(j *runner.Job) { j.Candidate.(*fakeCheckout).root = "tree" }, runner.ErrCheckout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := newJob(t, "pass")
			c.spoil(&job)
			rec := r.Run(t.Context(), job)
			wantFailed(t, rec, fencepost.ReasonUnavailable, c.want)
			wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrCheckout)
			if !rec.Started.IsZero() {
				t.Error("something was started")
			}
		})
	}
}

func TestJobOutsideItsRulesIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, spoil := range map[string]func(*runner.Job){
		"no lease":         func(j *runner.Job) { j.Lease = nil },
		"no candidate":     func(j *runner.Job) { j.Candidate = nil },
		"program outside":  func(j *runner.Job) { j.Program = "../check" },
		"program absolute": func(j *runner.Job) { j.Program = "/bin/true" },
		"no digest":        func(j *runner.Job) { j.ProgramSHA256 = check.Digest{} },
		"wall too long":    func(j *runner.Job) { j.Limits.Wall = runner.MaxWall + 1 },
		"run id":           func(j *runner.Job) { j.Run = "a b" },
		"evidence":         func(j *runner.Job) { j.Evidence = []check.Evidence{{Name: "A"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := newJob(t, "pass")
			spoil(&job)
			rec := r.Run(t.Context(), job)
			wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrConfig)
			if !rec.Started.IsZero() {
				t.Error("something was started")
			}
		})
	}
}

func TestWallLimitEndsTheRun(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "sleep")
	job.Limits.Wall = time.Second
	rec := r.Run(t.Context(), job)
	wantFailed(t, rec, fencepost.ReasonTimeout, runner.ErrWall)
	if rec.Exit != nil {
		t.Errorf("exit %+v of a program that was killed", rec.Exit)
	}
}

func TestLostLeaseEndsTheRun(t *testing.T) {
	t.Parallel()
	r := open(t)
	refused := errors.New("refused by the ledger")
	t.Run("before the launch", func(t *testing.T) {
		t.Parallel()
		job := newJob(t, "pass")
		job.Lease = runner.RenewerFunc(func(context.Context) (time.Duration, error) { return 0, refused })
		rec := r.Run(t.Context(), job)
		wantFailed(t, rec, fencepost.ReasonLost, refused)
		wantFailed(t, rec, fencepost.ReasonLost, runner.ErrLost)
		if !rec.Started.IsZero() {
			t.Error("something was started")
		}
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		job := newJob(t, "sleep")
		renewals := 0
		job.Lease = runner.RenewerFunc(func(context.Context) (time.Duration, error) {
			if renewals++; renewals > 1 {
				return 0, refused
			}
			return 400 * time.Millisecond, nil
		})
		wantFailed(t, r.Run(t.Context(), job), fencepost.ReasonLost, refused)
	})
}

func TestEndOfTheContextEndsTheRun(t *testing.T) {
	t.Parallel()
	r := open(t)
	stop := errors.New("the server stops")
	for name, c := range map[string]struct {
		cause  error
		reason fencepost.Reason
	}{
		"stop": {stop, fencepost.ReasonUnavailable},
		"lost": {errors.Join(runner.ErrLost, stop), fencepost.ReasonLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			job := newJob(t, "sleep")
			job.Candidate.(*fakeCheckout).verify = func(context.Context) error {
				time.AfterFunc(100*time.Millisecond, func() { cancel(c.cause) })
				return nil
			}
			wantFailed(t, r.Run(ctx, job), c.reason, stop)
		})
	}
}

func TestRunsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	r := open(t)
	var wg sync.WaitGroup
	for i := range 8 {
		script, want := "pass", check.ConclusionPass
		if i%2 == 1 {
			script, want = "block", check.ConclusionBlock
		}
		job := newJob(t, script)
		wg.Go(func() {
			for range 3 {
				rec := r.Run(t.Context(), job)
				if o, ok := rec.Outcome.(runner.Concluded); !ok || o.Result.Conclusion != want || rec.Cleanup != nil {
					t.Errorf("%s: %+v, clean-up %v", script, rec.Outcome, rec.Cleanup)
				}
			}
		})
	}
	wg.Wait()
}

func TestClosedRunnerFailsRuns(t *testing.T) {
	t.Parallel()
	r := open(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	job := newJob(t, "pass")
	job.Candidate.(*fakeCheckout).verify = func(context.Context) error {
		close(begun)
		<-finish
		return nil
	}
	ended := make(chan runner.Record)
	go func() { ended <- r.Run(t.Context(), job) }()
	<-begun
	if err := r.Close(); !errors.Is(err, runner.ErrBusy) {
		t.Errorf("close with a run: %v, want ErrBusy", err)
	}
	close(finish)
	wantConcluded(t, <-ended, check.ConclusionPass)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, r.Run(t.Context(), newJob(t, "pass")), fencepost.ReasonUnavailable, runner.ErrClosed)
}

// seen are the observations in the report of a program that passed.
func seen(t testing.TB, rec runner.Record) []string {
	t.Helper()
	o := wantConcluded(t, rec, check.ConclusionPass)
	var list []string
	if err := json.Unmarshal(o.Report, &list); err != nil {
		t.Fatalf("report %s: %v", o.Report, err)
	}
	return list
}

// A path of the host must not get out through an error or a request (DESIGN
// §2, invariant 16).
func TestNothingTellsAPathOfTheHost(t *testing.T) {
	t.Parallel()
	const canary = "canary-of-the-host"
	scratch := filepath.Join(t.TempDir(), canary)
	r := open(t, func(c *runner.Config) { c.Scratch = scratch })
	make := func(script string) runner.Job {
		dir := filepath.Join(t.TempDir(), canary)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		job, err := makeJob(dir, script)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	gone := make("pass")
	if err := os.RemoveAll(gone.Candidate.Root()); err != nil {
		t.Fatal(err)
	}
	noProgram := make("pass")
	if err := os.RemoveAll(noProgram.Action.Root()); err != nil {
		t.Fatal(err)
	}
	missing := make("pass")
	missing.Program = "no"
	for name, job := range map[string]runner.Job{
		"pass": make("pass"), "no result": make("exit 0"), "tampered": make("replace remove result.json"),
		"no candidate": gone, "no action": noProgram, "no program": missing,
	} {
		rec := r.Run(t.Context(), job)
		if strings.Contains(string(rec.Request), canary) {
			t.Errorf("%s: request %s", name, rec.Request)
		}
		if f, ok := rec.Outcome.(runner.Failed); ok && strings.Contains(f.Err.Error(), canary) {
			t.Errorf("%s: %v", name, f.Err)
		}
	}
}
