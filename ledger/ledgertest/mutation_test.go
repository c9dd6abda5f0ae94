package ledgertest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// A verdict is a testing.TB that keeps a row's failure to itself.
type verdict struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	why    string
}

func (v *verdict) fail(why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.failed {
		v.failed, v.why = true, why
	}
}

func (v *verdict) Helper()                        {}
func (v *verdict) Log(...any)                     {}
func (v *verdict) Logf(string, ...any)            {}
func (v *verdict) Error(args ...any)              { v.fail(fmt.Sprint(args...)) }
func (v *verdict) Errorf(format string, a ...any) { v.fail(fmt.Sprintf(format, a...)) }
func (v *verdict) Fatal(args ...any)              { v.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (v *verdict) Fatalf(format string, a ...any) {
	v.fail(fmt.Sprintf(format, a...))
	runtime.Goexit()
}
func (v *verdict) FailNow() { v.fail("FailNow"); runtime.Goexit() }
func (v *verdict) Fail()    { v.fail("Fail") }

// judge runs one row on h and tells why it failed.
func judge(tb testing.TB, r row, h Harness) (failed bool, why string) {
	v := &verdict{TB: tb}
	var wait sync.WaitGroup
	wait.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				v.fail(fmt.Sprint("panic: ", p))
			}
		}()
		r.run(&world{TB: v, h: h})
	})
	wait.Wait()
	return v.failed, v.why
}

type (
	lrow    = ledger.Row
	request = ledger.Request
	moment  = ledger.Moment
	fresh   = ledger.Fresh
	answer  = ledger.Answer
)

