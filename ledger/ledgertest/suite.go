package ledgertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

// A Harness is one fresh ledger and the levers that a row of the suite needs
// over it. Levers that are nil skip the rows that need them, by name.
type Harness struct {
	// Ledger is empty; the rows use it until they reopen it.
	Ledger fencepost.Ledger
	// Lease, Window and Capacity are what it was made with. Lease is 5 s or
	// more. With a Capacity above 4096 the rows about a full ledger are
	// skipped.
	Lease    time.Duration
	Window   fencepost.ReplayWindow
	Capacity int
	// Now reads the wall clock that the ledger judges by.
	Now func() time.Time
	// Elapse lets time pass on every clock.
	Elapse func(time.Duration)
	// Frozen says that the clocks stand still unless they are moved, so that
	// the exact instant of an end can be looked at.
	Frozen bool
	// StepWall makes the wall clock alone jump, either way.
	StepWall func(time.Duration)
	// Reopen opens the ledger as after a crash of its process: only what was
	// synced survives, and holders may be known to be dead.
	Reopen func() fencepost.Ledger
	// Restart is Reopen after the machine was started anew. It is nil where
	// the clock that times leases outlives a restart.
	Restart func() fencepost.Ledger
	// Peer opens the same ledger as another process, beside Ledger.
	Peer func() fencepost.Ledger
	// CleanUp removes every row that may be removed.
	CleanUp func(context.Context) error
}

// Run runs the suite, one subtest per row, each on a fresh harness.
func Run(t *testing.T, fresh func(testing.TB) Harness) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			h := fresh(t)
			if missing := r.needs.missing(h); missing != "" {
				t.Skip("the harness has no " + missing)
			}
			r.run(&world{TB: t, h: h})
		})
	}
}

// A row of the suite: what is done to which state, and the answer.
type row struct {
	name  string
	needs lever
	run   func(*world)
}

// rows is the whole suite.
func rows() []row {
	var all []row
	for _, part := range [][]row{
		claimRows(), renewRows(), stageRows(), completeRows(), clockRows(), lifetimeRows(), concurrencyRows(), valueRows(),
	} {
		all = append(all, part...)
	}
	return all
}

// A lever is a set of optional parts of a [Harness].
type lever uint

const (
	frozen lever = 1 << iota
	stepWall
	reopen
	restart
	peer
	cleanUp
	capacity
)

// maxTestCapacity is the largest ledger that the suite fills.
const maxTestCapacity = 4096

func (l lever) missing(h Harness) string {
	switch {
	case l&frozen != 0 && !h.Frozen:
		return "frozen clocks"
	case l&stepWall != 0 && h.StepWall == nil:
		return "StepWall"
	case l&reopen != 0 && h.Reopen == nil:
		return "Reopen"
	case l&restart != 0 && h.Restart == nil:
		return "Restart"
	case l&peer != 0 && h.Peer == nil:
		return "Peer"
	case l&cleanUp != 0 && h.CleanUp == nil:
		return "CleanUp"
	case l&capacity != 0 && (h.Capacity == 0 || h.Capacity > maxTestCapacity):
		return "small Capacity"
	}
	return ""
}

// A world is a harness under test, with operations that fail the row on an
// error.
type world struct {
	testing.TB
	h Harness
}

// permanent makes a delivery without a signed time.
func (w *world) permanent(id string) fencepost.AcceptedDelivery {
	w.Helper()
	return Deliver(w, Spec{ID: id, Body: "body of " + id, Window: w.h.Window})
}

// conflicting makes a delivery with the key of permanent(id) and another
// body.
func (w *world) conflicting(id string) fencepost.AcceptedDelivery {
	w.Helper()
	return Deliver(w, Spec{ID: id, Body: "another body", Window: w.h.Window})
}

// bounded makes a delivery that was signed at this moment.
func (w *world) bounded(id string) fencepost.AcceptedDelivery {
	w.Helper()
	return Deliver(w, Spec{ID: id, Body: "body of " + id, Signed: w.h.Now(), Window: w.h.Window})
}

// life is how long a delivery signed now is recognised.
func (w *world) life() time.Duration { return w.h.Window.MaxSignedAge + w.h.Window.MaxQueueAge }

func (w *world) publication(text string) fencepost.Publication {
	w.Helper()
	p, err := fencepost.NewPublication([]byte(text))
	if err != nil {
		w.Fatalf("publication %q: %v", text, err)
	}
	return p
}

func (w *world) claim(d fencepost.AcceptedDelivery) fencepost.Claim {
	w.Helper()
	c, err := w.h.Ledger.Claim(w.Context(), d)
	if err != nil {
		w.Fatalf("Claim: %v", err)
	}
	return c
}

