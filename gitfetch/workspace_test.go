package gitfetch_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
)

// childDir, where set, makes this binary a process that opens a workspace
// there, says so, and waits to be killed.
const childDir = "GITFETCH_TEST_WORKSPACE"

func runChild(dir string) error {
	w, err := gitfetch.OpenWorkspace(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	fmt.Println("open")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// own returns the directory that a single living process has in dir.
func own(t *testing.T, dir string) string {
	t.Helper()
	all := names(t, dir)
	if len(all) != 1 || !strings.HasPrefix(all[0], ".gitfetch-") {
		t.Fatalf("in the workspace: %q", all)
	}
	return filepath.Join(dir, all[0])
}

func TestWhatAKilledProcessLeftIsSweptAndWhatALivingOneHasIsNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	left := own(t, dir)
	deep := filepath.Join(left, "checkout", "a", "b")
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "f"), []byte("x"), 0o444), os.Chmod(deep, 0o500), os.Chmod(filepath.Dir(deep), 0)); err != nil {
		t.Fatal(err)
	}

	w, err := gitfetch.OpenWorkspace(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := w.Swept(); err != nil || s != (gitfetch.Sweeping{Alive: 1}) {
		t.Errorf("while it lives: %+v, %v", s, err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("while it lives: %v", err)
	}

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It was killed; that it did not end well is what this is about.
	_ = child.Wait()
	if s, err := gitfetch.Sweep(dir); err != nil || s != (gitfetch.Sweeping{Removed: 1, Alive: 1}) {
		t.Errorf("after its death: %+v, %v", s, err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its death: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if rest := names(t, dir); len(rest) != 0 {
		t.Errorf("after Close: %q", rest)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestSweepTouchesNothingOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := strings.Repeat("0123456789abcdef", 2)
	victim := filepath.Join(dir, "victim")
	mk := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(mk(victim), "owner"))
	write(filepath.Join(mk(filepath.Join(victim, "sub")), "f"))
	write(filepath.Join(mk(filepath.Join(dir, ".gitfetch-short")), "owner"))
	write(filepath.Join(mk(filepath.Join(dir, ".gitfetch-config")), "owner"))
	write(filepath.Join(dir, ".gitfetch-"+id[:31]+"0"))
	if err := os.Symlink("victim", filepath.Join(dir, ".gitfetch-"+id)); err != nil {
		t.Fatal(err)
	}
	// A dead one that holds a link to the victim.
	dead := mk(filepath.Join(dir, ".gitfetch-"+strings.Repeat("d", 32)))
	write(filepath.Join(dead, "owner"))
	if err := os.Symlink("../victim", filepath.Join(dead, "checkout")); err != nil {
		t.Fatal(err)
	}
	// One that was cut off before it had its file, and one that has
	// something in it without.
	mk(filepath.Join(dir, ".gitfetch-"+strings.Repeat("e", 32)))
	odd := mk(filepath.Join(dir, ".gitfetch-"+strings.Repeat("f", 32)))
	write(filepath.Join(odd, "something"))

	before := names(t, dir)
	s, err := gitfetch.Sweep(dir)
	if s.Removed != 2 || !errors.Is(err, gitfetch.ErrCleanup) {
		t.Errorf("swept %+v, %v", s, err)
	}
	if strings.Contains(err.Error(), dir) {
		t.Errorf("the host's path shows in %q", err)
	}
	want := slices.DeleteFunc(before, func(n string) bool {
		return strings.HasPrefix(n, ".gitfetch-dddd") || strings.HasPrefix(n, ".gitfetch-eeee")
	})
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	for _, path := range []string{"owner", "sub/f"} {
		if b, err := os.ReadFile(filepath.Join(victim, path)); err != nil || string(b) != "precious" {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	// The odd one does not keep a workspace from opening.
	w, err := gitfetch.OpenWorkspace(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Swept(); !errors.Is(err, gitfetch.ErrCleanup) {
		t.Errorf("Swept: %v, want %v", err, gitfetch.ErrCleanup)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestSweepOfNothing(t *testing.T) {
	t.Parallel()
	if s, err := gitfetch.Sweep(filepath.Join(t.TempDir(), "absent")); err != nil || s != (gitfetch.Sweeping{}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := gitfetch.OpenWorkspace(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenWorkspace: %v, want %v", err, fs.ErrNotExist)
	}
}

func TestManyWorkspacesOpenAndCloseInOneDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	errs := make(chan error)
	for range 8 {
		go func() {
			var all error
			for range 20 {
				w, err := gitfetch.OpenWorkspace(dir)
				if err != nil {
					all = errors.Join(all, err)
					continue
				}
				_, swept := w.Swept()
				all = errors.Join(all, swept, w.Close())
			}
			errs <- all
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if rest := names(t, dir); len(rest) != 0 {
		t.Errorf("left %q", rest)
	}
}

func TestClosingAWorkspaceTakesItsCheckoutsAlong(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	dir := t.TempDir()
	w, err := gitfetch.OpenWorkspace(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Fetch(t.Context(), request(repo, repo.Commit(t, "main", sample())))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if rest := names(t, dir); len(rest) != 0 {
		t.Errorf("left %q", rest)
	}
	if err := c.Remove(); err != nil {
		t.Errorf("Remove after Close: %v", err)
	}
}