// mutants are ledgers with one fault each.
func mutants() map[string]hooks {
	decide := func(f func(lrow, request, moment, fresh) (lrow, answer)) hooks { return hooks{decide: f} }
	// lie makes the row look as if it suited the request's lease.
	lie := func(r lrow, l fencepost.Lease) lrow {
		r.Fence = l.Fence()
		return r
	}
	keep := func(next, row lrow) lrow { // undo a lie about the fence
		next.Fence = row.Fence
		return next
	}
	return map[string]hooks{
		"fence not compared at renew": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.RenewRequest); ok && r.State == ledger.Leased {
				next, a := ledger.Decide(lie(r, n.Lease), q, at, f)
				return keep(next, r), a
			}
			return ledger.Decide(r, q, at, f)
		}),
		"fence not compared at stage": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.StageRequest); ok && r.State == ledger.Leased {
				next, a := ledger.Decide(lie(r, n.Lease), q, at, f)
				return keep(next, r), a
			}
			return ledger.Decide(r, q, at, f)
		}),
		"evaluation not compared": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			real := r.Evaluation
			switch n := q.(type) {
			case ledger.RenewRequest:
				r.Evaluation = n.Lease.Evaluation()
			case ledger.StageRequest:
				r.Evaluation = n.Lease.Evaluation()
			}
			if r.State == ledger.Unclaimed {
				r.Evaluation = real
			}
			next, a := ledger.Decide(r, q, at, f)
			if next.State != ledger.Unclaimed && !real.IsZero() {
				next.Evaluation = real
			}
			return next, a
		}),
		"expired renew allowed": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.RenewRequest); ok && r.State == ledger.Leased {
				at.Now.At = min(at.Now.At, r.Execution.Deadline.At)
			}
			return ledger.Decide(r, q, at, f)
		}),
		"acquired again after staged": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Staged {
				r.State, r.Execution = ledger.Leased, r.Publishing
				r.Publishing, r.Publication = ledger.Term{}, fencepost.Publication{}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"publication bytes changed": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Staged {
				b := r.Publication.Bytes()
				if len(b) > 0 {
					b[0] ^= 1
					r.Publication, _ = fencepost.NewPublication(b)
				}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"second value staged over the first": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.StageRequest); ok && r.State == ledger.Staged {
				r.Publication = n.Publication
			}
			return ledger.Decide(r, q, at, f)
		}),
		"complete without looking at the value": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Staged {
				r.Publication = n.Staged.Publication()
			}
			return ledger.Decide(r, q, at, f)
		}),
		"done with any value": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Done {
				return r, answer{Completion: fencepost.Completed{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"complete without staging": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Leased {
				return r, answer{Completion: fencepost.Completed{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"new evaluation at reclaim": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Leased {
				r.Evaluation = f.Evaluation
			}
			return ledger.Decide(r, q, at, f)
		}),
		"same fence at reclaim": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Leased {
				f.Fence = r.Fence
			}
			return ledger.Decide(r, q, at, f)
		}),
		"same fence at publish": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Staged {
				f.Fence = r.Fence
			}
			return ledger.Decide(r, q, at, f)
		}),
		"live lease taken over": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			at.HolderDead = r.State == ledger.Leased
			return ledger.Decide(r, q, at, f)
		}),
		"two publishers side by side": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			at.HolderDead = r.State == ledger.Staged
			return ledger.Decide(r, q, at, f)
		}),
		"lease of another boot still stands": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State == ledger.Leased {
				r.Execution.Deadline.Boot = at.Now.Boot
			}
			if r.State == ledger.Staged {
				r.Publishing.Deadline.Boot = at.Now.Boot
			}
			return ledger.Decide(r, q, at, f)
		}),
		"binding not compared": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State != ledger.Unclaimed {
				r.Binding = q.On().Binding()
			}
			return ledger.Decide(r, q, at, f)
		}),
		"key of the staged value not compared": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Staged && n.Staged.Delivery() != r.Key {
				return r, answer{Completion: fencepost.Completed{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"replay end not looked at": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State == ledger.Unclaimed {
				if end, bounded := q.On().Lifetime().End(); bounded && at.Wall.After(end) {
					at.Wall = end
				}
				at.ClosedThrough = time.Time{}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"expired though claimed": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && r.State == ledger.Leased && r.Lifetime.Passed(at.Wall) {
				return r, answer{Claim: fencepost.Expired{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"replay end exclusive": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State == ledger.Unclaimed {
				at.Wall = at.Wall.Add(1)
			}
			return ledger.Decide(r, q, at, f)
		}),
		"lease end exclusive": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State == ledger.Leased {
				at.Now.At++
				at.Lease--
			}
			return ledger.Decide(r, q, at, f)
		}),
		"capacity not looked at": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			at.NoRoom = false
			return ledger.Decide(r, q, at, f)
		}),
		"full for known rows too": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.ClaimRequest); ok && at.NoRoom {
				return r, answer{Claim: fencepost.Full{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"replay end not moved by a repeat": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if r.State != ledger.Unclaimed {
				next.Lifetime, next.RunningEnd = r.Lifetime, r.RunningEnd
			}
			return next, a
		}),
		"replay end moved back by a repeat": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if next.State != ledger.Unclaimed {
				next.Lifetime = q.On().Lifetime()
				next.RunningEnd = 0
			}
			return next, a
		}),
		"running end dated by the wall clock alone": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if end, bounded := next.Lifetime.End(); bounded && next.Lifetime != r.Lifetime {
				next.RunningEnd = max(r.RunningEnd, at.Running+max(0, end.Sub(at.Wall)))
			}
			return next, a
		}),
		"lease timed by the wall clock": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			at.Now.At = time.Duration(at.Wall.UnixNano())
			return ledger.Decide(r, q, at, f)
		}),
		"stage looks at the clock": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.StageRequest); ok && r.State == ledger.Leased && at.Now.At > r.Execution.Deadline.At {
				return r, answer{Stage: fencepost.Lost{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"stage does not extend the lease": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if r.State == ledger.Leased && next.State == ledger.Staged {
				next.Publishing = r.Execution
			}
			return next, a
		}),
		"staged again is a renewal": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.StageRequest); ok && r.State == ledger.Staged {
				r.Publishing.Deadline.At = at.Now.At + at.Lease
			}
			return ledger.Decide(r, q, at, f)
		}),
		"staged again under an older fence gives a lease": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.StageRequest); ok && r.State == ledger.Staged {
				next, a := ledger.Decide(lie(r, n.Lease), q, at, f)
				return keep(next, r), a
			}
			return ledger.Decide(r, q, at, f)
		}),
		"renewal goes nowhere": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if _, ok := q.(ledger.RenewRequest); ok {
				return r, a
			}
			return next, a
		}),
		"answer without storing": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if next.State == ledger.Done {
				return r, a
			}
			return next, a
		}),
		"attempts not counted": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if next.State == ledger.Leased {
				next.Attempts = 1
			}
			return next, a
		}),
		"renewed in any state": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if n, ok := q.(ledger.RenewRequest); ok && r.State > ledger.Leased && n.Lease.Fence() == r.Fence {
				a.Renewal = fencepost.Renewed{Lease: n.Lease}
			}
			return next, a
		}),
		"renewed whatever the delivery": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if n, ok := q.(ledger.RenewRequest); ok && r.Evaluation != n.Lease.Evaluation() {
				a.Renewal = fencepost.Renewed{Lease: n.Lease}
			}
			return next, a
		}),
		"a stage or complete makes the row": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if r.State != ledger.Unclaimed {
				return ledger.Decide(r, q, at, f)
			}
			made, _ := ledger.Decide(r, ledger.ClaimRequest{Delivery: q.On()}, at, f)
			switch n := q.(type) {
			case ledger.StageRequest:
				made.Evaluation, made.Fence = n.Lease.Evaluation(), n.Lease.Fence()
				return ledger.Decide(made, q, at, f)
			case ledger.CompleteRequest:
				return made, answer{Completion: fencepost.Completed{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"completed under any evaluation": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if n, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Staged {
				r.Evaluation = n.Staged.Evaluation()
			}
			return ledger.Decide(r, q, at, f)
		}),
		"completed once only": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.CompleteRequest); ok && r.State == ledger.Done {
				return r, answer{Completion: fencepost.Lost{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"completed by nobody": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.CompleteRequest); ok {
				return r, answer{Completion: fencepost.Lost{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"staged once only": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			if _, ok := q.(ledger.StageRequest); ok && r.State == ledger.Staged {
				return r, answer{Stage: fencepost.Lost{}}
			}
			return ledger.Decide(r, q, at, f)
		}),
		"one evaluation id for all": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			f.Evaluation = fencepost.EvaluationID{1}
			return ledger.Decide(r, q, at, f)
		}),
		"the first claim is a reclaim": decide(func(r lrow, q request, at moment, f fresh) (lrow, answer) {
			next, a := ledger.Decide(r, q, at, f)
			if c, ok := a.Claim.(fencepost.Acquired); ok {
				c.Reclaimed = true
				a.Claim = c
			}
			return next, a
		}),
		"zero values and other windows taken": {check: func(request, fencepost.ReplayWindow) error { return nil }},
		"clean-up by the wall clock alone": {removable: func(r lrow, wall time.Time, _ time.Duration) bool {
			return r.State == ledger.Done && r.Lifetime.Passed(wall)
		}},
		"clean-up of permanent rows": {removable: func(r lrow, wall time.Time, running time.Duration) bool {
			_, bounded := r.Lifetime.End()
			return ledger.Removable(r, wall, running) || r.State == ledger.Done && !bounded
		}},
		"clean-up of staged rows": {removable: func(r lrow, wall time.Time, running time.Duration) bool {
			return r.Lifetime.Passed(wall) && running > r.RunningEnd
		}},
		"clean-up at the replay end": {removable: func(r lrow, wall time.Time, running time.Duration) bool {
			return ledger.Removable(r, wall.Add(1), running+1)
		}},
		"clean-up forgets what it closed":  {removed: func(m *Memory, _ lrow) { m.closed = time.Time{} }},
		"fences start anew after clean-up": {removed: func(m *Memory, _ lrow) { m.fence = 0 }},
		"no isolation":                     {noLock: true},
	}
}

