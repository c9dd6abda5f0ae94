package sqlledger

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

type ctx = context.Context

func permanent(tb testing.TB, id string) fencepost.AcceptedDelivery {
	tb.Helper()
	return ledgertest.Deliver(tb, ledgertest.Spec{ID: id, Body: "body of " + id})
}

func (f *fixture) bounded(id string) fencepost.AcceptedDelivery {
	f.tb.Helper()
	return ledgertest.Deliver(f.tb, ledgertest.Spec{ID: id, Body: "body of " + id, Signed: f.now()})
}

func publication(tb testing.TB, text string) fencepost.Publication {
	tb.Helper()
	p, err := fencepost.NewPublication([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// must is the answer of an operation as a T.
func must[T any](tb testing.TB, got any, err error) T {
	tb.Helper()
	answer, ok := got.(T)
	if err != nil || !ok {
		tb.Fatalf("answer %T, %v; want %T", got, err, answer)
	}
	return answer
}

func acquire(tb testing.TB, l *Ledger, d fencepost.AcceptedDelivery) fencepost.Lease {
	tb.Helper()
	c, err := l.Claim(tb.Context(), d)
	return must[fencepost.Acquired](tb, c, err).Lease
}

func finish(tb testing.TB, l *Ledger, d fencepost.AcceptedDelivery) {
	tb.Helper()
	o, err := l.Stage(tb.Context(), d, acquire(tb, l, d), publication(tb, "result"))
	s := must[fencepost.Staged](tb, o, err)
	c, err := l.Complete(tb.Context(), d, s.Staged)
	must[fencepost.Completed](tb, c, err)
}

func (f *fixture) exec(l *Ledger, query string, args ...any) {
	f.tb.Helper()
	err := l.db.Write(f.tb.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
	if err != nil {
		f.tb.Fatalf("%s: %v", query, err)
	}
}
