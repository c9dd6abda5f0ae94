package ledgertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// hold fails the walk unless the answer is one that the table gives, and goes
// on from there.
func (w *walker) hold(req ledger.Request, got ledger.Answer, err error) {
	w.Helper()
	if err != nil {
		w.fail.Fatalf("%s: %v", req.Op(), err)
	}
	key := req.On().Key()
	r := w.rows[key]
	if r == nil {
		r = &reference{}
		w.rows[key] = r
	}
	fresh := w.freshOf(key, r, got)
	var want []string
	present, absent := false, false
	next := ledger.Row{}
	for _, from := range w.possible(r) {
		for _, at := range w.moments(r) {
			row, answer := ledger.Decide(from, req, at, fresh)
			if tell(answer) != tell(got) {
				want = append(want, tell(answer))
				continue
			}
			if from.State == ledger.Unclaimed {
				absent = true
			} else {
				present = true
			}
			if !present || !absent { // of both, the row is what may be there
				next = row
			}
		}
	}
	if !present && !absent {
		slices.Sort(want)
		w.fail.Fatalf("%s is answered %s; the table says %s, for %v", req.Op(), tell(got), strings.Join(slices.Compact(want), " or "), r.row.State)
	}
	r.doubtful = present && absent
	r.row = next
	w.learn(key, r, got)
	w.compare(key, r)
}

// possible are the rows that may be stored.
func (w *walker) possible(r *reference) []ledger.Row {
	if r.doubtful {
		return []ledger.Row{r.row, {}}
	}
	return []ledger.Row{r.row}
}

// moments are those at which the ledger may have decided: it need not know
// that a holder's process has gone, and may count what it closed in parts.
func (w *walker) moments(r *reference) []ledger.Moment {
	at := ledger.Moment{
		Wall: w.wall, Now: ledger.Instant{Boot: ledger.BootID{1, byte(w.boot)}, At: w.since}, Running: w.running, Lease: w.h.Lease,
	}
	all := []ledger.Moment{at}
	if r.orphaned {
		at.HolderDead = true
		all = append(all, at)
	}
	if !w.closed.IsZero() {
		for _, m := range all {
			m.ClosedThrough = w.closed
			all = append(all, m)
		}
	}
	return all
}

// freshOf is what the ledger has made the lease of, which must be new where
// the lease is.
func (w *walker) freshOf(key fencepost.DeliveryKey, r *reference, got ledger.Answer) ledger.Fresh {
	w.Helper()
	l, granted := claimed(got)
	if !granted {
		fence, err := fencepost.ParseFence(r.fence.Uint64() + 1)
		if err != nil {
			w.tb.Fatal(err)
		}
		return ledger.Fresh{Fence: fence, Evaluation: fencepost.EvaluationID{9}}
	}
	if !r.fence.Before(l.Fence()) {
		w.fail.Fatalf("fence %v is granted after %v", l.Fence(), r.fence)
	}
	if of, known := w.evaluations[l.Evaluation()]; known && (of != key || l.Evaluation() != r.row.Evaluation) {
		w.fail.Fatalf("evaluation %v is that of another one", l.Evaluation())
	}
	return ledger.Fresh{Fence: l.Fence(), Evaluation: l.Evaluation()}
}

// claimed is the lease of a claim.
func claimed(a ledger.Answer) (fencepost.Lease, bool) {
	switch c := a.Claim.(type) {
	case fencepost.Acquired:
		return c.Lease, true
	case fencepost.Publish:
		return c.Lease, true
	case fencepost.BindingConflict, fencepost.Busy, fencepost.Completed, fencepost.Expired, fencepost.Full:
	}
	return fencepost.Lease{}, false
}

