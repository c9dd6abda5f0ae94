package crashfs

import (
	"maps"
	"slices"
)

// SectorSize is what a disk writes in one piece, in bytes.
const SectorSize = 512

// maxVersions bounds the versions of one sector that are remembered.
const maxVersions = 4

// A sector is never changed once it is in an inode; nil reads as zeros and
// takes no room.
type sector [SectorSize]byte

// zeros is every sector of zeros that takes room: most sectors of a new log
// are.
var zeros sector

// kept is a copy of s to be kept in an inode.
func kept(s *sector) *sector {
	if *s == zeros {
		return &zeros
	}
	k := *s
	return &k
}

// An inode is a file or a directory. It is guarded by the disk's lock.
type inode struct {
	id  int
	dir bool

	// Of a directory: what processes see, and what is durable.
	names, durableNames map[string]*inode

	// Of a file: what processes see.
	sectors []*sector
	size    int64
	// What is durable.
	durable     []*sector
	durableSize int64
	// dirty holds, for each sector written since the last Sync, the versions
	// written since.
	dirty map[int][]*sector
	// sizes are the lengths since the last Sync, the durable one not among
	// them.
	sizes []int64

	// Of a symbolic link, which has nothing else: its text.
	target string

	links, opens int
	lock         lock
}

func newInode(id int, dir bool) *inode {
	n := &inode{id: id, dir: dir}
	if dir {
		n.names, n.durableNames = map[string]*inode{}, map[string]*inode{}
		return n
	}
	n.dirty = map[int][]*sector{}
	return n
}

// sectorsFor is how many sectors hold size bytes.
func sectorsFor(size int64) int { return int((size + SectorSize - 1) / SectorSize) }

// set puts a new version of sector i in place.
func (n *inode) set(i int, s *sector) {
	put(&n.sectors, i, s)
	versions := append(n.dirty[i], s)
	if len(versions) > maxVersions {
		versions = slices.Delete(versions, 1, 2)
	}
	n.dirty[i] = versions
}

func (n *inode) setSize(size int64) {
	if size != n.size {
		n.size = size
		n.sizes = append(n.sizes, size)
	}
}

// sync makes the file durable.
func (n *inode) sync() {
	n.arrive(len(n.dirty))
	n.durableSize, n.sizes = n.size, nil
}

// failSync lets the first keep sectors arrive and marks the others clean.
func (n *inode) failSync(keep int) {
	n.arrive(keep)
	clear(n.dirty)
}

// arrive makes the first count dirty sectors durable.
func (n *inode) arrive(count int) {
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		if count == 0 {
			return
		}
		count--
		versions := n.dirty[i]
		put(&n.durable, i, versions[len(versions)-1])
		delete(n.dirty, i)
	}
}

func put(sectors *[]*sector, i int, s *sector) {
	for len(*sectors) <= i {
		*sectors = append(*sectors, nil)
	}
	(*sectors)[i] = s
}

// read copies into p from off; the caller has checked the range.
func (n *inode) read(p []byte, off int64) {
	for len(p) > 0 {
		i, at := int(off/SectorSize), int(off%SectorSize)
		c := min(len(p), SectorSize-at)
		if i < len(n.sectors) && n.sectors[i] != nil {
			copy(p[:c], n.sectors[i][at:])
		} else {
			clear(p[:c])
		}
		p, off = p[c:], off+int64(c)
	}
}

// write copies p to off, taking room from the disk, and reports how much fit.
func (n *inode) write(d *Disk, p []byte, off int64) int {
	done := 0
	for done < len(p) {
		i, at := int(off/SectorSize), int(off%SectorSize)
		c := min(len(p)-done, SectorSize-at)
		var s sector
		if i < len(n.sectors) && n.sectors[i] != nil {
			s = *n.sectors[i]
		} else if !d.take(SectorSize) {
			break
		}
		copy(s[at:], p[done:done+c])
		n.set(i, kept(&s))
		done, off = done+c, off+int64(c)
		n.setSize(max(n.size, off))
	}
	return done
}

// allocate takes room up to size, all or nothing.
func (n *inode) allocate(d *Disk, size int64) bool {
	missing := 0
	for i := range sectorsFor(size) {
		if i >= len(n.sectors) || n.sectors[i] == nil {
			missing++
		}
	}
	if !d.take(int64(missing) * SectorSize) {
		return false
	}
	for i := range sectorsFor(size) {
		if i >= len(n.sectors) || n.sectors[i] == nil {
			n.set(i, &zeros)
		}
	}
	n.setSize(max(n.size, size))
	return true
}

func (n *inode) truncate(d *Disk, size int64) {
	for i := sectorsFor(size); i < len(n.sectors); i++ {
		if n.sectors[i] != nil {
			d.give(SectorSize)
			n.set(i, nil)
		}
	}
	if cut := int(size % SectorSize); cut != 0 {
		if i := int(size / SectorSize); i < len(n.sectors) && n.sectors[i] != nil {
			s := *n.sectors[i]
			clear(s[cut:])
			n.set(i, &s)
		}
	}
	n.setSize(size)
}

// room is what the file takes of the disk, in bytes.
func (n *inode) room() int64 {
	var bytes int64
	for _, s := range n.sectors {
		if s != nil {
			bytes += SectorSize
		}
	}
	return bytes
}

// after returns the file as the next start finds it. keep is asked once for
// each unsynced change, in a fixed order.
func (n *inode) after(keep func(versions int) int) *inode {
	a := newInode(n.id, false)
	a.target = n.target
	a.durable, a.durableSize = slices.Clone(n.durable), n.durableSize
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		versions := n.dirty[i]
		if k := keep(len(versions)); k > 0 {
			put(&a.durable, i, versions[k-1])
		}
	}
	if len(n.sizes) > 0 {
		if k := keep(len(n.sizes)); k > 0 {
			a.durableSize = n.sizes[k-1]
		}
	}
	a.cut()
	a.sectors, a.size = slices.Clone(a.durable), a.durableSize
	return a
}

// cut drops what lies behind the file's durable length.
func (n *inode) cut() {
	if last := sectorsFor(n.durableSize); len(n.durable) > last {
		n.durable = n.durable[:last]
	}
	cut, i := int(n.durableSize%SectorSize), int(n.durableSize/SectorSize)
	if cut != 0 && i < len(n.durable) && n.durable[i] != nil {
		s := *n.durable[i]
		clear(s[cut:])
		n.durable[i] = &s
	}
}
