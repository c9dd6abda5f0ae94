package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// A work is one take-up of a delivery: verified, admitted, and its own
// worker's.
type work struct {
	pool     *Pool
	gate     *Gate
	task     *task
	delivery fencepost.AcceptedDelivery
	subject  Subject
	note     Note
}

// An end is how a take-up ended. The set is closed.
//
//sumtype:decl
type end interface{ isEnd() }

type (
	// done: the delivery has reached its end, why being none where its result
	// is published.
	done struct{ why fencepost.Reason }
	// dropped: it never becomes work.
	dropped struct{ why fencepost.Reason }
	// later: it is tried again. A zero at is the task's backoff.
	later struct {
		why fencepost.Reason
		at  time.Time
	}
	// parked: another delivery of its request is being worked on.
	parked struct{}
)

func (done) isEnd()    {}
func (dropped) isEnd() {}
func (later) isEnd()   {}
func (parked) isEnd()  {}

// handle takes a task up once and gives it back to the schedule.
func (p *Pool) handle(ctx context.Context, t *task) {
	w := &work{pool: p, task: t}
	switch e := w.takeUp(ctx).(type) {
	case parked:
	case later:
		w.giveBack(e)
	case dropped:
		w.finish(ctx, KindRefused, e.why)
	case done:
		w.finish(ctx, KindEnded, e.why)
	}
}

// takeUp verifies what was recorded as ingress did, at the recorded time of
// receipt, and whether it may still become work, at the present. DESIGN §4
func (w *work) takeUp(ctx context.Context) end {
	recorded, err := w.pool.Queue.Read(ctx, w.task.ticket)
	if err != nil {
		return w.unread(err)
	}
	g, ok := w.pool.gates[recorded.Route]
	if !ok {
		return w.orphan(recorded)
	}
	w.gate = g
	proof, err := fencepost.Authenticate(
		fencepost.NewIngressCheck(recorded.Route, recorded.Headers, recorded.Body, recorded.Received), g.Trust)
	if err != nil {
		return dropped{w.untrue(recorded)}
	}
	if w.delivery, err = fencepost.Accept(proof, g.Rule, recorded.Headers, recorded.Body); err != nil {
		return dropped{fencepost.ReasonTampered}
	}
	w.task.key = w.delivery.Key()
	if w.subject, err = g.Lane.Admit(recorded.Headers, recorded.Body); err != nil {
		// The policy has changed since it was recorded.
		return dropped{fencepost.ReasonOf(err)}
	}
	if !w.pool.schedule.enter(w.task, lineKey{g.Name, w.subject.Number}) {
		return parked{}
	}
	return w.begin(ctx)
}

// orphan waits for the gate to come back into the configuration, as long as a
// delivery may wait to become work.
func (w *work) orphan(r Recorded) end {
	if w.pool.Now().Sub(r.Received) > w.pool.Limits.QueueAge {
		return dropped{fencepost.ReasonExpired}
	}
	return later{why: fencepost.ReasonUnavailable}
}

// unread says what becomes of an entry that can't be read.
func (w *work) unread(err error) end {
	if fencepost.ReasonOf(err) == fencepost.ReasonCorrupt {
		return dropped{fencepost.ReasonTampered}
	}
	return later{why: fencepost.ReasonOf(err)}
}

// untrue tells a key that was taken away from bytes that were altered.
func (w *work) untrue(r Recorded) fencepost.Reason {
	if r.Anchor != "" && !w.gate.Trust.Trusts(r.Anchor) {
		return fencepost.ReasonRevoked
	}
	return fencepost.ReasonTampered
}

// begin judges the age of a delivery and claims it. One that never was work
// may be as old as the queue age; one that is may take longer.
func (w *work) begin(ctx context.Context) end {
	note, err := w.pool.Notes.Change(ctx, w.delivery.Key(), func(*Note) {})
	if err != nil {
		return later{why: reasonOf(ctx, err)}
	}
	w.note = note
	age := w.pool.Now().Sub(w.delivery.Received())
	bound := w.gate.Rule.Window.MaxQueueAge
	if note.Starts > 0 {
		bound = max(bound, w.pool.Limits.MaxWorkAge)
	}
	if age > bound {
		return dropped{fencepost.ReasonExpired}
	}
	return w.claim(ctx)
}

