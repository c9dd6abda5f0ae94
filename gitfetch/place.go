package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/internal/durable"
)

const (
	// maxPlaces is how often one object is written before all paths are known;
	// a tree that names it more often may be one to refuse.
	maxPlaces = 4
	// openFolders is how many directories are kept open to write into.
	openFolders = 64
	// maxPlacings is how many files wait to be written; their bytes are
	// bounded by what package pack holds in memory.
	maxPlacings = 1024
)

// A newTree is the directory that a checkout is made in, until it moves to its
// place.
type newTree struct {
	name   string // in the workspace
	dir    *os.Root
	sync   durable.Tree // nil: nothing is synced
	device uint64
}

// makeTree makes an empty one. What is to be synced is opened first, so that
// no failure to write goes unseen.
func (f *fetcher) makeTree() (_ *newTree, err error) {
	t := &newTree{name: path.Join(f.w.name, randomName())}
	if err := f.root.Mkdir(t.name, dirPerm); err != nil {
		return nil, host("make directory", err)
	}
	if t.dir, err = f.root.OpenRoot(t.name); err == nil {
		t.device = deviceOf(t.dir)
		if f.t.Sync == SyncAll {
			t.sync, err = durable.OSLinks(f.w.base).OpenTree(t.name)
		}
	}
	if err != nil {
		return nil, errors.Join(host("open directory", err), f.drop(t))
	}
	return t, nil
}

// close lets go of the directory, and leaves it where it is.
func (t *newTree) close() error {
	var err error
	if t.dir != nil {
		err = host("close directory", t.dir.Close())
	}
	if t.sync != nil {
		err = errors.Join(err, host("close directory", t.sync.Close()))
	}
	t.dir, t.sync = nil, nil
	return err
}

// drop removes it.
func (f *fetcher) drop(t *newTree) error {
	return errors.Join(t.close(), cleanupError(removeIn(f.root, t.name)))
}

// A placer writes files while the rest of the pack is still on its way. It
// walks through the tree as far as its objects are there, and takes the content
// of each blob whose path is known by then. What it writes is named by the
// commit, by a chain of proven objects, and every path was judged before; that
// the pack is whole in the end decides whether the checkout becomes one. Git
// sends objects in the order of that walk, so most files go this way. What does
// not is left for the writer.
type placer struct {
	f       *fetcher
	ctx     context.Context
	planner *planner
	tree    *newTree
	jobs    chan placing
	running sync.WaitGroup

	// Owned by the one who receives.
	wanted map[fencepost.ObjectID]places // of the blobs that are to come
	at     map[pack.Index]int32          // a node of each blob that was taken
	known  map[int32]bool                // directories that were announced
	output int64

	mu      sync.Mutex
	pending map[pack.Index]*pack.Content // guarded by mu: not written yet
	err     error                        // guarded by mu

	// Owned by the writing goroutine, until it has ended.
	folders map[int32]*placedFolder
	open    []*placedFolder // the one used last stands last
	placed  []placedFile
}

// places are the nodes that name one blob, mostly a single one.
type places struct {
	first int32
	more  []int32
}

// A placing is a directory to know of, or a file to write.
type placing struct {
	node, parent int32
	name         string
	mode         object.Mode
	index        pack.Index
	content      *pack.Content // nil for a directory
	last         bool          // nobody else writes this content
}

type placedFolder struct {
	parent int32
	name   string
	made   bool
	folder *folder // nil: not open
}

type placedFile struct {
	node  int32
	stamp stamp
}

// newPlacer returns one that has begun.
func (f *fetcher) newPlacer(ctx context.Context) (*placer, error) {
	tree, err := f.makeTree()
	if err != nil {
		return nil, err
	}
	p := &placer{
		f: f, ctx: ctx, planner: newPlanner(f.t, nil, nil), tree: tree,
		jobs:    make(chan placing, maxPlacings),
		wanted:  make(map[fencepost.ObjectID]places),
		at:      make(map[pack.Index]int32),
		pending: make(map[pack.Index]*pack.Content),
		known:   map[int32]bool{0: true},
		folders: map[int32]*placedFolder{0: {parent: -1, made: true}},
	}
	p.planner.added = p.added
	p.running.Go(p.run)
	return p, nil
}

// end waits until everything that was taken is written.
func (p *placer) end() error {
	close(p.jobs)
	p.running.Wait()
	p.planner.added = nil
	p.wanted = nil
	return p.err
}

// added is told of each new node.
func (p *placer) added(i int32) {
	switch n := &p.planner.plan.nodes[i]; {
	case n.out || n.mode != object.File && n.mode != object.Program:
	default:
		if _, here := p.planner.store.Lookup(n.id); here {
			return
		}
		at, again := p.wanted[n.id]
		switch {
		case !again:
			at.first = i
		case len(at.more) < maxPlaces:
			at.more = append(at.more, i)
		}
		p.wanted[n.id] = at
	}
}

// Complete implements [pack.Taker].
func (p *placer) Complete(s *pack.Store, _ pack.Index) error {
	p.planner.store = s
	return p.planner.advance(p.ctx)
}

