package ledgertest

import (
	"crypto/sha256"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost/fencepost"
)

// modelRow is the sequential ledger that histories are held against, one
// delivery at a time. It is written from the table and on purpose shares
// nothing with package ledger.
type modelRow struct {
	state      byte // 'u'nclaimed, 'l'eased, 's'taged, 'd'one
	binding    fencepost.Binding
	evaluation fencepost.EvaluationID
	fence      fencepost.Fence
	value      [sha256.Size]byte
	// loose says that an unknown claim may have raised the fence above
	// fence, by an amount and under an evaluation that nobody was told.
	loose bool
}

const (
	acquired  = "fencepost.Acquired"
	busy      = "fencepost.Busy"
	publish   = "fencepost.Publish"
	completed = "fencepost.Completed"
	conflict  = "fencepost.BindingConflict"
	full      = "fencepost.Full"
	renewed   = "fencepost.Renewed"
	stagedAs  = "fencepost.Staged"
	lost      = "fencepost.Lost"
)

func model(timePasses bool) *porcupine.NondeterministicModel {
	return &porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{modelRow{state: 'u'}} },
		Step: func(state, in, out any) []any {
			return step(state.(modelRow), in.(input), out.(output), timePasses)
		},
		DescribeOperation: describe,
	}
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	byKey := map[fencepost.DeliveryKey][]porcupine.Operation{}
	for _, op := range history {
		k := op.Input.(input).key
		byKey[k] = append(byKey[k], op)
	}
	parts := make([][]porcupine.Operation, 0, len(byKey))
	for _, p := range byKey {
		parts = append(parts, p)
	}
	return parts
}

// step returns the states that s may be in after in was answered out; none
// if the answer is wrong.
func step(s modelRow, in input, out output, timePasses bool) []any {
	if out.unknown {
		return append([]any{s}, stepUnknown(s, in)...)
	}
	var next modelRow
	var ok bool
	switch in.op {
	case opClaim:
		next, ok = stepClaim(s, in, out, timePasses)
	case opRenew:
		next, ok = stepRenew(s, in, out, timePasses)
	case opStage:
		next, ok = stepStage(s, in, out)
	case opComplete:
		next, ok = stepComplete(s, in, out)
	}
	if !ok {
		return nil
	}
	return []any{next}
}

// stepUnknown returns what an operation without an answer may have done.
func stepUnknown(s modelRow, in input) []any {
	switch {
	case in.op == opClaim && s.state == 'u':
		return []any{modelRow{state: 'l', binding: in.binding, loose: true}}
	case in.op == opClaim && s.state != 'd' && s.binding == in.binding:
		s.loose = true
		return []any{s}
	case in.op == opStage && s.state == 'l' && s.holds(in):
		s.state, s.value = 's', in.value
		return []any{s}
	case in.op == opComplete && s.state == 's' && s.is(in):
		s.state = 'd'
		return []any{s}
	}
	return nil
}

// holds: under a loose fence nobody holds the row, for nobody was told.
func (s modelRow) holds(in input) bool {
	return !s.loose && s.binding == in.binding && s.evaluation == in.evaluation && s.fence == in.fence
}

// is reports whether in is about exactly what is staged.
func (s modelRow) is(in input) bool {
	return s.binding == in.binding && s.evaluation == in.evaluation && s.value == in.value
}

func stepClaim(s modelRow, in input, out output, timePasses bool) (modelRow, bool) {
	if s.state == 'u' && out.answer == full {
		return s, true // room is not the model's
	}
	if s.state == 'u' {
		next := modelRow{state: 'l', binding: in.binding, evaluation: out.evaluation, fence: out.fence}
		return next, out.answer == acquired && !out.fence.IsZero()
	}
	if s.binding != in.binding {
		return s, out.answer == conflict
	}
	if s.state == 'd' {
		return s, out.answer == completed
	}
	if out.answer == busy {
		return s, true
	}
	want := map[byte]string{'l': acquired, 's': publish}[s.state]
	sameEvaluation := s.evaluation == out.evaluation || s.evaluation.IsZero()
	ok := out.answer == want && timePasses && sameEvaluation && s.fence.Before(out.fence) &&
		(s.state == 'l' || s.value == out.value)
	s.fence, s.evaluation, s.loose = out.fence, out.evaluation, false
	return s, ok
}

func stepRenew(s modelRow, in input, out output, timePasses bool) (modelRow, bool) {
	held := s.state == 'l' && s.holds(in)
	switch out.answer {
	case renewed:
		return s, held && out.fence == s.fence && out.evaluation == s.evaluation
	case lost:
		return s, !held || timePasses
	}
	return s, false
}

func stepStage(s modelRow, in input, out output) (modelRow, bool) {
	first := s.state == 'l' && s.holds(in)
	again := s.state == 's' && s.is(in)
	switch out.answer {
	case stagedAs:
		if !first && !again || out.value != in.value || out.evaluation != in.evaluation {
			return s, false
		}
		// A lease is said to be held by the row's own fence alone.
		if !out.fence.IsZero() && !s.holds(in) || first && out.fence != in.fence {
			return s, false
		}
		s.state, s.value = 's', in.value
		return s, true
	case lost:
		return s, !first && !again
	}
	return s, false
}

func stepComplete(s modelRow, in input, out output) (modelRow, bool) {
	known := (s.state == 's' || s.state == 'd') && s.is(in)
	switch out.answer {
	case completed:
		s.state = 'd'
		return s, known
	case lost:
		return s, !known
	}
	return s, false
}
