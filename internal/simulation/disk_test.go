package simulation

import (
	"context"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A diskFS is the disk as one process sees it: every change takes the token
// first, and meets what fault is due.
type diskFS struct {
	p    *process
	disk *crashfs.Process
}

var _ durable.FS = diskFS{}

// untold reports whether calls on a file need no token: the mark of a failed
// sync is made under a lock of the process, where nobody may wait for long.
func untold(name string) bool {
	base := path.Base(name)
	return base == durable.HealthName || base == durable.PoisonName
}

// do makes one call with the token.
func (f diskFS) do(op crashfs.Op, name string, off int64, call func() error) error {
	if untold(name) {
		return call()
	}
	o, err := f.p.take(context.Background(), callOf(f.p, op, name, off))
	if err != nil {
		return err
	}
	return f.meet(o, op, name, call)
}

func callOf(p *process, op crashfs.Op, name string, off int64) call {
	return call{slot: p.slot, delivery: -1, op: string(op), name: name, off: off, disk: true}
}

// meet makes the call under its fault.
func (f diskFS) meet(o order, op crashfs.Op, name string, call func() error) error {
	s := f.p.sim
	if s.mutant == IgnoresSyncErrors && o.fault.kind == SyncError {
		_ = f.under(o, call)
		return nil
	}
	if o.fault.kind == 0 {
		return call()
	}
	return f.under(o, call)
}

// under makes the call under a plan of the disk that lasts for it alone.
func (f diskFS) under(o order, call func() error) error {
	s := f.p.sim
	fault := o.fault.onDisk(o.draw)
	once := true
	s.disk.Plan(func(crashfs.Call) crashfs.Fault {
		if !once {
			return crashfs.Fault{}
		}
		once = false
		return fault
	})
	err := call()
	s.disk.Plan(nil)
	switch {
	case s.disk.Crashed():
		s.crashed()
	case fault.Kill != 0:
		f.p.kill()
	}
	return err
}

// OpenFile implements [durable.FS].
func (f diskFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	var opened durable.File
	open := func() (err error) {
		opened, err = f.disk.OpenFile(name, flag, perm)
		return err
	}
	_, missing := f.disk.Stat(name)
	changes := flag&os.O_CREATE != 0 && missing != nil || flag&os.O_TRUNC != 0
	var err error
	if changes || f.p.sim.fine {
		err = f.do(crashfs.OpOpen, name, 0, open)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	return &diskFile{File: opened, fs: f, name: name}, nil
}

// Mkdir implements [durable.FS].
func (f diskFS) Mkdir(name string, perm fs.FileMode) error {
	return f.do(crashfs.OpMkdir, name, 0, func() error { return f.disk.Mkdir(name, perm) })
}

// Rename implements [durable.FS].
func (f diskFS) Rename(from, to string) error {
	return f.do(crashfs.OpRename, to, 0, func() error { return f.disk.Rename(from, to) })
}

// Link implements [durable.FS].
func (f diskFS) Link(from, to string) error {
	return f.do(crashfs.OpLink, to, 0, func() error { return f.disk.Link(from, to) })
}

// Remove implements [durable.FS].
func (f diskFS) Remove(name string) error {
	return f.do(crashfs.OpRemove, name, 0, func() error { return f.disk.Remove(name) })
}

// SyncDir implements [durable.FS].
func (f diskFS) SyncDir(name string) error {
	if f.p.sim.mutant == SkipsDirectorySyncs {
		return nil
	}
	return f.do(crashfs.OpSyncDir, name, 0, func() error { return f.disk.SyncDir(name) })
}

// ReadDir implements [durable.FS].
func (f diskFS) ReadDir(name string) ([]durable.Info, error) { return f.disk.ReadDir(name) }

// Stat implements [durable.FS].
func (f diskFS) Stat(name string) (durable.Info, error) { return f.disk.Stat(name) }

// Volume implements [durable.FS].
func (f diskFS) Volume() (durable.Volume, error) { return f.disk.Volume() }

// A diskFile is an open file of a diskFS.
type diskFile struct {
	durable.File
	fs   diskFS
	name string
}

// ReadAt implements [durable.File].
func (f *diskFile) ReadAt(b []byte, off int64) (n int, err error) {
	if !f.fs.p.sim.fine {
		return f.File.ReadAt(b, off)
	}
	err = f.fs.do(crashfs.OpRead, f.name, off, func() (err error) {
		n, err = f.File.ReadAt(b, off)
		return err
	})
	return n, err
}

// WriteAt implements [durable.File].
func (f *diskFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.do(crashfs.OpWrite, f.name, off, func() (err error) {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

// WriteVecAt implements [durable.File].
func (f *diskFile) WriteVecAt(parts [][]byte, off int64) (n int, err error) {
	err = f.fs.do(crashfs.OpWrite, f.name, off, func() (err error) {
		n, err = f.File.WriteVecAt(parts, off)
		return err
	})
	return n, err
}

// Allocate implements [durable.File].
func (f *diskFile) Allocate(size int64) error {
	return f.fs.do(crashfs.OpAllocate, f.name, size, func() error { return f.File.Allocate(size) })
}

// Truncate implements [durable.File].
func (f *diskFile) Truncate(size int64) error {
	return f.fs.do(crashfs.OpTruncate, f.name, size, func() error { return f.File.Truncate(size) })
}

// Sync implements [durable.File].
func (f *diskFile) Sync() error {
	switch {
	case f.fs.p.sim.mutant == SkipsInboxSyncs && strings.HasPrefix(f.name, "inbox/logs/"),
		f.fs.p.sim.mutant == SkipsLedgerSyncs && strings.HasSuffix(f.name, ".seg") && strings.HasPrefix(f.name, "ledger/"):
		return nil
	}
	return f.fs.do(crashfs.OpSync, f.name, 0, f.File.Sync)
}

// Lock implements [durable.File]. It never waits inside of the disk: whoever
// finds the lock taken waits for the token, and gets it when some lock was
// freed.
func (f *diskFile) Lock(ctx context.Context, mode durable.LockMode) error {
	p, epoch := f.fs.p, -1
	if p.sim.mutant == IgnoresLocks && strings.HasPrefix(f.name, "ledger/locks/a") {
		_, err := p.take(ctx, callOf(p, crashfs.OpLock, f.name, 0))
		return err
	}
	for {
		o, err := p.sim.sched.wait(ctx, p, callOf(p, crashfs.OpLock, f.name, 0), epoch)
		if err != nil {
			return err
		}
		var taken bool
		err = f.fs.meet(o, crashfs.OpLock, f.name, func() (err error) {
			taken, err = f.File.TryLock(mode)
			return err
		})
		if err != nil || taken {
			return err
		}
		epoch = p.sim.sched.lockEpoch()
	}
}

// TryLock implements [durable.File].
func (f *diskFile) TryLock(mode durable.LockMode) (taken bool, err error) {
	err = f.fs.do(crashfs.OpLock, f.name, 1, func() (err error) {
		taken, err = f.File.TryLock(mode)
		return err
	})
	if f.fs.p.sim.mutant == IgnoresSlotLocks && strings.HasPrefix(f.name, "inbox/slots/") {
		return true, nil
	}
	return taken, err
}

// Unlock implements [durable.File].
func (f *diskFile) Unlock() error {
	if f.fs.p.sim.mutant == IgnoresLocks && strings.HasPrefix(f.name, "ledger/locks/a") {
		return nil
	}
	err := f.File.Unlock()
	f.fs.p.sim.sched.freed()
	return err
}

// Close implements [durable.File].
func (f *diskFile) Close() error {
	err := f.File.Close()
	f.fs.p.sim.sched.freed()
	return err
}

var errIO = syscall.EIO
