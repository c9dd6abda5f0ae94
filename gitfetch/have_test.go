package gitfetch_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
)

// manifest is what a later process reads of a checkout.
func manifest(t *testing.T, c *gitfetch.Checkout) *gitfetch.Manifest {
	t.Helper()
	m, err := gitfetch.ReadManifest(bytes.NewReader(manifestBytes(t, c)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func manifestBytes(t *testing.T, c *gitfetch.Checkout) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.WriteManifest(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func have(t *testing.T, c *gitfetch.Checkout) *gitfetch.Have {
	t.Helper()
	return &gitfetch.Have{Dir: c.Root(), Manifest: manifest(t, c)}
}

// many are files enough that what is sent for one of them stands out.
func many(n int) []gitserver.Entry {
	var entries []gitserver.Entry
	for i := range n {
		entries = append(entries, gitserver.Entry{Path: fmt.Sprintf("d%02d/s%d/f%d", i%20, i%3, i), Content: strings.Repeat(fmt.Sprintln("line", i*7919), 40)})
	}
	return entries
}

func change(entries []gitserver.Entry, changes ...func([]gitserver.Entry) []gitserver.Entry) []gitserver.Entry {
	entries = append([]gitserver.Entry(nil), entries...)
	for _, c := range changes {
		entries = c(entries)
	}
	return entries
}

func set(path, mode, content string) func([]gitserver.Entry) []gitserver.Entry {
	return func(entries []gitserver.Entry) []gitserver.Entry {
		entries = without(path)(entries)
		return append(entries, gitserver.Entry{Path: path, Mode: mode, Content: content})
	}
}

func without(path string) func([]gitserver.Entry) []gitserver.Entry {
	return func(entries []gitserver.Entry) []gitserver.Entry {
		var kept []gitserver.Entry
		for _, e := range entries {
			if e.Path != path && !strings.HasPrefix(e.Path, path+"/") {
				kept = append(kept, e)
			}
		}
		return kept
	}
}

func rename(from, to string) func([]gitserver.Entry) []gitserver.Entry {
	return func(entries []gitserver.Entry) []gitserver.Entry {
		for i, e := range entries {
			if rest, ok := strings.CutPrefix(e.Path, from); ok {
				entries[i].Path = to + rest
			}
		}
		return entries
	}
}

// TestAFetchOnTopOfAnEarlierOne changes a tree in every way, and compares what
// an incremental fetch makes of it with what a plain one does.
func TestAFetchOnTopOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	base := append(many(60),
		gitserver.Entry{Path: "bin/run", Mode: "100755", Content: "#!/bin/sh\n"},
		gitserver.Entry{Path: "bin/same", Content: "#!/bin/sh\n"},
		gitserver.Entry{Path: "link", Mode: "120000", Content: "bin/run"},
		gitserver.Entry{Path: "only", Mode: "120000", Content: "empty"},
		gitserver.Entry{Path: "text", Content: "bin/run"},
		gitserver.Entry{Path: "empty", Content: ""},
	)
	type edit = func([]gitserver.Entry) []gitserver.Entry
	tests := []struct {
		name    string
		edits   []edit
		written int64 // files that can't be linked
		copied  int64 // of them, from what is here
	}{
		{"nothing", nil, 0, 0},
		{"one file", []edit{set("d01/s1/f1", "", "other\n")}, 1, 0},
		{"a line of a file", []edit{set("d01/s1/f1", "", strings.Repeat(fmt.Sprintln("line", 7919), 40)+"more\n")}, 1, 0},
		{"a new file", []edit{set("new/dir/file", "", "other\n")}, 1, 0},
		{"a file less", []edit{without("d01/s1/f1")}, 0, 0},
		{"a directory less", []edit{without("d02")}, 0, 0},
		{"a renamed directory", []edit{rename("d03/", "moved/")}, 0, 0},
		{"a renamed file", []edit{rename("d01/s1/f1", "d01/s1/g1")}, 0, 0},
		{"a file made a program", []edit{set("bin/same", "100755", "#!/bin/sh\n")}, 0, 0},
		{"a program made a file", []edit{set("bin/run", "", "#!/bin/sh\n")}, 0, 0},
		{"a file made a program, the only one", []edit{set("d01/s1/f1", "100755", strings.Repeat(fmt.Sprintln("line", 7919), 40))}, 1, 1},
		{"a file made a directory", []edit{set("empty", "", ""), without("empty"), set("empty/x", "", "x")}, 1, 0},
		{"a directory made a file", []edit{without("d04"), set("d04", "", "x")}, 1, 0},
		{"a file made a link", []edit{without("bin/same"), set("bin/same", "120000", "run")}, 0, 0},
		{"a link made a file", []edit{set("link", "", "bin/run")}, 0, 0},
		{"a link made a file, the text nowhere else", []edit{set("only", "", "empty")}, 1, 1},
		{"a file made a link with its content", []edit{without("link"), set("text", "120000", "bin/run")}, 0, 0},
		{"a link made a directory", []edit{without("link"), set("link/x", "", "x")}, 1, 0},
		{"another link", []edit{set("link", "120000", "bin/same")}, 0, 0},
		{"everything", []edit{func([]gitserver.Entry) []gitserver.Entry { return sample() }}, 5, 0},
		{"all away", []edit{func([]gitserver.Entry) []gitserver.Entry { return nil }}, 0, 0},
	}
	first := repo.Commit(t, "main", base)
	req := request(repo, first)
	req.Policy.Symlinks = gitfetch.SymlinksInside
	before := fetch(t, req)
	had := have(t, before)
	heads := make([]fencepost.CommitID, len(tests))
	for i, tt := range tests {
		heads[i] = repo.Commit(t, fmt.Sprint("b", i), change(base, tt.edits...), first)
	}
	repo.Git(t, "repack", "-adq")
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := req
			req.Commit = heads[i]
			want := fetch(t, req)
			req.Have = had
			got := fetch(t, req)
			if diff := cmp.Diff(onDisk(t, want.Root()), onDisk(t, got.Root())); diff != "" {
				t.Errorf("(-plain +incremental):\n%s", diff)
			}
			st := got.Stats()
			if !st.Incremental || st.Fallback != "" {
				t.Fatalf("not incremental: %+v", st)
			}
			// Links are made anew, always.
			written := st.Files - st.LinkedFiles
			for f := range got.Files() {
				if f.Mode == gitfetch.ModeLink {
					written--
				}
			}
			if written != tt.written || st.CopiedFiles != tt.copied {
				t.Errorf("%d files not linked, %d copied; want %d, %d: %+v", written, st.CopiedFiles, tt.written, tt.copied, st)
			}
			if st.PackBytes > 1500 {
				t.Errorf("%d bytes of pack", st.PackBytes)
			}
			if err := before.Verify(t.Context()); err != nil {
				t.Errorf("the earlier checkout: %v", err)
			}
			// What was made is a base as good as any.
			next := req
			next.Have, next.Commit = have(t, got), first
			if back := fetch(t, next); back.Tree() != before.Tree() || !back.Stats().Incremental {
				t.Errorf("back to %s: %+v", back.Tree(), back.Stats())
			}
		})
	}
}

