package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/runner"
)

// A queue is the inbox as gates see it.
type queue struct{ inbox inbound }

// Next implements [gate.Queue].
func (q queue) Next(ctx context.Context) (gate.Ticket, error) {
	item, err := q.inbox.Next(ctx)
	if err != nil {
		return gate.Ticket{}, err
	}
	return gate.Ticket{ID: item.ID.String(), Received: item.Received, Delivery: item.Key.ID(), Key: item.Key}, nil
}

// Read implements [gate.Queue].
func (q queue) Read(ctx context.Context, t gate.Ticket) (gate.Recorded, error) {
	id, err := inbox.ParseItemID(t.ID)
	if err != nil {
		return gate.Recorded{}, err
	}
	r, err := q.inbox.Read(ctx, id)
	switch {
	case errors.Is(err, inbox.ErrNotLeased):
		return gate.Recorded{}, fmt.Errorf("%w: %w", gate.ErrNotHeld, err)
	case errors.Is(err, inbox.ErrCorrupt):
		return gate.Recorded{}, &fencepost.Error{Op: "inbox.read", Reason: fencepost.ReasonCorrupt, Err: err}
	case err != nil:
		return gate.Recorded{}, err
	}
	return gate.Recorded{
		Route: r.Route, Received: r.Received, Anchor: r.Anchor, Headers: r.Headers, Body: r.Body,
	}, nil
}

// Done implements [gate.Queue].
func (q queue) Done(ctx context.Context, t gate.Ticket) error {
	id, err := inbox.ParseItemID(t.ID)
	if err != nil {
		return err
	}
	if err := q.inbox.Done(ctx, id); !errors.Is(err, inbox.ErrNotLeased) {
		return err
	}
	// It is another's, or done: nothing for this process either way.
	return nil
}

// A repeater knows deliveries that are done or under way.
type repeater interface {
	Repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error)
	Lookup(ctx context.Context, key fencepost.DeliveryKey) (ledger.Row, bool, error)
	MayKnow(key fencepost.DeliveryKey) bool
}

// A recording keeps requests until they are done.
type recording interface {
	Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (inbox.Outcome, error)
}

// A recorder records what ingress admits.
type recorder struct {
	inbox   recording
	ledger  repeater
	journal *journal
	gate    gate.Name
	// wake tries a delivery that waits for its next attempt now.
	wake func(fencepost.DeliveryKey) bool
	now  func() time.Time
}

// Record implements [ingress.Recorder].
func (r *recorder) Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (ingress.Recording, error) {
	known, err := r.repeat(ctx, d)
	if err != nil {
		return 0, err
	}
	switch known {
	case ledger.RepeatConflict:
		return ingress.Conflict, nil
	case ledger.RepeatKnown:
		// Done, or under way, here or in another process: unless it was
		// refused in mid-flow, and is in no inbox any more.
		done, err := r.done(ctx, d)
		if err != nil {
			return 0, err
		}
		if done {
			return r.replayed(ctx, d), nil
		}
	}
	outcome, err := r.inbox.Record(ctx, d, h, body)
	switch {
	case errors.Is(err, inbox.ErrFull):
		return 0, &fencepost.Error{Op: "inbox.record", Reason: fencepost.ReasonFull, Err: err}
	case err != nil:
		return 0, err
	case outcome == inbox.Conflict:
		return ingress.Conflict, nil
	case outcome == inbox.Replayed, known == ledger.RepeatKnown:
		return r.replayed(ctx, d), nil
	}
	r.journal.write(ctx, receipt.Event{
		At: d.Received(), Kind: receipt.Received, Delivery: d.ID(), Route: d.Route(), Anchor: d.Anchor(),
		Gate: string(r.gate), Took: r.now().Sub(d.Received()),
		Details: []receipt.Detail{{Name: "body_bytes", Value: strconv.Itoa(len(body))}},
	})
	return ingress.Accepted, nil
}

