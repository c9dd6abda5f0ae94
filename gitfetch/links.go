package gitfetch

import (
	"context"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
)

// Rules that are not about names alone, as [PathError] carries them.
const (
	ruleSymlink    = "symlink"
	ruleGitlink    = "gitlink"
	ruleLinkTarget = "link-target"
	ruleLinkEscape = "link-escape"
	ruleLinkLoop   = "link-loop"
)

// maxHops is how many links one link may lead through.
const maxHops = 8

// A linkModel is a tree as its links see it.
type linkModel struct {
	nodes   []node
	entries map[entryKey]int32
	targets map[fencepost.ObjectID]linkTarget
	names   *pathrule.Checker
}

type entryKey struct {
	dir  int32
	name string
}

// A linkTarget is what a link says, and whether any link may say it.
type linkTarget struct {
	parts []string
	legal bool
}

// checkLinks proves of each link in the plan that it stays in the tree: its
// text does, read by itself, and so does the place it leads to through the
// tree's other links. A link may lead to nothing, as some in test data do, and
// what was left out is nothing.
func checkLinks(ctx context.Context, p *plan, text func(*node) (string, error), names Names) error {
	m := &linkModel{
		nodes:   p.nodes,
		entries: make(map[entryKey]int32, len(p.nodes)),
		targets: make(map[fencepost.ObjectID]linkTarget),
		names:   pathrule.NewChecker(names.rules()),
	}
	for i := 1; i < len(p.nodes); i++ {
		n := &p.nodes[i]
		if n.out {
			continue
		}
		m.entries[entryKey{n.parent, n.name}] = int32(i)
		if _, known := m.targets[n.id]; known || n.mode != object.Link {
			continue
		}
		target, err := text(n)
		if err != nil {
			return err
		}
		m.targets[n.id] = m.read(target)
	}
	for i := range p.nodes {
		if p.nodes[i].mode != object.Link || p.nodes[i].out {
			continue
		}
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		if rule := m.judge(int32(i)); rule != "" {
			return &PathError{Path: clip(pathOf(p.nodes, int32(i))), Rule: rule}
		}
	}
	return nil
}

// read takes a link's text apart. It is legal if it is relative, free of what
// some system reads in another way, and each of its parts but "." and ".." is
// a name that a tree may hold: so it is no other spelling of those, nor of
// ".git".
func (m *linkModel) read(target string) linkTarget {
	parts := strings.Split(target, "/")
	legal := target != "" && target[0] != '/' && !hasControl([]byte(target)) && !strings.Contains(target, `\`)
	for _, part := range parts {
		if part != "" && part != "." && part != ".." && m.names.Check(part, pathrule.File) != "" {
			legal = false
		}
	}
	return linkTarget{parts, legal}
}

// judge returns the rule that a link breaks, or "".
func (m *linkModel) judge(link int32) string {
	target := m.targets[m.nodes[link].id]
	if !target.legal {
		return ruleLinkTarget
	}
	dir := m.nodes[link].parent
	depth := 0
	for at := dir; at > 0; at = m.nodes[at].parent {
		depth++
	}
	for _, part := range target.parts {
		switch part {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			return ruleLinkEscape
		}
	}
	return m.follow(dir, target.parts)
}

// follow walks a target through the tree, from the directory at.
func (m *linkModel) follow(at int32, todo []string) string {
	hops := 0
	nowhere := false // past what the tree holds
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && (at == 0 || nowhere):
			// Behind a name that is not a directory of the tree, another
			// file system may find one whose parent is elsewhere.
			return ruleLinkEscape
		case part == "..":
			at = m.nodes[at].parent
			continue
		case nowhere:
			continue
		}
		i, ok := m.entries[entryKey{at, part}]
		switch {
		case ok && m.nodes[i].mode == object.Dir:
			at = i
			continue
		case !ok || m.nodes[i].mode != object.Link:
			nowhere = true
			continue
		}
		if hops++; hops > maxHops {
			return ruleLinkLoop
		}
		next := m.targets[m.nodes[i].id]
		if !next.legal {
			return ruleLinkTarget
		}
		todo = append(slices.Clone(next.parts), todo...)
	}
	return ""
}

func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
