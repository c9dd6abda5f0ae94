package gitfetch_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a fetch of one commit of a test server, which is on loopback.
func request(repo *gitserver.Repo, commit fencepost.CommitID) gitfetch.Request {
	return gitfetch.Request{URL: repo.URL, Commit: commit, AllowHTTP: true}
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
		{Path: "caf\u00e9 \u65e5\u672c", Content: "names"},
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
		"bin/run -r-xr-xr-x #!/bin/sh\n", "caf\u00e9 \u65e5\u672c -r--r--r-- names",
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

func TestFilesAreInOrderAndCanBeLookedUp(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	c := fetch(t, request(repo, commit))
	var got []string
	for f := range c.Files() {
		got = append(got, fmt.Sprintf("%s blob %s\t%s", f.Mode, f.Blob, f.Path))
		if g, ok := c.Lookup(f.Path); !ok || g != f {
			t.Errorf("Lookup(%q) = %+v, %v; want %+v", f.Path, g, ok, f)
		}
	}
	want := strings.Split(repo.Git(t, "-c", "core.quotePath=off", "ls-tree", "-r", commit.String()), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-git +ours):\n%s", diff)
	}
	for _, absent := range []string{"", "a", "a/", "a/deep", "zzz", "README/", "/README"} {
		if f, ok := c.Lookup(absent); ok {
			t.Errorf("Lookup(%q) = %+v", absent, f)
		}
	}
	stats := c.Stats()
	if stats.Files != 7 || stats.Directories != 5 || stats.Objects != 13 || stats.OutputBytes != 6+9+1+15+10+5 || stats.PackBytes == 0 || stats.WireBytes <= stats.PackBytes {
		t.Errorf("stats %+v", stats)
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
	for _, size := range []int{3_000, 2_500_000} {
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

func TestSymlinkPolicies(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	link := func(path, target string) gitserver.Entry {
		return gitserver.Entry{Path: path, Mode: "120000", Content: target}
	}
	tests := []struct {
		name    string
		entries []gitserver.Entry
		policy  gitfetch.Symlinks
		rule    string // of the refusal, "" for success
		want    string // of the link on disk
	}{
		{"refuse is the default", []gitserver.Entry{link("l", "README")}, 0, "symlink", ""},
		{"as_data writes the text", []gitserver.Entry{link("l", "/etc/passwd")}, gitfetch.SymlinksAsData, "", "l -r--r--r-- /etc/passwd"},
		{"inside makes a link to a file", []gitserver.Entry{link("l", "README")}, gitfetch.SymlinksInside, "", "l Lrwxrwxrwx README"},
		{"inside makes a link up and down", []gitserver.Entry{link("a/b/l", "../../README")}, gitfetch.SymlinksInside, "", "a/b/l Lrwxrwxrwx ../../README"},
		{"inside makes a link to the root", []gitserver.Entry{link("a/l", "..")}, gitfetch.SymlinksInside, "", "a/l Lrwxrwxrwx .."},
		{"inside makes a dangling link", []gitserver.Entry{link("l", "no/where")}, gitfetch.SymlinksInside, "", "l Lrwxrwxrwx no/where"},
		{"inside makes a link through a link", []gitserver.Entry{{Path: "d/f"}, link("k", "d"), link("l", "k/f")}, gitfetch.SymlinksInside, "", "l Lrwxrwxrwx k/f"},
		{"inside refuses an absolute target", []gitserver.Entry{link("l", "/etc")}, gitfetch.SymlinksInside, "link-target", ""},
		{"inside refuses a way out", []gitserver.Entry{link("l", "..")}, gitfetch.SymlinksInside, "link-escape", ""},
		{"inside refuses a way out and back in", []gitserver.Entry{link("a/l", "../../x/README")}, gitfetch.SymlinksInside, "link-escape", ""},
		{"inside refuses a way out through a link", []gitserver.Entry{{Path: "a/b/f"}, link("x/k", "../a"), link("a/l", "../x/k/../../y")}, gitfetch.SymlinksInside, "link-escape", ""},
		{"inside refuses to climb from what the tree lacks", []gitserver.Entry{link("d/l", "../A/../README")}, gitfetch.SymlinksInside, "link-escape", ""},
		{"inside refuses to climb from a file", []gitserver.Entry{link("d/l", "../README/../README")}, gitfetch.SymlinksInside, "link-escape", ""},
		{"inside refuses a loop", []gitserver.Entry{link("k", "l"), link("l", "k")}, gitfetch.SymlinksInside, "link-loop", ""},
		{"inside refuses a backslash", []gitserver.Entry{link("l", `a\b`)}, gitfetch.SymlinksInside, "link-target", ""},
		{"inside refuses a colon", []gitserver.Entry{link("l", "c:x")}, gitfetch.SymlinksInside, "link-target", ""},
		{"inside refuses a line end", []gitserver.Entry{link("l", "a\nb")}, gitfetch.SymlinksInside, "link-target", ""},
		{"a link under a name that Git reads is refused as data too", []gitserver.Entry{link(".gitattributes", "x")}, gitfetch.SymlinksAsData, "gitfile-link", ""},
		{"a link too long for any system is refused as data too", []gitserver.Entry{link("l", strings.Repeat("x", 4096))}, gitfetch.SymlinksAsData, "link-target", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			repo := s.Repo(t, strings.ReplaceAll(t.Name(), "/", "-")+".git")
			req := request(repo, repo.Commit(t, "main", append(tt.entries, gitserver.Entry{Path: "README", Content: "r"})))
			req.Policy.Symlinks = tt.policy
			if tt.rule != "" {
				_, err := workspace(t).Fetch(t.Context(), req)
				wantPathError(t, err, tt.rule)
				return
			}
			c := fetch(t, req)
			if got := onDisk(t, c.Root()); !slices.Contains(got, tt.want) {
				t.Errorf("on disk %q, want also %q", got, tt.want)
			}
			path, _, _ := strings.Cut(tt.want, " ")
			if f, ok := c.Lookup(path); !ok || f.Mode != gitfetch.ModeLink {
				t.Errorf("Lookup: %+v, %v; want a link", f, ok)
			}
		})
	}
}

func wantPathError(t *testing.T, err error, rule string) {
	t.Helper()
	pe, ok := errors.AsType[*gitfetch.PathError](err)
	if !ok || pe.Rule != rule {
		t.Fatalf("err = %v, want rule %s", err, rule)
	}
	if !errors.Is(err, gitfetch.ErrContent) || fencepost.ReasonOf(err) != fencepost.ReasonContent {
		t.Errorf("err = %v with reason %s, want %s", err, fencepost.ReasonOf(err), fencepost.ReasonContent)
	}
}

func TestGitlinkPolicies(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	const other = "1234567890123456789012345678901234567890"
	commit := repo.Commit(t, "main", append(sample(), gitserver.Entry{Path: "a/sub", Mode: "160000", Content: other}))
	req := request(repo, commit)
	_, err := workspace(t).Fetch(t.Context(), req)
	wantPathError(t, err, "gitlink")

	req.Policy.Gitlinks = gitfetch.GitlinksSkip
	c := fetch(t, req)
	id, err := fencepost.ParseCommitID(other)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]gitfetch.Gitlink{{Path: "a/sub", Commit: id}}, c.Skipped()); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Join(c.Root(), "a", "sub")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a/sub on disk: %v", err)
	}
}

