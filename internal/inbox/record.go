package inbox

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
)

// Record records a request durably and returns when it is on stable storage.
// headers are those that the route's verifier needs. It uses body until it
// returns, and keeps nothing of it. ctx can end the wait for another call
// that records the same delivery; its own write is not given up once begun.
//
// Its error matches [ErrFull], [ErrClosed], [fencepost.ErrTooLarge],
// [fencepost.ErrZeroValue] or [durable.ErrPoisoned]. After an error the
// request may have been recorded all the same, unless it is [ErrFull].
func (b *Inbox) Record(ctx context.Context, d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) (Outcome, error) {
	meta, err := encodeMeta(d, headers, body, b.cfg.MaxBody, 0)
	if err != nil {
		return 0, err
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := b.begin(); err != nil {
		return 0, err
	}
	defer b.users.Done()
	for {
		r := &request{typ: frameEntry, meta: meta, body: body}
		a, err := b.admit(d, r)
		switch {
		case err != nil:
			return 0, err
		case a.flight != nil:
			// The first copy is on its way: its end decides.
			select {
			case <-a.flight.done:
				continue
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		case a.batch == nil:
			return a.outcome, nil
		}
		b.own.await(a.batch, a.leads)
		if r.err != nil {
			return 0, fmt.Errorf("record: %w", r.err)
		}
		return a.outcome, nil
	}
}

func recordedOf(d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) Recorded {
	return Recorded{
		Route: d.Route(), Received: d.Received(), Anchor: d.Anchor(), Headers: headers, Body: body,
		Key: d.Key(), Binding: d.Binding(), Lifetime: d.Lifetime(),
	}
}

// An admission is how Record goes on: wait for another copy's flight; wait
// for its own batch; or, with neither, answer at once.
type admission struct {
	flight  *batch
	batch   *batch
	leads   bool
	outcome Outcome
}

// admit looks at what is known of a delivery, and has r written if it is new.
func (b *Inbox) admit(d fencepost.AcceptedDelivery, r *request) (admission, error) {
	if err := b.root.Err(); err != nil {
		return admission{}, fmt.Errorf("record: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	end := endNanos(d.Lifetime().End())
	a := admission{outcome: Accepted}
	if e := b.index.byKey[d.Key()]; e != nil {
		switch {
		case e.binding != d.Binding():
			return admission{outcome: Conflict}, nil
		case e.state == flying:
			return admission{flight: e.flight}, nil
		case !EndsLater(end, e.end):
			return admission{outcome: Replayed}, nil
		}
		// To be recognised for longer it has to be on the disk (DESIGN §4).
		a.outcome = Replayed
	} else if b.index.count >= b.cfg.MaxEntries {
		return admission{}, &FullError{Bound: BoundEntries, RetryAfter: b.cfg.RetryAfter}
	}
	r.entry = &entry{
		key: d.Key(), binding: d.Binding(), received: d.Received().UnixNano(), end: end,
		log: b.own, state: flying,
	}
	b.index.enter(r.entry)
	a.batch, a.leads = b.own.join(r)
	r.entry.flight = a.batch
	return a, nil
}

// settle enters into the index what a commit has stored, and forgets what it
// has not. The leader calls it before anyone learns of the commit.
func (b *Inbox) settle(requests []*request) {
	stored := false
	b.mu.Lock()
	for _, r := range requests {
		switch {
		case r.typ == frameEntry && r.err != nil:
			b.index.drop(r.entry)
		case r.typ == frameEntry:
			r.entry.serial = r.lsn
			b.index.place(r.entry, r)
			b.index.store(r.entry)
			b.replace(r.entry)
			stored = true
		case r.typ == frameMoved && r.err == nil:
			b.moved(r)
		}
	}
	b.mu.Unlock()
	if stored {
		signal(b.news)
	}
	signal(b.work)
}

// replace decides between a stored entry and another of its key. Of two with
// one binding the one that is to be recognised longer stays, and the other is
// done with; unless that is handed out, when whoever has it says so, or what
// stays is not stored yet. Two bindings are two deliveries.
func (b *Inbox) replace(e *entry) {
	stays, goes := e, b.index.byKey[e.key]
	if goes == nil || goes == e {
		b.index.byKey[e.key] = e
		return
	}
	if goes.binding != e.binding {
		return
	}
	if !EndsLater(stays.end, goes.end) {
		stays, goes = goes, stays
	}
	if goes.state == ready && stays.state != flying {
		b.index.drop(goes)
		goes.log.markDone(goes.serial, reasonRepeated)
	}
	b.index.byKey[e.key] = stays
}

// reasonRepeated marks an entry as done that a repeat of it has replaced.
const reasonRepeated fencepost.Reason = "repeated"

// moved gives an entry the place of its copy.
func (b *Inbox) moved(r *request) {
	e := r.entry
	if e.state == gone {
		// Its mark may be in a segment that is removed before the copy's.
		e.log.markDone(e.serial, fencepost.ReasonNone)
		return
	}
	b.index.unplace(e)
	b.index.place(e, r)
}
