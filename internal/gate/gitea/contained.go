package gitea

import (
	"context"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge"
)

// maxContained bounds the pairs of commits that a lane remembers; when there
// are more it begins anew.
const maxContained = 4096

// A contained remembers which heads are proven to contain which base tips. That
// can't change: it is a chain of commits, each of which was hashed. What was
// not proven is asked again, since it was the server's word.
//
// The zero value remembers nothing yet.
type contained struct {
	mu sync.Mutex
	// Guarded by mu:
	proven map[pair]bool
}

type pair struct{ head, base fencepost.CommitID }

func (c *contained) known(p pair) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proven[p]
}

func (c *contained) add(p pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proven == nil || len(c.proven) >= maxContained {
		c.proven = map[pair]bool{}
	}
	c.proven[p] = true
}

// contains reports whether commits that were fetched prove that head contains
// base. What can't be told within the budgets is an error: the provider's own
// flag is not believed. contracts/gitea.md, trap 4
func (l *Lane) contains(ctx context.Context, name string, head, base fencepost.CommitID) (bool, error) {
	const op = "prove that the head contains the base"
	p := pair{head, base}
	if l.contained.known(p) {
		return true, nil
	}
	s := l.source(name)
	found, err := gitfetch.Relate(ctx, gitfetch.Request{
		URL: s.URL, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Budgets: l.config.Budgets,
	}, head, base)
	if err != nil {
		return false, err
	}
	switch found.Relation {
	case gitfetch.RelationSame, gitfetch.RelationAhead:
		l.contained.add(p)
		return true, nil
	case gitfetch.RelationBehind, gitfetch.RelationApart:
		return false, nil
	}
	return false, forge.Fail(op, fencepost.ReasonProvider, errUntold)
}

// maxTrees bounds the commits whose trees a lane remembers; when there are more
// it begins anew.
const maxTrees = 4096

// A trees remembers the trees of commits that were hashed. The zero value
// remembers none yet.
type trees struct {
	mu sync.Mutex
	// Guarded by mu:
	of map[fencepost.CommitID]fencepost.TreeID
}

func (t *trees) known(id fencepost.CommitID) (fencepost.TreeID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tree, ok := t.of[id]
	return tree, ok
}

func (t *trees) add(id fencepost.CommitID, tree fencepost.TreeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || len(t.of) >= maxTrees {
		t.of = map[fencepost.CommitID]fencepost.TreeID{}
	}
	t.of[id] = tree
}
