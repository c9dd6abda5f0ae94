package crashfs

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/internal/durable"
)

// The system's own numbers, so that they match what it matches.
const (
	errNotDir   = syscall.ENOTDIR
	errIsDir    = syscall.EISDIR
	errNotEmpty = syscall.ENOTEMPTY
	errLoop     = syscall.ELOOP
)

// A Process is what one simulated process sees of a disk. It is safe for
// concurrent use.
type Process struct {
	disk *Disk
	// dead is closed when the process has ended.
	dead chan struct{}
	// Guarded by the disk's lock.
	end   error // why it ended
	files map[*file]struct{}
}

var _ durable.FS = (*Process)(nil)

// Kill ends the process as kill -9 does: its locks are free, its writes stay
// in the page cache, its calls fail with [ErrKilled].
func (p *Process) Kill() {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	p.die(ErrKilled)
}

// Done is closed when the process has been killed or the machine has crashed.
func (p *Process) Done() <-chan struct{} { return p.dead }

func (p *Process) die(why error) {
	if p.end != nil {
		return
	}
	p.end = why
	close(p.dead)
	for f := range p.files {
		f.shut()
	}
	delete(p.disk.processes, p)
}

// call does one call under the plan. do is the call itself; keep tells a
// write, or a sync that fails, how much of it is to happen, less than 0
// meaning all.
func (p *Process) call(c Call, do func(keep int) error) error {
	d := p.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.end != nil {
		return pathError(string(c.Op), c.Name, p.end)
	}
	d.calls++
	c.N = d.calls
	var f Fault
	if d.plan != nil {
		f = d.plan(c)
	}
	if d.readOnly && c.Op.Changes() && c.Op != OpOpen {
		f = Fault{Err: durable.ErrReadOnly}
	}
	switch {
	case f.Crash != 0:
		p.last(c, f, f.Crash, do)
		d.crash()
		return pathError(string(c.Op), c.Name, ErrCrashed)
	case f.Kill != 0:
		p.last(c, f, f.Kill, do)
		p.die(ErrKilled)
		return pathError(string(c.Op), c.Name, ErrKilled)
	case f.Err != nil && f.Done:
		return errors.Join(do(-1), pathError(string(c.Op), c.Name, f.Err))
	case f.Err != nil:
		return p.failIn(c, f, do)
	}
	return do(-1)
}

// last does what a call still does whose caller won't hear of it.
func (p *Process) last(c Call, f Fault, when When, do func(keep int) error) {
	switch {
	case f.Err != nil && (c.Op == OpSync || c.Op == OpSyncTree), when == Inside && c.Op == OpWrite:
		_ = do(f.Keep)
	case when == After:
		_ = do(-1)
	}
}

func (p *Process) failIn(c Call, f Fault, do func(keep int) error) error {
	err := pathError(string(c.Op), c.Name, f.Err)
	if errors.Is(f.Err, durable.ErrNoSpace) {
		err = noSpace(string(c.Op), c.Name)
	}
	if c.Op == OpWrite || c.Op == OpSync || c.Op == OpSyncTree {
		err = errors.Join(err, do(f.Keep))
	}
	return err
}

