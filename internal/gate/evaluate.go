package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
)

// An evaluation is what happens under one execution lease.
type evaluation struct {
	*work
	tenure  *tenure
	started time.Time
	// What has been learnt so far; it all goes into the evidence.
	first, second Snapshot
	checked       checkouts
	run           *runner.Record
}

// evaluate goes the way of DESIGN §8 from claim to stage, and on to the end.
func (w *work) evaluate(ctx context.Context, l fencepost.Lease) end {
	e := &evaluation{
		work: w, started: w.pool.Now(),
		tenure: &tenure{ledger: w.pool.Ledger, delivery: w.delivery, lease: l},
	}
	p, err := e.conclude(ctx)
	if err != nil {
		var over end
		if p, over = e.settle(ctx, err); over != nil {
			return over
		}
	}
	return e.stage(ctx, p)
}

// conclude is an evaluation in which nothing goes wrong: begin → refresh →
// acquire → run → renew → refresh again → freeze. Every error carries the
// reason that decides what becomes of it.
func (e *evaluation) conclude(ctx context.Context) (fencepost.Publication, error) {
	var frozen fencepost.Publication
	err := e.tenure.during(ctx, e.pool.Now, func(ctx context.Context) (err error) {
		if e.first, err = e.begin(ctx); err != nil {
			return err
		}
		return e.acquire(ctx)
	})
	if err == nil {
		err = e.execute(ctx)
	}
	released := e.release()
	if err == nil {
		err = e.tenure.during(ctx, e.pool.Now, func(ctx context.Context) (err error) {
			if e.second, err = e.refresh(ctx); err != nil {
				return err
			}
			if err = e.compare(); err != nil {
				return err
			}
			if err = released(); err != nil {
				return err
			}
			frozen, err = e.freeze(ctx, e.verdict())
			return err
		})
	}
	// Its failure is told already, where it is not this error.
	_ = released()
	return frozen, why(ctx, err)
}

