package gate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// stage freezes p in the ledger. Before it there was no external write; after
// it there is never another execution. Invariant 6
func (e *evaluation) stage(ctx context.Context, p fencepost.Publication) end {
	if _, none := p.None(); !none {
		newest, err := e.pool.Standings.Advance(ctx, e.gate.Name, e.subject, e.standing())
		if err != nil {
			return stuck(ctx, "advance standing", err)
		}
		if e.standing().Before(newest) {
			if p, err = fencepost.NoPublication(fencepost.ReasonSuperseded); err != nil {
				return later{why: fencepost.ReasonOf(err)}
			}
		}
	}
	lease := e.pool.Limits.Lease
	// The publication lease counts from before this.
	publishing, cancel := context.WithTimeout(ctx, lease*7/8)
	defer cancel()
	asking, stop := context.WithTimeout(ctx, lease/8)
	defer stop()
	began := e.pool.Now()
	answer, err := e.pool.Ledger.Stage(asking, e.delivery, e.tenure.current(), p)
	if err != nil {
		return e.ledgerFailed(ctx, "stage", err)
	}
	switch a := answer.(type) {
	case fencepost.Staged:
		ev := e.leaseEvent(KindStaged, e.tenure.current(), e.pool.Now().Sub(began))
		ev.Reason, ev.Details = e.stagedAs(p)
		e.record(ctx, ev)
		return e.publish(publishing, a.Staged, a.Lease)
	case fencepost.Lost:
		return later{why: fencepost.ReasonLost, untold: "stage"}
	}
	return e.ledgerFailed(ctx, "stage", errors.New("unknown answer"))
}

// stagedAs says for people what was frozen.
func (e *evaluation) stagedAs(p fencepost.Publication) (fencepost.Reason, []Detail) {
	if why, none := p.None(); none {
		return why, []Detail{{"conclusion", "none"}}
	}
	v, err := e.gate.Lane.Inspect(p.Bytes())
	if err != nil {
		return fencepost.ReasonOf(err), nil
	}
	d := []Detail{{"conclusion", v.Conclusion.String()}}
	if v.Artifact != "" {
		d = append(d, Detail{"evidence", v.Artifact})
	}
	return v.Reason, d
}

// publish brings a staged publication to its end, on the first try and on
// every later one. ctx ends before the lease does.
func (w *work) publish(ctx context.Context, s fencepost.StagedPublication, l fencepost.Lease) end {
	if reason, none := s.Publication().None(); none {
		return w.complete(ctx, s, reason)
	}
	switch {
	case !l.Valid():
		// Another worker was told to publish: a claim says until when.
		return later{why: fencepost.ReasonNone, at: w.pool.Now().Add(minBusy)}
	case l.Window() < w.pool.Limits.Lease:
		// The ledger's leases are shorter than ours are held to be, and stay so.
		return later{why: fencepost.ReasonParameters, untold: "publish"}
	}
	began := w.pool.Now()
	p := publication{work: w, staged: s, document: s.Publication().Bytes()}
	outcome, err := p.show(ctx)
	err = why(ctx, err)
	ev := w.leaseEvent(KindPublished, l, w.pool.Now().Sub(began), Detail{"id", p.shown.ID})
	ev.Reason = outcome
	if err != nil {
		ev.Reason = fencepost.ReasonOf(err)
	}
	w.record(ctx, ev)
	if err != nil {
		return w.unpublished(ctx, err)
	}
	return w.complete(ctx, s, outcome)
}

// complete records that s is published, or that there is nothing to publish.
func (w *work) complete(ctx context.Context, s fencepost.StagedPublication, why fencepost.Reason) end {
	// Before the ledger has it: after a crash in between it is done again.
	if err := w.leaveEnded(ctx, why); err != nil {
		return stuck(ctx, "leave standing", err)
	}
	answer, err := w.pool.Ledger.Complete(ctx, w.delivery, s)
	if err != nil {
		return w.ledgerFailed(ctx, "complete", err)
	}
	switch answer.(type) {
	case fencepost.Completed:
		return done{why}
	case fencepost.Lost:
		// Somebody completed it, or the row is another: a claim tells.
		return later{why: fencepost.ReasonOutOfOrder, untold: "complete"}
	}
	return w.ledgerFailed(ctx, "complete", errors.New("unknown answer"))
}