// learn remembers what can be used later.
func (w *walker) learn(key fencepost.DeliveryKey, r *reference, got ledger.Answer) {
	if l, granted := claimed(got); granted {
		w.evaluations[l.Evaluation()] = key
		w.leases = append(w.leases, l)
		r.fence, r.orphaned = l.Fence(), false
	}
	if c, ok := got.Claim.(fencepost.Publish); ok {
		w.staged = append(w.staged, c.Staged)
	}
	if o, ok := got.Stage.(fencepost.Staged); ok {
		w.staged = append(w.staged, o.Staged)
	}
}

// compare holds what is stored against the reference, where it can be asked.
func (w *walker) compare(key fencepost.DeliveryKey, r *reference) {
	w.Helper()
	asked, ok := w.clients[0].(interface {
		Lookup(ctx context.Context, key fencepost.DeliveryKey) (ledger.Row, bool, error)
	})
	if !ok {
		return
	}
	row, known, err := asked.Lookup(w.tb.Context(), key)
	if err != nil {
		w.fail.Fatalf("look %s up: %v", key, err)
	}
	if r.doubtful {
		if !known {
			r.row, r.doubtful = ledger.Row{}, false
			return
		}
		r.doubtful = false
	}
	if got, want := tellRow(row), tellRow(r.row); got != want || known != (r.row.State != ledger.Unclaimed) {
		w.fail.Fatalf("stored is %s, known %v; the table says %s", got, known, want)
	}
}

// tellRow tells all of a row that does not depend on how a ledger names its
// clocks and holders.
func tellRow(r ledger.Row) string {
	end, bounded := r.Lifetime.End()
	publication := "-"
	if r.Publication.Valid() {
		publication = tellPublication(r.Publication)
	}
	return fmt.Sprintf("%v of %v, evaluation %v, fence %v, attempts %d, trust %v, since %v, bounded %v to %v, staged %s, published %.4x",
		r.State, r.Binding, r.Evaluation, r.Fence, r.Attempts, r.Trust, r.Since.UTC(), bounded, end.UTC(), publication, r.Published[:])
}

func tellPublication(p fencepost.Publication) string {
	if why, none := p.None(); none {
		return fmt.Sprintf("nothing, for %v", why)
	}
	return fmt.Sprintf("%q", p.Bytes())
}

func tellLease(l fencepost.Lease) string {
	if !l.Valid() {
		return "no lease"
	}
	return fmt.Sprintf("a lease of %v under evaluation %v, fence %v", l.Window(), l.Evaluation(), l.Fence())
}

func tellStaged(s fencepost.StagedPublication) string {
	return fmt.Sprintf("%s under evaluation %v", tellPublication(s.Publication()), s.Evaluation())
}

// tell is an answer in words: two are the same if their words are.
func tell(a ledger.Answer) string {
	switch c := a.Claim.(type) {
	case fencepost.Acquired:
		return fmt.Sprintf("Acquired (%s, reclaimed %v, attempt %d)", tellLease(c.Lease), c.Reclaimed, c.Attempt)
	case fencepost.Publish:
		return fmt.Sprintf("Publish (%s, %s)", tellStaged(c.Staged), tellLease(c.Lease))
	case fencepost.Busy:
		return fmt.Sprintf("Busy (for %v)", c.After.Truncate(time.Microsecond))
	case fencepost.BindingConflict, fencepost.Completed, fencepost.Expired, fencepost.Full:
		// They hold nothing: their names are told below.
	}
	if n, ok := a.Renewal.(fencepost.Renewed); ok {
		return fmt.Sprintf("Renewed (%s)", tellLease(n.Lease))
	}
	if o, ok := a.Stage.(fencepost.Staged); ok {
		return fmt.Sprintf("Staged (%s, %s)", tellStaged(o.Staged), tellLease(o.Lease))
	}
	for _, answer := range []any{a.Claim, a.Renewal, a.Stage, a.Completion} {
		if answer != nil {
			return fmt.Sprintf("%T", answer)
		}
	}
	return fmt.Sprintf("Repeat %d", a.Repeat)
}
