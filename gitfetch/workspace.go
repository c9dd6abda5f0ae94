package gitfetch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/internal/durable"
)

const (
	ownerPrefix = ".gitfetch-"
	ownerFile   = "owner"
	randomBytes = 16
	lockTries   = 8
)

// A Workspace is a private directory in which one process makes checkouts.
// It is locked for as long as it is open, so that whatever a killed process
// left can be told from what a living one uses, without looking at its age.
// Safe for concurrent use.
//
// In the directory that was opened it looks like this:
//
//	.gitfetch-<random>/         one for each living process, mode 0700
//	    owner                   held locked; empty
//	    <random>/               one for each checkout, or one being written
type Workspace struct {
	base string // absolute
	name string // of the own directory in base

	swept     Sweeping
	leftovers error

	users  sync.WaitGroup // fetches under way
	mu     sync.Mutex
	closed bool         // guarded by mu: nothing more enters
	lock   durable.File // guarded by mu: nil once all is removed
}

// A Sweeping says what [Sweep] found.
type Sweeping struct {
	// Removed counts directories of dead processes that are gone now.
	Removed int
	// Alive counts directories whose process lives.
	Alive int
	// Foreign counts directories that this user may not touch.
	Foreign int
}

// OpenWorkspace sweeps dir, which must exist, as [Sweep] does, and makes a
// new private directory in it. What could not be swept does not keep the
// workspace from opening: see [Workspace.Swept].
func OpenWorkspace(dir string) (*Workspace, error) {
	const op = "gitfetch.open_workspace"
	base, err := filepath.Abs(dir)
	if err != nil {
		return nil, sealed(op, host("workspace", err))
	}
	swept, leftovers := Sweep(base)
	w, err := own(base)
	if err != nil {
		return nil, sealed(op, errors.Join(err, leftovers))
	}
	w.swept, w.leftovers = swept, leftovers
	return w, nil
}

// own makes and locks a new directory. A sweeper that looks between the
// steps takes it for a leftover and removes it; then the next name is tried.
func own(base string) (*Workspace, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, host("open workspace", err)
	}
	w, err := tryOwn(base, root)
	for tries := 1; errors.Is(err, errSwept) && tries < lockTries; tries++ {
		w, err = tryOwn(base, root)
	}
	if err = errors.Join(err, root.Close()); err == nil {
		return w, nil
	}
	if w != nil {
		err = errors.Join(err, w.Close())
	}
	return nil, host("make workspace", err)
}

// tryOwn makes one attempt, and leaves nothing behind where it fails.
func tryOwn(base string, root *os.Root) (*Workspace, error) {
	name := ownerPrefix + randomName()
	if err := root.Mkdir(name, dirPerm); err != nil {
		return nil, err
	}
	spread(root, name)
	lock, err := durable.OS(base).OpenFile(path.Join(name, ownerFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errSwept
	}
	if err != nil {
		return nil, errors.Join(err, removeIn(root, name))
	}
	taken, err := lock.TryLock(durable.Exclusive)
	switch {
	case errors.Is(err, durable.ErrLockReplaced), err == nil && !taken:
		// The sweeper removes what it found.
		return nil, errors.Join(errSwept, lock.Close())
	case err != nil:
		return nil, errors.Join(err, lock.Close(), removeIn(root, name))
	}
	return &Workspace{base: base, name: name, lock: lock}, nil
}

var errSwept = errors.New("swept while it was made")

func randomName() string {
	var b [randomBytes]byte
	// It never fails: rand.Read ends the process first.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Swept returns what [Sweep] returned when the workspace was opened.
func (w *Workspace) Swept() (Sweeping, error) { return w.swept, w.leftovers }

// Fetch makes a checkout of one commit in a new directory of the workspace.
// It is there whole when Fetch returns, or not at all. The request's Dir must
// be empty. Errors are described at [ErrRequest] and what follows it.
//
// DESIGN §6.
func (w *Workspace) Fetch(ctx context.Context, req Request) (*Checkout, error) {
	const op = "gitfetch.fetch"
	t, err := req.checkFetch()
	if err == nil && req.Dir != "" {
		err = fmt.Errorf("%w: dir: a workspace chooses its own", ErrRequest)
	}
	if err == nil {
		err = w.enter()
	}
	if err != nil {
		return nil, sealed(op, err)
	}
	defer w.users.Done()
	c, err := w.fetch(ctx, t, path.Join(w.name, randomName()))
	return c, sealed(op, err)
}

func (w *Workspace) enter() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%w: workspace is closed", ErrRequest)
	}
	w.users.Add(1)
	return nil
}

// Close waits for fetches under way, removes the directory with every
// checkout that is still in it, and frees the lock. An error matches
// [ErrCleanup] and is one to alert on; Close may then be called again.
func (w *Workspace) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.users.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lock == nil {
		return nil
	}
	root, err := os.OpenRoot(w.base)
	if err != nil {
		return cleanupError(err)
	}
	err = removeOwned(root, w.name, w.lock)
	if err == nil {
		w.lock = nil
	}
	return cleanupError(errors.Join(err, root.Close()))
}

