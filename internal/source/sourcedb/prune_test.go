package sourcedb_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
)

// insertHistory gives a source as many ended logs as its second argument says,
// two minutes apart.
const insertHistory = `insert into source_runs (id, source, revision, trigger_kind, trigger_id, announced, fence, version, status,
		queued_at, not_before, ended_at)
	with recursive n(i) as (select 1 union all select i + 1 from n where i < cast(? as integer))
	select 'run' || i, ?, '', 'reconciler', 'r' || i, '', substr('0000000000000000000000000000000000000000000000000000000000000000' || i, -64), 1, 'failed',
		i * 120000000, i * 120000000, i * 120000000 from n`

// A source that failed in each window for a month is one that a removal gets
// through within the time of one transaction: what it reads does not grow with
// the number of logs.
func TestPruneGetsThroughALongHistory(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	s, db := w.open(t, sourcedb.Hooks{})
	r := storetest.Registration(1)
	if _, err := s.Register(t.Context(), []source.Registration{r}); err != nil {
		t.Fatal(err)
	}
	const logs = 22000
	if err := db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, insertHistory, logs, r.ID.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p, err := s.Prune(t.Context(), sourcedb.Retention{})
	if err != nil || p.Runs != int64(sourcedb.DefaultRetention.Batch) {
		t.Fatalf("removed %+v, %v", p, err)
	}
	t.Logf("removed %d of %d logs in %v", p.Runs, logs, time.Since(begun))
}
