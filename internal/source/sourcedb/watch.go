package sourcedb

import (
	"context"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// selectStale lists what needs the watchdog, the most urgent first: locks that
// expired, logs under way that no lock belongs to, follow-ups that no log will
// take up, logs that wait for too long. What was renewed or queued at a time
// that lies ahead is listed, too: the clock went back since.
const selectStale = `select source from (
		select source, 0 as urgency, expires_at as since from source_locks where token <> '' and expires_at <= {now}
		union all
		select source, 0, 0 from source_locks where token <> '' and expires_at > {now} and renewed_at > {now}
		union all
		select source, 1, started_at from source_runs where status in ('queued', 'running') and status = 'running' and not exists (
			select 1 from source_locks where source_locks.source = source_runs.source and source_locks.token = source_runs.token)
		union all
		select id, 2, follow_up_since from sources where follow_up = 1 and enabled = 1 and not exists (
			select 1 from source_runs where source_runs.source = sources.id and source_runs.status in ('queued', 'running'))
		union all
		select source, 3, not_before from source_runs where status = 'queued' and not_before <= {now} - ?
		union all
		select source, 3, 0 from source_runs where status = 'queued' and not_before > {now} and queued_at > {now}
	) as stale group by source order by min(urgency), min(since), source limit ?`

// Stale implements [source.Store].
func (s *Store) Stale(ctx context.Context, queueAge time.Duration, limit int) ([]fencepost.SourceID, error) {
	return s.ids(ctx, "list stale sources", selectStale, queueAge.Microseconds(), limit)
}

// selectUnfresh lists, in this order, who is to get an alert, whose alert may
// be over, and whose stands. A sign that lies ahead was dated by a clock that
// went back since, and is listed, too.
const selectUnfresh = `select id from (
		select id, oldest, newest,
			case when enabled = 1 and (oldest <= {now} - ? or newest > {now}) then 1 else 0 end as unfresh,
			case when exists (select 1 from source_alerts where source_alerts.source = signs.id
				and source_alerts.until = 0 and source_alerts.code in ('` + string(source.AlertFreshness) + `', '` + string(source.AlertFollowUpStuck) + `'))
			then 1 else 0 end as told
		from (
			select id, enabled,
				case when sign > 0 and sign < seen then sign else seen end as oldest,
				case when sign > seen then sign else seen end as newest
			from (
				select id, enabled,
					case when follow_up_since > 0 and (unmet_since = 0 or follow_up_since < unmet_since)
						then follow_up_since else unmet_since end as sign,
					case when observed_at > registered_at then observed_at else registered_at end as seen
				from sources
			) as dated
		) as signs
	) as judged where unfresh = 1 or told = 1
	order by case when told = 0 then 0 when unfresh = 0 then 1 else 2 end, oldest, id limit ?`

// Unfresh implements [source.Store].
func (s *Store) Unfresh(ctx context.Context, after time.Duration, limit int) ([]fencepost.SourceID, error) {
	return s.ids(ctx, "list sources that are not fresh", selectUnfresh, after.Microseconds(), limit)
}

func (s *Store) ids(ctx context.Context, op, query string, args ...any) (ids []fencepost.SourceID, err error) {
	err = s.db.Read(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		ids = ids[:0]
		return tx.Each(ctx, query, args, func(scan func(...any) error) error {
			var text string
			if err := scan(&text); err != nil {
				return err
			}
			var d decoder
			ids = append(ids, parsed(&d, "id", text, fencepost.ParseSourceID))
			return d.err
		})
	})
	return ids, err
}

const selectNamed = `select 1 from source_deliveries where source = ? and announced = ? limit 1`

// Named implements [source.Store].
func (s *Store) Named(ctx context.Context, id fencepost.SourceID, commit fencepost.CommitID) (named bool, err error) {
	if commit.IsZero() {
		return false, nil
	}
	err = s.db.Read(ctx, "look for an announcement", func(ctx context.Context, tx *store.Tx) error {
		var one int64
		named, err = tx.One(ctx, selectNamed, []any{id.String(), commitText(commit)}, &one)
		return err
	})
	return named, err
}
