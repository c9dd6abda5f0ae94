package gitfetch

import (
	"context"
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

const (
	// maxHops is how many links one link may lead through.
	maxHops = 8
	// maxLinkNames is how many names a link's text may hold. No path of a tree
	// has more components, unless a budget was raised that far.
	maxLinkNames = 255
	// nodesPerCheck is how many nodes that are no links are passed between two
	// looks at whether to go on.
	nodesPerCheck = 1 << 10
)

// A linkModel is a tree as its links see it.
type linkModel struct {
	nodes   []node
	entries map[entryKey]int32
	texts   map[fencepost.ObjectID]string // of links, each legal by itself
	names   *pathrule.Checker
}

type entryKey struct {
	dir  int32
	name string
}

// checkLinks proves of each link in the plan that it stays in the tree: its
// text does, read by itself, and so does the place it leads to through the
// tree's other links. A link may lead to nothing, as some in test data do, and
// what was left out is nothing.
//
// It holds every distinct text, which the budget of links' bytes bounds, and
// walks a text without taking it apart.
func checkLinks(ctx context.Context, p *plan, text func(*node) (string, error), names Names) error {
	m := &linkModel{
		nodes:   p.nodes,
		entries: make(map[entryKey]int32, len(p.nodes)),
		texts:   make(map[fencepost.ObjectID]string),
		names:   pathrule.NewChecker(names.rules()),
	}
	for i := 1; i < len(p.nodes); i++ {
		n := &p.nodes[i]
		if (n.mode == object.Link || i%nodesPerCheck == 0) && ctx.Err() != nil {
			return stopped(ctx)
		}
		if n.out {
			continue
		}
		m.entries[entryKey{n.parent, n.name}] = int32(i)
		if _, known := m.texts[n.id]; known || n.mode != object.Link {
			continue
		}
		target, err := text(n)
		if err != nil {
			return err
		}
		if !m.legal(target) {
			return &PathError{Path: clip(pathOf(p.nodes, int32(i))), Rule: ruleLinkTarget}
		}
		m.texts[n.id] = target
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

// legal reports whether any link may say that: it is relative, free of what
// some system reads in another way, not of endless names, and each of its
// parts but "." and ".." is a name that a tree may hold, so that it is no other
// spelling of those, nor of ".git".
func (m *linkModel) legal(target string) bool {
	if target == "" || target[0] == '/' || hasControl([]byte(target)) || strings.Contains(target, `\`) {
		return false
	}
	names := 0
	for part := range strings.SplitSeq(target, "/") {
		if part == "" || part == "." || part == ".." {
			continue
		}
		if names++; names > maxLinkNames || m.names.Check(part, pathrule.File) != "" {
			return false
		}
	}
	return true
}

// judge returns the rule that a link breaks, or "".
func (m *linkModel) judge(link int32) string {
	target := m.texts[m.nodes[link].id]
	dir := m.nodes[link].parent
	depth := 0
	for at := dir; at > 0; at = m.nodes[at].parent {
		depth++
	}
	for part := range strings.SplitSeq(target, "/") {
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

// follow walks a target through the tree, from the directory at.
func (m *linkModel) follow(at int32, target string) string {
	todo := []string{target} // the rest of each text on the way, the innermost last
	nowhere := false         // past what the tree holds
	for hops := 0; len(todo) > 0; {
		top := len(todo) - 1
		part, rest, more := strings.Cut(todo[top], "/")
		if todo[top] = rest; !more {
			todo = todo[:top]
		}
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
		todo = append(todo, m.texts[m.nodes[i].id])
	}
	return ""
}

func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
