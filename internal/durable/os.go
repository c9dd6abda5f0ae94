package durable

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// OS returns the tree below dir of the real file system. dir need not exist
// until it is used.
func OS(dir string) FS { return &osFS{dir: dir} }

type osFS struct {
	dir string

	// mount is what the mount table says of dir, looked up once: it is asked
	// for at every sync.
	mountOnce sync.Once
	mount     mount
}

// A mount is what can be told of a file system by its mount alone.
type mount struct {
	durability Durability
	note       string
}

func (o *osFS) at(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(o.dir, filepath.FromSlash(name)), nil
}

func (o *osFS) at2(op, a, b string) (string, string, error) {
	a, err := o.at(op, a)
	if err != nil {
		return "", "", err
	}
	b, err = o.at(op, b)
	return a, b, err
}

// notSelf refuses the tree itself where only names in it make sense.
func notSelf(op string, names ...string) error {
	if slices.Contains(names, ".") {
		return &fs.PathError{Op: op, Path: ".", Err: fs.ErrInvalid}
	}
	return nil
}

// OpenFile implements [FS] by open(2), always with O_CLOEXEC: a child must
// not keep the lock of a dead parent.
func (o *osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	full, err := o.at("open", name)
	if err != nil {
		return nil, err
	}
	if flag&os.O_APPEND != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.OpenFile(full, flag, perm)
	if err != nil {
		return nil, opError("open", name, err)
	}
	return &osFile{f: f, name: name, full: full, gate: make(chan struct{}, 1)}, nil
}

// Mkdir implements [FS] by mkdir(2).
func (o *osFS) Mkdir(name string, perm fs.FileMode) error {
	full, err := o.at("mkdir", name)
	if err != nil {
		return err
	}
	return opError("mkdir", name, os.Mkdir(full, perm))
}

// Rename implements [FS] by rename(2).
func (o *osFS) Rename(oldName, newName string) error {
	from, to, err := o.at2("rename", oldName, newName)
	if err := errors.Join(err, notSelf("rename", oldName, newName)); err != nil {
		return err
	}
	return opError("rename", newName, linkCause(os.Rename(from, to)))
}

// Link implements [FS] by link(2).
func (o *osFS) Link(oldName, newName string) error {
	from, to, err := o.at2("link", oldName, newName)
	if err := errors.Join(err, notSelf("link", oldName, newName)); err != nil {
		return err
	}
	return opError("link", newName, linkCause(os.Link(from, to)))
}

// linkCause takes the host's paths off the errors of calls with two names.
func linkCause(err error) error {
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

// Remove implements [FS] by unlink(2) and rmdir(2).
func (o *osFS) Remove(name string) error {
	full, err := o.at("remove", name)
	if err := errors.Join(err, notSelf("remove", name)); err != nil {
		return err
	}
	return opError("remove", name, os.Remove(full))
}

// ReadDir implements [FS]. A name that vanishes while the directory is read
// is left out.
func (o *osFS) ReadDir(name string) ([]Info, error) {
	full, err := o.at("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return nil, opError("readdir", name, err)
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, opError("stat", e.Name(), err)
		}
		infos = append(infos, infoOf(fi))
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// Stat implements [FS] by stat(2).
func (o *osFS) Stat(name string) (Info, error) {
	full, err := o.at("stat", name)
	if err != nil {
		return Info{}, err
	}
	fi, err := os.Stat(full)
	if err != nil {
		return Info{}, opError("stat", name, err)
	}
	return infoOf(fi), nil
}

func infoOf(fi fs.FileInfo) Info {
	info := Info{Name: fi.Name(), Dir: fi.IsDir()}
	if !info.Dir {
		info.Size = fi.Size()
	}
	return info
}

// SyncDir implements [FS] by fsync(2) of the directory.
func (o *osFS) SyncDir(name string) error {
	full, err := o.at("syncdir", name)
	if err != nil {
		return err
	}
	return opError("syncdir", name, syncDir(full))
}

// Volume implements [FS] by statfs(2).
func (o *osFS) Volume() (Volume, error) {
	v, err := volumeOf(o.dir)
	if err != nil {
		return Volume{}, opError("statfs", ".", err)
	}
	if v.Durability == 0 {
		o.mountOnce.Do(func() { o.mount = mountOf(o.dir) })
		v.Durability, v.Note = o.mount.durability, o.mount.note
	}
	return v, nil
}

type osFile struct {
	f    *os.File
	name string // as the caller gave it
	full string // on the host

	// gate is full while the lock is held or waited for: flock(2) belongs to
	// the open file, so two users of one File would not exclude each other.
	gate   chan struct{}
	locked atomic.Bool
}

// ReadAt implements [io.ReaderAt] by pread(2).
func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = opError("read", f.name, err)
	}
	return n, err
}

