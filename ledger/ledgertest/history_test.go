package ledgertest

import (
	"testing"

	"github.com/fencepost/fencepost"
)

// TestHistoryNoticesOneWrongAnswer turns one refusal into a success, in
// histories that are right otherwise.
func TestHistoryNoticesOneWrongAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer string
		to     func(input) output
	}{
		{"renew", lost, func(in input) output { return output{answer: renewed, evaluation: in.evaluation, fence: in.fence} }},
		{"stage", lost, func(in input) output {
			return output{answer: stagedAs, evaluation: in.evaluation, fence: in.fence, value: in.value}
		}},
		{"complete", lost, func(input) output { return output{answer: completed} }},
		{"claim", busy, func(input) output { return output{answer: completed} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, w := recorded(t)
			for i := range h.ops {
				in, out := h.ops[i].Input.(input), h.ops[i].Output.(output)
				if out.answer != tt.answer || [...]string{opClaim: "claim", opRenew: "renew", opStage: "stage", opComplete: "complete"}[in.op] != tt.name {
					continue
				}
				h.ops[i].Output = tt.to(in)
				v := &verdict{TB: t}
				h.Check(v, false)
				if !v.failed {
					t.Fatalf("%s answered %s instead of %s, and nothing was noticed", tt.name, tt.to(in).answer, tt.answer)
				}
				h.ops[i].Output = out
			}
			h.Check(w, false)
		})
	}
}

// TestHistoryAllowsUnknownOutcomes: an operation without an answer may have
// happened, or not.
func TestHistoryAllowsUnknownOutcomes(t *testing.T) {
	t.Parallel()
	h, w := recorded(t)
	for i := range h.ops {
		kept := h.ops[i].Output
		if kept.(output).answer == acquired {
			continue // nobody would have known the lease that is used later
		}
		h.ops[i].Output = output{unknown: true}
		h.Check(w, false)
		h.ops[i].Output = kept
	}
}

// TestHistoryTakesUnknownClaimsOver: a claim without an answer may have been
// granted, so that the next one finds it busy, or takes it over.
func TestHistoryTakesUnknownClaimsOver(t *testing.T) {
	t.Parallel()
	h := &History{}
	w := &world{TB: t, h: memoryHarness(hooks{})}
	w.h.Ledger = h.Client(0, w.h.Ledger)
	d := w.permanent("a")
	w.claim(d)
	h.ops[0].Output = output{unknown: true}
	want[fencepost.Busy](w, "Claim", w.claim(d))
	w.passLease()
	w.acquire(d)
	h.Check(w, true)
	v := &verdict{TB: t}
	h.ops[0].Output = output{answer: lost}
	h.Check(v, true)
	if !v.failed {
		t.Fatal("a claim that was answered Lost went through")
	}
}

// recorded is a short history of one client with one of every answer.
func recorded(t *testing.T) (*History, *world) {
	h := &History{}
	w := &world{TB: t, h: memoryHarness(hooks{})}
	w.h.Ledger = h.Client(0, w.h.Ledger)
	d := w.permanent("a")
	l := w.acquire(d)
	want[fencepost.Busy](w, "Claim", w.claim(d))
	want[fencepost.Renewed](w, "Renew", w.renew(d, l))
	forged := w.grant(l.Evaluation(), w.fenceAt(l.Fence(), 1))
	want[fencepost.Lost](w, "Renew", w.renew(d, forged))
	want[fencepost.Lost](w, "Stage", w.stage(d, forged, w.publication("result")))
	s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
	want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("another")))
	want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, l.Evaluation(), w.publication("another"))))
	want[fencepost.Completed](w, "Complete", w.complete(d, s.Staged))
	want[fencepost.Completed](w, "Claim", w.claim(d))
	return h, w
}
