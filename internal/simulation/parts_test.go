package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A queue is the inbox of one process, as its gates see it.
type queue struct {
	p     *process
	inbox *inbox.Inbox
}

// Next implements [gate.Queue]. It needs no token: what it hands out nobody
// else of this or another process can have.
func (q queue) Next(ctx context.Context) (gate.Ticket, error) {
	item, err := q.inbox.Next(ctx)
	if err != nil {
		return gate.Ticket{}, err
	}
	return gate.Ticket{ID: item.ID.String(), Received: item.Received, Delivery: item.Key.ID(), Key: item.Key}, nil
}

// Read implements [gate.Queue].
func (q queue) Read(ctx context.Context, t gate.Ticket) (gate.Recorded, error) {
	if err := q.p.step(ctx, "read", t.Key); err != nil {
		return gate.Recorded{}, err
	}
	id, err := inbox.ParseItemID(t.ID)
	if err != nil {
		return gate.Recorded{}, err
	}
	r, err := q.inbox.Read(ctx, id)
	if errors.Is(err, frame.ErrCorrupt) {
		return gate.Recorded{}, &fencepost.Error{Op: "inbox.read", Reason: fencepost.ReasonCorrupt, Err: err}
	}
	if err == nil && q.p.sim.mutant == ForgetsAtTakeUp {
		err = q.inbox.Done(id, fencepost.ReasonNone)
	}
	return gate.Recorded{Route: r.Route, Received: r.Received, Anchor: r.Anchor, Headers: r.Headers, Body: r.Body}, err
}

// Done implements [gate.Queue].
func (q queue) Done(ctx context.Context, t gate.Ticket) error {
	if err := q.p.step(ctx, "done", t.Key); err != nil {
		return err
	}
	id, err := inbox.ParseItemID(t.ID)
	if err != nil {
		return err
	}
	err = q.inbox.Done(id, fencepost.ReasonNone)
	if q.p.sim.mutant == ForgetsAtTakeUp && errors.Is(err, inbox.ErrNotLeased) {
		err = nil
	}
	if err == nil {
		q.p.sim.note(event{kind: evTakenOut, slot: q.p.slot, delivery: q.p.sim.numberOf(t.Key)})
	}
	return err
}

// notes are the notebook of one process.
type notes struct {
	p    *process
	book *notebook.Notebook
}

// Change implements [gate.Notes].
func (n notes) Change(ctx context.Context, d fencepost.DeliveryKey, change func(*gate.Note)) (gate.Note, error) {
	if err := n.p.step(ctx, "note", d); err != nil {
		return gate.Note{}, err
	}
	if n.p.sim.mutant == ForgetsThatItSent {
		return n.book.Change(ctx, d, func(note *gate.Note) {
			change(note)
			note.Sent, note.Written = time.Time{}, ""
		})
	}
	return n.book.Change(ctx, d, change)
}

// Forget implements [gate.Notes].
func (n notes) Forget(ctx context.Context, d fencepost.DeliveryKey) error {
	if err := n.p.step(ctx, "forget", d); err != nil {
		return err
	}
	return n.book.Forget(ctx, d)
}

// standings are the notebook's other half.
type standings struct {
	p    *process
	book *notebook.Notebook
}

func (n standings) step(ctx context.Context, op string, s gate.Subject) error {
	_, err := n.p.take(ctx, call{slot: n.p.slot, delivery: n.p.sim.workingOn(n.p, s), op: op})
	return err
}

// Enter implements [gate.Standings].
func (n standings) Enter(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	if err := n.step(ctx, "enter", s); err != nil {
		return gate.Standing{}, err
	}
	return n.book.Enter(ctx, g, s)
}

// Newest implements [gate.Standings].
func (n standings) Newest(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	return n.book.Newest(ctx, g, s)
}

// Advance implements [gate.Standings].
func (n standings) Advance(ctx context.Context, g gate.Name, s gate.Subject, st gate.Standing) (gate.Standing, error) {
	if err := n.step(ctx, "advance", s); err != nil {
		return gate.Standing{}, err
	}
	return n.book.Advance(ctx, g, s, st)
}

// Leave implements [gate.Standings].
func (n standings) Leave(ctx context.Context, g gate.Name, s gate.Subject) error {
	return n.book.Leave(ctx, g, s)
}

// Known implements [gate.Standings].
func (n standings) Known(ctx context.Context, g gate.Name, s gate.Subject) (bool, error) {
	return n.book.Known(ctx, g, s)
}

// evidence is the artifact store of one process.
type evidence struct {
	p     *process
	store *artifact.Store
}

// Put implements [gate.Store].
func (e evidence) Put(ctx context.Context, data []byte) (string, error) {
	if _, err := e.p.take(ctx, call{slot: e.p.slot, delivery: e.p.sim.numberOfID(deliveryIn(data)), op: "put"}); err != nil {
		return "", err
	}
	ref, err := e.store.Put(ctx, data)
	if err != nil {
		return "", err
	}
	return ref.String(), nil
}