// WriteAt implements [io.WriterAt] by pwrite(2).
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, opError("write", f.name, err)
}

// WriteVecAt implements [File] by pwritev(2) where there is one.
func (f *osFile) WriteVecAt(parts [][]byte, off int64) (int, error) {
	n, err := writeVec(f.f, parts, off)
	return n, opError("write", f.name, err)
}

// Allocate implements [File] by fallocate(2) where file and system can, and
// otherwise by writing zeros.
func (f *osFile) Allocate(size int64) error {
	old, err := f.Size()
	if err != nil {
		return err
	}
	if old >= size {
		return nil
	}
	err = allocate(f.f, old, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return zeroRange(f, old, size)
	}
	return opError("allocate", f.name, err)
}

// Truncate implements [File] by ftruncate(2).
func (f *osFile) Truncate(size int64) error {
	return opError("truncate", f.name, f.f.Truncate(size))
}

// Sync implements [File] by fdatasync(2), which also syncs the length; by
// F_FULLFSYNC on macOS, whose fsync(2) leaves bytes in the drive's cache.
func (f *osFile) Sync() error { return opError("sync", f.name, syncData(f.f)) }

// probe implements [prober].
func (f *osFile) probe() error { return opError("probe", f.name, probe(f.f)) }

// Size implements [File] by fstat(2).
func (f *osFile) Size() (int64, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return 0, opError("stat", f.name, err)
	}
	return fi.Size(), nil
}

// Lock implements [File] by flock(2).
func (f *osFile) Lock(ctx context.Context, mode LockMode) error {
	select {
	case f.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	taken, err := f.flockNow(mode)
	if taken || err != nil {
		return err
	}
	if ctx.Done() == nil {
		return f.flockWait(mode)
	}
	return f.flockUntil(ctx, mode)
}

// TryLock implements [File] by flock(2) with LOCK_NB.
func (f *osFile) TryLock(mode LockMode) (bool, error) {
	select {
	case f.gate <- struct{}{}:
	default:
		return false, nil
	}
	taken, err := f.flockNow(mode)
	if !taken && err == nil {
		<-f.gate
	}
	return taken, err
}

// flockNow tries once. On an error it opens the gate again; when the lock is
// somebody else's it does not.
func (f *osFile) flockNow(mode LockMode) (bool, error) {
	taken, err := flock(f.f, mode, false)
	if err != nil {
		<-f.gate
		return false, opError("lock", f.name, err)
	}
	if !taken {
		return false, nil
	}
	err = f.confirmLock()
	return err == nil, err
}

// flockWait waits in the kernel.
func (f *osFile) flockWait(mode LockMode) error {
	if _, err := flock(f.f, mode, true); err != nil {
		<-f.gate
		return opError("lock", f.name, err)
	}
	return f.confirmLock()
}

// flockUntil waits in the kernel on a goroutine of its own. A wait that ctx
// gave up can't be broken off there: the goroutine gives the lock back the
// moment it gets it.
func (f *osFile) flockUntil(ctx context.Context, mode LockMode) error {
	var settled atomic.Bool // by the wait's end, or by ctx's
	done := make(chan error, 1)
	go func() {
		_, err := flock(f.f, mode, true)
		if settled.CompareAndSwap(false, true) {
			done <- err
			return
		}
		if err == nil {
			// There is nobody left to tell: closing the file frees the
			// lock as well.
			_ = funlock(f.f)
		}
		<-f.gate
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		err = <-done
	}
	if err != nil {
		<-f.gate
		return opError("lock", f.name, err)
	}
	return f.confirmLock()
}

// confirmLock checks that what was locked is what others will lock: the path must
// still name this file.
func (f *osFile) confirmLock() error {
	f.locked.Store(true)
	here, err := f.f.Stat()
	if err != nil {
		return errors.Join(opError("lock", f.name, err), f.Unlock())
	}
	there, err := os.Stat(f.full)
	if err == nil && os.SameFile(here, there) {
		return nil
	}
	return errors.Join(opError("lock", f.name, ErrLockReplaced), f.Unlock())
}

// Unlock implements [File].
func (f *osFile) Unlock() error {
	if !f.locked.CompareAndSwap(true, false) {
		return opError("unlock", f.name, ErrNotLocked)
	}
	err := funlock(f.f)
	<-f.gate
	return opError("unlock", f.name, err)
}

// Close implements [File]. It frees the lock by name: a child that is being
// started at this moment has a copy of the descriptor until its exec, and
// would keep the lock for as long.
func (f *osFile) Close() error {
	var err error
	if f.locked.Load() {
		err = f.Unlock()
	}
	return errors.Join(err, opError("close", f.name, f.f.Close()))
}
