package gitlab

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/gate"
)

// A train is what the cars of the base branch say of one pipeline.
type train struct {
	// mine is the request's car; nil: it is not in the train.
	mine *carAnswer
	// before is the commit of the car before it; zero: it is the first, or that
	// one has none.
	before fencepost.CommitID
}

// trainOf finds a request's car and what it stands behind. Cars are in the order
// of their ids.
func trainOf(cars []carAnswer, project, number int64) train {
	var t train
	for i := range cars {
		if c := &cars[i]; c.Request.IID == number && c.Request.ProjectID == project {
			t.mine = c
		}
	}
	if t.mine == nil {
		return train{}
	}
	var previous *carAnswer
	for i := range cars {
		if c := &cars[i]; c.ID < t.mine.ID && (previous == nil || c.ID > previous.ID) {
			previous = c
		}
	}
	if previous != nil && previous.Pipeline != nil {
		// An id that is none is that of no candidate's parent.
		t.before, _ = fencepost.ParseCommitID(previous.Pipeline.SHA)
	}
	return t
}

// maxMerges bounds the merges that a lane remembers; when there are more it
// begins anew.
const maxMerges = 4096

// A merge is a train's merge commit, and what the two commits are that it
// merges, each of which was hashed.
type merge struct {
	candidate gate.Commit
	parents   []gate.Commit
}

// of tells base and head apart. ok is false where the commit merges something
// else, or more.
func (m merge) of(head fencepost.CommitID) (base, request gate.Commit, ok bool) {
	if len(m.parents) != 2 || m.parents[0].ID == m.parents[1].ID {
		return gate.Commit{}, gate.Commit{}, false
	}
	for i, p := range m.parents {
		if p.ID == head {
			return m.parents[1-i], p, true
		}
	}
	return gate.Commit{}, gate.Commit{}, false
}

// merges remembers what merge commits are, which can't change.
//
// The zero value remembers nothing yet.
type merges struct {
	mu sync.Mutex
	// Guarded by mu:
	known map[fencepost.CommitID]merge
}

func (m *merges) get(id fencepost.CommitID) (merge, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.known[id]
	return found, ok
}

func (m *merges) add(found merge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMerges {
		m.known = map[fencepost.CommitID]merge{}
	}
	m.known[found.candidate.ID] = found
}

// merge reads a train's commit and those that it merges. The API tells no
// trees. contracts/gitlab.md, trap 22
func (l *Lane) merge(ctx context.Context, name string, id fencepost.CommitID) (merge, error) {
	if m, ok := l.merges.get(id); ok {
		return m, nil
	}
	s := l.source(name)
	found, err := gitfetch.Commits(ctx, gitfetch.Request{
		URL: s.URL, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Budgets: l.config.Budgets,
	}, id, 2)
	if err != nil {
		return merge{}, err
	}
	m := merge{candidate: gate.Commit{ID: id, Tree: found[id].Tree}}
	for _, p := range found[id].Parents {
		m.parents = append(m.parents, gate.Commit{ID: p, Tree: found[p].Tree})
	}
	m.parents = slices.Clip(m.parents)
	l.merges.add(m)
	return m, nil
}
