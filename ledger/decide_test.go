package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

var (
	bootA = ledger.BootID{0xA}
	bootB = ledger.BootID{0xB}
	noon  = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
)

// now is the moment of every decision of the table below.
var now = ledger.Moment{
	Wall: noon, Now: ledger.Instant{Boot: bootA, At: time.Hour}, Running: 10 * time.Hour, Lease: time.Minute,
}

func fence(tb testing.TB, n uint64) fencepost.Fence {
	tb.Helper()
	f, err := fencepost.ParseFence(n)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func publication(tb testing.TB, text string) fencepost.Publication {
	tb.Helper()
	p, err := fencepost.NewPublication([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func lease(tb testing.TB, e fencepost.EvaluationID, n uint64) fencepost.Lease {
	tb.Helper()
	l, err := fencepost.GrantLease(e, fence(tb, n), time.Minute, noon)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// table is what the rows of TestTable are written with.
type table struct {
	tb        testing.TB
	d, other  fencepost.AcceptedDelivery
	eval      fencepost.EvaluationID
	freshEval fencepost.EvaluationID
}

func newTable(tb testing.TB) table {
	return table{
		tb:        tb,
		d:         ledgertest.Deliver(tb, ledgertest.Spec{ID: "a", Body: "1"}),
		other:     ledgertest.Deliver(tb, ledgertest.Spec{ID: "a", Body: "2"}),
		eval:      fencepost.EvaluationID{1},
		freshEval: fencepost.EvaluationID{2},
	}
}

// row is a row of state s under fence 7 whose lease lasts until left from
// now, staged or done with "result".
func (t table) row(s ledger.State, left time.Duration) ledger.Row {
	r := ledger.Row{
		State: s, Key: t.d.Key(), Binding: t.d.Binding(), Evaluation: t.eval, Fence: fence(t.tb, 7),
		Attempts: 3, Since: noon.Add(-time.Hour),
	}
	term := ledger.Term{
		Deadline: ledger.Instant{Boot: bootA, At: now.Now.At + left}, Until: noon.Add(left),
		Holder: ledger.Holder{Slot: 9, Epoch: 99},
	}
	switch s {
	case ledger.Leased:
		r.Execution = term
	case ledger.Staged:
		r.Publishing, r.Publication = term, publication(t.tb, "result")
	case ledger.Done:
		r.Published = publication(t.tb, "result").Digest()
	case ledger.Unclaimed:
		return ledger.Row{}
	}
	if err := r.Validate(); err != nil {
		t.tb.Fatal(err)
	}
	return r
}

func (t table) staged(text string) fencepost.StagedPublication {
	s, err := fencepost.RestoreStaged(t.d.Key(), t.eval, publication(t.tb, text))
	if err != nil {
		t.tb.Fatal(err)
	}
	return s
}

// TestTable is DESIGN §5's table, row by row: from which state, which
// request, to which state under which fence, with which answer.
func TestTable(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	const (
		live   = time.Second
		passed = -time.Second
	)
	claim := ledger.ClaimRequest{Delivery: x.d}
	renew := func(n uint64) ledger.Request {
		return ledger.RenewRequest{Delivery: x.d, Lease: lease(t, x.eval, n)}
	}
	stage := func(n uint64, text string) ledger.Request {
		return ledger.StageRequest{Delivery: x.d, Lease: lease(t, x.eval, n), Publication: publication(t, text)}
	}
	complete := func(text string) ledger.Request {
		return ledger.CompleteRequest{Delivery: x.d, Staged: x.staged(text)}
	}
	dead := func(m ledger.Moment) ledger.Moment { m.HolderDead = true; return m }
	full := func(m ledger.Moment) ledger.Moment { m.NoRoom = true; return m }
	rebooted := func(m ledger.Moment) ledger.Moment { m.Now = ledger.Instant{Boot: bootB}; return m }
	same := func(m ledger.Moment) ledger.Moment { return m }

	for _, tt := range []struct {
		name   string
		row    ledger.Row
		req    ledger.Request
		at     func(ledger.Moment) ledger.Moment
		state  ledger.State
		fence  uint64
		answer any
	}{
		{"claim unclaimed", ledger.Row{}, claim, same, ledger.Leased, 8, fencepost.Acquired{}},
		{"claim unclaimed, no capacity", ledger.Row{}, claim, full, ledger.Unclaimed, 0, fencepost.Full{}},
		{"claim leased, live", x.row(ledger.Leased, live), claim, same, ledger.Leased, 7, fencepost.Busy{}},
		{"claim leased, at its deadline", x.row(ledger.Leased, 0), claim, same, ledger.Leased, 7, fencepost.Busy{}},
		{"claim leased, passed", x.row(ledger.Leased, passed), claim, same, ledger.Leased, 8, fencepost.Acquired{}},
		{"claim leased, passed, no capacity", x.row(ledger.Leased, passed), claim, full, ledger.Leased, 8, fencepost.Acquired{}},
		{"claim leased, live, holder dead", x.row(ledger.Leased, live), claim, dead, ledger.Leased, 8, fencepost.Acquired{}},
		{"claim leased, live, other boot", x.row(ledger.Leased, live), claim, rebooted, ledger.Leased, 8, fencepost.Acquired{}},
		{"claim staged, live", x.row(ledger.Staged, live), claim, same, ledger.Staged, 7, fencepost.Busy{}},
		{"claim staged, at its deadline", x.row(ledger.Staged, 0), claim, same, ledger.Staged, 7, fencepost.Busy{}},
		{"claim staged, passed", x.row(ledger.Staged, passed), claim, same, ledger.Staged, 8, fencepost.Publish{}},
		{"claim staged, live, holder dead", x.row(ledger.Staged, live), claim, dead, ledger.Staged, 8, fencepost.Publish{}},
		{"claim staged, live, other boot", x.row(ledger.Staged, live), claim, rebooted, ledger.Staged, 8, fencepost.Publish{}},
		{"claim done", x.row(ledger.Done, 0), claim, same, ledger.Done, 7, fencepost.Completed{}},
		{"claim leased, other binding", x.row(ledger.Leased, passed), ledger.ClaimRequest{Delivery: x.other}, same, ledger.Leased, 7, fencepost.BindingConflict{}},
		{"claim staged, other binding", x.row(ledger.Staged, passed), ledger.ClaimRequest{Delivery: x.other}, same, ledger.Staged, 7, fencepost.BindingConflict{}},
		{"claim done, other binding", x.row(ledger.Done, 0), ledger.ClaimRequest{Delivery: x.other}, same, ledger.Done, 7, fencepost.BindingConflict{}},

		{"renew leased, live", x.row(ledger.Leased, live), renew(7), same, ledger.Leased, 7, fencepost.Renewed{}},
		{"renew leased, at its deadline", x.row(ledger.Leased, 0), renew(7), same, ledger.Leased, 7, fencepost.Renewed{}},
		{"renew leased, live, looks dead", x.row(ledger.Leased, live), renew(7), dead, ledger.Leased, 7, fencepost.Renewed{}},
		{"renew leased, passed", x.row(ledger.Leased, passed), renew(7), same, ledger.Leased, 7, fencepost.Lost{}},
		{"renew leased, other boot", x.row(ledger.Leased, live), renew(7), rebooted, ledger.Leased, 7, fencepost.Lost{}},
		{"renew leased, older fence", x.row(ledger.Leased, live), renew(6), same, ledger.Leased, 7, fencepost.Lost{}},
		{"renew leased, later fence", x.row(ledger.Leased, live), renew(8), same, ledger.Leased, 7, fencepost.Lost{}},
		{"renew unclaimed", ledger.Row{}, renew(7), same, ledger.Unclaimed, 0, fencepost.Lost{}},
		{"renew staged", x.row(ledger.Staged, live), renew(7), same, ledger.Staged, 7, fencepost.Lost{}},
		{"renew done", x.row(ledger.Done, 0), renew(7), same, ledger.Done, 7, fencepost.Lost{}},

		{"stage leased, live", x.row(ledger.Leased, live), stage(7, "result"), same, ledger.Staged, 7, fencepost.Staged{}},
		{"stage leased, passed", x.row(ledger.Leased, passed), stage(7, "result"), same, ledger.Staged, 7, fencepost.Staged{}},
		{"stage leased, other boot", x.row(ledger.Leased, live), stage(7, "result"), rebooted, ledger.Staged, 7, fencepost.Staged{}},
		{"stage leased, older fence", x.row(ledger.Leased, live), stage(6, "result"), same, ledger.Leased, 7, fencepost.Lost{}},
		{"stage unclaimed", ledger.Row{}, stage(7, "result"), same, ledger.Unclaimed, 0, fencepost.Lost{}},
		{"stage staged, same value", x.row(ledger.Staged, live), stage(7, "result"), same, ledger.Staged, 7, fencepost.Staged{}},
		{"stage staged, same value, older fence", x.row(ledger.Staged, live), stage(6, "result"), same, ledger.Staged, 7, fencepost.Staged{}},
		{"stage staged, other value", x.row(ledger.Staged, live), stage(7, "another"), same, ledger.Staged, 7, fencepost.Lost{}},
		{"stage done", x.row(ledger.Done, 0), stage(7, "result"), same, ledger.Done, 7, fencepost.Lost{}},

		{"complete staged", x.row(ledger.Staged, live), complete("result"), same, ledger.Done, 7, fencepost.Completed{}},
		{"complete staged, passed", x.row(ledger.Staged, passed), complete("result"), same, ledger.Done, 7, fencepost.Completed{}},
		{"complete staged, other value", x.row(ledger.Staged, live), complete("another"), same, ledger.Staged, 7, fencepost.Lost{}},
		{"complete done", x.row(ledger.Done, 0), complete("result"), same, ledger.Done, 7, fencepost.Completed{}},
		{"complete done, other value", x.row(ledger.Done, 0), complete("another"), same, ledger.Done, 7, fencepost.Lost{}},
		{"complete leased", x.row(ledger.Leased, live), complete("result"), same, ledger.Leased, 7, fencepost.Lost{}},
		{"complete unclaimed", ledger.Row{}, complete("result"), same, ledger.Unclaimed, 0, fencepost.Lost{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			next, a := ledger.Decide(tt.row, tt.req, tt.at(now), ledger.Fresh{Fence: fence(t, 8), Evaluation: x.freshEval})
			got := onlyAnswer(t, a)
			if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", tt.answer) {
				t.Fatalf("answer = %T, want %T", got, tt.answer)
			}
			if next.State != tt.state || next.Fence.Uint64() != tt.fence {
				t.Fatalf("row is %v under fence %v, want %v under %d", next.State, next.Fence, tt.state, tt.fence)
			}
			if err := errors.Join(next.Validate(), ledger.CheckEdge(tt.row, next)); err != nil {
				t.Fatal(err)
			}
			if _, isLost := got.(fencepost.Lost); isLost && !next.Equal(tt.row) {
				t.Fatalf("Lost, and the row changed:\n%s", cmp.Diff(tt.row, next, cmp.Exporter(exportAll)))
			}
		})
	}
}

// onlyAnswer is the one field of a that is set.
func onlyAnswer(tb testing.TB, a ledger.Answer) any {
	tb.Helper()
	var set []any
	for _, f := range []any{a.Claim, a.Renewal, a.Stage, a.Completion} {
		if f != nil {
			set = append(set, f)
		}
	}
	if a.Repeat != 0 {
		set = append(set, a.Repeat)
	}
	if len(set) != 1 {
		tb.Fatalf("%d answers are set, want 1: %+v", len(set), a)
	}
	return set[0]
}

func TestRepeatIsKnownUnknownOrAConflict(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	for _, s := range []ledger.State{ledger.Leased, ledger.Staged, ledger.Done} {
		row := x.row(s, time.Second)
		if next, a := ledger.Decide(row, ledger.RepeatRequest{Delivery: x.d}, now, ledger.Fresh{}); a.Repeat != ledger.RepeatKnown || !next.Equal(row) {
			t.Errorf("%v: repeat = %d, row changed %v; want known, unchanged", s, a.Repeat, !next.Equal(row))
		}
		if _, a := ledger.Decide(row, ledger.RepeatRequest{Delivery: x.other}, now, ledger.Fresh{}); a.Repeat != ledger.RepeatConflict {
			t.Errorf("%v: repeat of another body = %d, want conflict", s, a.Repeat)
		}
	}
	if next, a := ledger.Decide(ledger.Row{}, ledger.RepeatRequest{Delivery: x.d}, now, ledger.Fresh{}); a.Repeat != ledger.RepeatUnknown || next.State != ledger.Unclaimed {
		t.Errorf("unclaimed: repeat = %d, state %v; want unknown, unclaimed", a.Repeat, next.State)
	}
}

func TestRepeatMovesTheReplayEndOnBothClocks(t *testing.T) {
	t.Parallel()
	first := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: noon})
	later := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: noon.Add(time.Hour)})
	row, _ := ledger.Decide(ledger.Row{}, ledger.ClaimRequest{Delivery: first}, now, ledger.Fresh{Fence: fence(t, 1), Evaluation: fencepost.EvaluationID{1}})
	life := fencepost.DefaultReplayWindow.MaxSignedAge + fencepost.DefaultReplayWindow.MaxQueueAge
	if want := now.Running + life; row.RunningEnd != want {
		t.Fatalf("running end = %v, want %v", row.RunningEnd, want)
	}
	for _, req := range []ledger.Request{ledger.ClaimRequest{Delivery: later}, ledger.RepeatRequest{Delivery: later}} {
		next, _ := ledger.Decide(row, req, now, ledger.Fresh{})
		end, _ := next.Lifetime.End()
		if !end.Equal(noon.Add(time.Hour+life)) || next.RunningEnd != now.Running+life+time.Hour {
			t.Errorf("%s: ends %v and %v, want an hour later than before", req.Op(), end, next.RunningEnd)
		}
		if back, _ := ledger.Decide(next, ledger.RepeatRequest{Delivery: first}, now, ledger.Fresh{}); !back.Equal(next) {
			t.Errorf("%s: an earlier repeat changed the row", req.Op())
		}
	}
}

