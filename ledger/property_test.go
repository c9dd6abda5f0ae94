package ledger_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// An event is something that was granted. The dumb ledger keeps all of them
// and looks through them from the end for each answer.
type event struct {
	what  string // "lease", "renewal", "staged", "publisher", "done"
	fence uint64
	eval  fencepost.EvaluationID
	boot  int
	until time.Duration
	value string
}

type dumb struct {
	events []event
	body   string
	end    time.Time // zero: permanent
}

// last is the latest event of one of the kinds.
func (d *dumb) last(kinds ...string) (event, bool) {
	for i := len(d.events) - 1; i >= 0; i-- {
		for _, k := range kinds {
			if d.events[i].what == k {
				return d.events[i], true
			}
		}
	}
	return event{}, false
}

// both is one delivery key in both ledgers, and the time.
type both struct {
	tb   testing.TB
	row  ledger.Row
	dumb dumb

	boot    int
	since   time.Duration
	wall    time.Time
	running time.Duration
	closed  time.Time
	dead    bool
	full    bool
	fence   uint64
	fences  uint64 // the highest granted
	leases  []fencepost.Lease
}

const leaseFor = 10 * time.Second

func (b *both) moment() ledger.Moment {
	m := ledger.Moment{
		Wall: b.wall, Now: ledger.Instant{At: b.since}, Running: b.running, ClosedThrough: b.closed,
		Lease: leaseFor, HolderDead: b.dead, NoRoom: b.full,
	}
	binary.LittleEndian.PutUint64(m.Now.Boot[:], uint64(b.boot))
	return m
}

// standing reports whether a lease event still excludes others.
func (b *both) standing(e event) bool { return e.boot == b.boot && b.since <= e.until }

// decide runs the real one and holds what it does to the invariants.
func (b *both) decide(t *rapid.T, req ledger.Request) any {
	b.fence += uint64(rapid.IntRange(1, 3).Draw(t, "fence step"))
	f, err := fencepost.ParseFence(b.fence)
	if err != nil {
		t.Fatal(err)
	}
	id := fencepost.EvaluationID{1}
	binary.LittleEndian.PutUint64(id[1:], b.fence)
	next, a := ledger.Decide(b.row, req, b.moment(), ledger.Fresh{Fence: f, Evaluation: id, Holder: ledger.Holder{Slot: 1, Epoch: b.fence}})
	if err := next.Validate(); err != nil {
		t.Fatalf("row after %T: %v", req, err)
	}
	if err := ledger.CheckEdge(b.row, next); err != nil {
		t.Fatalf("edge of %T: %v", req, err)
	}
	if next.State != ledger.Unclaimed {
		enc, err := ledger.AppendRow(nil, next)
		if err != nil {
			t.Fatal(err)
		}
		if dec, err := ledger.DecodeRow(enc); err != nil || !dec.Equal(next) {
			t.Fatalf("row after %T does not survive its encoding: %v", req, err)
		}
	}
	b.row = next
	for _, f := range []any{a.Claim, a.Renewal, a.Stage, a.Completion} {
		if f != nil {
			return f
		}
	}
	return a.Repeat
}

// granted checks that every newly granted fence is higher than all before.
func (b *both) granted(t *rapid.T, l fencepost.Lease) {
	if l.Fence().Uint64() <= b.fences {
		t.Fatalf("fence %v after %d", l.Fence(), b.fences)
	}
	b.fences = l.Fence().Uint64()
	b.leases = append(b.leases, l)
}

func (b *both) delivery(body string, signed time.Time) fencepost.AcceptedDelivery {
	return ledgertest.Deliver(b.tb, ledgertest.Spec{ID: "a", Body: body, Signed: signed})
}

// claim is the dumb answer's name, and what it appends.
func (b *both) dumbClaim(body string, end time.Time) string {
	d := &b.dumb
	bounded := !end.IsZero()
	_, known := d.last("lease")
	if !known {
		switch {
		case bounded && b.wall.After(end), bounded && !b.closed.IsZero() && !end.After(b.closed):
			return "Expired"
		case b.full:
			return "Full"
		}
		d.body, d.end = body, end
		d.events = append(d.events, event{"lease", b.fence, fencepost.EvaluationID{}, b.boot, b.since + leaseFor, ""})
		return "Acquired"
	}
	if d.body != body {
		return "BindingConflict"
	}
	if !d.end.IsZero() && end.After(d.end) {
		d.end = end
	}
	if _, done := d.last("done"); done {
		return "Completed"
	}
	kind, answer := "lease", "Acquired"
	if _, staged := d.last("staged"); staged {
		kind, answer = "publisher", "Publish"
	}
	if e, _ := d.last("lease", "renewal", "staged", "publisher"); b.standing(e) && !b.dead {
		return "Busy"
	}
	d.events = append(d.events, event{kind, b.fence, fencepost.EvaluationID{}, b.boot, b.since + leaseFor, ""})
	return answer
}

func (b *both) dumbRenew(body string, l fencepost.Lease) string {
	d := &b.dumb
	e, ok := d.last("lease", "renewal")
	_, staged := d.last("staged")
	if !ok || staged || d.body != body || e.fence != l.Fence().Uint64() || l.Evaluation() != b.row.Evaluation || !b.standing(e) {
		return "Lost"
	}
	e.what, e.until = "renewal", b.since+leaseFor
	d.events = append(d.events, e)
	return "Renewed"
}