// begin counts the start while it reads the gate for the first time: neither
// needs the other. One that is known to be overtaken, or begun too often, asks
// the provider nothing.
func (e *evaluation) begin(ctx context.Context) (Snapshot, error) {
	newest, err := e.pool.Standings.Newest(ctx, e.gate.Name, e.subject)
	if err != nil {
		return Snapshot{}, unavailable("read standing", err)
	}
	next := e.note
	next.Starts++
	if e.mayBegin(next, newest) != nil {
		if err := e.enter(ctx); err != nil {
			return Snapshot{}, err
		}
		return e.refresh(ctx)
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	var first look
	var beside sync.WaitGroup
	beside.Go(func() { first = e.look(reading) })
	if err := e.enter(ctx); err != nil {
		cancel()
		beside.Wait() // what was cut off says nothing
		return Snapshot{}, err
	}
	beside.Wait()
	return e.looked(ctx, first)
}

// enter counts the start, and ends at once what a newer evaluation of the same
// head has overtaken, or what was begun too often.
func (e *evaluation) enter(ctx context.Context) error {
	note, err := e.pool.Notes.Change(ctx, e.delivery.Key(), func(n *Note) { n.Starts, n.Entered = n.Starts+1, e.subject })
	if err != nil {
		return unavailable("count start", err)
	}
	e.note = note
	newest, err := e.pool.Standings.Enter(ctx, e.gate.Name, e.subject)
	if err != nil {
		return unavailable("enter standing", err)
	}
	return e.mayBegin(note, newest)
}

// mayBegin is why an evaluation with that note, beside that newest one of its
// head, may not begin.
func (e *evaluation) mayBegin(note Note, newest Standing) error {
	switch {
	case e.standing().Before(newest):
		return errorf("begin", fencepost.ReasonSuperseded, "a newer evaluation of this head is staged")
	case note.Failures >= e.pool.Limits.Attempts:
		return errorf("begin", note.Reason, "%d attempts gave no conclusion", note.Failures)
	case note.Starts > e.pool.Limits.Starts:
		return errorf("begin", fencepost.ReasonRetriesExhausted, "begun %d times", note.Starts)
	}
	return nil
}

// refresh reads the gate. A state in which it can't be judged is an error with
// that reason, and the snapshot of it.
func (e *evaluation) refresh(ctx context.Context) (Snapshot, error) {
	return e.looked(ctx, e.look(ctx))
}

// A look is one reading of the gate.
type look struct {
	snapshot Snapshot
	err      error
	took     time.Duration
}

func (e *evaluation) look(ctx context.Context) look {
	began := e.pool.Now()
	s, err := e.gate.Lane.Refresh(ctx, e.subject)
	return look{s, err, e.pool.Now().Sub(began)}
}

// looked tells of a look and judges it.
func (e *evaluation) looked(ctx context.Context, l look) (Snapshot, error) {
	s, err := l.snapshot, l.err
	if err == nil && s.State != fencepost.ReasonNone {
		if s.Revision.IsZero() {
			e.left.Store(true)
		}
		err = errorf("refresh", s.State, "the gate can't be judged")
	}
	if err == nil {
		e.pool.Alerts.Resolve(AlertCredential, string(e.gate.Name))
		e.task.hidden = time.Time{}
	}
	ev := e.leaseEvent(KindRefreshed, e.tenure.current(), l.took, snapshotDetails(s)...)
	ev.Reason = reasonOf(ctx, err)
	e.record(ctx, ev)
	return s, err
}

func snapshotDetails(s Snapshot) []Detail {
	var d []Detail
	if !s.Head.ID.IsZero() {
		d = append(d, Detail{"base", s.Base.ID.String()}, Detail{"head", s.Head.ID.String()})
	}
	if !s.Candidate.ID.IsZero() {
		d = append(d, Detail{"candidate", s.Candidate.ID.String()})
	}
	if !s.Revision.IsZero() {
		d = append(d, Detail{"revision", s.Revision.String()})
	}
	return d
}

// compare holds the second refresh against the first. Invariant 9
func (e *evaluation) compare() error {
	switch {
	case e.second.Revision == e.first.Revision && !e.first.Revision.IsZero():
		return nil
	case e.second.Moved(e.first):
		return errorf("compare", fencepost.ReasonSuperseded, "head or base moved on during the run")
	}
	return errorf("compare", fencepost.ReasonGateChanged, "rule or authorization changed during the run")
}

// settle says what becomes of an evaluation without a conclusion: either it is
// over for now, or p is what is staged.
func (e *evaluation) settle(ctx context.Context, err error) (p fencepost.Publication, over end) {
	r := fencepost.ReasonOf(err)
	e.pool.log(ctx, "evaluate", e.delivery.ID(), err)
	if errors.Is(err, ErrNotYet) && fateOf(r) == FateRetry && e.mayAppear() {
		// Nothing has failed yet; after that it is a failure like others.
		return p, e.putOff(ctx, later{why: r})
	}
	switch fateOf(r) {
	case FateNone:
		none, err := fencepost.NoPublication(r)
		if err != nil {
			return p, later{why: fencepost.ReasonOf(err)}
		}
		return none, nil
	case FateLost:
		return p, later{why: fencepost.ReasonLost}
	case FateWait:
		if r == fencepost.ReasonCredential {
			e.pool.Alerts.Raise(Alert{Code: AlertCredential, Subject: string(e.gate.Name), Reason: r})
		}
		return p, e.putOff(ctx, later{why: r, at: waitUntil(err)})
	case FateRetry:
		if again := e.countFailure(ctx, err); again != nil {
			return p, *again
		}
	case FateFail, FateDrop:
		switch r {
		case fencepost.ReasonGateUnproven:
			e.pool.Alerts.Raise(Alert{Code: AlertProvider, Subject: string(e.gate.Name), Reason: r})
		case fencepost.ReasonRetriesExhausted:
			e.alertExhausted(r, e.note.Starts)
		}
	}
	return e.fail(ctx, r)
}

// countFailure counts an attempt that gave no conclusion. It returns when to
// try again, or nil after the last attempt.
func (e *evaluation) countFailure(ctx context.Context, cause error) *later {
	r := fencepost.ReasonOf(cause)
	if e.note.Failures >= e.pool.Limits.Attempts {
		// Counted before a crash, which may have come before the alert.
		e.alertExhausted(r, e.note.Failures)
		return nil
	}
	note, err := e.pool.Notes.Change(ctx, e.delivery.Key(), func(n *Note) { n.Failures, n.Reason = n.Failures+1, r })
	if err != nil {
		again := stuck(ctx, "count failure", err)
		return &again
	}
	e.note = note
	if note.Failures < e.pool.Limits.Attempts {
		again := e.putOff(ctx, later{why: r, at: waitUntil(cause)})
		return &again
	}
	if r == fencepost.ReasonProvider {
		e.pool.Alerts.Raise(Alert{Code: AlertProvider, Subject: string(e.gate.Name), Reason: r})
	}
	e.alertExhausted(r, note.Failures)
	return nil
}

// alertExhausted tells that so many attempts led to no conclusion. The gate's
// next one that does ends the alert.
func (e *evaluation) alertExhausted(why fencepost.Reason, attempts int) {
	e.pool.Alerts.Raise(Alert{Code: AlertRetriesExhausted, Subject: string(e.gate.Name), Reason: why, Count: attempts})
}

// putOff records when an evaluation is tried again.
func (e *evaluation) putOff(ctx context.Context, l later) later {
	l.at = e.pool.Now().Add(max(l.at.Sub(e.pool.Now()), e.pool.backoff(e.task.retries+1)))
	ev := e.leaseEvent(KindRetrying, e.tenure.current(), 0, Detail{"next", l.at.UTC().Format(time.RFC3339)})
	ev.Reason = l.why
	e.record(ctx, ev)
	return l
}

// fail freezes a failure for a reason.
func (e *evaluation) fail(ctx context.Context, r fencepost.Reason) (p fencepost.Publication, over end) {
	err := e.tenure.during(ctx, e.pool.Now, func(ctx context.Context) (err error) {
		p, err = e.freeze(ctx, e.failure(r))
		return err
	})
	if err != nil {
		return p, stuck(ctx, "freeze failure", err)
	}
	return p, nil
}

// freeze stores the evidence and composes the exact bytes to publish. A pass
// needs evidence, a failure does without where none can be stored.
func (e *evaluation) freeze(ctx context.Context, v Verdict) (fencepost.Publication, error) {
	if v.Conclusion == Pass && v.Revision.IsZero() {
		return fencepost.Publication{}, errorf("freeze", fencepost.ReasonGateUnproven, "a pass for no gate")
	}
	ref, err := e.storeEvidence(ctx, v)
	if err != nil && v.Conclusion == Pass {
		return fencepost.Publication{}, &fencepost.Error{Op: "store evidence", Reason: fencepost.ReasonEvidence, Err: err}
	}
	if err != nil {
		e.pool.log(ctx, "store evidence", e.delivery.ID(), err)
	}
	v.Artifact = ref
	document, err := e.gate.Lane.Compose(v)
	if err != nil {
		return fencepost.Publication{}, unavailable("compose", err)
	}
	p, err := fencepost.NewPublication(document)
	if err != nil {
		return fencepost.Publication{}, unavailable("freeze", err)
	}
	return p, nil
}

// unavailable is a failure on our own side.
func unavailable(op string, err error) error {
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonUnavailable, Err: err}
}
