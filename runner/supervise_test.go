package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// A scripted session ends when and how it is told, and notes the order of what
// is done to it. It is its own backend.
type scripted struct {
	// after and how are the program's end; never when after is 0.
	after time.Duration
	how   ending
	// draining takes so long and fails with drainErr.
	draining             time.Duration
	drainErr, releaseErr error
	loadErr, prepareErr  error
	alteredErr           error

	dir    string
	end    chan ending
	events []string
	files  map[string]*os.File
}

func (s *scripted) note(event string) { s.events = append(s.events, event) }

func (s *scripted) roots() roots { return roots{"/candidate", "/action"} }

func (s *scripted) close() error { return nil }

func (s *scripted) begin(Limits) (session, error) {
	s.note("begin")
	s.end = make(chan ending, 1)
	return s, nil
}

func (s *scripted) load(context.Context, *Job) error {
	s.note("load")
	return s.loadErr
}

func (s *scripted) prepare(_ context.Context, job *Job, request requester) error {
	s.note("prepare")
	if s.prepareErr != nil {
		return s.prepareErr
	}
	text, err := request()
	if err != nil {
		return err
	}
	return s.leave(job, text)
}

// leave writes what a passing program leaves.
func (s *scripted) leave(job *Job, request []byte) error {
	report := []byte("null")
	result := check.Result{
		Schema: check.ResultSchema, Run: job.Run, RequestSHA256: check.DigestOf(request),
		ReportSHA256: check.DigestOf(report), Conclusion: check.ConclusionPass, Title: "x",
	}
	encoded, err := result.Encode()
	if err != nil {
		return err
	}
	s.files = map[string]*os.File{}
	for name, b := range map[string][]byte{check.ReportFile: report, check.ResultFile: encoded} {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
		if s.files[name], err = os.Open(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *scripted) protections() []ProtectionState { return states(nil) }

func (s *scripted) launch() error {
	s.note("launch")
	if s.after > 0 {
		time.AfterFunc(s.after, func() { s.end <- s.how })
	}
	return nil
}

func (s *scripted) ended() <-chan ending { return s.end }

func (s *scripted) drain() error {
	s.note("drain")
	time.Sleep(s.draining)
	s.note("drained")
	return s.drainErr
}

func (s *scripted) unaltered() error {
	s.note("unaltered")
	return s.alteredErr
}

func (s *scripted) outputs() outputs {
	s.note("outputs")
	return s
}

func (s *scripted) open(name string) *os.File { return s.files[name] }

func (s *scripted) replaced(string) bool { return false }

func (s *scripted) memoryKills() int { return 0 }

func (s *scripted) release() error {
	s.note("release")
	for _, f := range s.files {
		_ = f.Close()
	}
	return s.releaseErr
}

type still struct{ commit fencepost.CommitID }

func (c still) Commit() fencepost.CommitID   { return c.commit }
func (c still) Tree() fencepost.TreeID       { return fencepost.TreeID{ObjectID: c.commit.ObjectID} }
func (c still) Root() string                 { return "/nowhere" }
func (c still) Verify(context.Context) error { return nil }

func testJob(lease Renewer) Job {
	commit := fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}
	tree := fencepost.TreeID(commit)
	return Job{
		Run: "r", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa", Repository: check.Repository{Provider: "github", ID: "1", Name: "a/b"},
		Base: check.Base{Ref: "refs/heads/main", Commit: commit, Tree: tree}, Head: check.Revision{Commit: commit, Tree: tree},
		CandidateCommit: commit, Candidate: still{commit}, ActionCommit: commit, Action: still{commit},
		Program: "p", ProgramSHA256: check.Digest{1}, Lease: lease,
	}
}

func exited(status int) ending { return ending{exit: &ProgramExit{Status: status}} }

// lostAfter is a lease that is refused from then on.
func lostAfter(held time.Duration) Renewer {
	start := time.Now()
	return RenewerFunc(func(context.Context) (time.Duration, error) {
		if time.Since(start) >= held {
			return 0, errors.New("refused")
		}
		return 10 * time.Second, nil
	})
}

const forEver = 1000 * time.Hour

func TestOutcomeOfEachEnding(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		session scripted
		held    time.Duration
		// cancelled ends the caller's context.
		cancelled time.Duration
		reason    fencepost.Reason
		cause     error
		took      time.Duration
	}{
		"pass":                  {scripted{after: time.Second, how: exited(0)}, forEver, 0, fencepost.ReasonNone, nil, time.Second},
		"program altered":       {scripted{after: time.Second, how: exited(0), alteredErr: ErrTampered}, forEver, 0, fencepost.ReasonRuntimeTampered, ErrTampered, time.Second},
		"exit disagrees":        {scripted{after: time.Second, how: exited(1)}, forEver, 0, fencepost.ReasonMismatch, ErrOutput, time.Second},
		"wall limit":            {scripted{}, forEver, 0, fencepost.ReasonTimeout, ErrWall, 90 * time.Second},
		"drain takes a second":  {scripted{after: time.Second, how: exited(0), draining: time.Second}, forEver, 0, fencepost.ReasonNone, nil, 2 * time.Second},
		"pass, not drained":     {scripted{after: time.Second, how: exited(0), drainErr: ErrDrain}, forEver, 0, fencepost.ReasonUnavailable, ErrDrain, time.Second},
		"wall, not drained":     {scripted{drainErr: ErrDrain}, forEver, 0, fencepost.ReasonUnavailable, ErrDrain, 90 * time.Second},
		"lost while it runs":    {scripted{}, 12 * time.Second, 0, fencepost.ReasonLost, ErrLost, 15 * time.Second},
		"lost at the wall":      {scripted{draining: 6 * time.Second}, 91 * time.Second, 0, fencepost.ReasonLost, ErrLost, 96 * time.Second},
		"lost while draining":   {scripted{after: time.Second, how: exited(0), draining: 5 * time.Second}, 2 * time.Second, 0, fencepost.ReasonLost, ErrLost, 6 * time.Second},
		"caller stops":          {scripted{}, forEver, 3 * time.Second, fencepost.ReasonUnavailable, stop, 3 * time.Second},
		"stage ends":            {scripted{after: time.Second, how: ending{err: ErrStage}}, forEver, 0, fencepost.ReasonUnavailable, ErrStage, time.Second},
		"program never started": {scripted{after: time.Second, how: ending{err: ErrSpawn}}, forEver, 0, fencepost.ReasonUnavailable, ErrSpawn, time.Second},
		"sandbox not available": {scripted{prepareErr: &SandboxError{}}, forEver, 0, fencepost.ReasonUnavailable, ErrSandbox, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := c.session
				s.dir = dir
				r := &Runner{cfg: Config{Now: time.Now, Limits: DefaultLimits()}, backend: &s}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cancelled > 0 {
					time.AfterFunc(c.cancelled, func() { cancel(stop) })
				}
				start := time.Now()
				rec := r.Run(ctx, testJob(lostAfter(c.held)))
				if got := time.Since(start); got != c.took {
					t.Errorf("took %v, want exactly %v", got, c.took)
				}
				if fault := against(rec, c.reason, c.cause); fault != "" {
					t.Error(fault)
				}
				// Invariant 13: drained before any output is looked at, always.
				out := slices.Index(s.events, "outputs")
				if drained := slices.Index(s.events, "drained"); drained < 0 || (out >= 0 && out < drained) {
					t.Errorf("order %v", s.events)
				}
				if s.events[len(s.events)-1] != "release" {
					t.Errorf("order %v", s.events)
				}
			})
		})
	}
}

