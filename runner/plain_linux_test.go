package runner_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// openPlain opens a runner as on a host that has no namespaces for us.
func openPlain(t testing.TB) *runner.Runner {
	t.Helper()
	r, err := runner.OpenPlain(t.Context(), runner.Config{
		Entry: entry, Scratch: filepath.Join(t.TempDir(), "scratch"), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close runner: %v", err)
		}
	})
	return r
}

func TestPlainRunKeepsTheContract(t *testing.T) {
	t.Parallel()
	r := openPlain(t)
	for script, want := range map[string]check.Conclusion{"pass": check.ConclusionPass, "block": check.ConclusionBlock} {
		rec := r.Run(t.Context(), newJob(t, script))
		wantConcluded(t, rec, want)
		req, err := check.DecodeRequest(rec.Request)
		if err != nil || req.Candidate.Root != "../candidate" || req.Action.Root != "../action" {
			t.Errorf("roots %q and %q (%v)", req.Candidate.Root, req.Action.Root, err)
		}
	}
	for script, want := range map[string]struct {
		reason fencepost.Reason
		cause  error
	}{
		"exit 0":                       {fencepost.ReasonMissingOutput, runner.ErrOutput},
		"result duplicate":             {fencepost.ReasonMalformedOutput, fencepost.ErrMalformed},
		"result sparse":                {fencepost.ReasonOversizedOutput, runner.ErrOutput},
		"passthen 1":                   {fencepost.ReasonMismatch, runner.ErrOutput},
		"signal 9":                     {fencepost.ReasonUnavailable, runner.ErrSignalled},
		"replace rename result.json":   {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace symlink report.json":  {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace recreate result.json": {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
		"replace rename request.json":  {fencepost.ReasonRuntimeTampered, runner.ErrTampered},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			wantFailed(t, r.Run(t.Context(), newJob(t, script)), want.reason, want.cause)
		})
	}
}

func TestPlainRunSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	rec := openPlain(t).Run(t.Context(), newJob(t, "pass"))
	off := map[runner.Protection]bool{
		runner.ProtectionUserNamespace: true, runner.ProtectionPIDNamespace: true, runner.ProtectionMountNamespace: true,
		runner.ProtectionNetworkNamespace: true, runner.ProtectionIPCNamespace: true, runner.ProtectionUTSNamespace: true,
		runner.ProtectionPrivateRoot: true, runner.ProtectionReadOnlyTrees: true, runner.ProtectionScratchLimit: true,
		runner.ProtectionUnprivilegedUser: os.Geteuid() == 0,
	}
	for _, p := range rec.Protections {
		if p.On == off[p.Protection] {
			t.Errorf("%s is on: %v (%s)", p.Protection, p.On, p.By)
		}
	}
	if by := protection(rec, runner.ProtectionTreeKill).By; by != "subreaper" {
		t.Errorf("tree_kill by %q", by)
	}
}

