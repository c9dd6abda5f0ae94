package gitfetch

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// A Commit is what a commit object says of its content and its history.
type Commit struct {
	ID      fencepost.CommitID
	Tree    fencepost.TreeID
	Parents []fencepost.CommitID
}

// Commits returns tip and the commits behind it, as far as they are at most
// depth deep: with 1 tip alone, with 2 its parents, too. Each hashes to its id.
// Where the history ends before, there are fewer; one that the server left out
// is an error that matches [ErrProtocol], a tip that it has not [ErrNotOurRef].
//
// A server that can't leave trees and files out sends those, too, which the
// budgets hold for. Commits may come to 32 MiB. The request's Commit, Dir,
// Policy, Sync, Select and Have are not looked at.
func Commits(ctx context.Context, req Request, tip fencepost.CommitID, depth int) (map[fencepost.CommitID]Commit, error) {
	const op = "gitfetch.commits"
	t, err := req.check()
	if err == nil && (tip.IsZero() || depth < 1) {
		err = fmt.Errorf("%w: commit and depth: must be set", ErrRequest)
	}
	if err != nil {
		return nil, sealed(op, err)
	}
	ctx, c, stop, err := converseAlone(ctx, t)
	if err != nil {
		return nil, sealed(op, err)
	}
	defer stop()
	found := make(map[fencepost.CommitID]Commit)
	r := &relater{c: c, each: func(id fencepost.CommitID, f object.CommitFacts) {
		found[id] = Commit{ID: id, Tree: f.Tree, Parents: f.Parents}
	}}
	if err := r.receive(ctx, &side{tip: tip}, depth); err != nil {
		return nil, sealed(op, causeOf(ctx, err))
	}
	asked, err := reached(found, tip, depth)
	if err != nil {
		return nil, sealed(op, err)
	}
	return asked, nil
}

// reached keeps what is at most depth deep under tip.
func reached(found map[fencepost.CommitID]Commit, tip fencepost.CommitID, depth int) (map[fencepost.CommitID]Commit, error) {
	kept := make(map[fencepost.CommitID]Commit)
	for next := []fencepost.CommitID{tip}; depth > 0 && len(next) > 0; depth-- {
		var behind []fencepost.CommitID
		for _, id := range next {
			if _, known := kept[id]; known {
				continue
			}
			c, ok := found[id]
			if !ok {
				return nil, fmt.Errorf("%w: commit %s is not in the answer", ErrProtocol, id)
			}
			kept[id] = c
			behind = append(behind, c.Parents...)
		}
		next = behind
	}
	return kept, nil
}