func TestNamePolicies(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	tests := []struct {
		paths    []string
		portable string // rule, "" for success
		posix    string
	}{
		{[]string{"Makefile", "makefile"}, "collision", ""},
		{[]string{"caf\u00e9", "cafe\u0301"}, "collision", ""},
		{[]string{"stra\u00dfe", "STRASSE"}, "collision", ""},
		{[]string{"d/x", "D/y"}, "collision", ""},
		{[]string{"aux.c"}, "device", ""},
		{[]string{"Foo::Bar.3"}, "colon", ""},
		{[]string{`system\x2d.slice`}, "backslash", ""},
		{[]string{"trailing. "}, "trailing", ""},
		{[]string{`x\.Git\config`}, "dotgit", "dotgit"},
		{[]string{"sub/git~1/config"}, "dotgit", "dotgit"},
		{[]string{"tab\there"}, "control", "control"},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%q", tt.paths), func(t *testing.T) {
			t.Parallel()
			repo := s.Repo(t, fmt.Sprintf("r%d.git", i))
			var entries []gitserver.Entry
			for _, p := range tt.paths {
				entries = append(entries, gitserver.Entry{Path: p, Content: p})
			}
			commit := repo.Commit(t, "main", entries)
			for names, rule := range map[gitfetch.Names]string{gitfetch.NamesPortable: tt.portable, gitfetch.NamesPOSIX: tt.posix} {
				req := request(repo, commit)
				req.Policy.Names = names
				c, err := workspace(t).Fetch(t.Context(), req)
				switch {
				case rule != "":
					wantPathError(t, err, rule)
				case err != nil:
					t.Errorf("%s: %v", names, err)
				default:
					if err := c.Verify(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
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
	id, err := fencepost.ParseCommitID(strings.Repeat("ab", 20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workspace(t).Fetch(t.Context(), request(repo, id)); !errors.Is(err, gitfetch.ErrObjectFormat) {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrObjectFormat)
	}
}

func TestAnAbsentRepositoryIsNotFound(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	req := request(repo, commit)
	req.URL = s.URL + "/absent.git"
	_, err := workspace(t).Fetch(t.Context(), req)
	if !errors.Is(err, gitfetch.ErrNotFound) || fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrNotFound)
	}
}

// canary is what must never be seen outside the Authorization header.
const canary = "canary-3c9e1f"

func credential(user, secret string) gitfetch.Credential {
	return func(context.Context) (string, fencepost.Secret, error) {
		return user, fencepost.NewSecret([]byte(secret)), nil
	}
}

// demand answers 401 to all who don't bring the right credential.
func demand(user, secret string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, ok := r.BasicAuth(); !ok || u != user || p != secret {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(demand("x-access-token", canary))
	errVault := errors.New("vault is sealed")

	req := request(repo, commit)
	req.Credential = credential("x-access-token", canary)
	fetch(t, req)

	for name, tt := range map[string]struct {
		credential gitfetch.Credential
		want       error
	}{
		"none":                  {nil, gitfetch.ErrCredential},
		"wrong":                 {credential("x-access-token", "wrong-"+canary), gitfetch.ErrCredential},
		"not to be had":         {func(context.Context) (string, fencepost.Secret, error) { return "", fencepost.Secret{}, errVault }, errVault},
		"with a line end":       {credential("u", canary+"\r\nX: y"), gitfetch.ErrCredential},
		"with a colon in front": {credential("u:v", canary), gitfetch.ErrCredential},
	} {
		req.Credential = tt.credential
		_, err := workspace(t).Fetch(t.Context(), req)
		if !errors.Is(err, tt.want) || fencepost.ReasonOf(err) != fencepost.ReasonCredential {
			t.Errorf("%s: err = %v (%s), want %v", name, err, fencepost.ReasonOf(err), tt.want)
		}
		wantNoCanary(t, err)
	}
}

// wantNoCanary searches everything that an error shows for the secret, also
// in the form that the header has.
func wantNoCanary(t *testing.T, err error) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + canary))
	for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if strings.Contains(text, canary) || strings.Contains(text, encoded[:20]) {
			t.Errorf("the credential shows in %q", text)
		}
	}
}

func TestASecretInTheURLIsRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"https://user:" + canary + "@example.org/r.git", "https://" + canary + "@example.org/r.git", "https://example.org/r.git?token=" + canary,
		"https://example.org/r.git#" + canary, "https://exa mple.org/" + canary, "https://example.org/\x7f" + canary, "https://[::1" + canary,
		"ftp://example.org/" + canary, "http://example.org/" + canary, "https:///" + canary, "https:opaque" + canary, "https://example.org:0/" + canary,
		"https://example.org:99999/" + canary, "/local/" + canary, "ext::sh -c " + canary, canary, "",
	} {
		_, err := workspace(t).Fetch(t.Context(), gitfetch.Request{URL: url, Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}})
		if !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("%q: err = %v, want %v", url, err, gitfetch.ErrRequest)
		}
		wantNoCanary(t, err)
	}
}

func TestTLSWithOwnAuthorities(t *testing.T) {
	t.Parallel()
	s, server := gitserver.NewTLS(t)
	repo := s.Repo(t, "r.git")
	req := gitfetch.Request{URL: repo.URL, Commit: repo.Commit(t, "main", sample())}
	_, err := workspace(t).Fetch(t.Context(), req)
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("err = %v, want %T", err, unknown)
	}
	req.RootCAs = x509.NewCertPool()
	req.RootCAs.AddCert(server.Certificate())
	fetch(t, req)
}

