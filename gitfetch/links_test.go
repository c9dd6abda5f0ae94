package gitfetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
)

// A linkTree is a small tree with many links, as bytes of chance spell it.
type linkTree struct {
	plan  plan
	texts map[fencepost.ObjectID]string
}

// spell makes a tree. No two names of a directory fold to one, as under the
// portable policy.
func spell(chance []byte) linkTree {
	next := func(n int) int {
		if len(chance) == 0 {
			return 0
		}
		c := int(chance[0])
		chance = chance[1:]
		return c % n
	}
	names := []string{"a", "A", "b", "B", "\u00e9", "e\u0301", "STRASSE", "stra\u00dfe"}
	parts := []string{"..", "..", "..", ".", "", "x"}
	parts = append(parts, names...)
	t := linkTree{texts: make(map[fencepost.ObjectID]string)}
	t.plan.nodes = []node{{parent: -1, mode: object.Dir}}
	dirs, taken := []int32{0}, make(map[entryKey]bool)
	for i := byte(1); len(chance) > 0 && i < 24; i++ {
		n := node{parent: dirs[next(len(dirs))], name: names[next(len(names))], id: fencepost.ObjectID{i}}
		key := entryKey{n.parent, pathrule.Fold(n.name)}
		if taken[key] {
			continue
		}
		taken[key] = true
		switch next(8) {
		case 0:
			n.mode = object.File
		case 1, 2, 3:
			n.mode = object.Dir
			dirs = append(dirs, int32(len(t.plan.nodes)))
		default:
			n.mode = object.Link
			var text []string
			for range 1 + next(6) {
				text = append(text, parts[next(len(parts))])
			}
			t.texts[n.id] = strings.Join(text, "/")
		}
		t.plan.nodes = append(t.plan.nodes, n)
	}
	return t
}

// check returns what checkLinks says of the tree.
func (l *linkTree) check(t *testing.T) error {
	err := checkLinks(t.Context(), &l.plan, func(n *node) (string, error) { return l.texts[n.id], nil }, NamesPortable)
	if path, ok := errors.AsType[*PathError](err); err != nil && (!ok || path.Path == "") {
		t.Fatalf("err = %v", err)
	}
	return err
}

// leadsOut walks a link as a file system does that takes names for one by
// fold, and on which somebody made a directory of every name that is not in
// the tree. It reports whether the way ever goes above the root.
func (l *linkTree) leadsOut(link int32, fold func(string) string) bool {
	children := make(map[entryKey]int32)
	for i, n := range l.plan.nodes[1:] {
		children[entryKey{n.parent, fold(n.name)}] = int32(i + 1)
	}
	const made, systemHops = -1, 40
	var at []int32 // below the root
	for i := l.plan.nodes[link].parent; i > 0; i = l.plan.nodes[i].parent {
		at = append([]int32{i}, at...)
	}
	todo := strings.Split(l.texts[l.plan.nodes[link].id], "/")
	for hops := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return true
			}
			at = at[:len(at)-1]
			continue
		}
		here := int32(0)
		if len(at) > 0 {
			here = at[len(at)-1]
		}
		i, ok := children[entryKey{here, fold(part)}]
		if !ok {
			i = made
		}
		if ok && l.plan.nodes[i].mode == object.Link {
			if hops++; hops > systemHops {
				return false // ELOOP
			}
			todo = append(strings.Split(l.texts[l.plan.nodes[i].id], "/"), todo...)
			continue
		}
		if ok && l.plan.nodes[i].mode == object.File && len(todo) > 0 {
			return false // ENOTDIR
		}
		at = append(at, i)
	}
	return false
}

