package sqlledger

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// TestNoRowComesTwice: a transaction that others defeat is begun again only
// while nobody has seen a row of it.
func TestNoRowComesTwice(t *testing.T) {
	t.Parallel()
	l := onSQLite(t).ledger()
	acquire(t, l, permanent(t, "a"))
	defeats := 0
	rows := readRows(t.Context(), l.db, "ledger.rows", func(ctx context.Context, tx *store.Tx, f func(ledger.Row) error) error {
		if defeats++; defeats == 1 {
			return defeated()
		}
		r, err := l.read(ctx, tx.One, permanent(t, "a").Key())
		if err != nil {
			return err
		}
		if err := f(r.row); err != nil {
			return err
		}
		return defeated()
	})
	seen, failed := 0, 0
	for _, err := range rows {
		if err != nil {
			failed++
		} else {
			seen++
		}
	}
	if seen != 1 || failed != 1 || defeats != 2 {
		t.Errorf("%d rows, %d errors, %d transactions; want 1, 1, 2", seen, failed, defeats)
	}
}
