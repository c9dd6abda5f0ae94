package sourcedb_test

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
)

// insertHistory gives a source ended logs, from one number to another, two
// minutes apart.
const insertHistory = `insert into source_runs (id, source, revision, trigger_kind, trigger_id, announced, fence, version, status,
		queued_at, not_before, ended_at)
	with recursive n(i) as (select cast(? as integer) union all select i + 1 from n where i < cast(? as integer))
	select 'run' || i, ?, '', 'reconciler', 'r' || i, '', substr('0000000000000000000000000000000000000000000000000000000000000000' || i, -64), 1, 'failed',
		i * 120000000, i * 120000000, i * 120000000 from n`

// A source that failed in each window for weeks is one that a removal gets
// through within the time of one transaction: what it reads of each log does not
// grow with their number.
func TestPruneGetsThroughALongHistory(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	s, db := w.open(t, sourcedb.Hooks{})
	r := storetest.Registration(1)
	if _, err := s.Register(t.Context(), []source.Registration{r}); err != nil {
		t.Fatal(err)
	}
	const logs, step, batch = 22000, 500, 1000
	for from := 1; from < logs; from += step {
		if err := db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Exec(ctx, insertHistory, from, from+step-1, r.ID.String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Prune(t.Context(), sourcedb.Retention{Batch: batch}); err != nil || p.Runs != batch {
		t.Fatalf("removed %+v, %v", p, err)
	}
}