func against(rec Record, reason fencepost.Reason, cause error) string {
	switch o := rec.Outcome.(type) {
	case Concluded:
		if reason == fencepost.ReasonNone && o.Result.Conclusion == check.ConclusionPass {
			return ""
		}
	case Failed:
		if o.Reason == reason && errors.Is(o.Err, cause) {
			return ""
		}
	}
	return fmt.Sprintf("outcome %+v, want %q for %v", rec.Outcome, reason, cause)
}

func TestLeaseIsHeldBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	s := scripted{}
	r := &Runner{cfg: Config{Now: time.Now, Limits: DefaultLimits()}, backend: &s}
	rec := r.Run(t.Context(), testJob(lostAfter(0)))
	if fault := against(rec, fencepost.ReasonLost, ErrLost); fault != "" || len(s.events) != 0 {
		t.Errorf("%s; done %v", fault, s.events)
	}
}

// slow is a checkout that is verified only after a while.
type slow struct {
	still
	takes time.Duration
	err   error
}

func (c slow) Verify(ctx context.Context) error {
	select {
	case <-time.After(c.takes):
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestNothingIsLetGoBeforeBothCheckoutsAreProven(t *testing.T) {
	t.Parallel()
	altered := errors.New("altered")
	for name, c := range map[string]struct {
		candidate, action error
		loadErr           error
		held              time.Duration
		reason            fencepost.Reason
		cause             error
		took              time.Duration
	}{
		"both are right":       {nil, nil, nil, forEver, fencepost.ReasonNone, nil, 4 * time.Second},
		"candidate altered":    {altered, nil, nil, forEver, fencepost.ReasonUnavailable, altered, 3 * time.Second},
		"action altered":       {nil, altered, nil, forEver, fencepost.ReasonUnavailable, altered, 3 * time.Second},
		"wrong program, right": {nil, nil, ErrProgram, forEver, fencepost.ReasonProgramDigest, ErrProgram, 3 * time.Second},
		// The program differs because the tree does: that is what is told.
		"wrong program, altered": {nil, altered, ErrProgram, forEver, fencepost.ReasonUnavailable, altered, 3 * time.Second},
		"lost meanwhile":         {nil, nil, nil, time.Second, fencepost.ReasonLost, ErrLost, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := scripted{after: time.Second, how: exited(0), loadErr: c.loadErr, dir: dir}
				r := &Runner{cfg: Config{Now: time.Now, Limits: DefaultLimits()}, backend: &s}
				job := testJob(lostAfter(c.held))
				takes := 3 * time.Second
				if c.reason == fencepost.ReasonLost {
					takes = time.Minute
				}
				job.Candidate = slow{still{job.CandidateCommit}, takes / 3, c.candidate}
				job.Action = slow{still{job.ActionCommit}, takes, c.action}
				start := time.Now()
				rec := r.Run(t.Context(), job)
				if got := time.Since(start); got != c.took {
					t.Errorf("took %v, want exactly %v", got, c.took)
				}
				if fault := against(rec, c.reason, c.cause); fault != "" {
					t.Error(fault)
				}
				if launched := slices.Contains(s.events, "launch"); launched != (c.reason == fencepost.ReasonNone) {
					t.Errorf("launched: %v; done %v", launched, s.events)
				}
				if launched := rec.Request != nil; launched != (c.reason == fencepost.ReasonNone) {
					t.Errorf("a request was derived: %v", launched)
				}
			})
		})
	}
}

func TestCleanUpThatFailedIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("directory not empty")
		s := scripted{after: time.Second, how: exited(0), releaseErr: full, dir: t.TempDir()}
		r := &Runner{cfg: Config{Now: time.Now, Limits: DefaultLimits()}, backend: &s}
		rec := r.Run(t.Context(), testJob(lostAfter(forEver)))
		if fault := against(rec, fencepost.ReasonNone, nil); fault != "" || !errors.Is(rec.Cleanup, full) {
			t.Errorf("%s; clean-up %v", fault, rec.Cleanup)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := Config{Entry: Entry{called: true}, Scratch: "/scratch", Now: time.Now}
	if got, err := good.resolve(); err != nil || got.Limits.Wall != 90*time.Second || got.Limits.CPU != 3*time.Minute || len(got.SystemDirs) == 0 {
		t.Errorf("resolved to %+v, %v", got, err)
	}
	for name, spoil := range map[string]func(*Config){
		"no call of Init":   func(c *Config) { c.Entry = Entry{} },
		"no clock":          func(c *Config) { c.Now = nil },
		"relative scratch":  func(c *Config) { c.Scratch = "scratch" },
		"no scratch":        func(c *Config) { c.Scratch = "" },
		"mode":              func(c *Config) { c.Sandbox = 7 },
		"wall over 120 s":   func(c *Config) { c.Limits.Wall = 121 * time.Second },
		"wall under 1 s":    func(c *Config) { c.Limits.Wall = time.Millisecond },
		"memory":            func(c *Config) { c.Limits.Memory = 1 << 20 },
		"processes":         func(c *Config) { c.Limits.Processes = 5000 },
		"open files":        func(c *Config) { c.Limits.OpenFiles = 3 },
		"file bytes":        func(c *Config) { c.Limits.FileBytes = 1 },
		"scratch bytes":     func(c *Config) { c.Limits.ScratchBytes = 1 },
		"scratch files":     func(c *Config) { c.Limits.ScratchFiles = 1 },
		"program bytes":     func(c *Config) { c.Limits.ProgramBytes = -1 },
		"processor time":    func(c *Config) { c.Limits.CPU = time.Millisecond },
		"system root":       func(c *Config) { c.SystemDirs = []string{"/"} },
		"system reserved":   func(c *Config) { c.SystemDirs = []string{"/dev/shm"} },
		"system not clean":  func(c *Config) { c.SystemDirs = []string{"/usr/../etc"} },
		"system not a path": func(c *Config) { c.SystemDirs = []string{"usr"} },
	} {
		c := good
		spoil(&c)
		if _, err := c.resolve(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)
		}
	}
}

