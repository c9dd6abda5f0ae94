package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// Names that a [Root] keeps in its directory.
const (
	// HealthName is the file whose first byte is the poison mark.
	HealthName = "health"
	// PoisonName is the file that tells people why.
	PoisonName = "POISON"
)

const (
	healthSize = 512 // bytes: one sector, so that it is never torn
	healthy    = 0   // the mark's byte while all is well
	poisoned   = 1
)

// A Root is an [FS] in which a failed sync is final (DESIGN §2, invariant 8).
// Every change to it or to a file that was opened through it fails with
// [ErrPoisoned] from the moment a Sync or SyncDir of it failed, in this
// process or in another; reading goes on. It is safe for concurrent use.
type Root struct {
	fsys     FS
	health   File
	poison   atomic.Pointer[PoisonedError]
	poisonMu sync.Mutex // one mark is made
	sectors  sync.Pool  // to read the mark into: it is read at every sync
}

// OpenRoot opens the root of fsys, which must exist. It makes the health file
// where there is none, durably. A root that is poisoned already is
// [ErrPoisoned]. Close it when the last file is closed.
func OpenRoot(fsys FS) (*Root, error) {
	if err := makeHealth(fsys); err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	health, err := fsys.OpenFile(HealthName, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	r := &Root{
		fsys: fsys, health: health,
		sectors: sync.Pool{New: func() any { return new([healthSize]byte) }},
	}
	err = r.look()
	if _, missing := fsys.Stat(PoisonName); missing == nil && err == nil {
		err = r.set(&PoisonedError{Op: "mark", Err: fmt.Errorf("a sync failed: see %s", PoisonName)})
	}
	if err != nil {
		return nil, errors.Join(err, health.Close())
	}
	return r, nil
}

// makeHealth makes the health file unless it is there. Two processes that
// both make it write the same bytes.
func makeHealth(fsys FS) error {
	info, err := fsys.Stat(HealthName)
	if err == nil && info.Size == healthSize {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.OpenFile(HealthName, os.O_RDWR|os.O_CREATE, FilePerm)
	if err != nil {
		return err
	}
	// Zeros from the end on, so that a mark made meanwhile stays.
	if err := errors.Join(ZeroFill(f, healthSize), f.Close()); err != nil {
		return err
	}
	return fsys.SyncDir(".")
}

// Err returns nil, or the [PoisonedError] for which the root takes no change.
// It looks at memory alone.
func (r *Root) Err() error {
	if p := r.poison.Load(); p != nil {
		return p
	}
	return nil
}

// Check is Err after a look at the mark of other processes and at the file
// system. It costs two system calls.
func (r *Root) Check() error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.look()
}

// look reads the mark and asks whether the kernel has made the file system
// read-only, which ext4 does when its journal fails, and after which a sync
// in another process may succeed.
func (r *Root) look() error {
	b := r.sectors.Get().(*[healthSize]byte)
	defer r.sectors.Put(b)
	n, err := r.health.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return r.Poison("read mark", err)
	}
	if n > 0 && b[0] != healthy {
		text := string(bytes.TrimRight(b[1:n], "\x00"))
		return r.set(&PoisonedError{Op: "mark", Err: fmt.Errorf("a sync failed: %s", text)})
	}
	v, err := r.fsys.Volume()
	if err != nil {
		return r.Poison("statfs", err)
	}
	if v.ReadOnly {
		return r.Poison("statfs", ErrReadOnly)
	}
	return nil
}

// set keeps the first cause.
func (r *Root) set(p *PoisonedError) error {
	r.poison.CompareAndSwap(nil, p)
	return r.poison.Load()
}

// Poison makes the failure of op final for this root and marks it for other
// processes. It returns the [PoisonedError] that is in force, which names the
// first cause. The mark is not synced: after a failed sync no sync means
// anything, and a restarted machine reads from the disk itself.
func (r *Root) Poison(op string, cause error) error {
	r.poisonMu.Lock()
	defer r.poisonMu.Unlock()
	if p := r.poison.Load(); p != nil {
		return p
	}
	text := fmt.Sprintf("%s: %v\n", op, cause)
	p := &PoisonedError{Op: op, Err: cause, Mark: r.mark(text)}
	return r.set(p)
}