func TestRequestsCarryWhatTheProtocolNeedsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	req.URL += "//"
	s.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/"})
			next.ServeHTTP(w, r)
		})
	})
	fetch(t, req)
	got := s.Requests()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	if got[0].Method != http.MethodGet || got[0].URL.String() != "/r.git/info/refs?service=git-upload-pack" {
		t.Errorf("first request: %s %s", got[0].Method, got[0].URL)
	}
	if got[1].Method != http.MethodPost || got[1].URL.String() != "/r.git/git-upload-pack" || got[1].ContentLength <= 0 || got[1].TransferEncoding != nil {
		t.Errorf("second request: %s %s, %d bytes, %v", got[1].Method, got[1].URL, got[1].ContentLength, got[1].TransferEncoding)
	}
	for _, r := range got {
		want := map[string]string{"Git-Protocol": "version=2", "Accept-Encoding": "identity", "Cookie": "", "Authorization": "", "Content-Encoding": ""}
		for name, value := range want {
			if r.Header.Get(name) != value {
				t.Errorf("%s %s: %s: %q, want %q", r.Method, r.URL, name, r.Header.Get(name), value)
			}
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "new.git")
	commit := repo.Commit(t, "main", sample())
	stolen := make(chan string, 16)
	// Another port of the same host, as where net/http would send the
	// credential along.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen <- r.Header.Get("Authorization")
		http.Redirect(w, r, s.URL+r.URL.String(), http.StatusFound)
	}))
	t.Cleanup(other.Close)
	const tail = "/info/refs?service=git-upload-pack"
	s.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, to, ok := strings.Cut(r.Header.Get("User-Agent")+r.URL.Path, "/to/"); ok {
				to, _ = strings.CutSuffix(to, "/info/refs")
				target := map[string]string{
					"new": "/new.git" + tail, "other": other.URL + "/new.git" + tail, "again": "/to/new" + tail,
					"user": strings.Replace(s.URL, "//", "//u:p@", 1) + "/new.git" + tail, "login": "/login", "ftp": "ftp://x" + tail,
					"short": "/new.git/info/refs", "more": "/new.git" + tail + "&x=1", "none": "",
				}[to]
				if target != "" {
					w.Header().Set("Location", target)
				}
				w.WriteHeader(http.StatusMovedPermanently)
				return
			}
			if r.URL.Path == "/post.git/git-upload-pack" {
				http.Redirect(w, r, "/new.git/git-upload-pack", http.StatusTemporaryRedirect)
				return
			}
			r.URL.Path = strings.Replace(r.URL.Path, "/post.git", "/new.git", 1)
			next.ServeHTTP(w, r)
		})
	})
	tests := []struct {
		name    string
		path    string
		hops    int
		origins []string
		want    error
	}{
		{"none by default", "/to/new", 0, nil, gitfetch.ErrRedirect},
		{"to the same origin", "/to/new", 1, nil, nil},
		{"two hops", "/to/again", 2, nil, nil},
		{"one hop too many", "/to/again", 1, nil, gitfetch.ErrRedirect},
		{"to another origin", "/to/other", 5, nil, gitfetch.ErrRedirect},
		{"to another origin that is allowed", "/to/other", 5, []string{other.URL}, nil},
		{"with a user in it", "/to/user", 5, nil, gitfetch.ErrRedirect},
		{"to a login page", "/to/login", 5, nil, gitfetch.ErrRedirect},
		{"to another scheme", "/to/ftp", 5, nil, gitfetch.ErrRedirect},
		{"with a shorter tail", "/to/short", 5, nil, gitfetch.ErrRedirect},
		{"with a longer tail", "/to/more", 5, nil, gitfetch.ErrRedirect},
		{"to nowhere", "/to/none", 5, nil, gitfetch.ErrRedirect},
		{"of a command", "/post.git", 5, nil, gitfetch.ErrRedirect},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := request(repo, commit)
			req.URL = s.URL + tt.path
			req.Budgets.Redirects = tt.hops
			req.RedirectOrigins = tt.origins
			req.Credential = credential("x-access-token", canary)
			before := len(s.Requests())
			c, err := workspace(t).Fetch(t.Context(), req)
			if !errors.Is(err, tt.want) {
				t.Fatalf("err = %v, want %v", err, tt.want)
			}
			wantNoCanary(t, err)
			if err == nil && c.Repository() != req.URL {
				t.Errorf("repository %s, want the one that was asked for", c.Repository())
			}
			for _, r := range s.Requests()[before:] {
				if _, secret, _ := r.BasicAuth(); secret != canary {
					t.Errorf("%s %s to the configured origin without the credential", r.Method, r.URL)
				}
			}
		})
	}
	close(stolen)
	seen := 0
	for header := range stolen {
		seen++
		if header != "" {
			t.Errorf("the other origin got %q", header)
		}
	}
	if seen != 1 {
		t.Errorf("the other origin was asked %d times, want once", seen)
	}
}

