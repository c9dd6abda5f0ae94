package github

import (
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// Bounds of what a lane remembers of commits.
const (
	maxKnown        = 1024
	maxKnownParents = 8
)

// A commits remembers what commits are that GitHub has shown. Nothing of a
// commit can change under its id, so it is asked for each of them once: of the
// three times that an evaluation reads its gate, the last two ask for none.
// That a commit is still the request's is read each time, from what names it.
//
// The zero value remembers nothing yet.
type commits struct {
	mu sync.Mutex
	// Guarded by mu: at most maxKnown in both; when recent is full it becomes
	// older, and what was older is forgotten.
	recent, older map[fencepost.CommitID]known
}

// A known commit. Immutable.
type known struct {
	tree    fencepost.TreeID
	parents []fencepost.CommitID
}

// get returns a commit and its parents, which are not the caller's to change.
func (c *commits) get(id fencepost.CommitID) (gate.Commit, []fencepost.CommitID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.recent[id]
	if !ok {
		if k, ok = c.older[id]; ok {
			c.add(id, k)
		}
	}
	return gate.Commit{ID: id, Tree: k.tree}, k.parents, ok
}

// put remembers a commit as GitHub answered it. One of unusually many parents
// is none that a gate needs twice.
func (c *commits) put(commit gate.Commit, parents []fencepost.CommitID) {
	if len(parents) > maxKnownParents {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(commit.ID, known{commit.Tree, parents})
}

// add is called with mu held.
func (c *commits) add(id fencepost.CommitID, k known) {
	if len(c.recent) >= maxKnown/2 {
		c.older, c.recent = c.recent, nil
	}
	if c.recent == nil {
		c.recent = map[fencepost.CommitID]known{}
	}
	c.recent[id] = k
}