// mark succeeds if one of the two marks could be set.
func (r *Root) mark(text string) error {
	sector := make([]byte, healthSize)
	sector[0] = poisoned
	copy(sector[1:], text)
	_, byteErr := r.health.WriteAt(sector, 0)

	f, err := r.fsys.OpenFile(PoisonName, os.O_WRONLY|os.O_CREATE, FilePerm)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
		err = errors.Join(err, f.Close())
	}
	if byteErr == nil || err == nil {
		return nil
	}
	return errors.Join(byteErr, err)
}

// ClearPoison takes the marks of a failed sync away. Only what is read from
// the disk itself counts, so it is for after a restart of the machine or a
// new mount, when the stored bytes have been verified, and while no process
// has the root open.
func ClearPoison(fsys FS) error {
	err := ignoreMissing(fsys.Remove(PoisonName))
	err = errors.Join(err, ignoreMissing(fsys.Remove(HealthName)))
	if err != nil {
		return fmt.Errorf("clear poison: %w", err)
	}
	return fsys.SyncDir(".")
}

// Close closes what the root itself holds open.
func (r *Root) Close() error { return r.health.Close() }

// OpenFile implements [FS]. Opening for reading works on a poisoned root.
func (r *Root) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := r.Err(); err != nil {
			return nil, err
		}
	}
	f, err := r.fsys.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &rootFile{File: f, root: r, name: name}, nil
}

// Mkdir implements [FS].
func (r *Root) Mkdir(name string, perm fs.FileMode) error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.fsys.Mkdir(name, perm)
}

// Rename implements [FS].
func (r *Root) Rename(oldName, newName string) error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.fsys.Rename(oldName, newName)
}

// Link implements [FS].
func (r *Root) Link(oldName, newName string) error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.fsys.Link(oldName, newName)
}

// Remove implements [FS].
func (r *Root) Remove(name string) error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.fsys.Remove(name)
}

// ReadDir implements [FS].
func (r *Root) ReadDir(name string) ([]Info, error) { return r.fsys.ReadDir(name) }

// Stat implements [FS].
func (r *Root) Stat(name string) (Info, error) { return r.fsys.Stat(name) }

// Volume implements [FS].
func (r *Root) Volume() (Volume, error) { return r.fsys.Volume() }

// SyncDir implements [FS]; a failure is final.
func (r *Root) SyncDir(name string) error {
	return r.sync("sync directory "+name, func() error { return r.fsys.SyncDir(name) })
}

// sync runs one sync between two looks at the poison, so that a nil error
// means: nobody's sync had failed when this one ended.
func (r *Root) sync(op string, f func() error) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := f(); err != nil {
		if errors.Is(err, ErrSyncNotTried) || errors.Is(err, fs.ErrClosed) {
			return err
		}
		return r.Poison(op, err)
	}
	// ext4 was seen to answer a sync with success whose transaction had just
	// failed, and on Linux 6.18 statfs(2) did not say so: the next change does.
	if p, ok := r.health.(prober); ok {
		if err := p.probe(); err != nil && !errors.Is(err, ErrNoSpace) {
			return r.Poison("change after "+op, err)
		}
	}
	return r.Check()
}

// A prober is a file with which one can find out whether its file system
// still takes changes.
type prober interface{ probe() error }

// rootFile is a file of a [Root].
type rootFile struct {
	File
	root *Root
	name string
}

// WriteAt implements [File].
func (f *rootFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.root.Err(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// WriteVecAt implements [File].
func (f *rootFile) WriteVecAt(parts [][]byte, off int64) (int, error) {
	if err := f.root.Err(); err != nil {
		return 0, err
	}
	return f.File.WriteVecAt(parts, off)
}

// Allocate implements [File].
func (f *rootFile) Allocate(size int64) error {
	if err := f.root.Err(); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

// Truncate implements [File].
func (f *rootFile) Truncate(size int64) error {
	if err := f.root.Err(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Sync implements [File]; a failure is final for the whole root.
func (f *rootFile) Sync() error {
	return f.root.sync("sync "+f.name, f.File.Sync)
}

// Lock implements [File]. Locks are no change: they work on a poisoned root.
func (f *rootFile) Lock(ctx context.Context, mode LockMode) error { return f.File.Lock(ctx, mode) }