// wantInside requires of an accepted tree that no link leads out, whichever
// way a file system takes names.
func (l *linkTree) wantInside(t *testing.T) {
	t.Helper()
	exact := func(name string) string { return name }
	for i, n := range l.plan.nodes {
		if n.mode != object.Link {
			continue
		}
		for how, fold := range map[string]func(string) string{"exact": exact, "folding": pathrule.Fold} {
			if l.leadsOut(int32(i), fold) {
				t.Fatalf("%q -> %q leads out on a file system of %s names; tree %v", pathOf(l.plan.nodes, int32(i)), l.texts[n.id], how, l.texts)
			}
		}
	}
}

func TestNoLinkThatIsMadeLeadsOut(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 8))
	const trees = 8_000
	accepted, out := 0, 0
	for range trees {
		chance := make([]byte, 10+rnd.IntN(60))
		for i := range chance {
			chance[i] = byte(rnd.Uint32())
		}
		tree := spell(chance)
		if tree.check(t) != nil {
			for i, n := range tree.plan.nodes {
				if n.mode == object.Link && tree.leadsOut(int32(i), pathrule.Fold) {
					out++
					break
				}
			}
			continue
		}
		if len(tree.texts) > 1 {
			accepted++
		}
		tree.wantInside(t)
	}
	// Both sides of the rule are met, or the test shows nothing.
	if accepted < trees/50 || out < trees/50 {
		t.Errorf("of %d trees %d with links are taken, and %d refused that lead out", trees, accepted, out)
	}
}

// TestJudgingLinksEndsWithItsContext at the next one, be it while their texts
// are read or after.
func TestJudgingLinksEndsWithItsContext(t *testing.T) {
	t.Parallel()
	const links = 20
	p := &plan{nodes: []node{{parent: -1, mode: object.Dir}}}
	for i := range byte(links) {
		p.nodes = append(p.nodes, node{name: string('a' + rune(i)), mode: object.Link, id: fencepost.ObjectID{i + 1}})
	}
	for asked, want := range map[int]int{0: 0, 7: 7, links: links, links + 3: links} {
		read := 0
		text := func(n *node) (string, error) { read++; return "to/" + n.name, nil }
		if err := checkLinks(&patience{t.Context(), asked}, p, text, NamesPortable); !errors.Is(err, context.Canceled) || read != want {
			t.Errorf("after %d questions: %d texts were read, err = %v, want %d, %v", asked, read, err, want, context.Canceled)
		}
	}
	if err := checkLinks(&patience{t.Context(), 2 * links}, p, func(*node) (string, error) { return "to", nil }, NamesPortable); err != nil {
		t.Errorf("in time: %v", err)
	}
}

func TestALinkHasSoManyNamesAtMost(t *testing.T) {
	t.Parallel()
	p := &plan{nodes: []node{{parent: -1, mode: object.Dir}, {name: "l", mode: object.Link, id: fencepost.ObjectID{1}}}}
	for text, want := range map[string]string{
		strings.Repeat("x/", maxLinkNames):        "",
		strings.Repeat("x/", maxLinkNames) + "x":  ruleLinkTarget,
		strings.Repeat("./", 2000) + "x":          "",
		strings.Repeat("/", 10) + "x":             ruleLinkTarget,
		"x" + strings.Repeat("/", 2000):           "",
		strings.Repeat("x/", maxLinkNames) + "..": ruleLinkEscape,
	} {
		err := checkLinks(t.Context(), p, func(*node) (string, error) { return text, nil }, NamesPortable)
		path, _ := errors.AsType[*PathError](err)
		if err != nil && path == nil || err == nil && want != "" || path != nil && path.Rule != want {
			t.Errorf("%d bytes: err = %v, want %q", len(text), err, want)
		}
	}
}

func FuzzLinks(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x00\x02\x04\x03\x00\x06\x01"))
	f.Add([]byte("\x00\x03\x01\x01\x01\x04\x02\x00\x00\x07\x00\x02\x05\x01\x06"))
	f.Fuzz(func(t *testing.T, chance []byte) {
		tree := spell(chance)
		if tree.check(t) == nil {
			tree.wantInside(t)
		}
	})
}
