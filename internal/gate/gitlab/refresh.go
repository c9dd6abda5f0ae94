package gitlab

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// A reading is everything that one refresh learnt.
type reading struct {
	repository string
	subject    gate.Subject
	// ended is why the job's pipeline is not the train's any more, or none.
	ended fencepost.Reason
	// settings are what each needed one is, in a fixed order.
	settings []setting
	// What the train's commit merges; zero where it was not read.
	base, head, candidate gate.Commit
}

// Refresh implements [gate.Refresher]. Order: the project, the job, the request,
// the train, the branch's protection and the policy, at once; then the commits
// that they name; last, if no car's commit is the base, the tip of the branch.
// The train is read before the tip, since a car that is merged meanwhile leaves
// the one and is the other.
func (l *Lane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	r, err := l.look(ctx, s)
	switch {
	case err != nil:
		return gate.Snapshot{}, err
	case !allMet(r.settings):
		// Also of a job whose train is gone: what it was is no gate.
		return l.snapshot(r, fencepost.ReasonGateUnproven), nil
	case r.ended != fencepost.ReasonNone:
		return gate.Snapshot{State: r.ended, Repository: r.repository}, nil
	}
	return l.snapshot(r, fencepost.ReasonNone), nil
}

// answers are what the provider says of one subject.
type answers struct {
	project   projectAnswer
	job       *jobAnswer
	request   *requestAnswer
	cars      []carAnswer
	protected []protection
	policy    []setting
}

func (l *Lane) ask(ctx context.Context, s gate.Subject) (answers, error) {
	var a answers
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		a.project, err = l.project(ctx)
		return err
	})
	g.Go(func() (err error) {
		a.job, err = l.job(ctx, s.Job)
		return err
	})
	g.Go(func() (err error) {
		a.request, err = l.request(ctx, s.Number)
		return err
	})
	g.Go(func() (err error) {
		a.cars, err = l.cars(ctx)
		return err
	})
	g.Go(func() (err error) {
		a.protected, err = l.protections(ctx)
		return err
	})
	g.Go(func() (err error) {
		a.policy, err = l.policyOf(ctx, s.Job)
		return err
	})
	return a, g.Wait()
}

// look reads a subject and what belongs to it once.
func (l *Lane) look(ctx context.Context, s gate.Subject) (reading, error) {
	a, err := l.ask(ctx, s)
	if err != nil {
		return reading{}, err
	}
	t := trainOf(a.cars, l.config.Repository.ID, s.Number)
	r := reading{repository: a.project.Path, subject: s, settings: l.settings(s, a, t)}
	if r.ended, err = ended(s, a, t); err != nil || r.ended != fencepost.ReasonNone || !allMet(r.settings) {
		return r, err
	}
	m, err := l.merge(ctx, r.repository, s.Head)
	if err != nil {
		return reading{}, err
	}
	r.candidate = m.candidate
	base, head, ok := m.of(headOf(a.request))
	if !ok {
		// The request has another head by now, and its car is about to go.
		r.ended = fencepost.ReasonSuperseded
		return r, nil
	}
	r.base, r.head = base, head
	if base.ID == t.before {
		return r, nil
	}
	tip, err := l.tip(ctx)
	if err == nil && base.ID != tip {
		r.ended = fencepost.ReasonSuperseded
	}
	return r, err
}

// headOf is the head that the request has now; zero: none that can be one.
func headOf(a *requestAnswer) fencepost.CommitID {
	id, err := fencepost.ParseCommitID(a.SHA)
	if err != nil {
		return fencepost.CommitID{}
	}
	return id
}

// settings are all that a gate needs, in a fixed order. Of what is not there, a
// setting says so, unless the pipeline's end is why.
func (l *Lane) settings(s gate.Subject, a answers, t train) []setting {
	all := append(ofProject(a.project), ofBranch(a.protected)...)
	all = append(all, l.ofToken(s.Job)...)
	all = append(all, a.policy...)
	if a.job != nil {
		all = append(all, l.ofJob(s, *a.job)...)
	}
	if a.request == nil {
		all = append(all, setting{"request", "present", absent})
	} else {
		all = append(all, l.ofRequest(*a.request)...)
	}
	if mine(s, t) {
		all = append(all, ofCar(s, *t.mine)...)
	}
	return all
}

