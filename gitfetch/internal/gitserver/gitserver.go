// Package gitserver runs the real git http-backend on loopback, for tests.
package gitserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost"
)

// T is what is needed of a [testing.TB]; a [Script] is one too.
type T interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// A Script stands in for a test in a runnable example: what would fail a
// test ends the example with a panic.
type Script struct{ cleanups []func() }

// Helper does nothing.
func (s *Script) Helper() {}

// TempDir makes a directory that Close removes.
func (s *Script) TempDir() string {
	dir, err := os.MkdirTemp("", "gitserver-")
	if err != nil {
		panic(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	})
	return dir
}

// Cleanup has Close call f, the last first.
func (s *Script) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Fatalf panics.
func (s *Script) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Skipf panics: an example can't be skipped.
func (s *Script) Skipf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Close cleans up.
func (s *Script) Close() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// A Server serves the repositories below one directory.
type Server struct {
	// URL is where it listens; a repository's URL is this, a slash and its
	// name.
	URL string

	dir string
	env []string

	mu       sync.Mutex
	requests []*http.Request // guarded by mu
	wrap     func(http.Handler) http.Handler
}

// New starts a server that ends with the test. It skips the test where Git
// or its backend is missing, unless the environment says CI.
func New(tb T) *Server {
	tb.Helper()
	return start(tb, httptest.NewServer)
}

// NewTLS is [New] for https; client trusts it.
func NewTLS(tb T) (s *Server, server *httptest.Server) {
	tb.Helper()
	s = start(tb, func(h http.Handler) *httptest.Server {
		server = httptest.NewTLSServer(h)
		return server
	})
	return s, server
}

func start(tb T, listen func(http.Handler) *httptest.Server) *Server {
	tb.Helper()
	backend := backendPath(tb)
	dir := tb.TempDir()
	s := &Server{dir: dir, env: []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LC_ALL=C",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=1700000000 +0000",
	}}
	git := &cgi.Handler{
		Path:   backend,
		Env:    append([]string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, s.env...),
		Stderr: io.Discard, // Git's complaints about what tests ask for
	}
	server := listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r)
		wrap := s.wrap
		s.mu.Unlock()
		if wrap != nil {
			wrap(git).ServeHTTP(w, r)
			return
		}
		git.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func backendPath(tb T) string {
	tb.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if err == nil {
		_, err = os.Stat(backend)
	}
	if err == nil {
		return backend
	}
	if os.Getenv("CI") != "" {
		tb.Fatalf("git http-backend: %v", err)
	}
	tb.Skipf("needs git with its http-backend: %v", err)
	return ""
}

// Wrap puts a handler around the backend, from the next request on.
func (s *Server) Wrap(wrap func(backend http.Handler) http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrap = wrap
}

// Requests returns the requests so far.
func (s *Server) Requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

// A Repo is a bare repository on the server.
type Repo struct {
	URL string
	Dir string

	s     *Server
	marks atomic.Int64
}

// Repo makes an empty repository.
func (s *Server) Repo(tb T, name string, initArgs ...string) *Repo {
	tb.Helper()
	r := &Repo{URL: s.URL + "/" + name, Dir: filepath.Join(s.dir, filepath.FromSlash(name)), s: s}
	s.run(tb, s.dir, nil, append(append([]string{"init", "-q", "--bare", "-b", "main"}, initArgs...), r.Dir)...)
	return r
}

// Git runs git in the repository and returns what it prints, trimmed.
func (r *Repo) Git(tb T, args ...string) string {
	tb.Helper()
	return r.s.run(tb, r.Dir, nil, args...)
}

func (s *Server) run(tb T, dir string, stdin []byte, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, s.env, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// An Entry is one path of a commit.
type Entry struct {
	Path string
	// Mode is "100644" where empty.
	Mode string
	// Content of a file, target of a link, or the commit of a gitlink.
	Content string
}

// Commit adds a commit whose tree is exactly entries, moves branch to it,
// and returns its id. Parents beside the branch's own may follow.
func (r *Repo) Commit(tb T, branch string, entries []Entry, parents ...fencepost.CommitID) fencepost.CommitID {
	tb.Helper()
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/%s\ncommitter A <a@example.org> %d +0000\ndata 1\nm\n", branch, 1700000000+r.marks.Add(1))
	for i, p := range parents {
		verb := "merge"
		if i == 0 {
			verb = "from"
		}
		fmt.Fprintf(&in, "%s %s\n", verb, p)
	}
	in.WriteString("deleteall\n")
	for _, e := range entries {
		mode := e.Mode
		if mode == "" {
			mode = "100644"
		}
		if mode == "160000" {
			fmt.Fprintf(&in, "M 160000 %s %s\n", e.Content, quote(e.Path))
			continue
		}
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, quote(e.Path), len(e.Content), e.Content)
	}
	r.s.run(tb, r.Dir, in.Bytes(), "fast-import", "--quiet", "--force")
	return r.Head(tb, branch)
}

// Import has fast-import read text.
func (r *Repo) Import(tb T, text string) {
	tb.Helper()
	r.s.run(tb, r.Dir, []byte(text), "fast-import", "--quiet", "--force")
}

// Head returns the commit of a branch.
func (r *Repo) Head(tb T, branch string) fencepost.CommitID {
	tb.Helper()
	return r.Resolve(tb, "refs/heads/"+branch)
}

// Resolve returns what a revision names, as though it were a commit.
func (r *Repo) Resolve(tb T, rev string) fencepost.CommitID {
	tb.Helper()
	id, err := fencepost.ParseCommitID(r.Git(tb, "rev-parse", rev))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return id
}

// quote writes a path as fast-import reads it.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
