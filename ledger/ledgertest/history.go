package ledgertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost/fencepost"
)

// A History records what many clients ask of a ledger and are answered, to
// be checked for linearizability. It is safe for concurrent use.
type History struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
}

// Client is l, with every operation recorded as one of client's. One client
// does one thing at a time.
func (h *History) Client(client int, l fencepost.Ledger) fencepost.Ledger {
	return recorder{ledger: l, record: func(in input, do func() output) {
		call := h.clock.Add(1)
		out := do()
		ret := h.clock.Add(1)
		h.add(porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
	}}
}

func (h *History) add(ops ...porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, ops...)
}

// Len is the number of recorded operations.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Check fails tb if no order of the recorded operations, each at one moment
// between its call and its return, gives these answers by DESIGN §5. With
// timePasses a lease may have passed at any moment, else none has. Unknown
// outcomes may have taken effect or not.
func (h *History) Check(tb testing.TB, timePasses bool) {
	tb.Helper()
	h.mu.Lock()
	ops := append([]porcupine.Operation(nil), h.ops...)
	h.mu.Unlock()
	last := int64(0)
	for _, op := range ops {
		last = max(last, op.Call, op.Return)
	}
	for i := range ops {
		if ops[i].Output.(output).unknown {
			// It may yet take effect, until the end of the history.
			ops[i].Return = last + 1
		}
	}
	switch got := porcupine.CheckOperationsTimeout(model(timePasses).ToModel(), ops, time.Minute); got {
	case porcupine.Ok:
	case porcupine.Unknown:
		tb.Errorf("history of %d operations: not decided within a minute", len(ops))
	default:
		tb.Errorf("history of %d operations is not linearizable", len(ops))
		tellUnordered(tb, ops, timePasses)
	}
}

// tellUnordered logs what was asked and answered of each delivery whose own
// history has no order, the earliest call first.
func tellUnordered(tb testing.TB, ops []porcupine.Operation, timePasses bool) {
	tb.Helper()
	for _, one := range partition(ops) {
		if porcupine.CheckOperationsTimeout(model(timePasses).ToModel(), one, time.Minute) == porcupine.Ok {
			continue
		}
		slices.SortFunc(one, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		tb.Logf("of delivery %s there is no order of these:", one[0].Input.(input).key)
		for _, op := range one {
			tb.Logf("client %d [%d, %d] %s", op.ClientId, op.Call, op.Return, describe(op.Input, op.Output))
		}
	}
}

type opKind uint8

const (
	opClaim opKind = iota + 1
	opRenew
	opStage
	opComplete
)

// input is an operation, in comparable values.
type input struct {
	op         opKind
	key        fencepost.DeliveryKey
	binding    fencepost.Binding
	evaluation fencepost.EvaluationID
	fence      fencepost.Fence
	value      [sha256.Size]byte
}

// output is an answer, in comparable values.
type output struct {
	unknown    bool
	answer     string
	evaluation fencepost.EvaluationID
	fence      fencepost.Fence
	value      [sha256.Size]byte
}

// A recorder passes operations on, and has record take them down: what is
// asked before it is done, and what is answered after.
type recorder struct {
	ledger fencepost.Ledger
	record func(in input, do func() output)
}

// Claim implements [fencepost.Ledger].
func (r recorder) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (c fencepost.Claim, err error) {
	r.record(input{op: opClaim, key: d.Key(), binding: d.Binding()}, func() output {
		if c, err = r.ledger.Claim(ctx, d); err != nil {
			return output{unknown: true}
		}
		out := output{answer: fmt.Sprintf("%T", c)}
		switch c := c.(type) {
		case fencepost.Acquired:
			out.evaluation, out.fence = c.Lease.Evaluation(), c.Lease.Fence()
		case fencepost.Publish:
			out.evaluation, out.fence = c.Lease.Evaluation(), c.Lease.Fence()
			out.value = c.Staged.Publication().Digest()
		case fencepost.Busy, fencepost.Completed, fencepost.BindingConflict, fencepost.Full, fencepost.Expired:
		}
		return out
	})
	return c, err
}

// Renew implements [fencepost.Ledger].
func (r recorder) Renew(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease) (n fencepost.Renewal, err error) {
	in := input{op: opRenew, key: d.Key(), binding: d.Binding(), evaluation: l.Evaluation(), fence: l.Fence()}
	r.record(in, func() output {
		if n, err = r.ledger.Renew(ctx, d, l); err != nil {
			return output{unknown: true}
		}
		out := output{answer: fmt.Sprintf("%T", n)}
		if n, ok := n.(fencepost.Renewed); ok {
			out.evaluation, out.fence = n.Lease.Evaluation(), n.Lease.Fence()
		}
		return out
	})
	return n, err
}

// Stage implements [fencepost.Ledger].
func (r recorder) Stage(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) (s fencepost.StageOutcome, err error) {
	in := input{op: opStage, key: d.Key(), binding: d.Binding(), evaluation: l.Evaluation(), fence: l.Fence(), value: p.Digest()}
	r.record(in, func() output {
		if s, err = r.ledger.Stage(ctx, d, l, p); err != nil {
			return output{unknown: true}
		}
		out := output{answer: fmt.Sprintf("%T", s)}
		if s, ok := s.(fencepost.Staged); ok {
			out.evaluation, out.fence = s.Staged.Evaluation(), s.Lease.Fence()
			out.value = s.Staged.Publication().Digest()
		}
		return out
	})
	return s, err
}

// Complete implements [fencepost.Ledger].
func (r recorder) Complete(ctx context.Context, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (c fencepost.Completion, err error) {
	in := input{op: opComplete, key: d.Key(), binding: d.Binding(), evaluation: s.Evaluation(), value: s.Publication().Digest()}
	r.record(in, func() output {
		if c, err = r.ledger.Complete(ctx, d, s); err != nil {
			return output{unknown: true}
		}
		return output{answer: fmt.Sprintf("%T", c)}
	})
	return c, err
}

func describe(in, out any) string {
	i, o := in.(input), out.(output)
	op := [...]string{opClaim: "claim", opRenew: "renew", opStage: "stage", opComplete: "complete"}[i.op]
	asked := fmt.Sprintf("%s %s under %v, evaluation %.4x, value %.4x", op, i.key, i.fence, i.evaluation[:], i.value[:])
	if o.unknown {
		return asked + " → unknown"
	}
	return fmt.Sprintf("%s → %s %v, evaluation %.4x, value %.4x", asked, o.answer, o.fence, o.evaluation[:], o.value[:])
}