// TestEachFaultIsNoticed runs the suite on ledgers that are broken in one way
// each: a suite that passes one of them proves nothing.
func TestEachFaultIsNoticed(t *testing.T) {
	t.Parallel()
	for name, broken := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var by []string
			for _, r := range rows() {
				if failed, why := judge(t, r, memoryHarness(broken)); failed {
					by = append(by, r.name+": "+strings.SplitN(why, "\n", 2)[0])
				}
			}
			if len(by) == 0 {
				t.Fatal("no row of the suite fails")
			}
			slices.Sort(by)
			t.Logf("noticed by %d rows, such as %s", len(by), by[0])
		})
	}
}

// TestEachRowNoticesAFault: a row that fails for no broken ledger may be one
// that can't fail.
func TestEachRowNoticesAFault(t *testing.T) {
	t.Parallel()
	dull := map[string]bool{}
	for _, r := range rows() {
		dull[r.name] = true
	}
	for _, broken := range mutants() {
		for _, r := range rows() {
			if !dull[r.name] {
				continue
			}
			if failed, _ := judge(t, r, memoryHarness(broken)); failed {
				delete(dull, r.name)
			}
		}
	}
	// A Memory asks for the context before it does anything, and every
	// mutant with it: here only a ledger that waits can be wrong.
	delete(dull, "context/ended/unknown")
	for name := range dull {
		t.Errorf("row %s fails for no mutant", name)
	}
}