func TestAnHTTPSOriginNeverLeadsToHTTP(t *testing.T) {
	t.Parallel()
	s, server := gitserver.NewTLS(t)
	plain := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain.URL+r.URL.String(), http.StatusFound)
		})
	})
	req := gitfetch.Request{URL: repo.URL, Commit: commit, AllowHTTP: true, RedirectOrigins: []string{plain.URL}, RootCAs: x509.NewCertPool()}
	req.RootCAs.AddCert(server.Certificate())
	req.Budgets.Redirects = 3
	if _, err := workspace(t).Fetch(t.Context(), req); !errors.Is(err, gitfetch.ErrRedirect) {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrRedirect)
	}
	if n := len(plain.Requests()); n != 0 {
		t.Errorf("%d requests in plain text", n)
	}
}

func TestLsRefs(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	repo.Commit(t, "main2", sample()[:1])
	repo.Git(t, "tag", "-a", "-m", "tag", "v1", commit.String())
	got, err := gitfetch.LsRefs(t.Context(), request(repo, fencepost.CommitID{}), "refs/heads/main", "refs/tags/v1", "HEAD", "refs/heads/absent")
	if err != nil {
		t.Fatal(err)
	}
	want := []gitfetch.Ref{
		{Name: "HEAD", ID: commit.ObjectID, Symref: "refs/heads/main"},
		{Name: "refs/heads/main", ID: commit.ObjectID},
		{Name: "refs/tags/v1", ID: repo.Resolve(t, "v1").ObjectID, Peeled: commit.ObjectID},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refs (-want +got):\n%s", diff)
	}
	for _, ref := range got {
		if ref.Commit() != commit {
			t.Errorf("%s leads to %s, want %s", ref.Name, ref.Commit(), commit)
		}
	}
	for _, bad := range []string{"", "main", "refs/heads/../x", "refs/heads/a b", "refs/heads/x\nwant", "refs/heads/.x", "refs/heads/x.lock", "refs//x", "refs/heads/"} {
		if _, err := gitfetch.LsRefs(t.Context(), request(repo, fencepost.CommitID{}), bad); !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("%q: err = %v, want %v", bad, err, gitfetch.ErrRequest)
		}
	}
	empty := s.Repo(t, "empty.git")
	if got, err := gitfetch.LsRefs(t.Context(), request(empty, fencepost.CommitID{}), "HEAD"); err != nil || len(got) != 0 {
		t.Errorf("of an empty repository: %v, %v", got, err)
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

func TestSyncAllMakesTheSameCheckout(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	plain := onDisk(t, fetch(t, req).Root())
	req.Sync = gitfetch.SyncAll
	if diff := cmp.Diff(plain, onDisk(t, fetch(t, req).Root())); diff != "" {
		t.Errorf("(-none +all):\n%s", diff)
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

func TestVerifyFindsEveryChange(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && runtime.GOOS == "windows" {
		t.Skip("modes differ")
	}
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	entries := append(sample(), gitserver.Entry{Path: "l", Mode: "120000", Content: "README"})
	req := request(repo, repo.Commit(t, "main", entries))
	req.Policy.Symlinks = gitfetch.SymlinksInside
	tests := []struct {
		name string
		do   func(root string) error
		path string
		what string
	}{
		{"a changed byte", func(r string) error {
			return errors.Join(os.Chmod(r+"/README", 0o644), os.WriteFile(r+"/README", []byte("hellO\n"), 0o644), os.Chmod(r+"/README", 0o444))
		}, "README", "content"},
		{"a longer file", func(r string) error {
			return errors.Join(os.Chmod(r+"/README", 0o644), os.WriteFile(r+"/README", []byte("hello\n\n"), 0o644), os.Chmod(r+"/README", 0o444))
		}, "README", "content"},
		{"a missing file", func(r string) error { return os.Remove(r + "/a/b") }, "a/b", "missing"},
		{"a missing directory", func(r string) error { return os.RemoveAll(r + "/a") }, "a", "missing"},
		{"one more file", func(r string) error { return os.WriteFile(r+"/a/new", nil, 0o444) }, "a/new", "unexpected"},
		{"one more directory", func(r string) error { return os.Mkdir(r+"/a/deep/new", 0o700) }, "a/deep/new", "unexpected"},
		{"an executable bit", func(r string) error { return os.Chmod(r+"/README", 0o555) }, "README", "mode"},
		{"a write bit", func(r string) error { return os.Chmod(r+"/README", 0o644) }, "README", "mode"},
		{"no executable bit", func(r string) error { return os.Chmod(r+"/bin/run", 0o444) }, "bin/run", "mode"},
		{"a file that became a link", func(r string) error {
			return errors.Join(os.Rename(r+"/README", r+"/../elsewhere"), os.Symlink("../elsewhere", r+"/README"))
		}, "README", "kind"},
		{"a directory that became a link", func(r string) error {
			return errors.Join(os.Rename(r+"/a/deep", r+"/../deep"), os.Symlink("../../deep", r+"/a/deep"))
		}, "a/deep", "kind"},
		{"a link that leads elsewhere", func(r string) error {
			return errors.Join(os.Remove(r+"/l"), os.Symlink("a.txt", r+"/l"))
		}, "l", "content"},
		{"a link that became a file", func(r string) error {
			return errors.Join(os.Remove(r+"/l"), os.WriteFile(r+"/l", []byte("README"), 0o444))
		}, "l", "kind"},
		{"nothing left", os.RemoveAll, ".", "missing"},
	}
	w := workspace(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := w.Fetch(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.do(c.Root()); err != nil {
				t.Fatal(err)
			}
			err = c.Verify(t.Context())
			altered, ok := errors.AsType[*gitfetch.AlteredError](err)
			if !ok || altered.Path != tt.path || altered.What != tt.what || !errors.Is(err, gitfetch.ErrAltered) {
				t.Errorf("err = %v, want %q: %s", err, tt.path, tt.what)
			}
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemoveTakesWhatAProgramLocked(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	c := fetch(t, request(repo, repo.Commit(t, "main", sample())))
	if err := errors.Join(os.Chmod(filepath.Join(c.Root(), "a/deep"), 0), os.Chmod(filepath.Join(c.Root(), "a"), 0o100)); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(c.Root()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
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

func TestRemoteTextIsAtHandAndNotInTheError(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusTooManyRequests)
			w.Write([]byte("slow\x1b[31m down\r\n" + strings.Repeat("x", 9000)))
		})
	})
	_, err := workspace(t).Fetch(t.Context(), request(repo, commit))
	se, ok := errors.AsType[*gitfetch.StatusError](err)
	if !ok || !errors.Is(err, gitfetch.ErrRateLimited) || fencepost.ReasonOf(err) != fencepost.ReasonRateLimited || se.RetryAfter != 7*time.Second {
		t.Fatalf("err = %#v", err)
	}
	if !strings.HasPrefix(se.Text, "slow?[31m down  xxx") || len(se.Text) > 4<<10 {
		t.Errorf("text %q", se.Text)
	}
	if strings.Contains(err.Error(), "slow") {
		t.Errorf("the server's words are in %q", err)
	}
	if bytes.ContainsAny([]byte(se.Text), "\x1b\r\n") {
		t.Errorf("control characters in %q", se.Text)
	}
}