// removeOwned removes a workspace whose lock the caller holds, the file that
// bears the lock last: as long as there is anything else, it can be told
// whether its owner lives. The lock is closed only if all went well.
func removeOwned(root *os.Root, name string, lock durable.File) error {
	dir, err := root.OpenRoot(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return lock.Close()
		}
		return err
	}
	err = removeContents(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	if err := root.Remove(path.Join(name, ownerFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = lock.Close()
	// A sweeper may have found the directory empty and removed it.
	if gone := root.Remove(name); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// removeContents removes all but the owner file.
func removeContents(dir *os.Root) error {
	names, err := list(dir, func(e fs.DirEntry) bool { return e.Name() != ownerFile })
	for _, name := range names {
		err = errors.Join(err, removeIn(dir, name))
	}
	return err
}

// list returns the names in a directory that keep wants.
func list(dir *os.Root, keep func(fs.DirEntry) bool) (names []string, err error) {
	const some = 256
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	for err == nil {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(some)
		for _, e := range entries {
			if keep(e) {
				names = append(names, e.Name())
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, errors.Join(err, f.Close())
}

// Sweep removes from dir the workspaces whose processes are gone, as the lock
// of each tells. A directory that is not there has nothing to sweep. An error
// matches [ErrCleanup] and is one to alert on; the counts are right also
// then.
func Sweep(dir string) (Sweeping, error) {
	var s Sweeping
	base, err := filepath.Abs(dir)
	if err != nil {
		return s, cleanupError(err)
	}
	root, err := os.OpenRoot(base)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, cleanupError(err)
	}
	names, err := list(root, func(e fs.DirEntry) bool {
		id, ok := strings.CutPrefix(e.Name(), ownerPrefix)
		return ok && len(id) == hex.EncodedLen(randomBytes) && e.IsDir()
	})
	for _, name := range names {
		err = errors.Join(err, s.one(base, root, name))
	}
	return s, cleanupError(errors.Join(err, root.Close()))
}

// one looks at one workspace, and again where it changes under its eyes.
func (s *Sweeping) one(base string, root *os.Root, name string) error {
	var err error
	for range lockTries {
		var info fs.FileInfo
		info, err = root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.IsDir() || !ownedByUs(info):
			s.Foreign++
			return nil
		}
		lock, openErr := durable.OS(base).OpenFile(path.Join(name, ownerFile), os.O_RDWR, 0)
		switch {
		case openErr == nil:
			return s.owned(root, name, lock)
		case !errors.Is(openErr, fs.ErrNotExist):
			return openErr
		}
		// It is just being made, or removed, or was cut off in either:
		// without its file it is empty, and whoever makes it will notice.
		if err = root.Remove(name); err == nil {
			s.Removed++
			return nil
		}
	}
	return err
}

// owned removes a workspace if its lock is free.
func (s *Sweeping) owned(root *os.Root, name string, lock durable.File) error {
	taken, err := lock.TryLock(durable.Exclusive)
	switch {
	case errors.Is(err, durable.ErrLockReplaced):
		// Somebody else has just removed it.
		return lock.Close()
	case err != nil:
		return errors.Join(err, lock.Close())
	case !taken:
		s.Alive++
		return lock.Close()
	}
	if err := removeOwned(root, name, lock); err != nil {
		return errors.Join(err, lock.Close())
	}
	s.Removed++
	return nil
}

// adopt moves a finished tree from the workspace to its place, and makes a
// checkout of it.
func (w *Workspace) adopt(t *target, p *plan, made *writer, final string, stats Stats) (*Checkout, error) {
	fsys := durable.OS(w.base)
	if made.tree.sync != nil {
		if err := made.tree.sync.Sync(); err != nil {
			return nil, host("sync directory", err)
		}
	}
	device := made.tree.device
	if err := made.tree.close(); err != nil {
		return nil, err
	}
	if _, err := fsys.Stat(final); err == nil {
		return nil, ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, host("look at directory", err)
	}
	if err := fsys.Rename(made.tree.name, final); err != nil {
		return nil, host("rename directory", err)
	}
	c := &Checkout{
		repository: t.URL,
		commit:     t.Commit,
		content:    p.content,
		parents:    p.parents,
		nodes:      p.nodes,
		policy:     t.Policy,
		stats:      stats,
		synced:     t.Sync == SyncAll,
		device:     device,
		stamps:     made.stamps,
		base:       w.base,
		name:       final,
	}
	if t.Sync == SyncAll {
		if err := fsys.SyncDir(path.Dir(final)); err != nil {
			return nil, errors.Join(host("sync directory", err), c.Remove())
		}
	}
	return c, nil
}
