package gitfetch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// childFetch, where set, makes this binary a process that makes one fetch, as
// the JSON in it says, and tells what that took.
const childFetch = "GITFETCH_TEST_FETCH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(childFetch); text != "" {
		if err := runFetch(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// request is a fetch of one commit of a test server, which is on loopback.
func request(repo *gitserver.Repo, commit fencepost.CommitID) gitfetch.Request {
	return gitfetch.Request{URL: repo.URL, Commit: commit, AllowHTTP: true}
}

// filtering is a repository whose server leaves out what it is asked to, or
// can't.
func filtering(t *testing.T, s *gitserver.Server, filter bool) *gitserver.Repo {
	t.Helper()
	repo := s.Repo(t, fmt.Sprint("filter-", filter, ".git"))
	repo.Git(t, "config", "uploadpack.allowFilter", fmt.Sprint(filter))
	return repo
}

func workspace(t *testing.T) *gitfetch.Workspace {
	t.Helper()
	w, err := gitfetch.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func fetch(t *testing.T, req gitfetch.Request) *gitfetch.Checkout {
	t.Helper()
	c, err := workspace(t).Fetch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context()); err != nil {
		t.Fatalf("verify right after the fetch: %v", err)
	}
	return c
}

// onDisk lists what is below a directory: "path mode content".
func onDisk(t *testing.T, root string) []string {
	t.Helper()
	var got []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case d.Type() == fs.ModeSymlink:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		}
		got = append(got, fmt.Sprintf("%s %s %s", filepath.ToSlash(rel), info.Mode(), content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func sample() []gitserver.Entry {
	return []gitserver.Entry{
		{Path: "README", Content: "hello\n"},
		{Path: "a.txt", Content: ""},
		{Path: "a/deep/er/file", Content: "down here"},
		{Path: "a/b", Content: "b"},
		{Path: "a-b", Content: "sorts before a/"},
		{Path: "bin/run", Mode: "100755", Content: "#!/bin/sh\n"},
		{Path: "caf\u00e9\u65e5\u672c", Content: "names"},
	}
}

func TestFetchMakesExactlyTheCommitsTree(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "group/repo.git")
	commit := repo.Commit(t, "main", sample())
	dir := filepath.Join(t.TempDir(), "out")
	req := request(repo, commit)
	req.Dir = dir
	c, err := gitfetch.Fetch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README -r--r--r-- hello\n", "a drwx------ ", "a/b -r--r--r-- b", "a/deep drwx------ ", "a/deep/er drwx------ ",
		"a/deep/er/file -r--r--r-- down here", "a-b -r--r--r-- sorts before a/", "a.txt -r--r--r-- ", "bin drwx------ ",
		"bin/run -r-xr-xr-x #!/bin/sh\n", "caf\u00e9\u65e5\u672c -r--r--r-- names",
	}
	got := onDisk(t, dir)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
	if c.Commit() != commit || c.Repository() != repo.URL || c.Root() != dir {
		t.Errorf("checkout of %s from %s in %s", c.Commit(), c.Repository(), c.Root())
	}
	if want := repo.Git(t, "rev-parse", commit.String()+"^{tree}"); c.Tree().String() != want {
		t.Errorf("tree %s, want %s", c.Tree(), want)
	}
	if len(c.Parents()) != 0 {
		t.Errorf("root commit with parents %v", c.Parents())
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the checkout: %v, %v", left, err)
	}
	if info, err := os.Stat(dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("root is %v, %v; want private", info.Mode(), err)
	}
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	if err := c.Remove(); err != nil {
		t.Errorf("second Remove: %v", err)
	}
	if err := c.Verify(t.Context()); !errors.Is(err, gitfetch.ErrRemoved) {
		t.Errorf("Verify after Remove: %v", err)
	}
}

// TestTheCheckoutIsTheSameAsGits compares with what git checkout makes of
// the same commit in a plain configuration: all but the write bits.
func TestTheCheckoutIsTheSameAsGits(t *testing.T) {
	t.Parallel()
	repo := gitserver.New(t).Repo(t, "r.git")
	entries := append(sample(),
		gitserver.Entry{Path: ".gitattributes", Content: "*.txt eol=crlf\n*.id ident\n* text=auto\n"},
		gitserver.Entry{Path: "crlf.bin", Content: "a\r\nb\n\x00"},
		gitserver.Entry{Path: "large", Content: strings.Repeat("0123456789abcdef", 1<<17)},
		gitserver.Entry{Path: "a/link", Mode: "120000", Content: "../README"},
	)
	commit := repo.Commit(t, "main", entries)
	req := request(repo, commit)
	req.Policy.Symlinks = gitfetch.SymlinksInside
	c := fetch(t, req)
	work := t.TempDir()
	// Attributes are not acted on here, so Git must not either.
	if err := os.WriteFile(filepath.Join(repo.Dir, "info", "attributes"), []byte("* -text -eol -ident\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	repo.Git(t, "--work-tree="+work, "checkout", "-q", "-f", commit.String(), "--", ".")
	plain := func(lines []string) []string {
		for i, l := range lines {
			path, rest, _ := strings.Cut(l, " ")
			mode, content, _ := strings.Cut(rest, " ")
			if mode[0] == 'd' {
				mode = "d"
			} else if mode[0] == '-' {
				mode = mode[3:4] // may its owner execute it
			}
			lines[i] = path + " " + mode + " " + content
		}
		return lines
	}
	if diff := cmp.Diff(plain(onDisk(t, work)), plain(onDisk(t, c.Root()))); diff != "" {
		t.Errorf("(-git +ours):\n%s", diff)
	}
}

func TestParentsOfAMergeComeFromTheFetchedCommit(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	base := repo.Commit(t, "main", sample())
	head := repo.Commit(t, "topic", sample()[:2], base)
	merge := repo.Commit(t, "merge", sample()[:3], base, head)
	c := fetch(t, request(repo, merge))
	if diff := cmp.Diff([]fencepost.CommitID{base, head}, c.Parents()); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
	if n := c.Stats().Objects; n != 8 {
		t.Errorf("%d objects, want 8: the commit, four trees and three blobs", n)
	}
}

func TestAnOldCommitOfALongHistoryIsFetchedAlone(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	var commits []fencepost.CommitID
	for i := range 5 {
		entries := []gitserver.Entry{{Path: "n", Content: fmt.Sprint(i)}}
		commits = append(commits, repo.Commit(t, "main", entries, commits[max(0, i-1):i]...))
	}
	repo.Git(t, "gc", "-q")
	c := fetch(t, request(repo, commits[2]))
	if f, ok := c.Lookup("n"); !ok || f.Size != 1 {
		t.Errorf("n: %+v, %v", f, ok)
	}
	b, err := os.ReadFile(filepath.Join(c.Root(), "n"))
	if err != nil || string(b) != "2" {
		t.Errorf("n holds %q, %v", b, err)
	}
	if got := c.Parents(); len(got) != 1 || got[0] != commits[1] {
		t.Errorf("parents %v", got)
	}
}

func TestAnEmptyTreeIsAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	c := fetch(t, request(repo, repo.Commit(t, "main", nil)))
	if got := onDisk(t, c.Root()); len(got) != 0 {
		t.Errorf("on disk: %q", got)
	}
}

// TestDeltasAreResolved has files that Git stores as chains of deltas, small
// and larger than what is kept in memory of a base.
func TestDeltasAreResolved(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(rnd.IntN(26))
		}
		return b
	}
	var entries []gitserver.Entry
	for _, size := range []int{3_000, 1_200_000} { // held in memory whole, and not
		content := text(size)
		for i := range 6 {
			at := rnd.IntN(len(content) - 64)
			content = append(append(slices.Clone(content[:at]), text(100)...), content[at+30:]...)
			entries = append(entries, gitserver.Entry{Path: fmt.Sprintf("d%d/f%d", size, i), Content: string(content)})
		}
	}
	commit := repo.Commit(t, "main", entries)
	repo.Git(t, "repack", "-adfq", "--depth=50", "--window=50")
	c := fetch(t, request(repo, commit))
	if c.Stats().Deltas < 8 {
		t.Fatalf("only %d deltas: the test shows nothing", c.Stats().Deltas)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(c.Root(), e.Path))
		if err != nil || string(b) != e.Content {
			t.Errorf("%s: %d bytes, %v; want the %d that were committed", e.Path, len(b), err, len(e.Content))
		}
	}
}