// TestWhatIsWrongWithAnEarlierCheckoutCostsAPlainFetch and no more.
func TestWhatIsWrongWithAnEarlierCheckoutCostsAPlainFetch(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	base := append(many(60), gitserver.Entry{Path: "big", Content: strings.Repeat("0123456789abcdef", 1<<12)})
	first := repo.Commit(t, "main", base)
	second := repo.Commit(t, "main", change(base, set("d01/s1/f1", "", "other\n"), set("big", "", strings.Repeat("0123456789abcdef", 1<<12)+"tail")), first)
	const victim = "d02/s2/f2"
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, victim)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o444); err != nil {
				t.Fatal(err)
			}
		}
	}
	same := strings.Repeat(fmt.Sprintln("line", 2*7919), 40)
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   gitfetch.Fallback
		copied int64
	}{
		{"none", func(*testing.T, string) {}, "", 0},
		{"another content", write("evil"), gitfetch.FallbackAltered, 0},
		{"another content of the same length", write(strings.Repeat("x", len(same))), gitfetch.FallbackAltered, 0},
		{"the same content in another file", write(same), "", 1},
		{"changed in place", func(t *testing.T, dir string) {
			path := filepath.Join(dir, victim)
			if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte(strings.Repeat("x", len(same))), 0), os.Chmod(path, 0o444)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"writable", func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, victim), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "", 1},
		{"executable", func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, victim), 0o555); err != nil {
				t.Fatal(err)
			}
		}, "", 1},
		{"touched", func(t *testing.T, dir string) {
			if err := os.Chtimes(filepath.Join(dir, victim), time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}, "", 1},
		{"gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, victim)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"a link in its place", func(t *testing.T, dir string) {
			path := filepath.Join(dir, victim)
			if err := errors.Join(os.Rename(path, path+"x"), os.Symlink(filepath.Base(path)+"x", path)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"a directory in its place", func(t *testing.T, dir string) {
			path := filepath.Join(dir, victim)
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"its directory a link", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "d02")
			if err := errors.Join(os.Rename(path, filepath.Join(dir, "d99")), os.Symlink("d99", path)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"what a delta is on", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "big")
			if err := errors.Join(os.Remove(path), os.WriteFile(path, bytes.Repeat([]byte("y"), 1<<16), 0o444)); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAnswer, 0},
		{"what a delta is on, gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "big")); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackAltered, 0},
		{"all gone", func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, gitfetch.FallbackDirectory, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := fetch(t, request(repo, first))
			req := request(repo, second)
			want := fetch(t, req)
			req.Have = have(t, before)
			tt.damage(t, before.Root())
			got := fetch(t, req)
			if diff := cmp.Diff(onDisk(t, want.Root()), onDisk(t, got.Root())); diff != "" {
				t.Errorf("(-plain +incremental):\n%s", diff)
			}
			st := got.Stats()
			if st.Fallback != tt.want || st.Incremental != (tt.want == "") || st.CopiedFiles != tt.copied {
				t.Errorf("%+v, want fallback %q and %d copied", st, tt.want, tt.copied)
			}
		})
	}
}