func (w *world) renew(d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Renewal {
	w.Helper()
	r, err := w.h.Ledger.Renew(w.Context(), d, l)
	if err != nil {
		w.Fatalf("Renew: %v", err)
	}
	return r
}

func (w *world) stage(d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) fencepost.StageOutcome {
	w.Helper()
	s, err := w.h.Ledger.Stage(w.Context(), d, l, p)
	if err != nil {
		w.Fatalf("Stage: %v", err)
	}
	return s
}

func (w *world) complete(d fencepost.AcceptedDelivery, s fencepost.StagedPublication) fencepost.Completion {
	w.Helper()
	c, err := w.h.Ledger.Complete(w.Context(), d, s)
	if err != nil {
		w.Fatalf("Complete: %v", err)
	}
	return c
}

// want is the answer as a T, or the end of the row.
func want[T any](w *world, what string, got any) T {
	w.Helper()
	answer, ok := got.(T)
	if !ok {
		w.Fatalf("%s answered %T, want %T", what, got, answer)
	}
	return answer
}

// acquire claims d anew and checks the lease.
func (w *world) acquire(d fencepost.AcceptedDelivery) fencepost.Lease {
	w.Helper()
	a := want[fencepost.Acquired](w, "Claim", w.claim(d))
	w.checkLease(a.Lease)
	return a.Lease
}

// stageNew takes d to staged, with text as its publication.
func (w *world) stageNew(d fencepost.AcceptedDelivery, text string) (fencepost.Lease, fencepost.StagedPublication) {
	w.Helper()
	l := w.acquire(d)
	s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication(text)))
	w.checkStaged(s.Staged, d, l, text)
	return l, s.Staged
}

// finish takes d to done.
func (w *world) finish(d fencepost.AcceptedDelivery, text string) (fencepost.Lease, fencepost.StagedPublication) {
	w.Helper()
	l, s := w.stageNew(d, text)
	want[fencepost.Completed](w, "Complete", w.complete(d, s))
	return l, s
}

// checkLease holds a lease that was just granted to the ledger's duration.
func (w *world) checkLease(l fencepost.Lease) {
	w.Helper()
	if !l.Valid() || l.Evaluation().IsZero() || l.Fence().IsZero() {
		w.Fatalf("lease %+v is not valid", l)
	}
	if l.Window() <= 0 || l.Window() > w.h.Lease {
		w.Fatalf("lease window = %v, want above 0 and at most %v", l.Window(), w.h.Lease)
	}
	if w.h.Frozen && l.Window() != w.h.Lease {
		w.Fatalf("lease window = %v, want %v", l.Window(), w.h.Lease)
	}
}

// checkTakeover holds a later lease of one evaluation to the earlier one.
func (w *world) checkTakeover(old, next fencepost.Lease) {
	w.Helper()
	w.checkLease(next)
	if next.Evaluation() != old.Evaluation() {
		w.Fatalf("evaluation = %v, want %v as at the first claim", next.Evaluation(), old.Evaluation())
	}
	if !old.Fence().Before(next.Fence()) {
		w.Fatalf("fence = %v, want one above %v", next.Fence(), old.Fence())
	}
}

func (w *world) checkStaged(s fencepost.StagedPublication, d fencepost.AcceptedDelivery, l fencepost.Lease, text string) {
	w.Helper()
	if s.Delivery() != d.Key() || s.Evaluation() != l.Evaluation() {
		w.Fatalf("staged under delivery %v, evaluation %v; want %v, %v", s.Delivery(), s.Evaluation(), d.Key(), l.Evaluation())
	}
	if got := string(s.Publication().Bytes()); got != text {
		w.Fatalf("staged %s, want %s", brief(got), brief(text))
	}
}

// publish claims a staged d whose publisher is gone.
func (w *world) publish(d fencepost.AcceptedDelivery, old fencepost.Lease, text string) fencepost.Publish {
	w.Helper()
	p := want[fencepost.Publish](w, "Claim", w.claim(d))
	w.checkStaged(p.Staged, d, old, text)
	w.checkTakeover(old, p.Lease)
	return p
}

// passLease lets a whole lease pass.
func (w *world) passLease() { w.h.Elapse(w.h.Lease + time.Second) }

// grant forges a lease that no row backs.
func (w *world) grant(e fencepost.EvaluationID, f fencepost.Fence) fencepost.Lease {
	w.Helper()
	l, err := fencepost.GrantLease(e, f, w.h.Lease, w.h.Now().Add(w.h.Lease))
	if err != nil {
		w.Fatalf("GrantLease: %v", err)
	}
	return l
}

func (w *world) restore(d fencepost.AcceptedDelivery, e fencepost.EvaluationID, p fencepost.Publication) fencepost.StagedPublication {
	w.Helper()
	s, err := fencepost.RestoreStaged(d.Key(), e, p)
	if err != nil {
		w.Fatalf("RestoreStaged: %v", err)
	}
	return s
}

// otherEvaluation is an id that is not e.
func otherEvaluation(e fencepost.EvaluationID) fencepost.EvaluationID {
	e[0] ^= 0x80
	e[1] |= 1
	return e
}

// fenceAt is the fence that is by away from f, and never f.
func (w *world) fenceAt(f fencepost.Fence, by int64) fencepost.Fence {
	w.Helper()
	n := uint64(int64(f.Uint64()) + by)
	if n == 0 {
		n = f.Uint64() + 1000
	}
	g, err := fencepost.ParseFence(n)
	if err != nil {
		w.Fatalf("ParseFence(%d): %v", n, err)
	}
	return g
}

func brief(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", s[:40], len(s))
	}
	return fmt.Sprintf("%q", s)
}