func TestExpiredLooksAtTheWallAndAtWhatWasClosed(t *testing.T) {
	t.Parallel()
	d := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: noon})
	end, _ := d.Lifetime().End()
	for _, tt := range []struct {
		name         string
		wall, closed time.Time
		want         fencepost.Claim
	}{
		{"at the end", end, time.Time{}, fencepost.Acquired{}},
		{"past the end", end.Add(1), time.Time{}, fencepost.Expired{}},
		{"closed through an earlier end", noon, end.Add(-1), fencepost.Acquired{}},
		{"closed through this end", noon, end, fencepost.Expired{}},
		{"closed through a later end", noon, end.Add(time.Hour), fencepost.Expired{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := now
			at.Wall, at.ClosedThrough = tt.wall, tt.closed
			_, a := ledger.Decide(ledger.Row{}, ledger.ClaimRequest{Delivery: d}, at, ledger.Fresh{Fence: fence(t, 1), Evaluation: fencepost.EvaluationID{1}})
			if fmt.Sprintf("%T", a.Claim) != fmt.Sprintf("%T", tt.want) {
				t.Fatalf("answer = %T, want %T", a.Claim, tt.want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	l, p, s := lease(t, x.eval, 1), publication(t, "p"), x.staged("p")
	var none fencepost.AcceptedDelivery
	for _, req := range []ledger.Request{
		ledger.ClaimRequest{}, ledger.RepeatRequest{},
		ledger.RenewRequest{Delivery: none, Lease: l}, ledger.RenewRequest{Delivery: x.d},
		ledger.StageRequest{Delivery: none, Lease: l, Publication: p}, ledger.StageRequest{Delivery: x.d, Publication: p}, ledger.StageRequest{Delivery: x.d, Lease: l},
		ledger.CompleteRequest{Delivery: none, Staged: s}, ledger.CompleteRequest{Delivery: x.d},
	} {
		if err := ledger.Check(req, fencepost.DefaultReplayWindow); !errors.Is(err, fencepost.ErrZeroValue) {
			t.Errorf("Check(%#v) = %v, want ErrZeroValue", req, err)
		}
	}
	other := fencepost.DefaultReplayWindow
	other.MaxSignedAge++
	bounded := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: noon})
	if err := ledger.Check(ledger.ClaimRequest{Delivery: bounded}, other); fencepost.ReasonOf(err) != fencepost.ReasonParameters {
		t.Errorf("another replay window: %v, want reason %q", err, fencepost.ReasonParameters)
	}
	if err := ledger.Check(ledger.ClaimRequest{Delivery: bounded}, fencepost.DefaultReplayWindow); err != nil {
		t.Errorf("the same replay window: %v", err)
	}
	// A permanent lifetime owes nothing to the window.
	if err := ledger.Check(ledger.ClaimRequest{Delivery: x.d}, other); err != nil {
		t.Errorf("a permanent delivery: %v", err)
	}
}
