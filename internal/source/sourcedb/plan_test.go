package sourcedb_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

// TestQueriesFindRowsByIndex: what runs for every check, push and renewal, and
// every round of the watchdog, reads no whole table.
func TestQueriesFindRowsByIndex(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	_, db := w.open(t, sourcedb.Hooks{})
	whole := regexp.MustCompile(`^SCAN source\w+$`)
	for query, n := range sourcedb.Queries {
		args := make([]any, n)
		for i := range args {
			args[i] = 1
		}
		steps := 0
		if err := db.Read(t.Context(), "explain", func(ctx context.Context, tx *store.Tx) error {
			return tx.Each(ctx, "explain query plan "+query, args, func(scan func(...any) error) error {
				var id, parent, unused int64
				var detail string
				if err := scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if steps++; whole.MatchString(detail) {
					t.Errorf("%s\n%s", detail, query)
				}
				return nil
			})
		}); err != nil {
			t.Errorf("%v\n%s", err, query)
		}
		if steps == 0 {
			t.Errorf("no plan for\n%s", query)
		}
	}
}
