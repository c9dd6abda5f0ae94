//go:build unix

package runner_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
	_ "github.com/fencepost/fencepost/runner/early" // as cmd/fencepost does
)

// entry is set once, before any test.
var entry runner.Entry

// TestMain makes the test binary what a host of the library must be, and also
// the program that runs: which part it plays is told by its name.
func TestMain(m *testing.M) {
	entry = runner.Init()
	if isProgram() {
		os.Exit(program())
	}
	if role := os.Getenv(controllerEnv); role != "" {
		os.Exit(controller(role))
	}
	goleak.VerifyTestMain(m)
}

// A fakeCheckout is a directory that says what it is told to.
type fakeCheckout struct {
	commit fencepost.CommitID
	tree   fencepost.TreeID
	root   string
	verify func(context.Context) error
}

func (c *fakeCheckout) Commit() fencepost.CommitID { return c.commit }
func (c *fakeCheckout) Tree() fencepost.TreeID     { return c.tree }
func (c *fakeCheckout) Root() string               { return c.root }
func (c *fakeCheckout) Verify(ctx context.Context) error {
	if c.verify == nil {
		return ctx.Err()
	}
	return c.verify(ctx)
}

func commitID(c string) fencepost.CommitID {
	id, err := fencepost.ParseCommitID(strings.Repeat(c, 40))
	if err != nil {
		panic(err)
	}
	return id
}

func treeID(c string) fencepost.TreeID { return fencepost.TreeID{ObjectID: commitID(c).ObjectID} }

// held is a lease that is always ours.
var held = runner.RenewerFunc(func(context.Context) (time.Duration, error) { return time.Minute, nil })

// selfDigest is of the running test binary.
var selfDigest = sync.OnceValues(func() (check.Digest, error) {
	in, err := openSelf()
	if err != nil {
		return check.Digest{}, err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return check.DigestOf(b), err
})

// openSelf opens the test binary, also where its directory is another user's.
func openSelf() (*os.File, error) {
	if f, err := os.Open("/proc/self/exe"); err == nil {
		return f, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// newJob is a run of this test binary as a program that does what the words
// say: they are the content of the candidate's file "script".
func newJob(t testing.TB, script ...string) runner.Job {
	t.Helper()
	job, err := makeJob(t.TempDir(), script...)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func makeJob(dir string, script ...string) (runner.Job, error) {
	digest, err := selfDigest()
	if err != nil {
		return runner.Job{}, err
	}
	candidate, action := filepath.Join(dir, "candidate"), filepath.Join(dir, "action")
	for _, d := range []string{candidate, action, filepath.Join(action, "bin")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return runner.Job{}, err
		}
	}
	if err := os.WriteFile(filepath.Join(candidate, "script"), []byte(strings.Join(script, " ")), 0o400); err != nil {
		return runner.Job{}, err
	}
	if err := copySelf(filepath.Join(action, "bin", "check")); err != nil {
		return runner.Job{}, err
	}
	return runner.Job{
		Run: "evl_test.1", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		Repository:      check.Repository{Provider: "github", ID: "1296269", Name: "acme/docs"},
		Base:            check.Base{Ref: "refs/heads/main", Commit: commitID("1"), Tree: treeID("2")},
		Head:            check.Revision{Commit: commitID("3"), Tree: treeID("4")},
		CandidateCommit: commitID("5"),
		Candidate:       &fakeCheckout{commit: commitID("5"), tree: treeID("6"), root: candidate},
		ActionCommit:    commitID("7"),
		Action:          &fakeCheckout{commit: commitID("7"), tree: treeID("8"), root: action},
		Program:         "bin/check", ProgramSHA256: digest,
		Lease: held,
	}, nil
}

// copySelf makes dst the test binary: a second name where the file system
// allows, since it is large.
func copySelf(dst string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Link(self, dst) == nil {
		return nil
	}
	in, err := openSelf()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// open opens a runner over a scratch directory of its own.
func open(t testing.TB, edit ...func(*runner.Config)) *runner.Runner {
	t.Helper()
	cfg := runner.Config{Entry: entry, Scratch: filepath.Join(t.TempDir(), "scratch"), Now: time.Now}
	for _, e := range edit {
		e(&cfg)
	}
	r, err := runner.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open runner: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close runner: %v", err)
		}
	})
	return r
}

// wantConcluded fails unless the run concluded so, and left nothing.
func wantConcluded(t testing.TB, rec runner.Record, want check.Conclusion) runner.Concluded {
	t.Helper()
	if rec.Cleanup != nil {
		t.Errorf("clean-up: %v", rec.Cleanup)
	}
	switch o := rec.Outcome.(type) {
	case runner.Concluded:
		if o.Result.Conclusion != want {
			t.Errorf("concluded %q, want %q; %s: %s", o.Result.Conclusion, want, o.Result.Title, o.Result.Summary)
		}
		return o
	case runner.Failed:
		t.Fatalf("failed with %s: %v", o.Reason, o.Err)
	}
	t.Fatal("no outcome")
	return runner.Concluded{}
}

// wantFailed fails unless the run failed for this reason and cause, and left
// nothing.
func wantFailed(t testing.TB, rec runner.Record, reason fencepost.Reason, cause error) {
	t.Helper()
	if rec.Cleanup != nil {
		t.Errorf("clean-up: %v", rec.Cleanup)
	}
	f, ok := rec.Outcome.(runner.Failed)
	if !ok {
		t.Fatalf("outcome %+v, want %s", rec.Outcome, reason)
	}
	if f.Reason != reason || !errors.Is(f.Err, cause) {
		t.Errorf("failed with %s: %v; want %s: %v", f.Reason, f.Err, reason, cause)
	}
}
