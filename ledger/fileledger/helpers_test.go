package fileledger

import (
	"context"

	"github.com/fencepost/fencepost"
)

type ctx = context.Context

// compacting compacts after every operation.
type compacting struct{ *Ledger }

func (c compacting) Claim(ctx ctx, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	a, err := c.Ledger.Claim(ctx, d)
	if err != nil {
		return a, err
	}
	return a, c.Compact(ctx)
}

func (c compacting) Renew(ctx ctx, d fencepost.AcceptedDelivery, l fencepost.Lease) (fencepost.Renewal, error) {
	a, err := c.Ledger.Renew(ctx, d, l)
	if err != nil {
		return a, err
	}
	return a, c.Compact(ctx)
}

func (c compacting) Stage(ctx ctx, d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	a, err := c.Ledger.Stage(ctx, d, l, p)
	if err != nil {
		return a, err
	}
	return a, c.Compact(ctx)
}

func (c compacting) Complete(ctx ctx, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	a, err := c.Ledger.Complete(ctx, d, s)
	if err != nil {
		return a, err
	}
	return a, c.Compact(ctx)
}
