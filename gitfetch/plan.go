package gitfetch

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
)

// maxLink is the longest text of a symbolic link.
const maxLink = 4095

// A node is one path of a verified tree: a directory, file, link or gitlink.
// Nodes stand in the order of the paths' bytes, with a slash after those of
// directories; so each directory comes right before all that is in it.
type node struct {
	name   string
	parent int32 // index of the directory; the root's own is -1
	object pack.Index
	mode   object.Mode
	id     fencepost.ObjectID
	size   int64 // of the blob; 0 for others
}

// A plan is a tree that was found to keep every rule, before a single file
// of it is written. nodes[0] is the root.
type plan struct {
	nodes   []node
	parents []fencepost.CommitID
	dirs    int64
	files   int64 // links made as files included
	links   int64
	output  int64 // bytes of all files
}

// makePlan checks that the store holds exactly commit and what its tree
// needs, and that the tree keeps the rules of the policy and the budgets.
// contracts: closure rule, names, per-path budgets.
func makePlan(ctx context.Context, t *target, store *pack.Store) (*plan, error) {
	p := &planner{
		t:       t,
		store:   store,
		names:   pathrule.NewChecker(t.Policy.Names.rules()),
		reached: make([]bool, store.Len()),
	}
	if err := p.commit(t.Commit); err != nil {
		return nil, err
	}
	if err := p.walk(ctx); err != nil {
		return nil, err
	}
	if p.count != store.Len() {
		return nil, fmt.Errorf("%w: %d of %d", ErrExtraObject, store.Len()-p.count, store.Len())
	}
	if p.plan.links > 0 && t.Policy.Symlinks == SymlinksInside {
		if err := checkLinks(ctx, &p.plan, store, t.Policy.Names); err != nil {
			return nil, err
		}
	}
	return &p.plan, nil
}

type planner struct {
	t       *target
	store   *pack.Store
	names   *pathrule.Checker
	plan    plan
	reached []bool // objects that the tree names
	count   int    // of them
	paths   int64
	stack   []frame
	buf     []byte // content of the tree being read
	path    []byte // path of the directory being walked, with its last slash
}

// A frame is a directory whose entries are being added. It holds all of
// them, each already counted as a path, and not the tree's bytes: the sum
// over a chain of directories stays within the budget of paths.
type frame struct {
	dir      int32
	children []child
	pathLen  int // of planner.path, for this directory
}

type child struct {
	name string
	mode object.Mode
	id   fencepost.ObjectID
}

// commit takes the tree and the parents from the commit.
func (p *planner) commit(id fencepost.CommitID) error {
	i, ok := p.store.Lookup(id.ObjectID)
	if !ok {
		return fmt.Errorf("%w: commit %s", ErrMissingObject, id)
	}
	if kind := p.store.Kind(i); kind != object.Commit {
		return fmt.Errorf("%w: %s is a %s", ErrNotCommit, id, kind)
	}
	p.reach(i)
	content, err := p.store.Content(i, nil)
	if err != nil {
		return host("read spool", err)
	}
	facts, err := object.ParseCommit(content)
	if err != nil {
		return fmt.Errorf("commit %s: %w", id, err)
	}
	p.plan.parents = facts.Parents
	root := node{parent: -1, mode: object.Dir, id: facts.Tree.ObjectID}
	if root.object, err = p.find(root.id, object.Tree, "."); err != nil {
		return err
	}
	p.plan.nodes = append(p.plan.nodes, root)
	return nil
}

func (p *planner) reach(i pack.Index) {
	if !p.reached[i] {
		p.reached[i] = true
		p.count++
	}
}

// find looks an object up that the tree names, and holds it to its kind.
func (p *planner) find(id fencepost.ObjectID, want object.Kind, path string) (pack.Index, error) {
	i, ok := p.store.Lookup(id)
	if !ok {
		return 0, fmt.Errorf("%w: %s %s of %q", ErrMissingObject, want, id, clip(path))
	}
	if kind := p.store.Kind(i); kind != want {
		return 0, fmt.Errorf("%w: %q needs a %s, but %s is a %s", ErrObject, clip(path), want, id, kind)
	}
	p.reach(i)
	return i, nil
}

// walk adds every path below the root, without recursion.
func (p *planner) walk(ctx context.Context) error {
	if err := p.enter(0); err != nil {
		return err
	}
	for len(p.stack) > 0 {
		top := &p.stack[len(p.stack)-1]
		if len(top.children) == 0 {
			p.stack = p.stack[:len(p.stack)-1]
			continue
		}
		next := top.children[0]
		top.children = top.children[1:]
		p.path = p.path[:top.pathLen]
		i, err := p.add(top.dir, next)
		if err != nil {
			return err
		}
		if next.mode != object.Dir {
			continue
		}
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		p.path = append(append(p.path, next.name...), '/')
		if err := p.enter(i); err != nil {
			return err
		}
	}
	return nil
}

// enter reads the tree of a directory and judges all its entries at once.
func (p *planner) enter(dir int32) error {
	p.plan.dirs++
	tree := p.plan.nodes[dir].object
	content, err := p.store.Content(tree, p.buf)
	if err != nil {
		return host("read spool", err)
	}
	p.buf = content
	p.names.Enter()
	f := frame{dir: dir, pathLen: len(p.path)}
	for entries := object.NewTreeReader(content); ; {
		e, more, err := entries.Next()
		if err != nil {
			return fmt.Errorf("tree %s of %q: %w", p.plan.nodes[dir].id, clip(p.shown("")), err)
		}
		if !more {
			break
		}
		c := child{name: string(e.Name), mode: e.Mode, id: e.ID}
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
	switch {
	case p.paths > b.Paths:
		return over(BudgetPaths, b.Paths)
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
	n := node{name: c.name, parent: dir, mode: c.mode, id: c.id}
	if c.mode != object.Gitlink {
		var err error
		if n.object, err = p.find(c.id, c.mode.Kind(), p.shown(c.name)); err != nil {
			return 0, err
		}
	}
	switch c.mode {
	case object.File, object.Program, object.Link:
		n.size = p.store.Size(n.object)
		p.plan.output += n.size
		if limit := p.t.Budgets.OutputBytes; p.plan.output > limit {
			return 0, &BudgetError{Budget: BudgetOutput, Limit: limit, Path: clip(p.shown(c.name))}
		}
		p.plan.files++
	}
	if c.mode == object.Link {
		if n.size == 0 || n.size > maxLink {
			return 0, &PathError{Path: clip(p.shown(c.name)), Rule: ruleLinkTarget}
		}
		p.plan.links++
		if limit := p.t.Budgets.Links; p.plan.links > limit {
			return 0, &BudgetError{Budget: BudgetLinks, Limit: limit, Path: clip(p.shown(c.name))}
		}
	}
	p.plan.nodes = append(p.plan.nodes, n)
	return int32(len(p.plan.nodes) - 1), nil
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
