package crashfs

import (
	"maps"
	"slices"
)

// Killed returns the disk as the running machine goes on with it when every
// process has been killed: all that was written is in the page cache, synced
// or not. The disk itself does not change, nor does its plan go over; calls
// are counted anew.
func (d *Disk) Killed() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := &Disk{opts: d.opts, nextID: d.nextID, readOnly: d.readOnly, processes: map[*Process]struct{}{}}
	made := map[*inode]*inode{}
	var of func(n *inode) *inode
	of = func(n *inode) *inode {
		if n == nil {
			return nil
		}
		if m := made[n]; m != nil {
			return m
		}
		m := n.copied()
		made[n] = m
		for name, child := range n.names {
			c := of(child)
			m.names[name] = c
			c.links++
		}
		for name, child := range n.durableNames {
			m.durableNames[name] = of(child)
		}
		return m
	}
	k.root = of(d.root)
	for _, c := range d.pending {
		next := make(change, len(c))
		for i, e := range c {
			next[i] = entry{dir: of(e.dir), name: e.name, node: of(e.node)}
		}
		k.pending = append(k.pending, next)
	}
	// What nobody can reach any more takes no room.
	for _, m := range made {
		if m.links > 0 || m == k.root {
			k.inodes++
			k.used += m.room()
		}
	}
	return k
}

// copied is a copy without names, links and users.
func (n *inode) copied() *inode {
	m := newInode(n.id, n.dir)
	m.target = n.target
	if n.dir {
		return m
	}
	m.sectors, m.size = slices.Clone(n.sectors), n.size
	m.durable, m.durableSize = slices.Clone(n.durable), n.durableSize
	m.dirty = maps.Clone(n.dirty)
	for i, versions := range m.dirty {
		m.dirty[i] = slices.Clone(versions)
	}
	m.sizes = slices.Clone(n.sizes)
	return m
}
