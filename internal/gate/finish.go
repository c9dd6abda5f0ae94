package gate

import (
	"context"
	"time"

	"github.com/fencepost/fencepost"
)

// giveBack returns the task to the schedule for its next try.
func (w *work) giveBack(ctx context.Context, e later) {
	p, t := w.pool, w.task
	if e.why != fencepost.ReasonNone {
		// Somebody else's lease is not a failure of ours.
		t.retries++
		if e.untold != "" && e.why != t.reason {
			p.Log.WarnContext(ctx, "waiting", "delivery", string(w.deliveryID()), "op", e.untold, "reason", string(e.why))
		}
		t.reason = e.why
		p.stalls.move(t, w.stallOf(e), e.why)
	}
	if e.at.IsZero() {
		e.at = p.Now().Add(p.backoff(t.retries))
	}
	p.schedule.again(t, e.at)
}

// backoff is how long to wait before that retry.
func (p *Pool) backoff(retries int) time.Duration {
	return backoff(p.Limits.Backoff, p.Limits.MaxBackoff, retries, p.Chance)
}

// backoff is base doubled for each retry after the first, up to limit, and of
// that at least half, by chance, so that what failed together does not come
// back together.
func backoff(base, limit time.Duration, retries int, chance func(n time.Duration) time.Duration) time.Duration {
	d := base
	for range retries - 1 {
		if d >= limit/2 {
			d = limit
			break
		}
		d *= 2
	}
	return d/2 + chance(d/2+1)
}

// finish ends a delivery: recorded, then told to who waits for it, then
// forgotten, then taken out of the queue. A crash in between leaves it in the queue, where a claim is answered
// Completed, or it is refused again.
func (w *work) finish(ctx context.Context, kind Kind, how dropped) {
	p, t, why := w.pool, w.task, how.why
	// The end of the drain time must not leave a done delivery in the queue.
	ctx = context.WithoutCancel(ctx)
	e := w.event(kind)
	e.Reason = why
	w.alertEnd(kind, why)
	err := p.Journal.Record(ctx, e)
	if err != nil && kind == KindEnded {
		// The ledger has it too.
		p.log(ctx, "record event", e.Delivery, err)
		err = nil
	}
	if err == nil && kind == KindRefused && w.gate != nil {
		err = w.leave(ctx)
	}
	if err == nil {
		err = w.tell(ctx, why)
	}
	if err == nil && !how.staged && !w.key().IsZero() {
		// With what is staged, it must be remembered whether it was sent.
		err = p.Notes.Forget(ctx, w.key())
	}
	if err == nil {
		err = p.Queue.Done(ctx, t.ticket)
	}
	if err != nil {
		w.giveBack(ctx, stuck(ctx, "finish", err))
		return
	}
	p.stalls.move(t, stall{}, fencepost.ReasonNone)
	p.schedule.drop(t)
}

// tell tells the end to a sender that waits for it. Where no gate is known,
// nobody can ask.
func (w *work) tell(ctx context.Context, why fencepost.Reason) error {
	if w.gate == nil {
		return nil
	}
	if lane, ok := w.gate.Lane.(Awaited); ok {
		return lane.Ended(ctx, w.deliveryID(), why)
	}
	return nil
}

// leave makes the subject of a delivery that was begun and is now refused
// unknown again, so that healing asks the provider for it: a key that is
// revoked in mid-flow must not leave a request without a result for good. What
// the subject is comes from the note of then: the delivery's own bytes are not
// trusted any more. DESIGN §4
func (w *work) leave(ctx context.Context) error {
	key := w.task.ticket.Key
	if key.IsZero() {
		return nil
	}
	note, err := w.pool.Notes.Change(ctx, key, func(*Note) {})
	if err != nil {
		return err
	}
	if note.Entered != (Subject{}) {
		if err := w.pool.Standings.Leave(ctx, w.gate.Name, note.Entered); err != nil {
			return err
		}
	}
	return nil
}

// leaveEnded makes the subject of a delivery that ends without a result unknown
// again, where the request is not what the event named any more. It may become
// that once more without a new commit, and healing must notice if the event that
// says so is lost. A newer evaluation of the same head decides for itself. A
// request that is open with its head stays known: that its base or rule is
// another one is no missed delivery.
func (w *work) leaveEnded(ctx context.Context, why fencepost.Reason) error {
	switch why {
	case fencepost.ReasonDraft, fencepost.ReasonClosed:
	case fencepost.ReasonSuperseded:
		// After a crash it is not known any more which it was.
		if !w.left.Load() {
			return nil
		}
	default:
		return nil
	}
	newest, err := w.pool.Standings.Newest(ctx, w.gate.Name, w.subject)
	if err != nil || w.standing().Before(newest) {
		return err
	}
	return w.pool.Standings.Leave(ctx, w.gate.Name, w.subject)
}

func (w *work) standing() Standing {
	return Standing{Received: w.delivery.Received(), Delivery: w.delivery.Key()}
}

// alertEnd tells people of deliveries that ended without a result.
func (w *work) alertEnd(kind Kind, why fencepost.Reason) {
	p := w.pool
	subject := string(w.deliveryID())
	// However it ended: nobody waits for it any more.
	p.stalls.over(subject, AlertPublishConflict, AlertRetriesExhausted)
	switch {
	case kind == KindRefused:
		code := AlertMissedDelivery
		switch why {
		case fencepost.ReasonExpired, fencepost.ReasonRevoked, fencepost.ReasonTampered:
			code = AlertInboxExpired
		}
		p.Alerts.Raise(Alert{Code: code, Subject: subject, Reason: why, Age: p.Now().Sub(w.task.ticket.Received)})
	case why == fencepost.ReasonIdentity, why == fencepost.ReasonCommitGone, why == fencepost.ReasonProvider:
		p.Alerts.Raise(Alert{Code: AlertProvider, Subject: string(w.gate.Name), Reason: why})
	default:
		p.stalls.over(subject, AlertInboxExpired, AlertMissedDelivery, AlertLedgerCorrupt)
		if w.gate != nil {
			p.stalls.over(string(w.gate.Name), AlertCredential, AlertLedgerCorrupt, AlertLedgerCapacity)
		}
	}
}

// deliveryID is the delivery's name, as it was recorded where it can't be
// derived.
func (w *work) deliveryID() fencepost.DeliveryID {
	if w.delivery.Valid() {
		return w.delivery.ID()
	}
	return w.task.ticket.Delivery
}

// event begins an event of this delivery.
func (w *work) event(kind Kind, details ...Detail) Event {
	e := Event{At: w.pool.Now().UTC(), Kind: kind, Delivery: w.deliveryID(), Attempt: w.note.Failures + 1, Details: details}
	if w.gate != nil {
		e.Gate, e.Route = w.gate.Name, w.gate.Rule.Route
	}
	if w.delivery.Valid() {
		e.Anchor = w.delivery.Anchor()
	}
	return e
}

// leaseEvent is an event under a lease.
func (w *work) leaseEvent(kind Kind, l fencepost.Lease, took time.Duration, details ...Detail) Event {
	e := w.event(kind, details...)
	e.Evaluation, e.Fence, e.Took = l.Evaluation().String(), l.Fence().Uint64(), took
	return e
}

// record keeps an event that is also told elsewhere: its loss stops nothing.
func (w *work) record(ctx context.Context, e Event) {
	if err := w.pool.Journal.Record(ctx, e); err != nil {
		w.pool.log(ctx, "record event", e.Delivery, err)
	}
}
