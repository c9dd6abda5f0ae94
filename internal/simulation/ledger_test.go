package simulation

import (
	"context"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// A book is the ledger of one process: each operation takes the token first,
// and what is answered goes to the trace.
type book struct {
	p *process
	*fileledger.Ledger
}

// ask takes the token and returns the step at which it was given.
func (b book) ask(ctx context.Context, op string, d fencepost.AcceptedDelivery) (sent, delivery int, err error) {
	if err := b.p.step(ctx, op, d.Key()); err != nil {
		return 0, 0, err
	}
	return b.p.sim.steps, b.p.sim.numberOf(d.Key()), nil
}

// tell notes an answer that this process got alive.
func (b book) tell(e event) {
	e.slot = b.p.slot
	b.p.sim.note(e)
}

// failed tells an error in the story.
func (b book) failed(delivery int, err error) error {
	if b.p.sim.record && !b.p.isGone() {
		b.tell(event{kind: evTold, delivery: delivery, text: err.Error()})
	}
	return err
}

// Claim implements [fencepost.Ledger].
func (b book) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	sent, n, err := b.ask(ctx, "claim", d)
	if err != nil {
		return nil, err
	}
	answer, err := b.Ledger.Claim(ctx, d)
	if err != nil {
		return nil, b.failed(n, err)
	}
	answer = b.p.sim.spoilClaim(n, answer)
	e := event{delivery: n, sent: sent}
	switch a := answer.(type) {
	case fencepost.Acquired:
		e.kind, e.fence, e.eval = evAcquired, a.Lease.Fence().Uint64(), a.Lease.Evaluation()
	case fencepost.Publish:
		e.kind, e.fence, e.eval = evPublish, a.Lease.Fence().Uint64(), a.Staged.Evaluation()
		e.text = textOf(a.Staged.Publication())
	case fencepost.Completed:
		e.kind = evKnownDone
	case fencepost.Busy:
		e.kind = evBusy
	case fencepost.BindingConflict, fencepost.Full, fencepost.Expired:
		e.kind = evRefusedClaim
	}
	b.tell(e)
	return answer, nil
}

// Renew implements [fencepost.Ledger].
func (b book) Renew(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease) (fencepost.Renewal, error) {
	sent, n, err := b.ask(ctx, "renew", d)
	if err != nil {
		return nil, err
	}
	answer, err := b.Ledger.Renew(ctx, d, l)
	if held, ok := b.p.sim.heldBy(n); ok && answer == (fencepost.Lost{}) {
		answer, err = b.Ledger.Renew(ctx, d, held)
	}
	if b.p.sim.mutant == NeverLoses {
		answer, err = fencepost.Renewed{Lease: l}, nil
	}
	if err != nil {
		return nil, b.failed(n, err)
	}
	if _, ok := answer.(fencepost.Renewed); ok {
		b.tell(event{kind: evRenewed, delivery: n, sent: sent, fence: l.Fence().Uint64(), eval: l.Evaluation()})
	}
	return answer, nil
}

// Stage implements [fencepost.Ledger].
func (b book) Stage(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	sent, n, err := b.ask(ctx, "stage", d)
	if err != nil {
		return nil, err
	}
	b.tell(event{
		kind: evStageAsked, delivery: n, sent: sent, fence: l.Fence().Uint64(), eval: l.Evaluation(), text: textOf(p),
	})
	answer, err := b.Ledger.Stage(ctx, d, l, p)
	if held, ok := b.p.sim.heldBy(n); ok && answer == (fencepost.Lost{}) {
		answer, err = b.Ledger.Stage(ctx, d, held, p)
	}
	if b.p.sim.mutant == StagesInMemory && err == nil {
		answer = b.p.sim.stageInMemory(d, l, p)
	}
	if err != nil {
		return nil, b.failed(n, err)
	}
	if a, ok := answer.(fencepost.Staged); ok {
		b.tell(event{
			kind: evStaged, delivery: n, sent: sent, fence: l.Fence().Uint64(), eval: a.Staged.Evaluation(),
			text: textOf(a.Staged.Publication()),
		})
	}
	return answer, nil
}

// Complete implements [fencepost.Ledger].
func (b book) Complete(ctx context.Context, d fencepost.AcceptedDelivery, st fencepost.StagedPublication) (fencepost.Completion, error) {
	sent, n, err := b.ask(ctx, "complete", d)
	if err != nil {
		return nil, err
	}
	answer, err := b.Ledger.Complete(ctx, d, st)
	if err != nil {
		return nil, b.failed(n, err)
	}
	if _, ok := answer.(fencepost.Completed); ok {
		b.tell(event{kind: evCompleted, delivery: n, sent: sent, eval: st.Evaluation(), text: textOf(st.Publication())})
	}
	return answer, nil
}

// Lookup implements [gate.Rows].
func (b book) Lookup(ctx context.Context, key fencepost.DeliveryKey) (ledger.Row, bool, error) {
	if err := b.p.step(ctx, "row", key); err != nil {
		return ledger.Row{}, false, err
	}
	return b.Ledger.Lookup(ctx, key)
}

// Repeat is the ledger's, with the token.
func (b book) Repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error) {
	if err := b.p.step(ctx, "repeat", d.Key()); err != nil {
		return 0, err
	}
	return b.Ledger.Repeat(ctx, d)
}

// textOf is a publication as the trace has it.
func textOf(p fencepost.Publication) string {
	if why, none := p.None(); none {
		return nonePrefix + string(why)
	}
	return string(p.Bytes())
}

// nonePrefix begins the text of a publication that is none.
const nonePrefix = "none: "