func TestPlainRunLeavesNoDescendant(t *testing.T) {
	t.Parallel()
	r := openPlain(t)
	for name, c := range map[string]struct {
		script string
		wall   time.Duration
		check  func(*testing.T, runner.Record)
	}{
		"daemons after a pass": {"descend %s 5", 0, func(t *testing.T, rec runner.Record) {
			if got := seen(t, rec); !slices.Equal(got, []string{"5"}) {
				t.Errorf("started %v daemons, want 5", got)
			}
		}},
		"daemons at the wall limit": {"descendsleep %s 5", time.Second, func(t *testing.T, rec runner.Record) {
			wantFailed(t, rec, fencepost.ReasonTimeout, runner.ErrWall)
		}},
		"as many as there can be": {"bomb %s", 0, func(t *testing.T, rec runner.Record) {
			got := seen(t, rec)
			if n, err := strconv.Atoi(got[0]); err != nil || n < 1 || n > runner.DefaultLimits().Processes {
				t.Errorf("started %v daemons", got)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if os.Geteuid() == 0 && protection(r.Run(t.Context(), newJob(t, "pass")), runner.ProtectionProcessLimit).By == "" {
				t.Skip("nothing bounds the superuser's processes here; the record says so")
			}
			mark := newMark()
			job := newJob(t, fmt.Sprintf(c.script, mark))
			job.Limits.Wall = c.wall
			rec := r.Run(t.Context(), job)
			if n := alive(t, mark); n != 0 {
				t.Errorf("%d processes are alive after the run", n)
			}
			c.check(t, rec)
		})
	}
}

func TestPlainRunIsHeldByLandlock(t *testing.T) {
	t.Parallel()
	r := openPlain(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o666); err != nil {
		t.Fatal(err)
	}
	script := []string{"read", secret, "/etc/shadow", "/proc/1/environ"}
	for i, got := range seen(t, r.Run(t.Context(), newJob(t, script...))) {
		if got != "permission denied" {
			t.Errorf("read of %s: %s", script[i+1], got)
		}
	}
	for i, got := range seen(t, r.Run(t.Context(), newJob(t, "write", secret, "../candidate/script", "../candidate/new", "../new", "/tmp/new"))) {
		if got != "permission denied" {
			t.Errorf("write %d: %s", i, got)
		}
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if got := seen(t, r.Run(t.Context(), newJob(t, "connect", tcp.Addr().String(), "@none"))); got[0] != "permission denied" {
		t.Errorf("TCP to the host: %s", got[0])
	}
}

func TestPlainRunFindsAnAlteredProgram(t *testing.T) {
	t.Parallel()
	r := openPlain(t)
	// Landlock lets it change the mode of its file, and neither write nor
	// rename it: nothing was altered.
	got := seen(t, r.Run(t.Context(), newJob(t, "tamper")))
	if got[1] == "ok" || got[2] == "ok" {
		t.Errorf("mode, write, rename: %v", got)
	}
}

func TestPlainRunCleansUpWhatWasMadeInaccessible(t *testing.T) {
	t.Parallel()
	scratch := filepath.Join(t.TempDir(), "scratch")
	r, err := runner.OpenPlain(t.Context(), runner.Config{Entry: entry, Scratch: scratch, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	wantConcluded(t, r.Run(t.Context(), newJob(t, "mess")), check.ConclusionPass)
	left, err := filepath.Glob(filepath.Join(scratch, "proc-*", "run-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// A program that could kill its stage would end its own run, and nothing else:
// what is left is ended through the control group.
func TestPlainRunWhoseStageIsKilledFails(t *testing.T) {
	t.Parallel()
	r := openPlain(t)
	limit := protection(r.Run(t.Context(), newJob(t, "pass")), runner.ProtectionProcessLimit)
	if !strings.HasPrefix(limit.By, "cgroup") {
		t.Skip("without a control group nothing is left to find the processes by; the outcome is the same")
	}
	mark := newMark()
	job := newJob(t, "descendsleep", mark, "3")
	ended := make(chan runner.Record)
	go func() { ended <- r.Run(t.Context(), job) }()
	// The stage is the subreaper, and so the daemons' parent.
	stage := 0
	eventually(t, "three daemons run", func() bool {
		stage = stageOf(t, mark)
		return alive(t, mark) >= 3 && stage != 0
	})
	if err := syscall.Kill(stage, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rec := <-ended
	wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrDrain)
	if n := alive(t, mark); n != 0 {
		t.Errorf("%d processes are alive after the run", n)
	}
}

// stageOf is the stage that a daemon with the mark descends from; 0 for none.
func stageOf(t *testing.T, mark string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), mark) || strings.Contains(string(b), "setsid") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		// Until its own parent has ended it is not the stage's yet.
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent)); err == nil && strings.HasPrefix(string(b), "fencepost-run") {
			return parent
		}
	}
	return 0
}
