package gitfetch

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
)

const (
	// maxLink is the longest text of a symbolic link.
	maxLink = 4095
	// spareNodes is how much larger than the one before a tree is taken to be.
	spareNodes = 128
	// entryBytes is what an entry of a tree takes, mostly more.
	entryBytes = 36
	// namesPerCheck is how many names of one directory are judged between two
	// looks at whether to go on.
	namesPerCheck = 1 << 10
)

// A node is one path of a verified tree: a directory, file, link or gitlink.
// Nodes stand in the order of the paths' bytes, with a slash after those of
// directories; so each directory comes right before all that is in it.
type node struct {
	name   string
	parent int32      // index of the directory; the root's own is -1
	object pack.Index // noObject: not received
	have   int32      // of the earlier checkout's nodes; noNode: not there
	mode   object.Mode
	out    bool // left out: nothing is on disk
	id     fencepost.ObjectID
	size   int64 // of the blob; 0 for others, and where it is not known
}

const (
	noObject pack.Index = -1
	noNode   int32      = -1
)

// A plan is a tree of which every directory so far was found to keep the rules.
// Files of those may be written; that all of it is whole and good is known when
// the planner has finished. nodes[0] is the root.
type plan struct {
	nodes   []node
	content []byte // of the commit
	parents []fencepost.CommitID
	dirs    int64 // made, as all that follows
	files   int64 // links made as files included
	links   int64 // in the tree, made or not
	output  int64 // bytes of all files
	out     int64 // files and links that were left out
}

// makePlan checks that the store, with what is here already, holds exactly
// commit and what its tree needs, and that the tree keeps the rules of the
// policy and the budgets. contracts: closure rule, names, per-path budgets.
func makePlan(ctx context.Context, t *target, store *pack.Store, have *have) (*plan, error) {
	p := newPlanner(t, store, have)
	if err := p.tree(ctx); err != nil {
		return nil, err
	}
	return p.finish(ctx)
}

// newPlanner returns a planner, of which tree and finish are to be called, the
// latter when all objects are there.
func newPlanner(t *target, store *pack.Store, have *have) *planner {
	return &planner{
		t:     t,
		store: store,
		have:  have,
		names: pathrule.NewChecker(t.Policy.Names.rules()),

		entered: make(map[fencepost.ObjectID]struct{}),
	}
}

