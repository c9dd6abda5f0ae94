package gitea

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// A pair is a head and a base tip. That the one contains the other can't change:
// it is a chain of commits, each of which was hashed.
type pair struct{ head, base fencepost.CommitID }

// contains reports whether commits that were fetched prove that head contains
// base. What can't be told within the budgets is an error: the provider's own
// flag is not believed. contracts/gitea.md, trap 4
func (l *Lane) contains(ctx context.Context, name string, head, base fencepost.CommitID) (bool, error) {
	const op = "prove that the head contains the base"
	p := pair{head, base}
	if _, ok := l.contained.known(p); ok {
		return true, nil
	}
	s := l.source(name)
	found, err := gitfetch.Relate(ctx, gitfetch.Request{
		URL: s.URL, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Budgets: l.config.Budgets,
	}, head, base)
	if errors.Is(err, gitfetch.ErrNotOurRef) || found.Doubt == gitfetch.DoubtGone {
		return false, notYet(op)
	}
	if err != nil {
		return false, err
	}
	switch found.Relation {
	case gitfetch.RelationSame, gitfetch.RelationAhead:
		l.contained.add(p, struct{}{})
		return true, nil
	case gitfetch.RelationBehind, gitfetch.RelationApart:
		return false, nil
	}
	return false, forge.Fail(op, fencepost.ReasonProvider, errUntold)
}

// notYet is the error of a commit that the API names and Git does not have:
// what a fork's request needs is copied in the background.
func notYet(op string) error { return forge.Fail(op, fencepost.ReasonProvider, gate.ErrNotYet) }
