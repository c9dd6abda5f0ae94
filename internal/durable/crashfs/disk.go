package crashfs

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/internal/durable"
)

// Options bound a disk.
type Options struct {
	// Capacity is the room for the bytes of files; 0 means no bound.
	Capacity int64
	// Inodes is how many files and directories there can be; 0 means no
	// bound.
	Inodes int
}

// A Disk is a simulated disk. It is safe for concurrent use.
type Disk struct {
	mu        sync.Mutex
	opts      Options
	root      *inode
	nextID    int
	inodes    int   // in use
	used      int64 // bytes
	calls     int
	plan      Plan
	crashed   bool
	readOnly  bool
	processes map[*Process]struct{}
	// pending are the changes of names that are not durable, oldest first.
	pending []change
}

// A change is one step on names: one for most calls, two for a rename.
type change []entry

// An entry is one name's new meaning; a nil node removes it.
type entry struct {
	dir  *inode
	name string
	node *inode
}

type key struct {
	dir  *inode
	name string
}

func (e entry) key() key { return key{e.dir, e.name} }

// New returns an empty disk.
func New(opts Options) *Disk {
	d := &Disk{opts: opts, processes: map[*Process]struct{}{}}
	d.root = d.newInode(true)
	return d
}

func (d *Disk) newInode(dir bool) *inode {
	d.nextID++
	d.inodes++
	return newInode(d.nextID, dir)
}

// Process starts a process, which sees the root of the disk.
func (d *Disk) Process() *Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &Process{disk: d, dead: make(chan struct{}), files: map[*file]struct{}{}}
	d.processes[p] = struct{}{}
	return p
}

// Plan sets the plan for the calls to come; nil lets all succeed.
func (d *Disk) Plan(p Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

// Calls is the number of calls so far.
func (d *Disk) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// SetCapacity changes the room for bytes; 0 means no bound.
func (d *Disk) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Capacity = bytes
}

// Used is the room that files take, in bytes.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// SetReadOnly makes every change fail, as the kernel does to a file system
// that it has given up on; or ends that.
func (d *Disk) SetReadOnly(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = on
}

// Crash crashes the machine now.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crash()
}

// Crashed reports whether the machine has crashed. What a program claims
// after that was never heard by anyone.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashed
}

func (d *Disk) crash() {
	d.crashed = true
	for p := range d.processes {
		p.die(ErrCrashed)
	}
}

// Unsynced is the number of changes that a crash now may lose: a [Policy] is
// asked about units 0 to Unsynced()-1.
func (d *Disk) Unsynced() int {
	n := 0
	d.After(func(int, int) int { n++; return 0 })
	return n
}

// After returns the disk that the next start of the machine finds, if it
// crashes now, or has crashed. The disk itself does not change.
func (d *Disk) After(keep Policy) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	unit := -1
	ask := func(versions int) int {
		unit++
		return min(max(keep(unit, versions), 0), versions)
	}
	names := d.namesAfter(ask)
	a := &Disk{opts: d.opts, nextID: d.nextID, processes: map[*Process]struct{}{}}
	made := map[*inode]*inode{}
	// In the order of ids, so that units have the same numbers each time.
	for _, n := range d.reachable(names) {
		if n.dir {
			made[n] = newInode(n.id, true)
		} else {
			made[n] = n.after(ask)
		}
		a.inodes++
		a.used += made[n].room()
	}
	for n, m := range made {
		for name, child := range names[n] {
			c := made[child]
			m.names[name], m.durableNames[name] = c, c
			c.links++
		}
	}
	a.root = made[d.root]
	return a
}

// namesAfter is what each directory holds after a crash that keeps what ask
// says of the pending changes, each after the earlier ones of its names.
func (d *Disk) namesAfter(ask func(versions int) int) map[*inode]map[string]*inode {
	names := map[*inode]map[string]*inode{}
	of := func(dir *inode) map[string]*inode {
		if names[dir] == nil {
			names[dir] = maps.Clone(dir.durableNames)
		}
		return names[dir]
	}
	blocked := map[key]bool{}
	for _, c := range d.pending {
		lost := ask(1) == 0
		for _, e := range c {
			lost = lost || blocked[e.key()]
		}
		for _, e := range c {
			if lost {
				blocked[e.key()] = true
				continue
			}
			apply(of(e.dir), e)
		}
	}
	var walk func(dir *inode)
	walk = func(dir *inode) {
		for _, child := range of(dir) {
			if child.dir {
				walk(child)
			}
		}
	}
	walk(d.root)
	return names
}

func apply(names map[string]*inode, e entry) {
	if e.node == nil {
		delete(names, e.name)
		return
	}
	names[e.name] = e.node
}

// reachable lists the inodes that names leads to from the root, by id.
func (d *Disk) reachable(names map[*inode]map[string]*inode) []*inode {
	seen := map[*inode]bool{d.root: true}
	list := []*inode{d.root}
	for i := 0; i < len(list); i++ {
		for _, child := range names[list[i]] {
			if !seen[child] {
				seen[child] = true
				list = append(list, child)
			}
		}
	}
	slices.SortFunc(list, func(a, b *inode) int { return a.id - b.id })
	return list
}

// change makes a step on names visible; it is not durable yet.
func (d *Disk) change(c change) {
	for _, e := range c {
		old := e.dir.names[e.name]
		apply(e.dir.names, e)
		if e.node != nil {
			e.node.links++
		}
		if old != nil {
			old.links--
			d.release(old)
		}
	}
	d.pending = append(d.pending, c)
}

// syncDir makes the changes of one directory durable, and those of other
// directories that belong to the same step or came before it under the same
// name.
func (d *Disk) syncDir(dir *inode) {
	needed := map[key]bool{}
	take := make([]bool, len(d.pending))
	for i, c := range slices.Backward(d.pending) {
		for _, e := range c {
			take[i] = take[i] || e.dir == dir || needed[e.key()]
		}
		for _, e := range c {
			if take[i] {
				needed[e.key()] = true
			}
		}
	}
	var rest []change
	for i, c := range d.pending {
		if !take[i] {
			rest = append(rest, c)
			continue
		}
		for _, e := range c {
			apply(e.dir.durableNames, e)
		}
	}
	d.pending = rest
}

// take takes room for bytes, if there is.
func (d *Disk) take(bytes int64) bool {
	if d.opts.Capacity > 0 && d.used+bytes > d.opts.Capacity {
		return false
	}
	d.used += bytes
	return true
}

func (d *Disk) give(bytes int64) { d.used -= bytes }

// release frees what nobody can reach any more. What a crash may bring back
// stays in the pending changes, out of the running system's sight.
func (d *Disk) release(n *inode) {
	if n.links > 0 || n.opens > 0 {
		return
	}
	d.inodes--
	d.give(n.room())
}

// find returns the inode of a name, or nil, and its directory.
func (d *Disk) find(op, name string) (dir, n *inode, base string, err error) {
	if !fs.ValidPath(name) {
		return nil, nil, "", pathError(op, name, fs.ErrInvalid)
	}
	if name == "." {
		return nil, d.root, ".", nil
	}
	dir = d.root
	parent, base := path.Split(name)
	for part := range strings.SplitSeq(strings.TrimSuffix(parent, "/"), "/") {
		if part == "" {
			continue
		}
		next := dir.names[part]
		if next == nil {
			return nil, nil, "", pathError(op, name, fs.ErrNotExist)
		}
		if !next.dir {
			return nil, nil, "", pathError(op, name, errNotDir)
		}
		dir = next
	}
	return dir, dir.names[base], base, nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func noSpace(op, name string) error { return &durable.NoSpaceError{Op: op, Name: name} }