// unpublished says when a staged publication is tried again. It stays staged
// for as long as it takes; people are told when that is long.
func (w *work) unpublished(ctx context.Context, err error) end {
	p := w.pool
	r := fencepost.ReasonOf(err)
	w.task.failures++
	p.log(ctx, "publish", w.delivery.ID(), err)
	at := p.Now().Add(max(p.backoff(w.task.failures), waitUntil(err).Sub(p.Now())))
	switch {
	case r == fencepost.ReasonPublishConflict:
		p.Alerts.Raise(Alert{Code: AlertPublishConflict, Subject: string(w.delivery.ID()), Reason: r})
		at = p.Now().Add(p.Limits.MaxBackoff)
	case r == fencepost.ReasonCredential:
		p.Alerts.Raise(Alert{Code: AlertCredential, Subject: string(w.gate.Name), Reason: r})
	case w.task.failures == p.Limits.PublishAttempts:
		p.Alerts.Raise(Alert{
			Code: AlertRetriesExhausted, Subject: string(w.delivery.ID()), Reason: r, Count: w.task.failures,
		})
	}
	return later{why: r, at: at}
}

// A publication is one attempt to have a staged document shown.
type publication struct {
	*work
	staged   fencepost.StagedPublication
	document []byte
	shown    Published
}

// show looks up whether the provider shows the document, and only where it
// certainly does not, and the gate is still the one that the document is for,
// asks it once to. outcome is none when it is shown, else why it never will be.
func (p *publication) show(ctx context.Context) (outcome fencepost.Reason, err error) {
	v, err := p.gate.Lane.Inspect(p.document)
	if err != nil || v.Evaluation != p.staged.Evaluation() || v.Subject != p.subject {
		return "", &fencepost.Error{Op: "inspect", Reason: fencepost.ReasonCorrupt, Err: err}
	}
	moved, cancel := p.readGate(ctx, v)
	defer cancel()
	found, lookErr := p.lookUp(ctx)
	switch {
	case fencepost.ReasonOf(lookErr) == fencepost.ReasonPublishConflict:
		// Nothing is written any more; it is over once the gate has moved on.
		if moved, err := moved(); err == nil && moved {
			return fencepost.ReasonSuperseded, nil
		}
		return "", lookErr
	case errors.Is(lookErr, ErrOvertaken):
		p.left.Store(true)
		return fencepost.ReasonSuperseded, nil
	case lookErr != nil && !errors.Is(lookErr, ErrNotYet):
		return "", lookErr
	case found:
		return "", p.written(ctx)
	case p.note.Written != "":
		// The provider took it, and nothing may be written again.
		return "", errorf("look up", fencepost.ReasonPublishConflict, "what was published is not shown any more")
	}
	switch moved, err := moved(); {
	case err != nil:
		return "", err
	case moved:
		return fencepost.ReasonSuperseded, p.retract(ctx)
	}
	if lookErr != nil {
		return p.hidden(lookErr)
	}
	return p.create(ctx)
}

// retract takes back what an attempt before this one may have shown in part.
func (p *publication) retract(ctx context.Context) error {
	if r, ok := p.gate.Lane.(Retracter); ok && !p.note.Sent.IsZero() {
		return r.Retract(ctx, p.document)
	}
	return nil
}

