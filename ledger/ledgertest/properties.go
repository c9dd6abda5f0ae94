package ledgertest

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// Properties walks ledgers at random, one fresh harness a walk, and holds each
// answer against [ledger.Decide]: what is answered, lease, fence, evaluation
// and bytes, and where the ledger can be asked for a row, what is stored. Of a
// failure the shortest walk is told that was found to have it. The harness
// must be frozen and have room for 16 rows; levers that are nil are not drawn.
//
// The flag -rapid.checks says how many walks there are; see package rapid.
func Properties(t *testing.T, fresh func(testing.TB) Harness) {
	rapid.Check(t, func(r *rapid.T) {
		s := &scope{TB: t}
		defer s.end()
		newWalker(r, s, fresh(s)).walk()
	})
}

// A scope is a test whose clean-ups are done before it ends.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup has f done when the scope ends.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// maxSteps is the length of the longest walk.
const maxSteps = 40

// A judging is what a walk fails; [rapid.T] is one.
type judging interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A walker is a walk, and what the reference says of it.
type walker struct {
	*rapid.T
	fail judging
	tb   testing.TB
	h    Harness
	// clients are processes that have the ledger open.
	clients []fencepost.Ledger
	peer    bool

	// wall is what the wall clock reads, which stands still between two steps.
	wall    time.Time
	boot    uint64
	since   time.Duration
	running time.Duration
	closed  time.Time
	// interrupted: what a ledger counts of its running time may be less than
	// what has passed.
	interrupted bool
	rows        map[fencepost.DeliveryKey]*reference
	evaluations map[fencepost.EvaluationID]fencepost.DeliveryKey
	// known are the deliveries and leases that were seen, granted what they are
	// of or not.
	known  []fencepost.AcceptedDelivery
	leases []fencepost.Lease
	staged []fencepost.StagedPublication
}

// A reference is what is known of one delivery.
type reference struct {
	row ledger.Row
	// doubtful: the row may have been removed.
	doubtful bool
	// orphaned: its holder's process has gone since.
	orphaned bool
	// fence is the highest that was granted.
	fence fencepost.Fence
}

func newWalker(r *rapid.T, tb testing.TB, h Harness) *walker {
	w := &walker{
		T: r, fail: r, tb: tb, h: h, clients: []fencepost.Ledger{h.Ledger},
		wall: h.Now(), rows: map[fencepost.DeliveryKey]*reference{}, evaluations: map[fencepost.EvaluationID]fencepost.DeliveryKey{},
	}
	w.peer = h.Peer != nil && rapid.Bool().Draw(r, "a second process")
	if w.peer {
		w.clients = append(w.clients, h.Peer())
	}
	return w
}

func (w *walker) walk() {
	for range rapid.IntRange(1, maxSteps).Draw(w.T, "steps") {
		w.step()
	}
}

// client is one of the processes.
func (w *walker) client() fencepost.Ledger { return rapid.SampledFrom(w.clients).Draw(w.T, "process") }

// delivery is one of few, so that operations meet.
func (w *walker) delivery() fencepost.AcceptedDelivery {
	if len(w.known) > 0 && rapid.IntRange(0, 2).Draw(w.T, "known") > 0 {
		return rapid.SampledFrom(w.known).Draw(w.T, "delivery")
	}
	spec := Spec{
		ID:     rapid.SampledFrom([]string{"a", "a", "b"}).Draw(w.T, "id"),
		Body:   rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(w.T, "body"),
		Window: w.h.Window,
	}
	if rapid.Bool().Draw(w.T, "bounded") {
		hours := rapid.IntRange(-30, 1).Draw(w.T, "signed at hour")
		spec.Signed = w.wall.Add(time.Duration(hours) * time.Hour).Truncate(time.Second)
	}
	d := Deliver(w.tb, spec)
	w.known = append(w.known, d)
	return d
}

// lease is one that was granted, or is near to one.
func (w *walker) lease() fencepost.Lease {
	made := fencepost.EvaluationID{9}
	fence, err := fencepost.ParseFence(1)
	if err != nil {
		w.tb.Fatal(err)
	}
	if len(w.leases) > 0 {
		l := rapid.SampledFrom(w.leases).Draw(w.T, "lease")
		switch rapid.IntRange(0, 9).Draw(w.T, "forged") {
		case 0:
			made, fence = otherEvaluation(l.Evaluation()), l.Fence()
		case 1:
			made, fence = l.Evaluation(), (&world{TB: w.tb, h: w.h}).fenceAt(l.Fence(), 1)
		default:
			return l
		}
	}
	return (&world{TB: w.tb, h: w.h}).grant(made, fence)
}

