package github

import (
	"context"
	"strconv"
	"sync"

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

// Refresh implements [gate.Refresher]. Order: whose repository; beside that,
// where the name was right the last time, the request and the tip of its base;
// then all that those two name, side by side.
func (l *Lane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	r, err := l.proven(ctx, s)
	if err != nil {
		return gate.Snapshot{}, err
	}
	if r.merge.ended {
		return gate.Snapshot{State: r.merge.state, Repository: r.repository}, nil
	}
	return l.snapshot(r), nil
}

// proven reads the request under the repository's name. One that was right the
// last time is proven beside the reading: what was read under a name that the
// repository does not have any more is dropped, whatever it says.
func (l *Lane) proven(ctx context.Context, s gate.Subject) (reading, error) {
	tried, right := l.lastName()
	if !right {
		name, err := l.repository(ctx)
		if err != nil {
			return reading{}, err
		}
		return l.settled(ctx, name, s)
	}
	reads, cancel := context.WithCancel(ctx)
	defer cancel()
	var name string
	var unproven error
	var proving sync.WaitGroup
	proving.Go(func() {
		if name, unproven = l.repository(ctx); name != tried {
			cancel()
		}
	})
	r, err := l.settled(reads, tried, s)
	proving.Wait()
	switch {
	case unproven != nil:
		return reading{}, unproven
	case name != tried:
		return l.settled(ctx, name, s)
	}
	return r, err
}

// look reads a request and what belongs to it once. What the merge comes to
// goes before any failure of the rest: while it is unsettled, the rest is of
// another one.
func (l *Lane) look(ctx context.Context, name string, s gate.Subject) (reading, error) {
	r := reading{repository: name, subject: s}
	named, err := l.named(ctx, name, s)
	if err != nil || named.ended != fencepost.ReasonNone {
		r.merge = merge{state: named.ended, ended: true}
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rest, restCtx := errgroup.WithContext(ctx)
	l.readRest(restCtx, rest, &r, named.candidate)
	if r.merge, err = l.readMerge(ctx, name, s, named); err != nil {
		cancel()
		_ = rest.Wait() // it was cut off, and of a merge that is not taken
		return reading{}, err
	}
	return r, rest.Wait()
}

// readRest reads what judges the request: at most six requests at a time.
func (l *Lane) readRest(ctx context.Context, g *errgroup.Group, r *reading, candidate fencepost.CommitID) {
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
	if !candidate.IsZero() {
		// What stands on the test merge decides alone: trap 6. We never post
		// there, so nothing of that name may.
		g.Go(func() (err error) {
			r.onCandidate, err = l.foreign(ctx, r.repository, candidate, false)
			return err
		})
	}
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
