package gitfetch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
)

func TestSymlinkPolicies(t *testing.T) {
	t.Parallel()
	repo := gitserver.New(t).Repo(t, "r.git")
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
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := request(repo, repo.Commit(t, fmt.Sprint("b", i), append(tt.entries, gitserver.Entry{Path: "README", Content: "r"})))
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
	repo := gitserver.New(t).Repo(t, "r.git")
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
			var entries []gitserver.Entry
			for _, p := range tt.paths {
				entries = append(entries, gitserver.Entry{Path: p, Content: p})
			}
			commit := repo.Commit(t, fmt.Sprint("b", i), entries)
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
