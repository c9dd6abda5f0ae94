package github

import (
	"context"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// A reading is everything that one refresh learnt of an open request.
type reading struct {
	repository string
	subject    gate.Subject
	merge      merge
	head       gate.Commit
	rule       rule
	// onHead and onCandidate are what bears our check's name and is not ours.
	onHead, onCandidate []string
}

// Refresh implements [gate.Refresher]. Order: whose repository, then the
// request with its base and test merge, then what judges it.
func (l *Lane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	name, err := l.repository(ctx)
	if err != nil {
		return gate.Snapshot{}, err
	}
	m, err := l.findMerge(ctx, name, s)
	if err != nil {
		return gate.Snapshot{}, err
	}
	if m.ended {
		return gate.Snapshot{State: m.state, Repository: name}, nil
	}
	r := reading{repository: name, subject: s, merge: m}
	if err := l.readRest(ctx, &r); err != nil {
		return gate.Snapshot{}, err
	}
	return l.snapshot(r), nil
}

// readRest reads what does not depend on each other side by side.
func (l *Lane) readRest(ctx context.Context, r *reading) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		r.head, _, err = l.commit(ctx, r.repository, r.subject.Head)
		if isUnsettled(err) {
			err = &fencepost.Error{Op: "get commit", Reason: fencepost.ReasonProvider, Err: err}
		}
		return err
	})
	g.Go(func() (err error) {
		r.rule, err = l.readRule(ctx, r.repository)
		return err
	})
	g.Go(func() (err error) {
		r.onHead, err = l.foreign(ctx, r.repository, r.subject.Head, true)
		return err
	})
	if !r.merge.candidate.ID.IsZero() {
		// What stands on the test merge decides alone: trap 6. We never post
		// there, so nothing of that name may.
		g.Go(func() (err error) {
			r.onCandidate, err = l.foreign(ctx, r.repository, r.merge.candidate.ID, false)
			return err
		})
	}
	return g.Wait()
}

// state is the first thing that keeps the gate from being judged.
func (r reading) state() fencepost.Reason {
	switch {
	case !r.rule.proven():
		return fencepost.ReasonGateUnproven
	case len(r.onHead)+len(r.onCandidate) > 0:
		return fencepost.ReasonForeignStatus
	}
	return r.merge.state
}

func (l *Lane) snapshot(r reading) gate.Snapshot {
	return gate.Snapshot{
		State: r.state(), Revision: l.revision(r), Repository: r.repository,
		Base: r.merge.base, Head: r.head, Candidate: r.merge.candidate, Facts: l.facts(r),
	}
}

// revision digests what a verdict depends on. Of the test merge it takes tree
// and parents, not the id: GitHub may make the same merge anew, with another
// time in it, and nothing that was judged has changed then.
func (l *Lane) revision(r reading) fencepost.GateRevision {
	c := l.config
	e := fencepost.NewEncoder("fencepost.gate-revision/v1").
		Text("github").Text(l.client.base.String()).
		Int(c.Repository.ID).Int(c.Repository.OwnerID).
		Int(l.client.app.ID).Int(l.client.app.Installation).Text(string(l.grant.allow)).
		Int(r.subject.Number).Text(c.BaseRef).
		Bytes(r.merge.base.ID.ObjectID[:]).Bytes(r.merge.base.Tree.ObjectID[:]).
		Bytes(r.head.ID.ObjectID[:]).Bytes(r.head.Tree.ObjectID[:]).
		Bytes(r.merge.candidate.Tree.ObjectID[:]).List(len(r.merge.parents))
	for _, p := range r.merge.parents {
		e.Bytes(p.ObjectID[:])
	}
	e.Text(c.Check).Bool(r.rule.queue).List(len(r.rule.rulesets))
	for _, id := range r.rule.rulesets {
		e.Int(id)
	}
	e.List(len(r.rule.lax))
	for _, id := range r.rule.lax {
		e.Int(id)
	}
	for _, list := range [][]string{r.onHead, r.onCandidate} {
		e.List(len(list))
		for _, s := range list {
			e.Text(s)
		}
	}
	return e.Text(string(r.state())).Sum()
}

// facts is the same in words.
func (l *Lane) facts(r reading) []gate.Fact {
	c := l.config
	parents := "absent"
	if len(r.merge.parents) == 2 {
		// They were found to be base and head; the order is GitHub's.
		parents = r.merge.base.ID.String() + " " + r.head.ID.String()
	}
	facts := []gate.Fact{
		same("repository.id", strconv.FormatInt(c.Repository.ID, 10)),
		same("repository.owner_id", strconv.FormatInt(c.Repository.OwnerID, 10)),
		same("request.state", "open"),
		same("request.draft", "false"),
		same("request.head", r.subject.Head.String()),
		same("request.base", c.BaseRef),
		{Name: "test_merge.parents", Expected: r.merge.base.ID.String() + " " + r.head.ID.String(), Observed: parents},
	}
	facts = append(facts, r.rule.facts(c.Check, l.client.app.ID)...)
	return append(facts,
		gate.Fact{Name: "foreign.on_head", Expected: "0", Observed: strconv.Itoa(len(r.onHead))},
		gate.Fact{Name: "foreign.on_test_merge", Expected: "0", Observed: strconv.Itoa(len(r.onCandidate))},
	)
}

// same is a fact that, were it otherwise, would have ended the refresh.
func same(name, value string) gate.Fact {
	return gate.Fact{Name: name, Expected: value, Observed: value}
}
