package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A checkouts holds what an evaluation fetched, until its run has ended.
type checkouts struct {
	candidate Checkout
	action    *sharedAction
	// actionKept is set where the action was not fetched for this evaluation.
	actionKept bool
	// What was fetched, for the evidence; it outlives the files.
	candidateTree    fencepost.TreeID
	candidateParents []fencepost.CommitID
	// unclean is set when something of this evaluation could not be removed.
	unclean bool
}

// acquire fetches candidate and action by object id, and holds the candidate
// against what the provider said of it.
func (e *evaluation) acquire(ctx context.Context) error {
	source, err := e.gate.Lane.Source(e.first)
	if err != nil {
		return unavailable("acquire", err)
	}
	c := &e.checked
	c.candidate, err = e.fetch(ctx, "candidate", source, e.first.Candidate.ID, e.pool.Fetcher.Fetch)
	if err != nil {
		return err
	}
	c.candidateTree, c.candidateParents = c.candidate.Tree(), c.candidate.Parents()
	if c.candidateTree != e.first.Candidate.Tree || !e.first.combines(c.candidateParents) {
		return errorf("acquire", fencepost.ReasonProvider, "the fetched candidate is not what the provider's API says")
	}
	_, err = e.fetch(ctx, "action", e.gate.Plan.Action, e.gate.Plan.Commit, e.keepAction)
	if err != nil && fencepost.ReasonOf(err) == fencepost.ReasonCredential {
		// That is the plan's own: the provider would still take a failure.
		err = &fencepost.Error{Op: "fetch action", Reason: fencepost.ReasonAcquisition, Err: err}
	}
	return err
}

// combines reports whether a candidate of these parents is what the snapshot
// says: the head itself, which its lane has proven to contain the base, or the
// merge of exactly base and head, in either order.
func (s Snapshot) combines(parents []fencepost.CommitID) bool {
	return s.Candidate == s.Head ||
		len(parents) == 2 && s.Base.ID != s.Head.ID && slices.Contains(parents, s.Base.ID) && slices.Contains(parents, s.Head.ID)
}

// keepAction takes the action from what is kept, or fetches it.
func (e *evaluation) keepAction(ctx context.Context, r gitfetch.Request) (Checkout, error) {
	c, fresh, err := e.pool.actions.get(ctx, e.gate.Name, r)
	if err != nil {
		return nil, err
	}
	e.checked.action, e.checked.actionKept = c, !fresh
	return c, nil
}

func (e *evaluation) fetch(
	ctx context.Context, what string, s Source, id fencepost.CommitID,
	from func(context.Context, gitfetch.Request) (Checkout, error),
) (Checkout, error) {
	began := e.pool.Now()
	c, err := from(ctx, gitfetch.Request{
		URL: s.URL, Commit: id, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate,
		Policy: e.gate.Plan.Policy, Budgets: e.gate.Plan.Budgets, Now: e.pool.Now,
	})
	if errors.Is(err, gitfetch.ErrCleanup) {
		e.alertCleanup()
	}
	details := []Detail{{"what", what}, {"commit", id.String()}}
	if err == nil {
		details = append(details,
			Detail{"tree", c.Tree().String()},
			Detail{"files", strconv.FormatInt(c.Stats().Files, 10)})
		if what == "action" && e.checked.actionKept {
			details = append(details, Detail{"kept", "true"})
		} else {
			details = append(details, Detail{"wire_bytes", strconv.FormatInt(c.Stats().WireBytes, 10)})
		}
	}
	ev := e.leaseEvent(KindFetched, e.tenure.current(), e.pool.Now().Sub(began), details...)
	ev.Reason = reasonOf(ctx, err)
	e.record(ctx, ev)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", what, err)
	}
	return c, nil
}

// release begins to remove the checkouts, which nothing uses any more. The
// function that it returns waits until they are gone; it is called at every
// exit, and before anything is frozen. What can't be removed is an alert, and
// never a pass. DESIGN §6
func (e *evaluation) release() (released func() error) {
	var candidate, action error
	var removing sync.WaitGroup
	if c := e.checked.candidate; c != nil {
		removing.Go(func() { candidate = c.Remove() })
	}
	if c := e.checked.action; c != nil {
		action = c.Remove()
	}
	e.checked.candidate, e.checked.action = nil, nil
	return sync.OnceValue(func() error {
		removing.Wait()
		if err := errors.Join(candidate, action); err != nil {
			e.alertCleanup()
			return unavailable("remove checkouts", err)
		}
		if !e.checked.unclean {
			e.pool.Alerts.Resolve(AlertCleanupFailed, string(e.gate.Name))
		}
		return nil
	})
}

func (e *evaluation) alertCleanup() {
	e.checked.unclean = true
	e.pool.Alerts.Raise(Alert{Code: AlertCleanupFailed, Subject: string(e.gate.Name), Reason: fencepost.ReasonUnavailable})
}

// execute runs the program. The runner keeps the lease meanwhile.
func (e *evaluation) execute(ctx context.Context) error {
	record := e.pool.Runner.Run(ctx, e.job())
	e.run = &record
	if record.Cleanup != nil {
		e.alertCleanup()
	}
	var err error
	if f, ok := record.Outcome.(runner.Failed); ok {
		// The next run is not to rest on anything that this one met.
		e.checked.action.drop()
		err = &fencepost.Error{Op: "run", Reason: f.Reason, Err: f.Err}
	}
	if err == nil {
		// The gate is proven and a program concluded: what stood in the way of
		// that is over.
		for _, code := range []AlertCode{AlertProvider, AlertRetriesExhausted} {
			e.pool.Alerts.Resolve(code, string(e.gate.Name))
		}
	}
	ev := e.leaseEvent(KindRan, e.tenure.current(), record.Duration, runDetails(record)...)
	ev.Reason = reasonOf(ctx, err)
	e.record(ctx, ev)
	return err
}

func runDetails(r runner.Record) []Detail {
	var d []Detail
	if c, ok := r.Outcome.(runner.Concluded); ok {
		d = append(d, Detail{"conclusion", string(c.Result.Conclusion)})
	}
	if r.Exit != nil {
		d = append(d, Detail{"exit", strconv.Itoa(r.Exit.Status)})
	}
	for _, p := range r.Protections {
		value := "off"
		if p.On {
			value = "on"
		}
		d = append(d, Detail{"protection." + string(p.Protection), value})
	}
	return d
}

func (e *evaluation) job() runner.Job {
	s, plan := e.first, e.gate.Plan
	lease := e.tenure.current()
	facts := make([]check.Evidence, len(s.Facts))
	for i, f := range s.Facts {
		facts[i] = check.Evidence{Name: f.Name, Value: f.Observed}
	}
	return runner.Job{
		Run:             lease.Evaluation().String() + ":" + lease.Fence().String(),
		Delivery:        e.delivery.ID(),
		Repository:      check.Repository{Provider: e.gate.Provider, ID: e.gate.RepositoryID, Name: s.Repository},
		Base:            check.Base{Ref: e.subject.BaseRef, Commit: s.Base.ID, Tree: s.Base.Tree},
		Head:            check.Revision{Commit: s.Head.ID, Tree: s.Head.Tree},
		CandidateCommit: s.Candidate.ID, ActionCommit: plan.Commit,
		Candidate: e.checked.candidate, Action: e.checked.action,
		Program: plan.Program, ProgramSHA256: plan.SHA256,
		Evidence: facts, Limits: plan.Limits, Lease: e.tenure,
	}
}