// deliveryIn is the delivery that evidence is of.
func deliveryIn(evidence []byte) fencepost.DeliveryID {
	_, rest, _ := bytes.Cut(evidence, []byte(`"delivery":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return fencepost.DeliveryID(id)
}

// A checkout is a tree of no files.
type checkout struct {
	commit  gate.Commit
	parents []fencepost.CommitID
}

func (c checkout) Commit() fencepost.CommitID    { return c.commit.ID }
func (c checkout) Tree() fencepost.TreeID        { return c.commit.Tree }
func (c checkout) Root() string                  { return "/nowhere" }
func (c checkout) Verify(context.Context) error  { return nil }
func (c checkout) Parents() []fencepost.CommitID { return c.parents }
func (c checkout) Stats() gitfetch.Stats         { return gitfetch.Stats{Files: 1} }
func (c checkout) Remove() error                 { return nil }

// A fetcher makes checkouts of what the provider has.
type fetcher struct{ p *process }

// actionCommit is the plan's.
var actionCommit = commitOf('a', 0, 0)

// Fetch implements [gate.Fetcher].
func (f fetcher) Fetch(ctx context.Context, r gitfetch.Request) (gate.Checkout, error) {
	// Two deliveries may fetch one commit at once, which is the same for both.
	o, err := f.p.take(ctx, call{slot: f.p.slot, delivery: f.p.sim.fetchedFor(f.p, r.Commit), op: "fetch", name: r.Commit.String()})
	if err != nil {
		return nil, &fencepost.Error{Op: "fetch", Reason: fencepost.ReasonAcquisition, Err: err}
	}
	if !f.p.sim.calm && o.draw%32 == 0 {
		return nil, &fencepost.Error{Op: "fetch", Reason: fencepost.ReasonAcquisition, Err: errServer}
	}
	if r.Commit == actionCommit.ID {
		return checkout{commit: actionCommit}, nil
	}
	for _, c := range f.p.sim.candidates() {
		if c.commit.ID == r.Commit {
			return c, nil
		}
	}
	return nil, &fencepost.Error{Op: "fetch", Reason: fencepost.ReasonAcquisition, Err: errors.New("no such commit")}
}

// A program is what runs. No two runs of it end alike.
type program struct{ p *process }

// Run implements [gate.Runner], as the runner does: it renews the lease before
// the program is let go, and until its end.
func (r program) Run(ctx context.Context, j runner.Job) runner.Record {
	fail := func(why fencepost.Reason, err error) runner.Record {
		return runner.Record{Outcome: runner.Failed{Reason: why, Err: err}}
	}
	d := r.p.sim.numberOfID(j.Delivery)
	o, err := r.p.take(ctx, call{slot: r.p.slot, delivery: d, op: "run"})
	if err != nil {
		return fail(fencepost.ReasonUnavailable, err)
	}
	r.p.sim.runs++
	run := r.p.sim.runs
	lost := make(chan error, 1)
	beat, stop := context.WithCancel(ctx)
	defer stop()
	go func() { lost <- runner.Keep(beat, j.Lease, r.p.now) }()
	timer := time.NewTimer(time.Duration(o.draw%8000)*time.Millisecond + 11)
	defer timer.Stop()
	select {
	case <-timer.C:
		stop()
		if err := <-lost; err != nil && ctx.Err() == nil {
			return fail(fencepost.ReasonLost, err)
		}
	case err := <-lost:
		if ctx.Err() != nil {
			return fail(fencepost.ReasonUnavailable, context.Cause(ctx))
		}
		return fail(fencepost.ReasonLost, err)
	}
	if ctx.Err() != nil {
		return fail(fencepost.ReasonUnavailable, context.Cause(ctx))
	}
	switch o.draw >> 32 % 16 {
	case 0:
		return fail(fencepost.ReasonTimeout, errServer)
	case 1:
		return fail(fencepost.ReasonUnavailable, errServer)
	}
	conclusion := check.ConclusionPass
	if o.draw>>40%2 == 0 {
		conclusion = check.ConclusionBlock
	}
	return runner.Record{
		Request: []byte(`{}`), Duration: time.Second,
		Outcome: runner.Concluded{
			Result: check.Result{Conclusion: conclusion, Title: fmt.Sprintf("Run %d", run), Summary: "Summary"},
			Report: []byte(`{}`), ResultBytes: []byte(`{}`),
		},
	}
}

// journal tells the trace how deliveries end.
type journal struct{ p *process }

// Record implements [gate.Journal].
func (j journal) Record(_ context.Context, e gate.Event) error {
	if j.p.isGone() {
		return errGone
	}
	s := j.p.sim
	switch e.Kind {
	case gate.KindEnded:
		s.note(event{kind: evEnded, slot: j.p.slot, delivery: s.numberOfID(e.Delivery), reason: e.Reason})
	case gate.KindRefused:
		s.note(event{kind: evRefused, slot: j.p.slot, delivery: s.numberOfID(e.Delivery), reason: e.Reason})
	}
	if s.record {
		s.note(event{kind: evTold, slot: j.p.slot, delivery: s.numberOfID(e.Delivery), reason: e.Reason, text: string(e.Kind)})
	}
	return nil
}

// silence takes alerts and lets them go.
type silence struct{}

func (silence) Raise(gate.Alert)               {}
func (silence) Resolve(gate.AlertCode, string) {}