// mine reports whether the request's car is of the job's pipeline.
func mine(s gate.Subject, t train) bool {
	return t.mine != nil && t.mine.Pipeline != nil && t.mine.Pipeline.ID == s.Job.Pipeline
}

// ended tells whether the job's pipeline is still what keeps the request from
// being merged. What is only not shown yet is an error.
func ended(s gate.Subject, a answers, t train) (fencepost.Reason, error) {
	switch r := a.request; {
	case r == nil:
		return fencepost.ReasonNone, nil // a setting says it
	case r.State != "opened":
		return fencepost.ReasonClosed, nil
	case *r.Draft:
		return fencepost.ReasonDraft, nil
	}
	switch c := t.mine; {
	case c == nil:
		return fencepost.ReasonSuperseded, nil
	case c.Pipeline == nil:
		return "", forge.Fail("read train", fencepost.ReasonProvider, gate.ErrNotYet)
	case !mine(s, t):
		return fencepost.ReasonSuperseded, nil
	case c.Status != "idle" && c.Status != "fresh":
		// Stale ones get another pipeline; merging and merged ones were not
		// kept by this job.
		return fencepost.ReasonSuperseded, nil
	}
	switch j := a.job; {
	case j == nil:
		return "", forge.Fail("get job", fencepost.ReasonProvider, gate.ErrNotYet)
	case j.Status != "running":
		return fencepost.ReasonSuperseded, nil
	}
	return fencepost.ReasonNone, nil
}

func (l *Lane) snapshot(r reading, state fencepost.Reason) gate.Snapshot {
	return gate.Snapshot{
		State: state, Revision: l.revision(r, state), Repository: r.repository,
		Base: r.base, Head: r.head, Candidate: r.candidate, Facts: l.facts(r),
	}
}

// revision digests what a verdict depends on. Where the base stands, in the train
// or on the branch, is no part of it: it goes from the one to the other.
func (l *Lane) revision(r reading, state fencepost.Reason) fencepost.GateRevision {
	c := l.config
	e := fencepost.NewEncoder("fencepost.gate-revision/v1").
		Text("gitlab").Text(l.api).
		Int(c.Repository.ID).Int(c.Repository.OwnerID).
		Int(r.subject.Number).Text(c.BaseRef).Text(c.Check).
		Int(r.subject.Job.ID).Int(r.subject.Job.Pipeline)
	for _, commit := range []gate.Commit{r.base, r.head, r.candidate} {
		e.Bytes(commit.ID.ObjectID[:]).Bytes(commit.Tree.ObjectID[:])
	}
	e.List(len(r.settings))
	for _, s := range r.settings {
		e.Text(s.name).Text(s.seen)
	}
	return e.Text(string(state)).Sum()
}

// facts is the same in words.
func (l *Lane) facts(r reading) []gate.Fact {
	c := l.config
	facts := []gate.Fact{
		certain("project.id", decimal(c.Repository.ID)),
		certain("project.namespace_id", decimal(c.Repository.OwnerID)),
	}
	if allMet(r.settings) {
		// Were they otherwise, there would be no snapshot.
		facts = append(facts,
			certain("request.state", "opened"), certain("request.draft", "false"),
			certain("job.id", decimal(r.subject.Job.ID)), certain("job.status", "running"),
			certain("car.pipeline.id", decimal(r.subject.Job.Pipeline)), certain("car.status", "waiting"),
			certain("candidate.merges", "the request's head and the end of the train before it"))
	}
	for _, s := range r.settings {
		facts = append(facts, gate.Fact{Name: s.name, Expected: s.want, Observed: s.seen})
	}
	return facts
}

// certain is a fact that, were it otherwise, would have ended the refresh.
func certain(name, value string) gate.Fact {
	return gate.Fact{Name: name, Expected: value, Observed: value}
}