// repeat asks the ledger whether it knows a delivery, unless it certainly does
// not: that is said from memory, and is true of nearly all.
func (r *recorder) repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error) {
	if !r.ledger.MayKnow(d.Key()) {
		return ledger.RepeatUnknown, nil
	}
	return r.ledger.Repeat(ctx, d)
}

// done reports whether a known delivery has reached its end. One that has not
// is recorded again: a repeat of undone work is never dropped as a duplicate
// (DESIGN §8), and what is in an inbox already is not recorded twice.
func (r *recorder) done(ctx context.Context, d fencepost.AcceptedDelivery) (bool, error) {
	row, ok, err := r.ledger.Lookup(ctx, d.Key())
	return ok && row.State == ledger.Done, err
}

func (r *recorder) replayed(ctx context.Context, d fencepost.AcceptedDelivery) ingress.Recording {
	// A repeat of undone work wakes it up; it is never dropped (DESIGN §8).
	r.wake(d.Key())
	r.journal.write(ctx, receipt.Event{
		At: d.Received(), Kind: receipt.Replayed, Delivery: d.ID(), Route: d.Route(), Anchor: d.Anchor(), Gate: string(r.gate),
	})
	return ingress.Replayed
}

// A journal writes events down for people and counts them.
type journal struct {
	receipts *receipt.Journal
	metrics  *ops.Metrics
	log      *slog.Logger
}

// Record implements [gate.Journal].
func (j *journal) Record(ctx context.Context, e gate.Event) error {
	j.metrics.Step(string(e.Gate), string(e.Kind), e.Reason, e.Took)
	if e.Kind == gate.KindFetched {
		j.metrics.Fetched(string(e.Gate), wireBytes(e))
	}
	j.logEvent(ctx, e)
	details := make([]receipt.Detail, len(e.Details))
	for i, d := range e.Details {
		details[i] = receipt.Detail(d)
	}
	return j.receipts.Append(ctx, receipt.Event{
		At: e.At, Kind: receipt.Kind(e.Kind), Delivery: e.Delivery, Route: e.Route, Anchor: e.Anchor, Gate: string(e.Gate),
		Evaluation: e.Evaluation, Fence: e.Fence, Attempt: e.Attempt, Reason: e.Reason, Took: e.Took, Details: details,
	})
}