// tree walks from the commit and judges every path. Blobs need not be there.
func (p *planner) tree(ctx context.Context) error {
	if len(p.plan.nodes) == 0 {
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	return p.walk(ctx, true)
}

// advance is tree as far as its objects are there. To be called again when
// there are more.
func (p *planner) advance(ctx context.Context) error {
	if len(p.plan.nodes) == 0 {
		if ready, err := p.ready(); err != nil || !ready {
			return err
		}
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	return p.walk(ctx, false)
}

// ready reports whether the commit and the root of its tree are there. It reads
// the commit, which may be large, but once: trees may come by thousands before
// that root.
func (p *planner) ready() (bool, error) {
	if !p.read {
		i, ok := p.store.Lookup(p.t.Commit.ObjectID)
		if !ok || p.store.Kind(i) != object.Commit {
			return false, nil
		}
		content, err := p.store.Content(i, nil)
		if err != nil {
			return false, host("read spool", err)
		}
		p.read = true
		// One that is not legal is never ready: begin will say so in the end.
		if facts, err := object.ParseCommit(content); err == nil {
			p.root = facts.Tree.ObjectID
		}
	}
	_, ok := p.store.Lookup(p.root)
	return ok && !p.root.IsZero(), nil
}

// begin enters the root of the commit's tree.
func (p *planner) begin(ctx context.Context) error {
	if err := p.commit(p.t.Commit); err != nil {
		return err
	}
	return p.enter(ctx, 0)
}

// finish finds the content of every file and judges what depends on it.
func (p *planner) finish(ctx context.Context) (*plan, error) {
	if err := p.settle(); err != nil {
		return nil, err
	}
	if extra := p.store.Len() - p.count; extra != 0 {
		return nil, fmt.Errorf("%w: %d of %d", ErrExtraObject, extra, p.store.Len())
	}
	p.leaveOut()
	if p.plan.links > 0 && p.t.Policy.Symlinks == SymlinksInside {
		if err := checkLinks(ctx, &p.plan, func(n *node) (string, error) { return linkText(p.store, p.have, n) }, p.t.Policy.Names); err != nil {
			return nil, err
		}
	}
	return &p.plan, nil
}

type planner struct {
	t       *target
	store   *pack.Store
	have    *have // nil: there is none
	names   *pathrule.Checker
	added   func(int32)        // nil, or told of each node but the root
	read    bool               // ready has read the commit
	root    fencepost.ObjectID // of the commit's tree, as ready has read it
	plan    plan
	reached []bool // objects that the tree names
	count   int    // of them
	paths   int64
	entered map[fencepost.ObjectID]struct{} // trees of directories walked
	again   bool                            // the directory being entered is one of those
	repeats int64                           // paths in such directories
	texts   int64                           // bytes of the links that are made
	stack   []frame
	spare   []child // memory for the next frame's
	buf     []byte  // content of the tree being read
	path    []byte  // path of the directory being walked, with its last slash
}

// A frame is a directory whose entries are being added. It holds all of
// them, each already counted as a path, and not the tree's bytes: the sum
// over a chain of directories stays within the budget of paths.
type frame struct {
	dir      int32
	children []child
	next     int // of children, the first that is not added yet
	pathLen  int // of planner.path, for this directory
}

type child struct {
	name string
	mode object.Mode
	have int32 // as in a node
	id   fencepost.ObjectID
}

// commit takes the tree and the parents from the commit.
func (p *planner) commit(id fencepost.CommitID) error {
	i, ok := p.store.Lookup(id.ObjectID)
	switch {
	case ok:
		if kind := p.store.Kind(i); kind != object.Commit {
			return fmt.Errorf("%w: %s is a %s", ErrNotCommit, id, kind)
		}
		p.reach(i)
		var err error
		if p.plan.content, err = p.store.Content(i, nil); err != nil {
			return host("read spool", err)
		}
	case p.have != nil && p.have.m.commit == id:
		p.plan.content = p.have.m.content
	default:
		return fmt.Errorf("%w: commit %s", ErrMissingObject, id)
	}
	facts, err := object.ParseCommit(p.plan.content)
	if err != nil {
		return fmt.Errorf("commit %s: %w", id, err)
	}
	p.plan.parents = facts.Parents
	root := node{parent: -1, mode: object.Dir, id: facts.Tree.ObjectID, have: noNode}
	if err := p.find(&root, func() string { return "." }); err != nil {
		return err
	}
	if p.have != nil {
		// Most trees are about as large as the one before them.
		p.plan.nodes = make([]node, 0, min(int64(len(p.have.m.nodes))+spareNodes, p.t.Budgets.Paths+1))
	}
	p.plan.nodes = append(p.plan.nodes, root)
	return nil
}

func (p *planner) reach(i pack.Index) {
	if n := p.store.Len(); n > len(p.reached) {
		p.reached = append(p.reached, make([]bool, n-len(p.reached))...)
	}
	if !p.reached[i] {
		p.reached[i] = true
		p.count++
	}
}

// find looks an object up that the tree names, and holds it to its kind. In the
// earlier checkout it looks unless it is known where it stands there.
func (p *planner) find(n *node, path func() string) error {
	n.object = noObject
	if p.have != nil && n.have == noNode {
		n.have = p.have.m.find(n.mode, n.id)
	}
	if i, ok := p.store.Lookup(n.id); ok {
		if kind, want := p.store.Kind(i), n.mode.Kind(); kind != want {
			return fmt.Errorf("%w: %q needs a %s, but %s is a %s", ErrObject, clip(path()), want, n.id, kind)
		}
		p.reach(i)
		n.object = i
	}
	if n.object == noObject && n.have == noNode && !n.out {
		return fmt.Errorf("%w: %s %s of %q", ErrMissingObject, n.mode.Kind(), n.id, clip(path()))
	}
	return nil
}

// settle finds the content of every file, and holds it to the budgets.
func (p *planner) settle() error {
	for i := range p.plan.nodes {
		n := &p.plan.nodes[i]
		if !isFile(n.mode) {
			continue
		}
		path := func() string { return pathOf(p.plan.nodes, int32(i)) }
		if err := p.find(n, path); err != nil {
			return err
		}
		switch {
		case n.object != noObject:
			n.size = p.store.Size(n.object)
		case n.have != noNode:
			n.size = p.have.m.nodes[n.have].size
		}
		if n.out {
			p.plan.out++
			continue
		}
		if err := p.charge(n, path); err != nil {
			return err
		}
	}
	return nil
}

// charge holds the content of one file to the budgets.
func (p *planner) charge(n *node, path func() string) error {
	b := &p.t.Budgets
	if n.size > b.FileBytes {
		return &BudgetError{Budget: BudgetFile, Limit: b.FileBytes, Path: clip(path())}
	}
	if n.size > b.OutputBytes-p.plan.output {
		return &BudgetError{Budget: BudgetOutput, Limit: b.OutputBytes, Path: clip(path())}
	}
	p.plan.output += n.size
	p.plan.files++
	if n.mode != object.Link {
		return nil
	}
	if n.size == 0 || n.size > maxLink {
		return &PathError{Path: clip(path()), Rule: ruleLinkTarget}
	}
	if n.size > b.LinkBytes-p.texts {
		return &BudgetError{Budget: BudgetLinkBytes, Limit: b.LinkBytes, Path: clip(path())}
	}
	p.texts += n.size
	return nil
}

// missing returns the blobs that are wanted, and neither received nor here.
func (p *planner) missing() []fencepost.ObjectID {
	seen := make(map[fencepost.ObjectID]struct{})
	var ids []fencepost.ObjectID
	for i := range p.plan.nodes {
		n := &p.plan.nodes[i]
		if !isFile(n.mode) || n.out {
			continue
		}
		if _, ok := p.store.Lookup(n.id); ok || p.have != nil && p.have.m.find(n.mode, n.id) != noNode {
			continue
		}
		if _, twice := seen[n.id]; !twice {
			seen[n.id] = struct{}{}
			ids = append(ids, n.id)
		}
	}
	return ids
}

// leaveOut leaves out the directories in which everything was, and counts
// those that are made. What is in a directory comes after it.
func (p *planner) leaveOut() {
	const some, none = 1, 2 // of a directory's files are there; or left out
	holds := make([]uint8, len(p.plan.nodes))
	for i := len(p.plan.nodes) - 1; i >= 0; i-- {
		n := &p.plan.nodes[i]
		if n.mode == object.Dir {
			if n.out = i > 0 && holds[i] == none; !n.out {
				p.plan.dirs++
			}
		}
		switch {
		case i == 0, n.mode == object.Gitlink:
		case n.out:
			holds[n.parent] |= none
		default:
			holds[n.parent] |= some
		}
	}
}

// walk adds every path below the root, without recursion. Unless all objects
// are there, it stops at the first directory whose tree is not.
func (p *planner) walk(ctx context.Context, all bool) error {
	for len(p.stack) > 0 {
		top := &p.stack[len(p.stack)-1]
		if top.next == len(top.children) {
			p.spare = top.children[:0]
			p.stack = p.stack[:len(p.stack)-1]
			continue
		}
		next := top.children[top.next]
		if !all && next.mode == object.Dir {
			if _, here := p.store.Lookup(next.id); !here {
				return nil
			}
		}
		top.next++
		p.path = p.path[:top.pathLen]
		i, err := p.add(top.dir, next)
		if err != nil {
			return err
		}
		if next.mode != object.Dir {
			continue
		}
		p.path = append(append(p.path, next.name...), '/')
		if err := p.enter(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// enter reads the tree of a directory and judges all its entries at once.
func (p *planner) enter(ctx context.Context, dir int32) error {
	n := &p.plan.nodes[dir]
	if _, p.again = p.entered[n.id]; !p.again {
		p.entered[n.id] = struct{}{}
	}
	var before int32 // of the earlier checkout, what the next entry stands for; 0 where nothing does
	if n.object == noObject {
		p.buf, before = p.have.m.tree(n.have, p.buf), p.have.m.first[n.have]
	} else {
		content, err := p.store.Content(n.object, p.buf)
		if err != nil {
			return host("read spool", err)
		}
		p.buf = content
	}
	p.names.Enter()
	f := frame{dir: dir, children: slices.Grow(p.spare, len(p.buf)/entryBytes), pathLen: len(p.path)}
	p.spare = nil
	for entries := object.NewTreeReader(p.buf); ; {
		if len(f.children)%namesPerCheck == 0 && ctx.Err() != nil {
			return stopped(ctx)
		}
		e, more, err := entries.Next()
		if err != nil {
			return fmt.Errorf("tree %s of %q: %w", p.plan.nodes[dir].id, clip(p.shown("")), err)
		}
		if !more {
			break
		}
		c := child{mode: e.Mode, id: e.ID, have: noNode}
		if before == 0 {
			c.name = string(e.Name)
		} else {
			was := &p.have.m.nodes[before]
			c.name = was.name
			if was.mode == object.Dir || isFile(was.mode) && !was.out {
				c.have = before
			}
			before = p.have.m.next[before]
		}
		if err := p.judge(c); err != nil {
			return err
		}
		f.children = append(f.children, c)
	}
	p.stack = append(p.stack, f)
	return nil
}

// shown returns the path of a name in the directory being walked.
func (p *planner) shown(name string) string {
	if s := string(p.path) + name; s != "" {
		return s
	}
	return "."
}

// judge holds one entry to the budgets of paths, the rules of names and the
// policies.
func (p *planner) judge(c child) error {
	b := &p.t.Budgets
	over := func(budget Budget, limit int64) error {
		return &BudgetError{Budget: budget, Limit: limit, Path: clip(p.shown(c.name))}
	}
	p.paths++
	if p.again {
		p.repeats++
	}
	switch {
	case p.paths > b.Paths:
		return over(BudgetPaths, b.Paths)
	case p.repeats > b.Repeats:
		return over(BudgetRepeats, b.Repeats)
	case len(p.stack)+1 > b.PathDepth:
		return over(BudgetDepth, int64(b.PathDepth))
	case len(c.name) > b.ComponentBytes:
		return over(BudgetComponent, int64(b.ComponentBytes))
	case len(p.path)+len(c.name) > b.PathBytes:
		return over(BudgetPath, int64(b.PathBytes))
	}
	rule := p.names.Check(c.name, ruleKind(c.mode))
	if rule == "" {
		rule = p.names.Add(c.name)
	}
	switch {
	case rule != "":
	case c.mode == object.Link && p.t.Policy.Symlinks == SymlinksRefuse:
		rule = ruleSymlink
	case c.mode == object.Gitlink && p.t.Policy.Gitlinks == GitlinksRefuse:
		rule = ruleGitlink
	default:
		return nil
	}
	return &PathError{Path: clip(p.shown(c.name)), Rule: rule}
}

// clip bounds a path for an error, which may be one that is too long.
func clip(path string) string {
	const most = 512
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}

func ruleKind(m object.Mode) pathrule.Kind {
	switch m {
	case object.Link:
		return pathrule.Link
	case object.Dir:
		return pathrule.Dir
	case object.Gitlink:
		return pathrule.Gitlink
	}
	return pathrule.File
}

// add makes a node of an entry that was judged.
func (p *planner) add(dir int32, c child) (int32, error) {
	n := node{name: c.name, parent: dir, mode: c.mode, id: c.id, object: noObject, have: c.have}
	switch {
	case c.mode == object.Dir:
		if err := p.find(&n, func() string { return p.shown(c.name) }); err != nil {
			return 0, err
		}
	case isFile(c.mode):
		n.out = p.t.Select != nil && !p.t.Select(p.shown(c.name))
	}
	if c.mode == object.Link {
		p.plan.links++
		if limit := p.t.Budgets.Links; p.plan.links > limit {
			return 0, &BudgetError{Budget: BudgetLinks, Limit: limit, Path: clip(p.shown(c.name))}
		}
	}
	p.plan.nodes = append(p.plan.nodes, n)
	i := int32(len(p.plan.nodes) - 1)
	if p.added != nil {
		p.added(i)
	}
	return i, nil
}

// pathOf returns the path of a node, without a slash at its end; "" for the
// root.
func pathOf(nodes []node, i int32) string {
	n := &nodes[i]
	if n.parent < 0 {
		return ""
	}
	if n.parent == 0 {
		return n.name
	}
	return pathOf(nodes, n.parent) + "/" + n.name
}