// OpenFile implements [durable.FS].
func (p *Process) OpenFile(name string, flag int, _ fs.FileMode) (durable.File, error) {
	var f *file
	err := p.call(Call{Op: OpOpen, Name: name}, func(int) error {
		n, err := p.open(name, flag)
		if err != nil {
			return err
		}
		n.opens++
		f = &file{p: p, n: n, name: name, flag: flag, closed: make(chan struct{})}
		p.files[f] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (p *Process) open(name string, flag int) (*inode, error) {
	d := p.disk
	dir, n, base, err := d.find("open", name)
	switch {
	case err != nil:
		return nil, err
	case flag&os.O_APPEND != 0:
		return nil, pathError("open", name, fs.ErrInvalid)
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case n != nil && n.dir && flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0:
		return nil, pathError("open", name, errIsDir)
	case n != nil && n.target != "":
		return nil, pathError("open", name, errLoop)
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case d.readOnly && flag&(os.O_WRONLY|os.O_RDWR) != 0:
		return nil, pathError("open", name, durable.ErrReadOnly)
	}
	if n == nil {
		if !p.roomForName() {
			return nil, noSpace("open", name)
		}
		n = d.newInode(false)
		d.change(change{{dir, base, n}})
	}
	if flag&os.O_TRUNC != 0 && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		n.truncate(d, 0)
	}
	return n, nil
}

func (p *Process) roomForName() bool {
	return p.disk.opts.Inodes == 0 || p.disk.inodes < p.disk.opts.Inodes
}

// Mkdir implements [durable.FS].
func (p *Process) Mkdir(name string, _ fs.FileMode) error {
	return p.call(Call{Op: OpMkdir, Name: name}, func(int) error {
		dir, n, base, err := p.disk.find("mkdir", name)
		switch {
		case err != nil:
			return err
		case n != nil:
			return pathError("mkdir", name, fs.ErrExist)
		case !p.roomForName():
			return noSpace("mkdir", name)
		}
		p.disk.change(change{{dir, base, p.disk.newInode(true)}})
		return nil
	})
}

// Rename implements [durable.FS].
func (p *Process) Rename(oldName, newName string) error {
	return p.call(Call{Op: OpRename, Name: newName}, func(int) error {
		if !isName(oldName) || !isName(newName) {
			return pathError("rename", newName, fs.ErrInvalid)
		}
		from, n, oldBase, err := p.disk.find("rename", oldName)
		if err != nil {
			return err
		}
		to, target, newBase, err := p.disk.find("rename", newName)
		switch {
		case err != nil:
			return err
		case n == nil:
			return pathError("rename", newName, fs.ErrNotExist)
		case n == target && !n.dir:
			return nil
		case target != nil && target.dir:
			return pathError("rename", newName, fs.ErrExist)
		case n.dir && strings.HasPrefix(newName, oldName+"/"):
			return pathError("rename", newName, fs.ErrInvalid)
		case target != nil && n.dir:
			return pathError("rename", newName, errNotDir)
		}
		p.disk.change(change{{to, newBase, n}, {from, oldBase, nil}})
		return nil
	})
}

// isName reports whether name stands for something in the tree.
func isName(name string) bool { return name != "." && fs.ValidPath(name) }

// Link implements [durable.FS].
func (p *Process) Link(oldName, newName string) error {
	return p.call(Call{Op: OpLink, Name: newName}, func(int) error {
		if !isName(oldName) || !isName(newName) {
			return pathError("link", newName, fs.ErrInvalid)
		}
		_, n, _, err := p.disk.find("link", oldName)
		if err == nil && n == nil {
			err = pathError("link", newName, fs.ErrNotExist)
		}
		if err != nil {
			return err
		}
		to, target, base, err := p.disk.find("link", newName)
		switch {
		case err != nil:
			return err
		case target != nil:
			return pathError("link", newName, fs.ErrExist)
		case n.dir:
			return pathError("link", newName, fs.ErrPermission)
		}
		p.disk.change(change{{to, base, n}})
		return nil
	})
}

// Remove implements [durable.FS].
func (p *Process) Remove(name string) error {
	return p.call(Call{Op: OpRemove, Name: name}, func(int) error {
		dir, n, base, err := p.disk.find("remove", name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return pathError("remove", name, fs.ErrNotExist)
		case dir == nil:
			return pathError("remove", name, fs.ErrInvalid)
		case n.dir && len(n.names) > 0:
			return pathError("remove", name, errNotEmpty)
		}
		p.disk.change(change{{dir, base, nil}})
		return nil
	})
}

// ReadDir implements [durable.FS].
func (p *Process) ReadDir(name string) ([]durable.Info, error) {
	var infos []durable.Info
	err := p.call(Call{Op: OpReadDir, Name: name}, func(int) error {
		_, n, _, err := p.disk.find("readdir", name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return pathError("readdir", name, fs.ErrNotExist)
		case !n.dir:
			return pathError("readdir", name, errNotDir)
		}
		for _, base := range slices.Sorted(maps.Keys(n.names)) {
			infos = append(infos, infoOf(base, n.names[base]))
		}
		return nil
	})
	return infos, err
}

// Stat implements [durable.FS].
func (p *Process) Stat(name string) (durable.Info, error) {
	var info durable.Info
	err := p.call(Call{Op: OpStat, Name: name}, func(int) error {
		_, n, base, err := p.disk.find("stat", name)
		if err != nil {
			return err
		}
		if n == nil {
			return pathError("stat", name, fs.ErrNotExist)
		}
		info = infoOf(base, n)
		return nil
	})
	return info, err
}

func infoOf(name string, n *inode) durable.Info {
	return durable.Info{Name: name, Size: n.size, Dir: n.dir}
}

// SyncDir implements [durable.FS].
func (p *Process) SyncDir(name string) error {
	return p.call(Call{Op: OpSyncDir, Name: name}, func(int) error {
		_, n, _, err := p.disk.find("syncdir", name)
		switch {
		case err != nil:
			return errors.Join(durable.ErrSyncNotTried, err)
		case n == nil:
			return errors.Join(durable.ErrSyncNotTried, pathError("syncdir", name, fs.ErrNotExist))
		case !n.dir:
			return errors.Join(durable.ErrSyncNotTried, pathError("syncdir", name, errNotDir))
		}
		p.disk.syncDir(n)
		return nil
	})
}

// Volume implements [durable.FS].
func (p *Process) Volume() (durable.Volume, error) {
	v := durable.Volume{Type: "crashfs", Durability: durable.Durable}
	err := p.call(Call{Op: OpVolume, Name: "."}, func(int) error {
		v.ReadOnly = p.disk.readOnly
		v.Total, v.Free = 1<<40, 1<<40
		if c := p.disk.opts.Capacity; c > 0 {
			v.Total, v.Free = c, max(c-p.disk.used, 0)
		}
		return nil
	})
	return v, err
}
