//go:build unix

package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// The scratch directory:
//
//	lock            held while process directories are made or swept
//	proc-<random>/  one for each process, 0700
//	  lock          held for the life of the process
//	  groups        where its control groups are, on Linux
//	  stages        the processes whose ends are those of its runs, on Linux
//	  run-<name>/   one for each run that is not in namespaces
//	    program     the copy, read-only
//	    work/       the working directory
//
// A process directory whose lock is free belongs to nobody alive: the kernel
// releases the lock with its holder. Age says nothing and is not looked at.
const (
	lockFile     = "lock"
	procPrefix   = "proc-"
	runPrefix    = "run-"
	programFile  = "program"
	workDir      = "work"
	privateMode  = 0o700
	lockPause    = 10 * time.Millisecond
	maxLeftovers = 4096
)

// A workspace is this process's directory in the scratch directory.
type workspace struct {
	dir  string
	lock *os.File
	// runs counts them, for their names.
	runs atomic.Uint64
}

// openWorkspace sweeps what dead processes left and makes a directory for this
// one.
func openWorkspace(ctx context.Context, scratch string, system []string) (*workspace, Swept, error) {
	scratch, err := prepareScratch(scratch, system)
	if err != nil {
		return nil, Swept{}, err
	}
	// Under this lock no process directory is seen that is made but not yet
	// locked.
	guard, err := lockPath(ctx, filepath.Join(scratch, lockFile))
	if err != nil {
		return nil, Swept{}, fmt.Errorf("lock scratch: %w", err)
	}
	defer guard.Close()
	swept, err := sweep(scratch)
	if err != nil {
		return nil, swept, err
	}
	ws := &workspace{dir: filepath.Join(scratch, procPrefix+rand.Text())}
	if err := os.Mkdir(ws.dir, privateMode); err != nil {
		return nil, swept, fmt.Errorf("make process directory: %w", hostpath.Strip(err))
	}
	ws.lock, err = lockPath(ctx, filepath.Join(ws.dir, lockFile))
	if err != nil {
		return nil, swept, fmt.Errorf("lock process directory: %w", errors.Join(err, removeTree(ws.dir)))
	}
	return ws, swept, nil
}

// prepareScratch makes the directory where it is missing, and refuses one that
// others could write to or that programs could see.
func prepareScratch(scratch string, system []string) (string, error) {
	if err := os.MkdirAll(scratch, privateMode); err != nil {
		return "", fmt.Errorf("make scratch: %w", hostpath.Strip(err))
	}
	scratch, err := filepath.EvalSymlinks(scratch)
	if err != nil {
		return "", fmt.Errorf("find scratch: %w", hostpath.Strip(err))
	}
	info, err := os.Stat(scratch)
	if err != nil {
		return "", fmt.Errorf("look at scratch: %w", hostpath.Strip(err))
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("scratch belongs to another user: %w", ErrConfig)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("scratch can be written to by others (chmod 700): %w", ErrConfig)
	}
	for _, dir := range system {
		if real, err := filepath.EvalSymlinks(dir); err == nil && within(scratch, real) {
			return "", fmt.Errorf("scratch lies in a system directory, which programs can read: %w", ErrConfig)
		}
	}
	return scratch, nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// lockPath opens a lock file, made when missing and never unlinked by itself,
// and waits for the lock until ctx ends.
func lockPath(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, hostpath.Strip(err)
	}
	for {
		err := tryLock(f)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(lockPause):
		}
	}
}

func tryLock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sweep ends the runs of dead processes and removes what they left.
func sweep(scratch string) (Swept, error) {
	var swept Swept
	procs, err := list(scratch, procPrefix)
	if err != nil {
		return swept, fmt.Errorf("sweep scratch: %w", err)
	}
	for _, dir := range procs {
		dead, lock, err := ownerIsDead(dir)
		if err != nil {
			swept.Err = errors.Join(swept.Err, err)
			continue
		}
		if !dead {
			continue
		}
		err = swept.process(dir)
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// ownerIsDead tries the lock of a process directory, and keeps it if it is to
// be had. A directory without one was left by a process that died while it
// made it.
func ownerIsDead(dir string) (bool, *os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("open lock of process directory: %w", hostpath.Strip(err))
	}
	if err := tryLock(f); err != nil {
		err = errors.Join(err, f.Close())
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil, nil
		}
		return false, nil, fmt.Errorf("lock process directory: %w", err)
	}
	return true, f, nil
}

// process sweeps one process directory. Its error means that something may be
// alive.
func (s *Swept) process(dir string) error {
	runs, killed, err := endLeftovers(dir)
	s.Runs += runs
	s.Killed += killed
	if err != nil {
		return err
	}
	if err := removeTree(dir); err != nil {
		s.Err = errors.Join(s.Err, fmt.Errorf("remove process directory: %w", err))
	}
	return nil
}

// list returns the directories in dir whose names begin with prefix.
func list(dir, prefix string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, hostpath.Strip(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxLeftovers)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, hostpath.Strip(err)
	}
	slices.Sort(names)
	var out []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out, nil
}

func (w *workspace) close() error {
	err := removeTree(w.dir)
	// The lock goes last: until then nobody else sweeps here.
	return errors.Join(err, w.lock.Close())
}

// runName is a name for a run that no other of any process in the scratch
// directory has.
func (w *workspace) runName() string {
	return groupPrefix(w.dir) + strconv.FormatUint(w.runs.Add(1), 10)
}

// groupPrefix begins the names of all runs of the process directory dir.
func groupPrefix(dir string) string {
	return strings.TrimPrefix(filepath.Base(dir), procPrefix) + "-"
}

// A runDir is the private directory of a run that needs one on disk.
type runDir struct{ path string }

func (w *workspace) makeRun(name string) (*runDir, error) {
	d := &runDir{path: filepath.Join(w.dir, runPrefix+name)}
	if err := os.Mkdir(d.path, privateMode); err != nil {
		return nil, fmt.Errorf("make run directory: %w", hostpath.Strip(err))
	}
	return d, nil
}

func (d *runDir) program() string { return filepath.Join(d.path, programFile) }

func (d *runDir) work() string { return filepath.Join(d.path, workDir) }

// remove removes the run's directory whole.
func (d *runDir) remove() error {
	if err := removeTree(d.path); err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	return nil
}

// removeTree removes dir and all in it, also directories that a program has
// made inaccessible. No process of the run is alive, so nothing changes under
// it.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return hostpath.Strip(err)
	}
	// Directories only, and never through a link; each before it is read.
	walkErr := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return os.Chmod(path, privateMode)
	})
	if err := os.RemoveAll(dir); err != nil {
		return errors.Join(hostpath.Strip(err), hostpath.Strip(walkErr))
	}
	return nil
}
