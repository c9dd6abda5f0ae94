package gitfetch

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// reused counts what was taken from an earlier checkout.
type reused struct {
	noLinks                                            atomic.Bool
	linkedFiles, linkedBytes, copiedFiles, copiedBytes atomic.Int64
}

func (r *reused) report(s *Stats) {
	s.LinkedFiles, s.LinkedBytes = r.linkedFiles.Load(), r.linkedBytes.Load()
	s.CopiedFiles, s.CopiedBytes = r.copiedFiles.Load(), r.copiedBytes.Load()
}

// reuse makes the file of a node from an earlier one where that is possible,
// or, where nothing else has its content, necessary.
func (k *maker) reuse(dir folder, i int32) (done bool, err error) {
	n := &k.w.plan.nodes[i]
	if n.have == noNode {
		return false, nil
	}
	m := k.w.have.m
	if n.mode != object.Link && m.nodes[n.have].mode == n.mode && m.stamps[n.have].ino != 0 && !k.w.reused.noLinks.Load() {
		if done, err := k.link(dir, i); done || err != nil {
			return done, err
		}
	}
	if n.object != noObject {
		return false, nil
	}
	if err := k.copy(dir, i); err != nil {
		return false, err
	}
	k.w.reused.copiedFiles.Add(1)
	k.w.reused.copiedBytes.Add(n.size)
	return true, nil
}

// copy makes a file with the content of an earlier one, which is proven before.
func (k *maker) copy(dir folder, i int32) error {
	n := &k.w.plan.nodes[i]
	content, fits, err := k.from.small(n.have, k.buf)
	if err != nil {
		return err
	}
	if !fits {
		return host("write file", k.create(dir, i, func(f *os.File) error { return k.from.prove(n.have, f, k.buf) }))
	}
	return host("write file", k.put(dir, i, content))
}

// link makes a second name of an earlier file, if it is still the same one. It
// looks at the name that it made: nobody else knows that.
func (k *maker) link(dir folder, i int32) (bool, error) {
	n := &k.w.plan.nodes[i]
	m := k.w.have.m
	from, err := k.from.enter(n.have)
	if err != nil {
		if errors.Is(err, errAltered) {
			return false, nil
		}
		return false, err
	}
	if err := dir.link(from, m.nodes[n.have].name, n.name); err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !isTooManyLinks(err) {
			// Another file system, or one without links: so it is for all.
			k.w.reused.noLinks.Store(true)
		}
		return false, nil
	}
	is, err := dir.look(n.name)
	if err != nil {
		return false, host("look at file", err)
	}
	if is.stamp != m.stamps[n.have] || is.device != m.device || is.size != n.size || is.mode != permOf(n.mode, is.mode) {
		return false, host("remove link", dir.remove(n.name))
	}
	if k.w.t.Sync == SyncAll && !m.synced {
		if err := syncFile(dir, n.name); err != nil {
			return false, err
		}
	}
	if is.device == k.w.tree.device {
		k.w.stamps[i] = is.stamp
	}
	k.w.reused.linkedFiles.Add(1)
	k.w.reused.linkedBytes.Add(n.size)
	return true, nil
}

// permOf returns got where it is what a file of that mode may have: no special
// bits, no write bits, and the owner's execute bit as the mode says.
func permOf(mode object.Mode, got fs.FileMode) fs.FileMode {
	most := filePerm
	if mode == object.Program {
		most = programPerm
	}
	return got&most | most&0o500
}

// syncFile puts a file on stable storage that an earlier fetch did not.
func syncFile(dir folder, name string) error {
	f, err := dir.file(name)
	if err != nil {
		return host("open file", err)
	}
	return host("sync file", errors.Join(f.Sync(), f.Close()))
}