func (b *both) dumbStage(body string, l fencepost.Lease, value string) string {
	d := &b.dumb
	e, ok := d.last("lease", "renewal")
	if !ok || d.body != body || l.Evaluation() != b.row.Evaluation {
		return "Lost"
	}
	if _, done := d.last("done"); done {
		return "Lost"
	}
	if s, staged := d.last("staged"); staged {
		if s.value == value {
			return "Staged"
		}
		return "Lost"
	}
	if e.fence != l.Fence().Uint64() {
		return "Lost"
	}
	d.events = append(d.events, event{"staged", e.fence, e.eval, b.boot, b.since + leaseFor, value})
	return "Staged"
}

func (b *both) dumbComplete(body string, e fencepost.EvaluationID, value string) string {
	d := &b.dumb
	s, staged := d.last("staged")
	if !staged || d.body != body || s.value != value || e != b.row.Evaluation {
		return "Lost"
	}
	d.events = append(d.events, event{what: "done"})
	return "Completed"
}

// TestDecideAgreesWithADumbLedger walks the table at random.
func TestDecideAgreesWithADumbLedger(tt *testing.T) {
	tt.Parallel()
	rapid.Check(tt, func(t *rapid.T) {
		b := &both{tb: tt, boot: 1, since: time.Hour, wall: noon}
		permanent := rapid.Bool().Draw(t, "permanent")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			b.step(t, permanent)
		}
	})
}

func (b *both) step(t *rapid.T, permanent bool) {
	body := rapid.SampledFrom([]string{"1", "1", "1", "1", "2"}).Draw(t, "body")
	value := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "value")
	var signed time.Time
	if !permanent {
		signed = noon.Add(time.Duration(rapid.IntRange(0, 48).Draw(t, "signed")) * time.Hour)
	}
	d := b.delivery(body, signed)
	end, _ := d.Lifetime().End()
	l := lease(b.tb, fencepost.EvaluationID{9}, 1)
	if len(b.leases) > 0 {
		l = b.leases[rapid.IntRange(0, len(b.leases)-1).Draw(t, "lease")]
	}
	var got any
	var want string
	switch rapid.IntRange(0, 8).Draw(t, "what") {
	case 0, 1:
		got = b.decide(t, ledger.ClaimRequest{Delivery: d})
		want = b.dumbClaim(body, end)
		switch a := got.(type) {
		case fencepost.Acquired:
			b.granted(t, a.Lease)
		case fencepost.Publish:
			b.granted(t, a.Lease)
			if s, _ := b.dumb.last("staged"); string(a.Staged.Publication().Bytes()) != s.value {
				t.Fatalf("publish %q, staged was %q", a.Staged.Publication().Bytes(), s.value)
			}
		}
	case 2:
		got = b.decide(t, ledger.RenewRequest{Delivery: d, Lease: l})
		want = b.dumbRenew(body, l)
	case 3:
		got = b.decide(t, ledger.StageRequest{Delivery: d, Lease: l, Publication: publication(b.tb, value)})
		want = b.dumbStage(body, l, value)
		if s, ok := got.(fencepost.Staged); ok && s.Lease.Valid() && s.Lease.Fence() != b.row.Fence {
			t.Fatalf("a publication lease under fence %v, the row's is %v", s.Lease.Fence(), b.row.Fence)
		}
	case 4:
		s, err := fencepost.RestoreStaged(d.Key(), l.Evaluation(), publication(b.tb, value))
		if err != nil {
			t.Fatal(err)
		}
		got = b.decide(t, ledger.CompleteRequest{Delivery: d, Staged: s})
		want = b.dumbComplete(body, l.Evaluation(), value)
	case 5:
		b.elapse(time.Duration(rapid.IntRange(0, 15).Draw(t, "seconds")) * time.Second)
		return
	case 6:
		b.elapse(time.Duration(rapid.IntRange(0, 50).Draw(t, "hours")) * time.Hour)
		return
	case 7:
		b.disturb(t)
		return
	case 8:
		b.cleanUp(t)
		return
	}
	if name := fmt.Sprintf("%T", got); name != "fencepost."+want {
		t.Fatalf("answer %s, the dumb ledger says %s", name, want)
	}
	if rowEnd, _ := b.row.Lifetime.End(); !rowEnd.Equal(b.dumb.end) {
		t.Fatalf("replay end %v, the dumb ledger says %v", rowEnd, b.dumb.end)
	}
}

func (b *both) elapse(d time.Duration) {
	b.since += d
	b.running += d
	b.wall = b.wall.Add(d)
}

func (b *both) disturb(t *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(t, "disturbance") {
	case 0:
		b.boot++
		b.since = 0
	case 1:
		b.wall = b.wall.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "jump")) * time.Hour)
	case 2:
		b.dead = !b.dead
	case 3:
		b.full = !b.full
	}
}

// cleanUp removes the row where that is allowed; its key may then come back.
func (b *both) cleanUp(t *rapid.T) {
	if !ledger.Removable(b.row, b.wall, b.running) {
		return
	}
	if _, done := b.dumb.last("done"); !done || b.dumb.end.IsZero() || !b.wall.After(b.dumb.end) {
		t.Fatalf("removable: %+v", b.row)
	}
	if b.dumb.end.After(b.closed) {
		b.closed = b.dumb.end
	}
	b.row, b.dumb = ledger.Row{}, dumb{}
}
