package ledgertest

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost"
)

// valueRows: what nobody made is refused by every operation.
func valueRows() []row {
	refused := func(name string, f func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease, s fencepost.StagedPublication) error) row {
		return row{"zero/" + name + "/ErrZeroValue", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			s := w.restore(d, l.Evaluation(), w.publication("result"))
			if err := f(w, d, l, s); !errors.Is(err, fencepost.ErrZeroValue) {
				w.Fatalf("error = %v, want one that matches ErrZeroValue", err)
			}
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
		}}
	}
	type (
		delivery = fencepost.AcceptedDelivery
		lease    = fencepost.Lease
		staged   = fencepost.StagedPublication
	)
	return []row{
		refused("claim-delivery", func(w *world, _ delivery, _ lease, _ staged) error {
			_, err := w.h.Ledger.Claim(w.Context(), delivery{})
			return err
		}),
		refused("renew-delivery", func(w *world, _ delivery, l lease, _ staged) error {
			_, err := w.h.Ledger.Renew(w.Context(), delivery{}, l)
			return err
		}),
		refused("renew-lease", func(w *world, d delivery, _ lease, _ staged) error {
			_, err := w.h.Ledger.Renew(w.Context(), d, lease{})
			return err
		}),
		refused("stage-delivery", func(w *world, _ delivery, l lease, s staged) error {
			_, err := w.h.Ledger.Stage(w.Context(), delivery{}, l, s.Publication())
			return err
		}),
		refused("stage-lease", func(w *world, d delivery, _ lease, s staged) error {
			_, err := w.h.Ledger.Stage(w.Context(), d, lease{}, s.Publication())
			return err
		}),
		refused("stage-publication", func(w *world, d delivery, l lease, _ staged) error {
			_, err := w.h.Ledger.Stage(w.Context(), d, l, fencepost.Publication{})
			return err
		}),
		refused("complete-delivery", func(w *world, _ delivery, _ lease, s staged) error {
			_, err := w.h.Ledger.Complete(w.Context(), delivery{}, s)
			return err
		}),
		refused("complete-staged", func(w *world, d delivery, _ lease, _ staged) error {
			_, err := w.h.Ledger.Complete(w.Context(), d, staged{})
			return err
		}),
		{"context/ended/unknown", 0, func(w *world) {
			// An error means unknown: either nothing happened, or all of it.
			d := w.permanent("a")
			ctx, cancel := context.WithCancel(w.Context())
			cancel()
			if _, err := w.h.Ledger.Claim(ctx, d); err != nil && !errors.Is(err, context.Canceled) {
				w.Fatalf("Claim under an ended context: %v, want one that matches context.Canceled", err)
			}
			w.passLease()
			w.acquire(d)
		}},
	}
}