func (w *walker) publication() fencepost.Publication {
	p, err := fencepost.NewPublication([]byte(rapid.SampledFrom([]string{"x", "x", "y"}).Draw(w.T, "value")))
	if err == nil && rapid.IntRange(0, 5).Draw(w.T, "none") == 0 {
		p, err = fencepost.NoPublication(fencepost.ReasonExpired)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	return p
}

// step does one thing.
func (w *walker) step() {
	ctx := w.tb.Context()
	switch rapid.IntRange(0, 14).Draw(w.T, "what") {
	case 0, 1, 2, 3:
		d := w.delivery()
		c, err := w.client().Claim(ctx, d)
		w.hold(ledger.ClaimRequest{Delivery: d}, ledger.Answer{Claim: c}, err)
	case 4:
		d, l := w.delivery(), w.lease()
		n, err := w.client().Renew(ctx, d, l)
		w.hold(ledger.RenewRequest{Delivery: d, Lease: l}, ledger.Answer{Renewal: n}, err)
	case 5, 6:
		d, l, p := w.delivery(), w.lease(), w.publication()
		o, err := w.client().Stage(ctx, d, l, p)
		w.hold(ledger.StageRequest{Delivery: d, Lease: l, Publication: p}, ledger.Answer{Stage: o}, err)
	case 7, 8:
		d, s := w.delivery(), w.stagedValue()
		c, err := w.client().Complete(ctx, d, s)
		w.hold(ledger.CompleteRequest{Delivery: d, Staged: s}, ledger.Answer{Completion: c}, err)
	case 9:
		w.repeat(ctx)
	case 10, 11:
		w.elapse()
	case 12:
		w.disturb()
	case 13, 14:
		w.cleanUp(ctx)
	}
}

// stagedValue is one that was staged, or one that nobody has.
func (w *walker) stagedValue() fencepost.StagedPublication {
	if len(w.staged) > 0 && rapid.IntRange(0, 3).Draw(w.T, "staged before") > 0 {
		return rapid.SampledFrom(w.staged).Draw(w.T, "staged")
	}
	s, err := fencepost.RestoreStaged(w.delivery().Key(), w.lease().Evaluation(), w.publication())
	if err != nil {
		w.tb.Fatal(err)
	}
	return s
}

func (w *walker) repeat(ctx context.Context) {
	c, ok := w.client().(interface {
		Repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error)
	})
	if !ok {
		return
	}
	d := w.delivery()
	n, err := c.Repeat(ctx, d)
	w.hold(ledger.RepeatRequest{Delivery: d}, ledger.Answer{Repeat: n}, err)
}

func (w *walker) elapse() {
	life := w.h.Window.MaxSignedAge + w.h.Window.MaxQueueAge
	d := rapid.SampledFrom([]time.Duration{
		time.Second, w.h.Lease / 2, w.h.Lease, w.h.Lease + time.Second, life / 2, life + time.Second, life + time.Second,
	}).Draw(w.T, "elapse")
	w.h.Elapse(d)
	w.wall = w.h.Now()
	w.since += d
	w.running += d
}

// disturb steps the wall clock, ends the processes, or restarts the machine.
func (w *walker) disturb() {
	switch rapid.IntRange(0, 2).Draw(w.T, "disturbance") {
	case 0:
		if w.h.StepWall != nil {
			w.h.StepWall(time.Duration(rapid.IntRange(-40, 40).Draw(w.T, "wall clock by hours")) * time.Hour)
			w.wall = w.h.Now()
		}
	case 1:
		w.reopen(w.h.Reopen)
	case 2:
		if w.h.Restart != nil {
			w.boot++
		}
		w.reopen(w.h.Restart)
	}
}

func (w *walker) reopen(by func() fencepost.Ledger) {
	if by == nil {
		return
	}
	w.interrupted = true
	for _, r := range w.rows {
		r.orphaned = true
	}
	w.clients = []fencepost.Ledger{by()}
	w.wall = w.h.Now()
	if w.peer {
		w.clients = append(w.clients, w.h.Peer())
	}
}

func (w *walker) cleanUp(ctx context.Context) {
	if w.h.CleanUp == nil {
		return
	}
	if err := w.h.CleanUp(ctx); err != nil {
		w.fail.Fatalf("clean-up: %v", err)
	}
	for _, r := range w.rows {
		if !ledger.Removable(r.row, w.wall, w.running) {
			continue
		}
		if end, _ := r.row.Lifetime.End(); end.After(w.closed) {
			w.closed = end
		}
		if w.interrupted {
			r.doubtful = true
			continue
		}
		r.row, r.doubtful = ledger.Row{}, false
	}
}