// wireBytes is what a fetch received, as its event says.
func wireBytes(e gate.Event) int64 {
	for _, d := range e.Details {
		if d.Name == "wire_bytes" {
			n, err := strconv.ParseInt(d.Value, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// logEvent tells the end of a delivery as a line of the log, and the rest at
// debug level.
func (j *journal) logEvent(ctx context.Context, e gate.Event) {
	level := slog.LevelDebug
	if e.Kind == gate.KindEnded || e.Kind == gate.KindRefused {
		level = slog.LevelInfo
	}
	if !j.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("gate", string(e.Gate)), slog.String("delivery", string(e.Delivery)),
		slog.String("evaluation", e.Evaluation), slog.Uint64("fence", e.Fence),
		slog.String("reason", string(e.Reason)), slog.Int64("duration_ms", e.Took.Milliseconds()),
	}
	j.log.LogAttrs(ctx, level, "delivery "+string(e.Kind), attrs...)
}

// write is for events that nothing depends on.
func (j *journal) write(ctx context.Context, e receipt.Event) {
	// The request may be over before its event is written.
	if err := j.receipts.Append(context.WithoutCancel(ctx), e); err != nil {
		j.log.WarnContext(ctx, "the journal took no event",
			"delivery", string(e.Delivery), "reason", string(fencepost.ReasonOf(err)))
	}
}

// alerts is the alert book as gates see it.
type alerts struct {
	book *alert.Book
	log  *slog.Logger
}

// Raise implements [gate.Alerts].
func (a alerts) Raise(al gate.Alert) {
	if err := a.book.Raise(alert.Code(al.Code), subject(al.Subject)); err != nil {
		a.log.Error("an alert could not be kept", "code", string(al.Code), "reason", string(fencepost.ReasonOf(err)))
	}
}

// Resolve implements [gate.Alerts].
func (a alerts) Resolve(code gate.AlertCode, of string) {
	if err := a.book.Resolve(alert.Code(code), subject(of)); err != nil {
		a.log.Error("the end of an alert could not be kept", "code", string(code), "reason", string(fencepost.ReasonOf(err)))
	}
}

// subject is a delivery's id, or the gate of that name.
func subject(s string) alert.Subject {
	if id, err := fencepost.ParseDeliveryID(s); err == nil {
		return alert.DeliverySubject(id)
	}
	return alert.GateSubject(fencepost.RouteName(s))
}

// evidence is the artifact store as gates and the operations page see it.
type evidence struct{ store artifacts }

// Put implements [gate.Store].
func (e evidence) Put(ctx context.Context, data []byte) (string, error) {
	ref, err := e.store.Put(ctx, data)
	if err != nil {
		return "", err
	}
	return ref.String(), nil
}

// Artifact implements [ops.Artifacts].
func (e evidence) Artifact(ctx context.Context, text string) ([]byte, error) {
	ref, err := artifact.ParseRef(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fencepost.ErrMalformed, err)
	}
	data, err := e.store.Get(ctx, ref)
	if errors.Is(err, artifact.ErrGone) {
		return nil, fmt.Errorf("%w: %w", ops.ErrGone, err)
	}
	return data, err
}

// A throttle runs at most so many programs at once.
type throttle struct {
	runner gate.Runner
	// room holds a token for each program that runs.
	room chan struct{}
	now  func() time.Time
}

// throttle is the runner with the room that gates and sinks share.
func (a *App) throttle() throttle { return throttle{runner: a.runner, room: a.room, now: a.Now} }

// Run implements [gate.Runner] and [sink.Runner]. Its wait counts as part of the run: the lease
// is renewed meanwhile, as the runner does once it has the job.
func (t throttle) Run(ctx context.Context, j runner.Job) runner.Record {
	if err := t.enter(ctx, j.Lease); err != nil {
		reason := fencepost.ReasonUnavailable
		if errors.Is(err, runner.ErrLost) {
			reason = fencepost.ReasonLost
		}
		return runner.Record{Outcome: runner.Failed{Reason: reason, Err: fmt.Errorf("wait for room to run: %w", err)}}
	}
	defer t.leave()
	return t.runner.Run(ctx, j)
}

// errEntered is the cause for which the renewing ends when there is room.
var errEntered = errors.New("there is room")

// enter waits for room and keeps the lease meanwhile. Its error is why there
// is nothing to wait for any more.
func (t throttle) enter(ctx context.Context, lease runner.Renewer) error {
	select {
	case t.room <- struct{}{}:
		return nil
	default:
	}
	waiting, stop := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		stop(runner.Keep(waiting, lease, t.now))
	}()
	entered := false
	select {
	case t.room <- struct{}{}:
		entered = true
	case <-waiting.Done():
	}
	// A renewal that this cuts off says nothing about the lease.
	stop(errEntered)
	<-kept
	cause := context.Cause(waiting)
	if entered && cause == errEntered {
		return nil
	}
	if entered {
		t.leave()
	}
	return cause
}

func (t throttle) leave() { <-t.room }

// An observer counts requests of the public listener.
type observer struct {
	metrics *ops.Metrics
	// sets names the trust set of each route.
	sets map[fencepost.RouteName]fencepost.TrustSetName
}

// Answered implements [ingress.Observer].
func (o observer) Answered(a ingress.Answered) {
	o.metrics.Answered(a.Route, string(a.Outcome), a.Reason, a.Took)
	if a.Anchor != "" {
		o.metrics.AnchorUsed(o.sets[a.Route], a.Anchor)
	}
}
