package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/runner"
)

var postgres = pgtest.Server{Fast: true}

// entry is what the sandbox needs of the process.
var entry runner.Entry

func TestMain(m *testing.M) {
	entry = runner.Init()
	if code, child := runChild(); child {
		os.Exit(code)
	}
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

// files are the paths of a tree with their content. A path that ends in "*" is
// a program, one that ends in "@" a link.
type files map[string]string

// A repo is a repository behind the real git http-backend on loopback.
type repo struct {
	url string
	dir string
	env []string
}

// backend finds git's http-backend.
var backend = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return "", err
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	_, err = os.Stat(path)
	return path, err
})

func newRepo(t testing.TB) *repo {
	t.Helper()
	path, err := backend()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("git http-backend: %v", err)
		}
		t.Skipf("needs git with its http-backend: %v", err)
	}
	dir := t.TempDir()
	r := &repo{dir: filepath.Join(dir, "r"), env: []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LC_ALL=C",
	}}
	// What git init makes, without starting it.
	for _, sub := range []string{"objects", "refs/heads"} {
		must(t, os.MkdirAll(filepath.Join(r.dir, sub), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(r.dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(r.dir, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"), 0o644))
	server := httptest.NewServer(&cgi.Handler{
		Path: path, Env: append([]string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, r.env...), Stderr: io.Discard,
	})
	t.Cleanup(server.Close)
	r.url = server.URL + "/r"
	return r
}

// commit makes a commit whose tree is exactly tree.
func (r *repo) commit(t testing.TB, tree files) fencepost.CommitID {
	t.Helper()
	var in bytes.Buffer
	fmt.Fprint(&in, "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nm\ndeleteall\n")
	for name, content := range tree {
		mode := "100644"
		if cut, ok := strings.CutSuffix(name, "*"); ok {
			name, mode = cut, "100755"
		}
		if cut, ok := strings.CutSuffix(name, "@"); ok {
			name, mode = cut, "120000"
		}
		fmt.Fprintf(&in, "M %s inline \"%s\"\ndata %d\n%s\n", mode, name, len(content), content)
	}
	cmd := exec.Command("git", "fast-import", "--quiet", "--force")
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, r.env, &in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
	ref, err := os.ReadFile(filepath.Join(r.dir, "refs/heads/main"))
	must(t, err)
	id, err := fencepost.ParseCommitID(strings.TrimSpace(string(ref)))
	must(t, err)
	return id
}

// fetch makes the checkout of a commit where a sink wants it.
func fetch(ctx context.Context, url string, commit fencepost.CommitID, p source.Place) (*gitfetch.Checkout, error) {
	return p.Workspace.Fetch(ctx, gitfetch.Request{
		URL: url, Commit: commit, AllowHTTP: true, Select: p.Select, Have: p.Have,
		Policy: gitfetch.Policy{Symlinks: gitfetch.SymlinksInside},
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if e, ok := errors.AsType[*source.SinkError](err); ok {
		t.Fatalf("%v (%v)", err, e.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// clock is a clock that the test moves.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func testSource() fencepost.SourceID { return fencepost.SourceID{0x5a, 1, 2, 3} }

func testRevision() fencepost.SourceRevision { return fencepost.SourceRevision{7} }

func options(path string, c *clock) DirectoryOptions {
	return DirectoryOptions{Source: testSource(), Path: path, Now: c.Now, Reserve: 1, AllowVolatile: true}
}

// A bench is a directory sink over a repository.
type bench struct {
	*testing.T
	repo  *repo
	clock *clock
	sink  *Directory
	path  string
}

func newBench(t *testing.T, edit func(*DirectoryOptions)) *bench {
	t.Helper()
	b := &bench{T: t, repo: newRepo(t), clock: newClock(), path: filepath.Join(t.TempDir(), "served")}
	b.sink = b.another(edit)
	return b
}

// another opens the same place again, as another process would.
func (b *bench) another(edit func(*DirectoryOptions)) *Directory {
	b.Helper()
	o := options(b.path, b.clock)
	if edit != nil {
		edit(&o)
	}
	d, err := NewDirectory(o)
	must(b, err)
	b.Cleanup(func() { must(b, d.Close()) })
	must(b, d.Probe(b.Context()))
	return d
}

func granted(context.Context) error { return nil }

// application fetches a commit for a sink.
func (b *bench) application(s source.Sink, commit fencepost.CommitID, fence uint64) source.Application {
	b.Helper()
	place, err := s.Place(b.Context())
	must(b, err)
	checkout, err := fetch(b.Context(), b.repo.url, commit, place)
	must(b, err)
	return source.Application{Hold: source.Hold{Fence: fence}, Revision: testRevision(), Checkout: checkout, Guard: granted}
}

// apply applies a commit, which must go well.
func (b *bench) apply(commit fencepost.CommitID, fence uint64) source.Applied {
	b.Helper()
	applied, err := b.sink.Apply(b.Context(), b.application(b.sink, commit, fence))
	must(b, err)
	must(b, applied.Leftover)
	return applied
}

// served reads what a reader finds.
func served(t testing.TB, dir string) files {
	t.Helper()
	got := files{}
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	must(t, filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(real, path)
		must(t, err)
		name = filepath.ToSlash(name)
		if d.Type() == fs.ModeSymlink {
			text, err := os.Readlink(path)
			got[name+"@"] = text
			return err
		}
		content, err := os.ReadFile(path)
		if info, _ := d.Info(); info.Mode()&0o100 != 0 {
			name += "*"
		}
		got[name] = string(content)
		return err
	}))
	return got
}

func (b *bench) serves(want files) {
	b.Helper()
	if diff := cmp.Diff(want, served(b, b.path)); diff != "" {
		b.Fatalf("served (-want +got):\n%s", diff)
	}
}

// trees lists the names in trees/ that are directories, and all others.
func (b *bench) trees() (dirs, others []string) {
	b.Helper()
	entries, err := os.ReadDir(filepath.Join(filepath.Dir(b.path), ".served.fencepost", "trees"))
	must(b, err)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		} else {
			others = append(others, e.Name())
		}
	}
	return dirs, others
}

// wantSinkError requires a reason and a detail.
func wantSinkError(t testing.TB, err error, reason fencepost.Reason, detail string) {
	t.Helper()
	e, ok := errors.AsType[*source.SinkError](err)
	if !ok || e.Reason != reason || e.Detail != detail || !errors.Is(err, source.ErrSink) {
		t.Fatalf("err = %v, want a sink error with %s %s", err, reason, detail)
	}
}
