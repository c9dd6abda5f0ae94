package gate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
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
	// left is set once the request was seen to be no more what the event
	// named: closed, a draft, or with another head or base branch.
	left atomic.Bool
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
	dropped struct {
		why fencepost.Reason
		// staged is set where a result of it stays staged: a repeat under a key
		// that is trusted publishes it.
		staged bool
	}
	// later: it is tried again. A zero at is the task's backoff.
	later struct {
		why fencepost.Reason
		at  time.Time
		// untold is what could not be done, where no event, log or alert has
		// told of it yet.
		untold string
	}
	// parked: another delivery of its request is being worked on.
	parked struct{}
	// gone: another process has it, which tells of its end.
	gone struct{}
)

func (done) isEnd()    {}
func (dropped) isEnd() {}
func (later) isEnd()   {}
func (parked) isEnd()  {}
func (gone) isEnd()    {}

// handle takes a task up once and gives it back to the schedule.
func (p *Pool) handle(ctx context.Context, t *task) {
	w := &work{pool: p, task: t}
	switch e := w.takeUp(ctx).(type) {
	case parked:
	case gone:
		p.stalls.move(t, stall{}, fencepost.ReasonNone)
		p.schedule.drop(t)
	case later:
		w.giveBack(ctx, e)
	case dropped:
		w.finish(ctx, KindRefused, e)
	case done:
		w.finish(ctx, KindEnded, dropped{why: e.why})
	}
}

// takeUp verifies what was recorded as ingress did, at the recorded time of
// receipt, and whether it may still become work, at the present. DESIGN §4
func (w *work) takeUp(ctx context.Context) end {
	recorded, err := w.pool.Queue.Read(ctx, w.task.ticket)
	if err != nil {
		return w.unread(ctx, err)
	}
	g, ok := w.pool.gates[recorded.Route]
	if !ok {
		return w.await(ctx, recorded, later{why: fencepost.ReasonUnavailable, untold: "find its gate in the configuration"})
	}
	w.gate = g
	proof, err := fencepost.Authenticate(
		fencepost.NewIngressCheck(recorded.Route, recorded.Headers, recorded.Body, recorded.Received), g.Trust)
	if errors.Is(err, fencepost.ErrUnauthenticated) {
		return w.refuse(ctx, w.untrue(recorded))
	}
	if err != nil { // nobody has said that it is not authentic
		return w.await(ctx, recorded, stuck(ctx, "verify", err))
	}
	if w.delivery, err = fencepost.Accept(proof, g.Rule, recorded.Headers, recorded.Body); err != nil {
		return w.refuse(ctx, fencepost.ReasonTampered)
	}
	w.task.key = w.delivery.Key()
	if w.subject, err = g.Lane.Admit(recorded.Headers, recorded.Body); err != nil {
		if over := w.unwanted(ctx, fencepost.ReasonOf(err)); over != nil {
			return over
		}
	}
	if !w.pool.schedule.enter(w.task, lineKey{g.Name, w.subject.Number}) {
		return parked{}
	}
	return w.begin(ctx)
}

// row is what the ledger knows of the delivery, under the key that it was
// recorded under where nothing proves one.
func (w *work) row(ctx context.Context) (ledger.Row, error) {
	rows, ok := w.pool.Ledger.(Rows)
	if !ok || w.key().IsZero() {
		return ledger.Row{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.pool.Limits.Lease/8)
	defer cancel()
	row, _, err := rows.Lookup(ctx, w.key())
	return row, err
}

// key is the delivery's, as it was recorded where it can't be derived.
func (w *work) key() fencepost.DeliveryKey {
	if w.delivery.Valid() {
		return w.delivery.Key()
	}
	return w.task.ticket.Key
}

// refuse ends a delivery that nothing proves any more: no claim can be made
// for it, not even to publish what is staged. What has reached its end was
// only not taken out of the queue.
func (w *work) refuse(ctx context.Context, why fencepost.Reason) end {
	row, err := w.row(ctx)
	switch {
	case err != nil:
		return stuck(ctx, "look up delivery", err)
	case row.State == ledger.Done:
		return done{fencepost.ReasonNone}
	}
	return dropped{why: why, staged: row.State == ledger.Staged}
}

// unwanted ends a delivery that the policy does not let in any more: it has
// changed since it was recorded. What is staged goes on under the subject that
// it is for; whether the gate is still that one is asked before it is written.
func (w *work) unwanted(ctx context.Context, why fencepost.Reason) end {
	row, err := w.row(ctx)
	switch {
	case err != nil:
		return stuck(ctx, "look up delivery", err)
	case row.State == ledger.Done:
		return done{fencepost.ReasonNone}
	case row.State != ledger.Staged:
		return dropped{why: why}
	}
	if _, none := row.Publication.None(); none {
		return nil
	}
	v, err := w.gate.Lane.Inspect(row.Publication.Bytes())
	if err != nil {
		return stuck(ctx, "inspect what is staged", err)
	}
	w.subject = v.Subject
	return nil
}

// await waits for what nothing can be done without, as long as a delivery may
// wait to become work; with a result that is staged, for ever.
func (w *work) await(ctx context.Context, r Recorded, e later) end {
	row, err := w.row(ctx)
	switch {
	case err != nil:
		return stuck(ctx, "look up delivery", err)
	case row.State == ledger.Done:
		return done{fencepost.ReasonNone}
	case row.State != ledger.Staged && w.pool.Now().Sub(r.Received) > w.pool.Limits.QueueAge:
		return dropped{why: fencepost.ReasonExpired}
	}
	return e
}

// unread says what becomes of an entry that can't be read.
func (w *work) unread(ctx context.Context, err error) end {
	if errors.Is(err, ErrNotHeld) {
		return gone{}
	}
	if fencepost.ReasonOf(err) == fencepost.ReasonCorrupt {
		return w.refuse(ctx, fencepost.ReasonTampered)
	}
	return stuck(ctx, "read entry", err)
}

// untrue tells a key that was taken away from bytes that were altered.
func (w *work) untrue(r Recorded) fencepost.Reason {
	if r.Anchor != "" && !w.gate.Trust.Trusts(r.Anchor) {
		return fencepost.ReasonRevoked
	}
	return fencepost.ReasonTampered
}

// begin judges the age of a delivery and claims it. One that never was work
// may be as old as the queue age; one that is may take longer; one with a
// result, staged or published, may be of any age: invariant 9 keeps what is
// not provably out of date staged, and an end that is recorded in the ledger
// stands, also where the queue has not heard of it.
func (w *work) begin(ctx context.Context) end {
	note, err := w.pool.Notes.Change(ctx, w.delivery.Key(), func(*Note) {})
	if err != nil {
		return stuck(ctx, "read note", err)
	}
	w.note = note
	age := w.pool.Now().Sub(w.delivery.Received())
	bound := w.gate.Rule.Window.MaxQueueAge
	if note.Starts > 0 {
		bound = max(bound, w.pool.Limits.MaxWorkAge)
	}
	if age <= bound {
		return w.claim(ctx)
	}
	switch row, err := w.row(ctx); {
	case err != nil:
		return stuck(ctx, "look up delivery", err)
	case row.State == ledger.Staged, row.State == ledger.Done:
		return w.claim(ctx)
	}
	return dropped{why: fencepost.ReasonExpired}
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
		return dropped{why: fencepost.ReasonBindingConflict}
	case fencepost.Full:
		return later{why: fencepost.ReasonFull, untold: "claim"}
	case fencepost.Expired:
		return dropped{why: fencepost.ReasonExpired}
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
	return stuck(ctx, "ledger "+op, err)
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
