package sourcedb

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
)

// A Retention says how long what is over is kept. A zero field is its
// default.
type Retention struct {
	// Runs is how long an ended run log, its job fence, and the request that
	// asked for it are kept; 1 h or more, default 30 days. A repeat of an
	// explicit request is recognised for that long.
	Runs time.Duration
	// Newest is how many ended logs of each source are kept whatever their
	// age; 1 or more, default 20.
	Newest int
	// Alerts is how long a resolved alert is kept; 1 h or more, default 7 days.
	Alerts time.Duration
	// Batch is how many rows of a table one call removes at most; 1 or more,
	// default 1000.
	Batch int
}

// DefaultRetention holds the defaults.
var DefaultRetention = Retention{Runs: 30 * 24 * time.Hour, Newest: 20, Alerts: 7 * 24 * time.Hour, Batch: 1000}

func (r Retention) withDefaults() (Retention, error) {
	d := DefaultRetention
	if r.Runs == 0 {
		r.Runs = d.Runs
	}
	if r.Newest == 0 {
		r.Newest = d.Newest
	}
	if r.Alerts == 0 {
		r.Alerts = d.Alerts
	}
	if r.Batch == 0 {
		r.Batch = d.Batch
	}
	if r.Runs < time.Hour || r.Alerts < time.Hour || r.Newest < 1 || r.Batch < 1 {
		return r, fmt.Errorf("retention below its least: %w", fencepost.ErrMalformed)
	}
	return r, nil
}

// Pruned counts what was removed.
type Pruned struct{ Runs, Jobs, Requests, Alerts int64 }

// More reports whether another call would find more.
func (p Pruned) More(r Retention) bool {
	r, err := r.withDefaults()
	return err == nil && max(p.Runs, p.Jobs, p.Requests, p.Alerts) >= int64(r.Batch)
}

// Each removal compares in the same statement what makes the row one that is
// over: an ended log never comes back, and what belongs to an open one stays.
// Of newer logs no more are read than must stay: a source may have thousands.
const (
	pruneRuns = `delete from source_runs where ended_at <> 0 and id in (
		select id from source_runs as old where ended_at <> 0 and ended_at <= {now} - ?
			and exists (select 1 from source_runs as newer where newer.source = old.source and newer.ended_at <> 0
				and (newer.queued_at, newer.id) > (old.queued_at, old.id) order by newer.queued_at, newer.id limit 1 offset ?)
		order by ended_at, id limit ?)`
	pruneJobs = `delete from source_jobs where last_at <= {now} - ? and (handler, key) in (
		select handler, key from source_jobs as old where last_at <= {now} - ? and not exists (
			select 1 from source_runs where source_runs.id = old.run and source_runs.ended_at = 0)
		order by last_at limit ?)`
	pruneRequests = `delete from source_requests where asked_at <= {now} - ? and (source, key) in (
		select source, key from source_requests as old where asked_at <= {now} - ? and not exists (
			select 1 from source_runs where source_runs.id = old.run and source_runs.ended_at = 0)
		order by asked_at limit ?)`
	pruneAlerts = `delete from source_alerts where until <> 0 and until <= {now} - ? and (source, code) in (
		select source, code from source_alerts where until <> 0 and until <= {now} - ? order by until limit ?)`
)

// Prune removes what was over for long enough, in one transaction of bounded
// size, and says how much. Delivery fences are never removed: their replay
// lifetime is permanent. Its error matches [fencepost.ErrMalformed] for a
// retention out of its ranges.
func (s *Store) Prune(ctx context.Context, r Retention) (p Pruned, err error) {
	r, err = r.withDefaults()
	if err != nil {
		return p, err
	}
	runs, alerts := r.Runs.Microseconds(), r.Alerts.Microseconds()
	err = s.db.Write(ctx, "prune sources", func(ctx context.Context, tx *store.Tx) (err error) {
		for _, step := range []struct {
			query string
			args  []any
			n     *int64
		}{
			{pruneRuns, []any{runs, r.Newest - 1, r.Batch}, &p.Runs},
			{pruneJobs, []any{runs, runs, r.Batch}, &p.Jobs},
			{pruneRequests, []any{runs, runs, r.Batch}, &p.Requests},
			{pruneAlerts, []any{alerts, alerts, r.Batch}, &p.Alerts},
		} {
			if *step.n, err = tx.Exec(ctx, step.query, step.args...); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}