// lookUp asks whether the document is shown. After a write whose outcome is
// not known, one "no" is not enough: lists lag behind.
func (p *publication) lookUp(ctx context.Context) (found bool, err error) {
	looks := 1
	if !p.note.Sent.IsZero() {
		looks = p.pool.Limits.Looks
	}
	wait := p.pool.Limits.LookPause
	for look := range looks {
		if look > 0 {
			if err := pause(ctx, wait); err != nil {
				return false, err
			}
			wait *= 2
		}
		p.shown, found, err = p.gate.Lane.Find(ctx, p.document)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// readGate gives what tells whether the gate has moved. A first attempt reads
// that right away, while it looks up what is shown: neither needs the other.
// Later ones most likely find their document, and read only once they did not,
// which may be a while. cancel ends the reading and waits for its end.
func (p *publication) readGate(ctx context.Context, v Verdict) (moved func() (bool, error), cancel func()) {
	if !p.note.Sent.IsZero() {
		return func() (bool, error) { return p.moved(ctx, v) }, func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var is bool
	var err error
	var reading sync.WaitGroup
	reading.Go(func() { is, err = p.moved(ctx, v) })
	moved = func() (bool, error) {
		reading.Wait()
		return is, err
	}
	return moved, func() {
		stop()
		reading.Wait()
	}
}

// moved reads the gate again and reports whether it is provably another one
// than the document is for. Where it can't be read, that is an error, and the
// document stays staged. Invariant 9
func (p *publication) moved(ctx context.Context, v Verdict) (bool, error) {
	s, err := p.gate.Lane.Refresh(ctx, p.subject)
	if err != nil {
		return false, err
	}
	if s.Revision.IsZero() {
		p.left.Store(true)
	}
	if v.Revision.IsZero() {
		// A failure that never learnt what the gate is: it belongs to the head,
		// for as long as the request is open with it.
		return s.Revision.IsZero(), nil
	}
	return s.Revision != v.Revision, nil
}

// create has the provider write, once. That it is about to is remembered
// first, and what it took afterwards: two records, since after the second only
// look-up and Complete are tried again.
func (p *publication) create(ctx context.Context) (outcome fencepost.Reason, err error) {
	if err := p.announce(ctx); err != nil {
		return "", err
	}
	p.shown, err = p.gate.Lane.Create(ctx, p.document)
	if errors.Is(err, ErrUnknown) {
		found, lookErr := p.lookUp(ctx)
		switch {
		case errors.Is(lookErr, ErrOvertaken):
			err = lookErr
		case lookErr != nil:
			return "", lookErr
		case found:
			err = nil
		}
	}
	switch {
	case errors.Is(err, ErrOvertaken):
		p.left.Store(true)
		return fencepost.ReasonSuperseded, nil
	case errors.Is(err, ErrNotYet):
		return p.hidden(err)
	case err != nil:
		return "", err
	}
	return "", p.written(ctx)
}

// announce remembers that the write is about to be sent, unless the note is not
// as this worker knows it: then another one had the delivery since, because the
// machine slept, say, for longer than the lease and none of this process's
// timers knows. It may have sent it, or be done.
func (p *publication) announce(ctx context.Context) error {
	known, overtaken := p.note, false
	err := p.remember(ctx, func(n *Note) {
		if overtaken = !n.equal(known); !overtaken {
			n.Sent = p.pool.Now().UTC()
		}
	})
	if err == nil && overtaken {
		return errorf("announce", fencepost.ReasonOutOfOrder, "another worker had the delivery meanwhile")
	}
	return err
}

// written remembers what the provider took.
func (p *publication) written(ctx context.Context) error {
	if p.note.Written == p.shown.ID {
		return nil
	}
	return p.remember(ctx, func(n *Note) { n.Written = p.shown.ID })
}

func (p *publication) remember(ctx context.Context, change func(*Note)) error {
	note, err := p.pool.Notes.Change(ctx, p.delivery.Key(), change)
	if err != nil {
		return unavailable("remember", err)
	}
	p.note = note
	return nil
}

// hidden waits for a commit that the provider does not show, and ends the
// publication after too long.
func (p *publication) hidden(err error) (fencepost.Reason, error) {
	if !p.mayAppear() {
		return fencepost.ReasonOf(err), nil
	}
	return "", err
}

// mayAppear reports whether a commit that the provider does not show is still
// waited for. The wait begins anew after a restart.
func (w *work) mayAppear() bool {
	now := w.pool.Now()
	if w.task.hidden.IsZero() {
		w.task.hidden = now
	}
	return now.Sub(w.task.hidden) <= w.pool.Limits.NotYetVisible
}

// pause waits for d, or for the end of ctx and returns its cause.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
