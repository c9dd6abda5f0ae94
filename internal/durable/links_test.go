package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys := durable.OSLinks(dir)
	if err := fsys.Symlink("a/b", "link"); err != nil {
		if runtime.GOOS == "windows" {
			t.Skipf("links need a privilege here: %v", err)
		}
		t.Fatal(err)
	}
	if text, err := fsys.Readlink("link"); err != nil || text != "a/b" {
		t.Errorf("Readlink = %q, %v", text, err)
	}
	if err := fsys.Symlink("c", "link"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Symlink over a name = %v, want ErrExist", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if _, err := fsys.Readlink("file"); !errors.Is(err, durable.ErrNotLink) || strings.Contains(err.Error(), dir) {
		t.Errorf("Readlink of a file = %v, want ErrNotLink without the host's path", err)
	}
	if _, err := fsys.Readlink("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Readlink of nothing = %v, want ErrNotExist", err)
	}
	if _, err := fsys.OpenTree("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenTree of nothing = %v, want ErrNotExist", err)
	}
	if err := fsys.Symlink("x", "../out"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Symlink outside = %v, want ErrInvalid", err)
	}
}

func TestATreeOfTheSystemIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys := durable.OSLinks(dir)
	must(t, fsys.Mkdir("t", durable.DirPerm))
	tree, err := fsys.OpenTree("t")
	must(t, err)
	must(t, fsys.Mkdir("t/sub", durable.DirPerm))
	must(t, durable.WriteFile(fsys, "t/sub/a", []byte("a")))
	must(t, tree.Sync())
	must(t, tree.Close())
	if err := tree.Sync(); err == nil {
		t.Error("a closed tree was synced")
	}
}