func TestOnlyACommitIsACommit(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	repo.Git(t, "tag", "-a", "-m", "tag", "v1", commit.String())
	missing, err := fencepost.ParseCommitID("00000000000000000000000000000000000000ff")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		id   fencepost.CommitID
		want error
	}{
		// Git cuts the tag's commit off from its history, and says so with
		// an id that was not asked for.
		{"a tag", repo.Resolve(t, "v1"), gitfetch.ErrProtocol},
		{"a tree", repo.Resolve(t, commit.String()+"^{tree}"), gitfetch.ErrNotCommit},
		{"a blob", repo.Resolve(t, commit.String()+":README"), gitfetch.ErrNotCommit},
		{"what the server lacks", missing, gitfetch.ErrNotOurRef},
		{"nothing", fencepost.CommitID{}, gitfetch.ErrRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := workspace(t).Fetch(t.Context(), request(repo, tt.id))
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestASHA256RepositoryIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git", "--object-format=sha256")
	id := fencepost.CommitID{ObjectID: absentID()}
	// With a commit in it, so that its ids are on the server's tongue.
	tree := repo.Git(t, "mktree", "--missing")
	head := repo.Git(t, "commit-tree", "-m", "m", tree)
	repo.Git(t, "update-ref", "refs/heads/main", head)
	req := request(repo, id)
	for what, try := range map[string]func() error{
		"fetch": func() error { _, err := workspace(t).Fetch(t.Context(), req); return err },
		"refs":  func() error { _, err := gitfetch.LsRefs(t.Context(), req, "refs/heads/main"); return err },
		"relate": func() error {
			_, err := gitfetch.Relate(t.Context(), req, id, fencepost.CommitID{ObjectID: fencepost.ObjectID{1}})
			return err
		},
	} {
		if err := try(); !errors.Is(err, gitfetch.ErrObjectFormat) || fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
			t.Errorf("%s: err = %v (%s), want %v", what, err, fencepost.ReasonOf(err), gitfetch.ErrObjectFormat)
		}
	}
	if _, err := fencepost.ParseCommitID(head); err == nil || len(head) != 64 {
		t.Errorf("%s is a commit id here: %v", head, err)
	}
}

