package sourcedb

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// ErrUnknownRun: there is no such run log, or none any more.
var ErrUnknownRun = errors.New("unknown run")

// An Overview is every source at one moment.
type Overview struct {
	// Now is the store's clock, by which the times of the rows were made.
	Now time.Time
	// Sources are sorted by key, those that are not enabled behind.
	Sources []State
}

// A State is one source with all that is open about it.
type State struct {
	source.SourceRow
	Lock source.LockRow
	// Run is the one that has not ended; nil for none.
	Run *source.RunRow
	// Alerts are the open ones, by code.
	Alerts []Alert
}

const (
	selectSources = `select ` + sourceColumns + `, ` + lockColumns + `
		from sources join source_locks on source_locks.source = sources.id
		where ? = '' or sources.key = ? order by enabled desc, key, id`
	selectOpenRuns  = `select ` + runColumns + ` from source_runs where status in ('queued', 'running')`
	selectAllAlerts = `select ` + alertColumns + ` from source_alerts where until = 0 order by source, code`
)

// Sources is what is known of all sources that there were ever, or of those
// with the given key if it is not empty.
func (s *Store) Sources(ctx context.Context, key fencepost.RouteName) (o Overview, err error) {
	err = s.db.Read(ctx, "read sources", func(ctx context.Context, tx *store.Tx) error {
		o = Overview{}
		var now int64
		if _, err := tx.One(ctx, "select {now}", nil, &now); err != nil {
			return err
		}
		o.Now = at(now)
		where := map[fencepost.SourceID]int{}
		if err := tx.Each(ctx, selectSources, []any{string(key), string(key)}, func(scan func(...any) error) error {
			state, err := scanState(scan)
			where[state.ID] = len(o.Sources)
			o.Sources = append(o.Sources, state)
			return err
		}); err != nil {
			return err
		}
		return o.fill(ctx, tx, where)
	})
	return o, err
}

func scanState(scan scanner) (State, error) {
	var row sourceRow
	var lock lockRow
	if err := scan(append(row.dest(), lock.dest()...)...); err != nil {
		return State{}, err
	}
	var d decoder
	return State{SourceRow: row.decode(&d), Lock: lock.decode(&d)}, d.err
}

// fill adds open runs and alerts to the sources, which are at their places.
func (o *Overview) fill(ctx context.Context, tx *store.Tx, where map[fencepost.SourceID]int) error {
	if err := tx.Each(ctx, selectOpenRuns, nil, func(scan func(...any) error) error {
		run, err := scanRun(scan, &decoder{})
		if err != nil {
			return err
		}
		if i, ok := where[run.Source]; ok {
			o.Sources[i].Run = run
		}
		return nil
	}); err != nil {
		return err
	}
	return tx.Each(ctx, selectAllAlerts, nil, func(scan func(...any) error) error {
		a, err := scanAlert(scan, &decoder{})
		if err != nil {
			return err
		}
		if i, ok := where[a.Source]; ok {
			o.Sources[i].Alerts = append(o.Sources[i].Alerts, a)
		}
		return nil
	})
}

// A RunFilter says which run logs are listed; its zero value all.
type RunFilter struct {
	// Source, if not zero, is whose; Status, if not zero, which.
	Source fencepost.SourceID
	Status source.Status
}

// MaxListed is the most rows that a listing gives.
const MaxListed = 1000

const selectRuns = `select ` + runColumns + ` from source_runs
	where (? = '' or source = ?) and (? = '' or status = ?) order by queued_at desc, id desc limit ?`

// Runs lists run logs, the newest first, at most limit and [MaxListed].
func (s *Store) Runs(ctx context.Context, f RunFilter, limit int) (runs []source.RunRow, err error) {
	src, status := text(f.Source), text(f.Status)
	err = s.db.Read(ctx, "read runs", func(ctx context.Context, tx *store.Tx) error {
		runs = runs[:0]
		return tx.Each(ctx, selectRuns, []any{src, src, status, status, min(limit, MaxListed)}, func(scan func(...any) error) error {
			run, err := scanRun(scan, &decoder{})
			if err != nil {
				return err
			}
			runs = append(runs, *run)
			return nil
		})
	})
	return runs, err
}

// Run reads one run log. Its error matches [ErrUnknownRun] if there is none.
func (s *Store) Run(ctx context.Context, id fencepost.RunID) (source.RunRow, error) {
	var run *source.RunRow
	err := s.db.Read(ctx, "read run", func(ctx context.Context, tx *store.Tx) (err error) {
		run, err = oneRun(ctx, tx, selectRun, id.String())
		return err
	})
	switch {
	case err != nil:
		return source.RunRow{}, err
	case run == nil:
		return source.RunRow{}, ErrUnknownRun
	}
	return *run, nil
}

const selectAlerts = `select ` + alertColumns + ` from source_alerts
	order by case when until = 0 then 0 else 1 end, until desc, since, source, code limit ?`

// Alerts lists alerts, the open ones first, then those that were resolved
// last; at most limit and [MaxListed].
func (s *Store) Alerts(ctx context.Context, limit int) (alerts []Alert, err error) {
	err = s.db.Read(ctx, "read alerts", func(ctx context.Context, tx *store.Tx) error {
		alerts = alerts[:0]
		return tx.Each(ctx, selectAlerts, []any{min(limit, MaxListed)}, func(scan func(...any) error) error {
			a, err := scanAlert(scan, &decoder{})
			alerts = append(alerts, a)
			return err
		})
	})
	return alerts, err
}

// selectOpenCounts counts by code.
const selectOpenCounts = `select code, count(*) from source_alerts where until = 0 group by code`

// OpenAlerts counts the open alerts of each code, for metrics.
func (s *Store) OpenAlerts(ctx context.Context) (counts map[source.AlertCode]int64, err error) {
	err = s.db.Read(ctx, "count alerts", func(ctx context.Context, tx *store.Tx) error {
		counts = map[source.AlertCode]int64{}
		return tx.Each(ctx, selectOpenCounts, nil, func(scan func(...any) error) error {
			var code string
			var n int64
			err := scan(&code, &n)
			counts[source.AlertCode(code)] = n
			return err
		})
	})
	return counts, err
}
