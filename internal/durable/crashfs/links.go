package crashfs

import (
	"io/fs"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/internal/durable"
)

var _ durable.Linker = (*Process)(nil)

// Symlink implements [durable.Linker].
func (p *Process) Symlink(target, name string) error {
	return p.call(Call{Op: OpSymlink, Name: name}, func(int) error {
		dir, n, base, err := p.disk.find("symlink", name)
		switch {
		case err != nil:
			return err
		case target == "":
			return pathError("symlink", name, fs.ErrInvalid)
		case n != nil:
			return pathError("symlink", name, fs.ErrExist)
		case !p.roomForName():
			return noSpace("symlink", name)
		}
		link := p.disk.newInode(false)
		link.target = target
		p.disk.change(change{{dir, base, link}})
		return nil
	})
}

// Readlink implements [durable.Linker].
func (p *Process) Readlink(name string) (string, error) {
	var text string
	err := p.call(Call{Op: OpReadlink, Name: name}, func(int) error {
		_, n, _, err := p.disk.find("readlink", name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return pathError("readlink", name, fs.ErrNotExist)
		case n.target == "":
			return pathError("readlink", name, durable.ErrNotLink)
		}
		text = n.target
		return nil
	})
	return text, err
}

// OpenTree implements [durable.Linker].
func (p *Process) OpenTree(name string) (durable.Tree, error) {
	var t *tree
	err := p.call(Call{Op: OpOpenTree, Name: name}, func(int) error {
		_, n, _, err := p.disk.find("opentree", name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return pathError("opentree", name, fs.ErrNotExist)
		case !n.dir:
			return pathError("opentree", name, errNotDir)
		}
		t = &tree{p: p, n: n, name: name}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// A tree is an open directory.
type tree struct {
	p    *Process
	n    *inode
	name string
	// closed is guarded by the disk's lock.
	closed bool
}

// Sync implements [durable.Tree]: one call. One that fails leaves every file
// below as a failed Sync of it does, and makes no name durable.
func (t *tree) Sync() error {
	return t.p.call(Call{Op: OpSyncTree, Name: t.name}, func(keep int) error {
		if t.closed {
			return pathError("synctree", t.name, fs.ErrClosed)
		}
		t.p.disk.syncTree(t.n, keep)
		return nil
	})
}

func (d *Disk) syncTree(n *inode, keep int) {
	if !n.dir {
		if keep >= 0 {
			n.failSync(keep)
		} else {
			n.sync()
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		d.syncTree(n.names[name], keep)
	}
	if keep < 0 {
		d.syncDir(n)
	}
}

// Close implements [durable.Tree].
func (t *tree) Close() error {
	return t.p.call(Call{Op: OpClose, Name: t.name}, func(int) error {
		if t.closed {
			return pathError("close", t.name, fs.ErrClosed)
		}
		t.closed = true
		return nil
	})
}