func TestProgressAndDurations(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	var last gitfetch.Progress
	req.Progress = func(p gitfetch.Progress) {
		if p.Objects < last.Objects || p.Files < last.Files || p.WireBytes < last.WireBytes {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}
	var ticks time.Duration
	req.Now = func() time.Time {
		ticks += time.Second
		return time.Unix(0, 0).Add(ticks)
	}
	c := fetch(t, req)
	if last.Files != 7 || last.TotalFiles != 7 || last.Objects != 13 || last.TotalObjects != 13 {
		t.Errorf("last progress %+v", last)
	}
	if st := c.Stats(); st.Receive != time.Second || st.Check != time.Second || st.Write != time.Second {
		t.Errorf("durations %+v", st)
	}
}

func TestFetchRefusesADirectoryThatExists(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	req.Dir = t.TempDir()
	if _, err := gitfetch.Fetch(t.Context(), req); !errors.Is(err, gitfetch.ErrExists) {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrExists)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests before that was seen", n)
	}
	req.Dir = filepath.Join(t.TempDir(), "no", "parent")
	_, err := gitfetch.Fetch(t.Context(), req)
	if !errors.Is(err, fs.ErrNotExist) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("err = %v (%s), want %v", err, fencepost.ReasonOf(err), fs.ErrNotExist)
	}
	if strings.Contains(err.Error(), req.Dir) {
		t.Errorf("the host's path shows in %q", err)
	}
}

func TestManyFetchesAtOnceShareAWorkspace(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	w := workspace(t)
	type result struct {
		c   *gitfetch.Checkout
		err error
	}
	results := make(chan result)
	for range 6 {
		go func() {
			c, err := w.Fetch(t.Context(), req)
			results <- result{c, err}
		}()
	}
	roots := make(map[string]bool)
	for range 6 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		roots[r.c.Root()] = true
		if err := r.c.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(roots) != 6 {
		t.Errorf("%d directories for 6 checkouts", len(roots))
	}
}
