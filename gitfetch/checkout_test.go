package gitfetch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
)

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
			if !ok || altered.Path != tt.path || altered.What != tt.what || !errors.Is(err, gitfetch.ErrAltered) || fencepost.ReasonOf(err) != fencepost.ReasonTampered {
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
