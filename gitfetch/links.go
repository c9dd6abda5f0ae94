package gitfetch

import (
	"context"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
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
	byPath  map[string]int32
	targets map[fencepost.ObjectID]string
	names   Names
}

// checkLinks proves of each link in the plan that it stays in the tree: its
// text does, read by itself, and so does the place it leads to through the
// tree's other links. A link may lead to nothing, as some in test data do, and
// what was left out is nothing.
func checkLinks(ctx context.Context, p *plan, text func(*node) (string, error), names Names) error {
	m := &linkModel{
		nodes:   p.nodes,
		byPath:  make(map[string]int32, len(p.nodes)),
		targets: make(map[fencepost.ObjectID]string),
		names:   names,
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.out {
			continue
		}
		m.byPath[pathOf(p.nodes, int32(i))] = int32(i)
		if _, known := m.targets[n.id]; known || n.mode != object.Link {
			continue
		}
		target, err := text(n)
		if err != nil {
			return err
		}
		m.targets[n.id] = target
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

// judge returns the rule that a link breaks, or "".
func (m *linkModel) judge(link int32) string {
	target := m.targets[m.nodes[link].id]
	if !m.legalText(target) {
		return ruleLinkTarget
	}
	dir := splitPath(pathOf(m.nodes, m.nodes[link].parent))
	depth := len(dir)
	for _, part := range strings.Split(target, "/") {
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
	return m.follow(dir, target)
}

// legalText reports whether a target is relative and free of what some
// system reads in another way.
func (m *linkModel) legalText(target string) bool {
	if target == "" || target[0] == '/' || hasControl([]byte(target)) || strings.Contains(target, `\`) {
		return false
	}
	return m.names == NamesPOSIX || !strings.Contains(target, ":")
}

// follow walks a target through the tree, from the directory at, whose slice
// it takes over.
func (m *linkModel) follow(at []string, target string) string {
	todo := strings.Split(target, "/")
	hops := 0
	nowhere := false // past what the tree holds
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && (len(at) == 0 || nowhere):
			// Behind a name that is not a directory of the tree, another
			// file system may find one whose parent is elsewhere.
			return ruleLinkEscape
		case part == "..":
			at = at[:len(at)-1]
			continue
		case nowhere:
			continue
		}
		at = append(at, part)
		i, ok := m.byPath[strings.Join(at, "/")]
		if !ok || m.nodes[i].mode != object.Dir && m.nodes[i].mode != object.Link {
			nowhere = true
			continue
		}
		if m.nodes[i].mode == object.Dir {
			continue
		}
		if hops++; hops > maxHops {
			return ruleLinkLoop
		}
		next := m.targets[m.nodes[i].id]
		if !m.legalText(next) {
			return ruleLinkTarget
		}
		at = at[:len(at)-1]
		todo = append(strings.Split(next, "/"), todo...)
	}
	return ""
}

func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
