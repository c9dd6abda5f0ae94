//go:build unix

package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/runner/check"
)

func openScratch(t *testing.T, scratch string) (*workspace, Swept) {
	t.Helper()
	ws, swept, err := openWorkspace(t.Context(), scratch, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ws, swept
}

func TestWorkspaceSweepsTheDeadAndSparesTheLiving(t *testing.T) {
	t.Parallel()
	scratch := filepath.Join(t.TempDir(), "scratch")
	living, _ := openScratch(t, scratch)
	dead, _ := openScratch(t, scratch)
	run, err := dead.makeRun(dead.runName())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(run.path, "work", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A process that ends lets go of its lock and of nothing else.
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	// One that died before it had a lock.
	unlocked := filepath.Join(scratch, "proc-unlocked")
	if err := os.Mkdir(unlocked, 0o700); err != nil {
		t.Fatal(err)
	}
	// What is not ours to sweep.
	foreign := filepath.Join(scratch, "other")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	next, swept := openScratch(t, scratch)
	if swept.Err != nil || swept.Killed != 0 {
		t.Errorf("swept %+v", swept)
	}
	for path, want := range map[string]bool{living.dir: true, next.dir: true, foreign: true, dead.dir: false, unlocked: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
	if err := errors.Join(living.close(), next.close()); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(scratch, "proc-*")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestScratchMustBeOursAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) (scratch string, system []string)
	}{
		"writable by others": {func(t *testing.T, dir string) (string, []string) {
			// The mask of the process must not take the bit away.
			if err := os.Chmod(dir, 0o722); err != nil {
				t.Fatal(err)
			}
			return dir, nil
		}},
		"in a system directory": {func(_ *testing.T, dir string) (string, []string) {
			return filepath.Join(dir, "scratch"), []string{"/no/such", dir}
		}},
		"through a link into one": {func(t *testing.T, dir string) (string, []string) {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(link, "scratch"), []string{dir}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scratch, system := c.prepare(t, t.TempDir())
			if _, _, err := openWorkspace(t.Context(), scratch, system); !errors.Is(err, ErrConfig) {
				t.Errorf("err = %v, want ErrConfig", err)
			}
		})
	}
}

func TestScratchThatIsAFileIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openWorkspace(t.Context(), file, nil); err == nil {
		t.Error("opened")
	}
}

func TestWaitForTheScratchLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	scratch := filepath.Join(t.TempDir(), "scratch")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := lockPath(t.Context(), filepath.Join(scratch, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := openWorkspace(ctx, scratch, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the context's", err)
	}
}

func TestAlteredProgramIsFound(t *testing.T) {
	t.Parallel()
	bytes := []byte("#!/bin/sh\n")
	for name, alter := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"bytes": func(path string) error {
			return errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, []byte("#!/bin/rc\n"), 0o700))
		},
		"longer": func(path string) error {
			return errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, append(bytes, '\n'), 0o700))
		},
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", bytes, 0o700), os.Rename(path+"2", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "p"), bytes, 0o400); err != nil {
				t.Fatal(err)
			}
			job := testJob(nil)
			job.Action = rooted{still{job.ActionCommit}, dir}
			job.ProgramSHA256, job.Limits = check.DigestOf(bytes), DefaultLimits()
			loaded, err := loadPlain(t.Context(), &job, filepath.Join(dir, "copy"))
			if err != nil {
				t.Fatal(err)
			}
			if err := alter(loaded.path); err != nil {
				t.Fatal(err)
			}
			want := ErrTampered
			if name == "nothing" {
				want = nil
			}
			if err := loaded.unaltered(); !errors.Is(err, want) {
				t.Errorf("err = %v, want %v", err, want)
			}
		})
	}
}

type rooted struct {
	still
	root string
}

func (r rooted) Root() string { return r.root }