// claim asks the ledger for the delivery and does what it may.
func (w *work) claim(ctx context.Context) end {
	lease := w.pool.Limits.Lease
	// A publication lease counts from before the claim and can't be renewed:
	// what is done under it ends, whatever happens, before it does.
	publishing, cancel := context.WithTimeout(ctx, lease*7/8)
	defer cancel()
	asking, stop := context.WithTimeout(ctx, lease/8)
	defer stop()
	claimed := w.pool.Now()
	answer, err := w.pool.Ledger.Claim(asking, w.delivery)
	if err != nil {
		return w.ledgerFailed(ctx, "claim", err)
	}
	w.pool.Alerts.Resolve(AlertLedgerCapacity, string(w.gate.Name))
	switch a := answer.(type) {
	case fencepost.Acquired:
		w.record(ctx, w.leaseEvent(KindClaimed, a.Lease, w.pool.Now().Sub(claimed), w.subjectDetail()))
		return w.abandon(a.Lease, w.evaluate(ctx, a.Lease))
	case fencepost.Publish:
		w.record(ctx, w.leaseEvent(KindClaimed, a.Lease, w.pool.Now().Sub(claimed), w.subjectDetail(), Detail{"staged", "true"}))
		return w.abandon(a.Lease, w.publish(publishing, a.Staged, a.Lease))
	case fencepost.Busy:
		return later{why: fencepost.ReasonNone, at: w.pool.Now().Add(max(a.After, minBusy))}
	case fencepost.Completed:
		return done{fencepost.ReasonNone}
	case fencepost.BindingConflict:
		w.pool.Alerts.Raise(Alert{Code: AlertLedgerCorrupt, Subject: string(w.delivery.ID()), Reason: fencepost.ReasonBindingConflict})
		return dropped{fencepost.ReasonBindingConflict}
	case fencepost.Full:
		w.pool.Alerts.Raise(Alert{Code: AlertLedgerCapacity, Subject: string(w.gate.Name), Reason: fencepost.ReasonFull})
		return later{why: fencepost.ReasonFull}
	case fencepost.Expired:
		return dropped{fencepost.ReasonExpired}
	}
	return w.ledgerFailed(ctx, "claim", fmt.Errorf("unknown answer %T", answer))
}

// subjectDetail names what the event asks about, for people: "#7 5e1c309".
func (w *work) subjectDetail() Detail {
	return Detail{"subject", fmt.Sprintf("#%d %.7s", w.subject.Number, w.subject.Head)}
}

// abandon gives a lease up whose work has stopped before its end, so that the
// next attempt does not wait for the lease to lapse.
func (w *work) abandon(l fencepost.Lease, e end) end {
	if _, stopped := e.(later); stopped {
		if a, ok := w.pool.Ledger.(Abandoner); ok {
			a.Abandon(l)
		}
	}
	return e
}

// minBusy is the least time to wait for somebody else's lease.
const minBusy = 100 * time.Millisecond

// ledgerFailed is an answer that is not known: nothing is owned, and a later
// claim tells what is so.
func (w *work) ledgerFailed(ctx context.Context, op string, err error) end {
	r := reasonOf(ctx, err)
	switch r {
	case fencepost.ReasonCorrupt, fencepost.ReasonPoisoned, fencepost.ReasonParameters:
		w.pool.Alerts.Raise(Alert{Code: AlertLedgerCorrupt, Subject: string(w.delivery.ID()), Reason: r})
	}
	w.pool.log(ctx, "ledger "+op, w.delivery.ID(), err)
	return later{why: r}
}

// reasonOf is the public reason of an error, or that of the end of ctx where
// this is why it came.
func reasonOf(ctx context.Context, err error) fencepost.Reason {
	return fencepost.ReasonOf(why(ctx, err))
}

// waitUntil is when err says to try again; zero where it doesn't.
func waitUntil(err error) time.Time {
	if w, ok := errors.AsType[*WaitError](err); ok {
		return w.Until
	}
	return time.Time{}
}
