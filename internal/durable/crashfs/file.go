package crashfs

import (
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/fencepost/fencepost/internal/durable"
)

// A lock is the flock of one inode, guarded by the disk's lock.
type lock struct {
	holders map[*file]durable.LockMode
	// freed is closed and replaced when a holder leaves.
	freed chan struct{}
}

func (l *lock) changed() chan struct{} {
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// try takes the lock for f unless another holder excludes it. A file that
// holds it already has to unlock first.
func (l *lock) try(f *file, mode durable.LockMode) bool {
	if _, held := l.holders[f]; held {
		return false
	}
	for _, m := range l.holders {
		if m == durable.Exclusive || mode == durable.Exclusive {
			return false
		}
	}
	if l.holders == nil {
		l.holders = map[*file]durable.LockMode{}
	}
	l.holders[f] = mode
	return true
}

func (l *lock) free(f *file) bool {
	if _, held := l.holders[f]; !held {
		return false
	}
	delete(l.holders, f)
	close(l.changed())
	l.freed = nil
	return true
}

// A file is an open file of one process.
type file struct {
	p    *Process
	n    *inode
	name string
	flag int
	// closed is closed by Close, and when the process ends.
	closed chan struct{}
	shutUp bool // guarded by the disk's lock
}

var _ durable.File = (*file)(nil)

// shut closes the file; the disk's lock is held.
func (f *file) shut() {
	if f.shutUp {
		return
	}
	f.shutUp = true
	close(f.closed)
	f.n.lock.free(f)
	f.n.opens--
	f.p.disk.release(f.n)
	delete(f.p.files, f)
}

func (f *file) call(op Op, off int64, length int, do func(keep int) error) error {
	return f.p.call(Call{Op: op, Name: f.name, Off: off, Len: length}, func(keep int) error {
		if f.shutUp {
			return pathError(string(op), f.name, fs.ErrClosed)
		}
		return do(keep)
	})
}

func (f *file) writable(op Op) error {
	if f.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return pathError(string(op), f.name, fs.ErrPermission)
	}
	return nil
}

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := 0
	err := f.call(OpRead, off, len(p), func(int) error {
		switch {
		case f.flag&os.O_WRONLY != 0:
			return pathError("read", f.name, fs.ErrPermission)
		case off < 0:
			return pathError("read", f.name, fs.ErrInvalid)
		case off >= f.n.size:
			return io.EOF
		}
		n = int(min(int64(len(p)), f.n.size-off))
		f.n.read(p[:n], off)
		if n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt implements [io.WriterAt].
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteVecAt([][]byte{p}, off)
}

// WriteVecAt implements [durable.File]: one call.
func (f *file) WriteVecAt(parts [][]byte, off int64) (int, error) {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	if len(all) == 0 {
		return 0, nil
	}
	n := 0
	err := f.call(OpWrite, off, len(all), func(keep int) error {
		if err := f.writable(OpWrite); err != nil {
			return err
		}
		if off < 0 {
			return pathError("write", f.name, fs.ErrInvalid)
		}
		if keep >= 0 {
			all = all[:min(keep, len(all))]
		}
		n = f.n.write(f.p.disk, all, off)
		if n < len(all) {
			return noSpace("write", f.name)
		}
		return nil
	})
	return n, err
}

// Allocate implements [durable.File].
func (f *file) Allocate(size int64) error {
	return f.call(OpAllocate, 0, 0, func(int) error {
		if size <= f.n.size {
			return nil
		}
		if err := f.writable(OpAllocate); err != nil {
			return err
		}
		if !f.n.allocate(f.p.disk, size) {
			return noSpace("allocate", f.name)
		}
		return nil
	})
}

// Truncate implements [durable.File].
func (f *file) Truncate(size int64) error {
	return f.call(OpTruncate, 0, 0, func(int) error {
		if err := f.writable(OpTruncate); err != nil {
			return err
		}
		if size < 0 {
			return pathError("truncate", f.name, fs.ErrInvalid)
		}
		f.n.truncate(f.p.disk, size)
		return nil
	})
}

// Sync implements [durable.File].
func (f *file) Sync() error {
	return f.call(OpSync, 0, 0, func(keep int) error {
		if keep >= 0 {
			f.n.failSync(keep)
			return nil
		}
		f.n.sync()
		return nil
	})
}

// Size implements [durable.File].
func (f *file) Size() (int64, error) {
	var size int64
	err := f.call(OpSize, 0, 0, func(int) error {
		size = f.n.size
		return nil
	})
	return size, err
}

// Lock implements [durable.File].
func (f *file) Lock(ctx context.Context, mode durable.LockMode) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	first := true
	for {
		var taken bool
		var changed chan struct{}
		try := func(int) error {
			var err error
			if taken, err = f.tryLock(mode); !taken {
				changed = f.n.lock.changed()
			}
			return err
		}
		err := f.again(first, try)
		if err != nil || taken {
			return err
		}
		first = false
		select {
		case <-changed:
		case <-f.closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// again makes the first try a call, and the later ones part of it, so that
// waiting does not change the number of calls.
func (f *file) again(first bool, try func(int) error) error {
	if first {
		return f.call(OpLock, 0, 0, try)
	}
	f.p.disk.mu.Lock()
	defer f.p.disk.mu.Unlock()
	if f.p.end != nil {
		return pathError(string(OpLock), f.name, f.p.end)
	}
	if f.shutUp {
		return pathError(string(OpLock), f.name, fs.ErrClosed)
	}
	return try(-1)
}

// TryLock implements [durable.File].
func (f *file) TryLock(mode durable.LockMode) (bool, error) {
	var taken bool
	err := f.call(OpLock, 0, 0, func(int) error {
		var err error
		taken, err = f.tryLock(mode)
		return err
	})
	return taken, err
}

// tryLock also checks that the name still stands for what was locked.
func (f *file) tryLock(mode durable.LockMode) (bool, error) {
	if !f.n.lock.try(f, mode) {
		return false, nil
	}
	if _, n, _, err := f.p.disk.find("lock", f.name); err != nil || n != f.n {
		f.n.lock.free(f)
		return false, pathError("lock", f.name, durable.ErrLockReplaced)
	}
	return true, nil
}

// Unlock implements [durable.File].
func (f *file) Unlock() error {
	return f.call(OpUnlock, 0, 0, func(int) error {
		if !f.n.lock.free(f) {
			return pathError("unlock", f.name, durable.ErrNotLocked)
		}
		return nil
	})
}

// Close implements [durable.File].
func (f *file) Close() error {
	return f.call(OpClose, 0, 0, func(int) error {
		f.shut()
		return nil
	})
}
