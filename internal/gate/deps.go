package gate

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/runner"
)

// A Ticket names one recorded delivery of this process. It is comparable.
type Ticket struct {
	// ID is the queue's own.
	ID string
	// Received is when the delivery came.
	Received time.Time
	// Delivery is how it was named in the answer to its sender, for people;
	// Key is the whole of it. Neither is trusted.
	Delivery fencepost.DeliveryID
	Key      fencepost.DeliveryKey
}

// A Recorded is a delivery as it was recorded at ingress. Nothing of it is
// trusted: it is verified anew at each take-up.
type Recorded struct {
	Route    fencepost.RouteName
	Received time.Time
	// Anchor is what matched at receipt, where that was recorded. It only
	// tells a revoked key from altered bytes.
	Anchor  fencepost.AnchorID
	Headers fencepost.Headers
	Body    []byte
}

// A Queue holds the recorded deliveries of this process, or of several that
// share it, until they are done. It is safe for concurrent use.
type Queue interface {
	// Next waits for a delivery that is not handed out, here or elsewhere;
	// what earlier ones left comes first.
	Next(ctx context.Context) (Ticket, error)
	// Read returns a delivery that is not done. An error with
	// [fencepost.ReasonCorrupt] means that its bytes are damaged for good, and
	// [ErrNotHeld] that this process has it no more.
	Read(ctx context.Context, t Ticket) (Recorded, error)
	// Done forgets it, unless another process has it. It may come back once
	// more after a crash.
	Done(ctx context.Context, t Ticket) error
}

// ErrNotHeld: a delivery was handed out to another process, which took this
// one for dead, or it is done. It is no concern of this process any more.
var ErrNotHeld = errors.New("the delivery is another process's now")

// A Checkout is a fetched tree; [gitfetch.Checkout] is one.
type Checkout interface {
	runner.Checkout
	// Parents are the commit's, as its verified object names them.
	Parents() []fencepost.CommitID
	Stats() gitfetch.Stats
	// Remove removes the files. Its error is one to alert on.
	Remove() error
}

// A Fetcher makes checkouts. Its errors carry the reasons of package gitfetch.
type Fetcher interface {
	Fetch(ctx context.Context, r gitfetch.Request) (Checkout, error)
}

// A Disconnector is a [Fetcher] that keeps connections from one fetch to the
// next. The pool has it close them when its work has ended; nothing is fetched
// after that.
type Disconnector interface{ Disconnect() }

// Fetching is the fetcher of one pool, which makes its checkouts in a workspace
// and is a [Disconnector].
func Fetching(w *gitfetch.Workspace) Fetcher {
	return workspace{w, gitfetch.NewTransport(gitfetch.TransportOptions{})}
}

type workspace struct {
	*gitfetch.Workspace
	kept *gitfetch.Transport
}

// Disconnect implements [Disconnector].
func (w workspace) Disconnect() { w.kept.Close() }

// Fetch implements [Fetcher].
func (w workspace) Fetch(ctx context.Context, r gitfetch.Request) (Checkout, error) {
	r.Transport = w.kept
	c, err := w.Workspace.Fetch(ctx, r)
	if err != nil {
		return nil, err // never a nil checkout in an interface
	}
	return c, nil
}

// An Abandoner is a [fencepost.Ledger] that can be told that work under a
// lease has stopped, so that this process's next claim need not wait for the
// lease's end.
type Abandoner interface{ Abandon(l fencepost.Lease) }

// Rows are a [fencepost.Ledger]'s, to be looked at without a claim. Over one
// that has none, what was staged or done and has not been taken out of the
// queue expires like what never became work.
type Rows interface {
	// Lookup returns the row of a delivery, the zero row where there is none.
	Lookup(ctx context.Context, d fencepost.DeliveryKey) (row ledger.Row, ok bool, err error)
}

// A Runner runs programs; [runner.Runner] is one.
type Runner interface {
	Run(ctx context.Context, j runner.Job) runner.Record
}

// A Store keeps evidence. It is safe for concurrent use.
type Store interface {
	// Put keeps a copy of data, durably, and returns a reference to it.
	Put(ctx context.Context, data []byte) (ref string, err error)
}

// A Note is what must be remembered of a delivery from its first claim until
// it is done, over every crash.
type Note struct {
	// Starts is how often an evaluation was begun, Failures how many of those
	// gave no conclusion, Reason the last one's.
	Starts, Failures int
	Reason           fencepost.Reason
	// Sent is when the write was last about to be sent; zero: never. From then
	// on the provider may have it.
	Sent time.Time
	// Entered is the subject that was entered into the standings for it; the
	// zero Subject: none was.
	Entered Subject
	// Written is the provider's own id of what it took; "" until that is known.
	// From then on nothing is ever written again.
	Written string
}

// equal reports whether two notes say the same.
func (n Note) equal(m Note) bool {
	same := n.Sent.Equal(m.Sent)
	n.Sent, m.Sent = time.Time{}, time.Time{}
	return same && n == m
}

// Notes keeps notes, shared by all processes that share the ledger. Changes
// are atomic, and durable when they return. It is safe for concurrent use.
type Notes interface {
	// Change applies change to the note of a delivery, which is zero where
	// there is none, and returns the result. change may be called more than
	// once.
	Change(ctx context.Context, d fencepost.DeliveryKey, change func(*Note)) (Note, error)
	// Forget removes the note of a delivery that is done.
	Forget(ctx context.Context, d fencepost.DeliveryKey) error
}

// A Standing orders the evaluations of one gate and head: by receipt, then by
// delivery. The zero Standing comes before all.
type Standing struct {
	Received time.Time
	Delivery fencepost.DeliveryKey
}

// Before reports whether s is older than t.
func (s Standing) Before(t Standing) bool {
	if !s.Received.Equal(t.Received) {
		return s.Received.Before(t.Received)
	}
	return s.Delivery.Hex() < t.Delivery.Hex()
}

// Standings remembers which heads were evaluated and the newest evaluation
// that came to be staged for each, shared as [Notes] is. Old heads are
// forgotten when there is no room; a forgotten one counts as never seen.
type Standings interface {
	// Enter records that a subject is under way, and returns the newest
	// standing that was advanced for the gate and the subject's head.
	Enter(ctx context.Context, g Name, s Subject) (Standing, error)
	// Newest returns the newest standing that was advanced for the gate and the
	// subject's head, and changes nothing.
	Newest(ctx context.Context, g Name, s Subject) (Standing, error)
	// Advance makes st the newest one unless a newer one stands, and returns
	// the one that stands then.
	Advance(ctx context.Context, g Name, s Subject, st Standing) (Standing, error)
	// Leave forgets that a subject was entered: its delivery never became a
	// result. What was advanced for its head stays.
	Leave(ctx context.Context, g Name, s Subject) error
	// Known reports whether a subject was ever entered, and has not left.
	Known(ctx context.Context, g Name, s Subject) (bool, error)
}

// A Journal records what happens to deliveries, for people and for metrics.
type Journal interface {
	// Record keeps an event. What ends a delivery that never became work is
	// recorded nowhere else, so then its error is waited out; otherwise the
	// work goes on without.
	Record(ctx context.Context, e Event) error
}

// Alerts tells people. Its methods return at once and are safe for concurrent
// use.
type Alerts interface {
	// Raise opens an alert, or repeats it.
	Raise(a Alert)
	// Resolve ends the alert of that code and subject, if there is one.
	Resolve(code AlertCode, subject string)
}