// TestAServerThatForgotTheEarlierCommitSendsEverything, and files are linked
// all the same.
func TestAServerThatForgotTheEarlierCommitSendsEverything(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo, other := s.Repo(t, "r.git"), s.Repo(t, "other.git")
	had := have(t, fetch(t, request(repo, repo.Commit(t, "main", many(60)))))
	req := request(other, other.Commit(t, "main", change(many(60), set("d01/s1/f1", "", "other\n"))))
	req.Have = had
	st := fetch(t, req).Stats()
	if !st.Incremental || st.Fallback != "" || st.LinkedFiles != 59 || st.Objects < 60 {
		t.Errorf("%+v", st)
	}
}

// TestDirectoriesOfEverySizeAreMadeOnTopOfAnEarlierOne has large ones in small
// ones and the other way round, and files enough for several at a time.
func TestDirectoriesOfEverySizeAreMadeOnTopOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	repo := gitserver.New(t).Repo(t, "r.git")
	entries := many(120)
	for i := range 130 {
		entries = append(entries,
			gitserver.Entry{Path: fmt.Sprintf("large/f%03d", i), Content: fmt.Sprint("l", i)},
			gitserver.Entry{Path: fmt.Sprintf("a/b/c/deep/f%03d", i), Content: fmt.Sprint("d", i)},
			gitserver.Entry{Path: fmt.Sprintf("large/s%d/t%d/f", i%40, i), Content: fmt.Sprint("s", i)})
	}
	entries = append(entries,
		gitserver.Entry{Path: "bytes/x/big", Content: strings.Repeat("0123456789abcde\n", 3<<16)},
		gitserver.Entry{Path: "bytes/y/small", Content: "y"},
		gitserver.Entry{Path: "z", Content: "z"})
	first := repo.Commit(t, "main", entries)
	next := change(entries, set("large/f007", "", "other"), set("a/b/c/deep/new", "", "new"), without("d01"), set("bytes/y/big2", "", strings.Repeat("x", 2<<20)))
	req := request(repo, repo.Commit(t, "main", next, first))
	want := fetch(t, req)
	req.Have = have(t, fetch(t, request(repo, first)))
	got := fetch(t, req)
	if diff := cmp.Diff(onDisk(t, want.Root()), onDisk(t, got.Root())); diff != "" {
		t.Errorf("(-plain +incremental):\n%s", diff)
	}
	if st := got.Stats(); !st.Incremental || st.LinkedFiles != int64(len(next)-3) || st.CopiedFiles != 0 {
		t.Errorf("%+v, want all but three of %d linked", st, len(next))
	}
	if err := got.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBothTriesShareTheBudgets(t *testing.T) {
	t.Parallel()
	repo := gitserver.New(t).Repo(t, "r.git")
	first := repo.Commit(t, "main", many(60))
	req := request(repo, repo.Commit(t, "main", change(many(60), set("d01/s1/f1", "", "other\n")), first))
	plain := fetch(t, req).Stats()
	for _, budgets := range []gitfetch.Budgets{{WireBytes: plain.WireBytes + 100}, {InflatedBytes: plain.InflatedBytes + 100}} {
		before := fetch(t, request(repo, first))
		req.Have, req.Budgets = have(t, before), budgets
		if err := os.Remove(filepath.Join(before.Root(), "d02/s2/f2")); err != nil {
			t.Fatal(err)
		}
		w := workspace(t)
		_, err := w.Fetch(t.Context(), req)
		budget, ok := errors.AsType[*gitfetch.BudgetError](err)
		if !ok || budget.Budget != gitfetch.BudgetWire && budget.Budget != gitfetch.BudgetInflated {
			t.Errorf("%+v: %v", budgets, err)
		}
	}
}

func TestOnAnotherFileSystemFilesAreCopied(t *testing.T) {
	t.Parallel()
	elsewhere, err := os.MkdirTemp("/dev/shm", "gitfetch-")
	if err != nil {
		t.Skip("no second file system")
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(elsewhere); err != nil {
			t.Error(err)
		}
	})
	repo := gitserver.New(t).Repo(t, "r.git")
	first := repo.Commit(t, "main", append(many(60), gitserver.Entry{Path: "run", Mode: "100755", Content: "x"}))
	req := request(repo, first)
	req.Dir = filepath.Join(elsewhere, "c")
	before, err := gitfetch.Fetch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if there, err := os.Stat(before.Root()); err != nil || sameDevice(here, there) {
		t.Skip("no second file system")
	}
	req.Dir, req.Have = "", have(t, before)
	if st := fetch(t, req).Stats(); !st.Incremental || st.CopiedFiles != 61 || st.LinkedFiles != 0 {
		t.Errorf("%+v", st)
	}
}