// Take implements [pack.Taker].
func (p *placer) Take(i pack.Index, id fencepost.ObjectID, content *pack.Content) (bool, error) {
	places, ok := p.wanted[id]
	if !ok {
		return false, nil
	}
	delete(p.wanted, id)
	count := 1 + len(places.more)
	// Over a budget, the planner is to say so, and at which path.
	size := int64(len(content.Bytes)) * int64(count)
	if count > maxPlaces || size > p.f.t.Budgets.OutputBytes-p.output {
		return false, nil
	}
	p.mu.Lock()
	err := p.err
	if err == nil {
		p.pending[i] = content
	}
	p.mu.Unlock()
	if err != nil {
		return false, err
	}
	p.output += size
	p.at[i] = places.first
	for _, at := range append(places.more, places.first) {
		p.announce(p.planner.plan.nodes[at].parent)
	}
	for _, at := range places.more {
		p.jobs <- p.file(at, i, content)
	}
	j := p.file(places.first, i, content)
	j.last = true
	p.jobs <- j
	return true, nil
}

// announce tells the writing goroutine of a directory and of those above it.
func (p *placer) announce(dir int32) {
	if p.known[dir] {
		return
	}
	n := &p.planner.plan.nodes[dir]
	p.announce(n.parent)
	p.known[dir] = true
	p.jobs <- placing{node: dir, parent: n.parent, name: n.name, mode: n.mode}
}

func (p *placer) file(at int32, i pack.Index, content *pack.Content) placing {
	n := &p.planner.plan.nodes[at]
	return placing{node: at, parent: n.parent, name: n.name, mode: n.mode, index: i, content: content}
}

// ReadTaken implements [pack.Taker]. What it reads of a file is not proven
// again: that is for who needs more of it than a delta's base.
func (p *placer) ReadTaken(i pack.Index, b []byte, off int64) error {
	p.mu.Lock()
	c := p.pending[i]
	if c != nil {
		copy(b, c.Bytes[off:])
	}
	p.mu.Unlock()
	if c != nil {
		return nil
	}
	file, err := p.tree.dir.Open(pathOf(p.planner.plan.nodes, p.at[i]))
	if err != nil {
		return host("open file", err)
	}
	_, err = file.ReadAt(b, off)
	return host("read file", errors.Join(err, file.Close()))
}

// run writes one file after the other. After an error the rest is only let go
// of.
func (p *placer) run() {
	var err error
	for j := range p.jobs {
		if err == nil {
			if err = p.do(j); err != nil {
				p.mu.Lock()
				p.err = err
				p.mu.Unlock()
			}
		}
		if j.last {
			p.mu.Lock()
			delete(p.pending, j.index)
			p.mu.Unlock()
			j.content.Release()
		}
	}
	for _, d := range p.open {
		err = errors.Join(err, host("close directory", d.folder.close()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *placer) do(j placing) error {
	if j.mode == object.Dir {
		p.folders[j.node] = &placedFolder{parent: j.parent, name: j.name}
		return nil
	}
	d, err := p.enter(j.parent)
	if err != nil {
		return err
	}
	s, device, err := d.write(j.name, permissions(j.mode), j.content.Bytes)
	if err != nil {
		return host("write file", err)
	}
	if device != p.tree.device {
		s = stamp{}
	}
	p.placed = append(p.placed, placedFile{j.node, s})
	return nil
}

// enter returns a directory, and makes and opens it where that was not done.
func (p *placer) enter(node int32) (*folder, error) {
	d := p.folders[node]
	if d.folder != nil {
		p.touch(d)
		return d.folder, nil
	}
	var opened folder
	var err error
	if node == 0 {
		opened, err = folderOf(p.tree.dir)
	} else {
		var parent *folder
		if parent, err = p.enter(d.parent); err != nil {
			return nil, err
		}
		if !d.made {
			if err := parent.mkdir(d.name); err != nil {
				return nil, host("make directory", err)
			}
			d.made = true
		}
		opened, err = parent.folder(d.name)
	}
	if err != nil {
		return nil, host("open directory", err)
	}
	d.folder = &opened
	p.open = append(p.open, d)
	if len(p.open) <= openFolders {
		return d.folder, nil
	}
	oldest := p.open[0]
	p.open = slices.Delete(p.open, 0, 1)
	err = host("close directory", oldest.folder.close())
	oldest.folder = nil
	return d.folder, err
}

// touch makes an open directory the one used last.
func (p *placer) touch(d *placedFolder) {
	last := len(p.open) - 1
	for i := last; i >= 0; i-- {
		if p.open[i] == d {
			copy(p.open[i:], p.open[i+1:])
			p.open[last] = d
			return
		}
	}
}

// permissions are those of a file of that mode.
func permissions(mode object.Mode) fs.FileMode {
	if mode == object.Program {
		return programPerm
	}
	return filePerm
}

// proven requires that content, read again from where it was placed, is what
// its id says. Collision attacks were looked for when the id was computed.
func proven(store *pack.Store, i pack.Index, hasher *object.Hasher) error {
	if id, err := hasher.Sum(); err != nil || id != store.ID(i) {
		return fmt.Errorf("%w: file %s", errChanged, store.ID(i))
	}
	return nil
}

var errChanged = errors.New("changed while the checkout was made")
