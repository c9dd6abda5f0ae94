package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// endWithin bounds the evaluation of one delivery, restarts included.
const endWithin = 60 * time.Second

// Built once by TestMain.
var fencepostBinary, hostileProgram string

// worldsAtOnce is how many tests run side by side where -parallel doesn't say:
// most of what they do is to wait for their own controllers.
const worldsAtOnce = 4

func TestMain(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", strconv.Itoa(max(worldsAtOnce, runtime.GOMAXPROCS(0)))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencepost-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Tests of permissions run the binary as somebody else.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fencepostBinary, hostileProgram = filepath.Join(dir, "fencepost"), filepath.Join(dir, "hostile")
	for out, pkg := range map[string]string{
		fencepostBinary: "github.com/fencepost/fencepost/cmd/fencepost",
		hostileProgram:  "./testdata/hostile",
	} {
		build := exec.Command("go", "build", "-o", out, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, text)
			return 1
		}
	}
	return pgtest.Run(m, &postgres, mortal.Stop)
}

// behave is a repository whose check does what it is told.
func behave(what string) map[string]string { return map[string]string{"behaviour": what + "\n"} }

// newWorld makes a world around the hostile check, and starts its controller.
func newWorld(t testing.TB, config world.Config) *world.World {
	t.Helper()
	w := unstartedWorld(t, config)
	start(t, w)
	return w
}

// unstartedWorld is newWorld with a controller that is not started.
func unstartedWorld(t testing.TB, config world.Config) *world.World {
	t.Helper()
	config.Binary, config.Program, config.Now = cmp.Or(config.Binary, fencepostBinary), hostileProgram, time.Now
	config.Dir = t.TempDir()
	if config.Repository.Files == nil {
		config.Repository.Files = behave("pass")
	}
	w, err := world.New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			dumpLog(t, w.Controller.Log)
		}
	})
	return w
}

func start(t testing.TB, w *world.World) {
	t.Helper()
	// The process outlives the test's context: cleanup stops it.
	if _, err := w.Controller.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func kill(t testing.TB, w *world.World) {
	t.Helper()
	if err := w.Controller.Kill(); err != nil {
		t.Fatal(err)
	}
}

// dumpLog shows the end of the controller's log.
func dumpLog(t testing.TB, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Log(err)
		return
	}
	const most = 8 << 10
	t.Logf("the controller's log ends with:\n%s", data[max(0, len(data)-most):])
}

// open opens a request whose check does what it is told.
func open(t testing.TB, w *world.World, what string) *forgesim.PullRequest {
	t.Helper()
	head := fmt.Sprintf("branch-%d", len(w.Repository.PullRequests())+1)
	pr, err := w.Repository.OpenPullRequest(t.Context(), forgesim.OpenPull{
		Head: head, Change: forgesim.Change{Files: map[string]string{"behaviour": what + "\n", head: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

func ended(t testing.TB, w *world.World, pr *forgesim.PullRequest) receipt.Receipt {
	t.Helper()
	r, err := w.Ended(t.Context(), pr, endWithin)
	if err != nil {
		t.Fatalf("%v; its receipt so far: %v", err, kinds(r))
	}
	return r
}

// wantRun demands exactly one Check Run on a commit and returns it.
func wantRun(t *testing.T, w *world.World, head, conclusion string) forgesim.CheckRun {
	t.Helper()
	runs := w.Repository.CheckRuns(head)
	if len(runs) != 1 {
		t.Fatalf("%d Check Runs on %.7s, want exactly one: %+v", len(runs), head, runs)
	}
	if runs[0].Conclusion != conclusion || runs[0].Status != "completed" || runs[0].Name != world.CheckName {
		t.Errorf("Check Run is %s %s %q, want completed %s of %s: %q %q",
			runs[0].Status, runs[0].Conclusion, runs[0].Name, conclusion, world.CheckName, runs[0].Title, runs[0].Summary)
	}
	return runs[0]
}

func wantNoRun(t *testing.T, w *world.World, head string) {
	t.Helper()
	if runs := w.Repository.CheckRuns(head); len(runs) != 0 {
		t.Errorf("%d Check Runs on %.7s, want none: %+v", len(runs), head, runs)
	}
}

// wantMergeable holds the result against what the forge's gate makes of it.
func wantMergeable(t *testing.T, pr *forgesim.PullRequest, want bool) {
	t.Helper()
	state, err := pr.MergeState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Allowed != want {
		t.Errorf("the forge allows the merge: %t (%v), want %t", state.Allowed, state.Reasons, want)
	}
}

func kinds(r receipt.Receipt) []string {
	var all []string
	for _, e := range r.Events {
		all = append(all, string(e.Kind)+reasonSuffix(e))
	}
	return all
}

func reasonSuffix(e receipt.Event) string {
	if e.Reason == "" {
		return ""
	}
	return "(" + string(e.Reason) + ")"
}

func count(r receipt.Receipt, kind receipt.Kind) int {
	n := 0
	for _, e := range r.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