func TestAllFaultsOfLimitsAreTold(t *testing.T) {
	t.Parallel()
	err := Limits{Wall: time.Hour, Memory: 1, Processes: -1}.Validate()
	for _, word := range []string{"wall", "memory", "processes"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
}

func TestModeIsParsed(t *testing.T) {
	t.Parallel()
	for _, m := range []Mode{Required, BestEffort} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%s: %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("none"); !errors.Is(err, ErrConfig) {
		t.Errorf("none: %v", err)
	}
}

// FuzzConclude: whatever a program leaves, only what agrees in everything
// concludes, and every refusal has a reason of the table.
func FuzzConclude(f *testing.F) {
	request, report := []byte(`{"q":1}`), []byte(`{"r":[1,2]}`)
	good := check.Result{
		Schema: check.ResultSchema, Run: "r", RequestSHA256: check.DigestOf(request), ReportSHA256: check.DigestOf(report),
		Conclusion: check.ConclusionBlock, Title: "x",
	}
	encoded, err := good.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded, report, 1)
	f.Add(encoded, report, 0)
	f.Add(encoded, []byte(`{"r":[1,2]} `), 1)
	f.Add([]byte(`{"schema":"fencepost.result/v1","schema":1}`), report, 0)
	f.Add([]byte(nil), []byte(nil), 0)
	f.Fuzz(func(t *testing.T, result, rep []byte, status int) {
		switch o := conclude("r", request, result, rep, ProgramExit{Status: status}).(type) {
		case Concluded:
			if o.Result.ReportSHA256 != check.DigestOf(rep) || o.Result.RequestSHA256 != good.RequestSHA256 ||
				o.Result.Run != "r" || o.Result.Conclusion.ExitStatus() != status || check.ValidReport(rep) != nil {
				t.Fatalf("concluded %+v on status %d", o.Result, status)
			}
		case Failed:
			switch o.Reason {
			case fencepost.ReasonMalformedOutput, fencepost.ReasonOversizedOutput, fencepost.ReasonMismatch:
			default:
				t.Fatalf("reason %q", o.Reason)
			}
			if !errors.Is(o.Err, ErrOutput) {
				t.Fatalf("untyped error %v", o.Err)
			}
		}
	})
}
