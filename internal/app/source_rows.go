package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
)

// SourceState says in a word how a source stands at a moment.
func SourceState(s sourcedb.State) string {
	stale := slices.ContainsFunc(s.Alerts, func(a sourcedb.Alert) bool { return a.Code == source.AlertFreshness })
	switch {
	case !s.Enabled:
		return "disabled"
	case stale:
		return "stale"
	case s.Run != nil && s.Run.Status == source.Running:
		return "running"
	case !s.UnmetSince.IsZero():
		return "behind"
	case s.Applied.IsZero():
		return "unknown"
	}
	return "fresh"
}

// NextLook is when a source's head is looked at next; zero for one that is
// disabled, of which none is.
func NextLook(s sourcedb.State) time.Time {
	if !s.Enabled {
		return time.Time{}
	}
	return s.NextCheck
}

// rank puts those in trouble first.
func rank(state string) int {
	return slices.Index([]string{"stale", "behind", "running", "unknown", "fresh", "disabled"}, state)
}

// SourceRows implements [ops.Sources].
func (a *App) SourceRows(ctx context.Context, limit int) ([]ops.SourceRow, error) {
	seen, err := a.sourcing.state.Sources(ctx, "")
	if err != nil {
		return nil, err
	}
	configured := map[fencepost.SourceID]config.Source{}
	for _, c := range a.Config.Sources {
		configured[c.ID] = c
	}
	rows := make([]ops.SourceRow, 0, len(a.Config.Sources))
	for _, s := range seen.Sources {
		c, ok := configured[s.ID]
		if !ok {
			continue
		}
		row := ops.SourceRow{
			Key: string(s.Key), Provider: string(c.Provider), Repository: c.Repository.FullName(), Ref: c.Ref,
			Sink: string(c.Sink.Kind), Policy: s.Revision.String(), State: SourceState(s),
			Announced: Short(s.Announced), Observed: Short(s.Observed), Applied: Short(s.Applied),
			AnnouncedAt: s.AnnouncedAt, ObservedAt: s.ObservedAt, AppliedAt: s.AppliedAt,
			Next: NextLook(s), Holder: Holder(s.Lock, seen.Now), FollowUp: s.FollowUp, Trouble: s.Trouble,
		}
		if !s.UnmetSince.IsZero() {
			row.Age = seen.Now.Sub(s.UnmetSince)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y ops.SourceRow) int {
		return cmp.Or(cmp.Compare(rank(x.State), rank(y.State)), cmp.Compare(x.Key, y.Key))
	})
	return rows[:min(limit, len(rows))], nil
}

// RecentRuns implements [ops.Sources].
func (a *App) RecentRuns(ctx context.Context, limit int) ([]ops.RunRow, error) {
	runs, err := a.sourcing.state.Runs(ctx, sourcedb.RunFilter{}, limit)
	if err != nil {
		return nil, err
	}
	rows := make([]ops.RunRow, len(runs))
	for i, r := range runs {
		rows[i] = ops.RunRow{
			ID: r.ID.String(), Source: r.Source.String(), Trigger: r.Trigger.Kind.String(), Status: r.Status.String(),
			Reason: r.Reason, Detail: r.Detail, Head: Short(r.Head), Attempts: r.Attempts, Queued: r.QueuedAt, Ended: r.EndedAt,
			Files: r.Counts.Files, Changed: r.Counts.Added + r.Counts.Changed + r.Counts.Removed,
		}
		if src, ok := a.sourcing.all[r.Source]; ok {
			rows[i].Source = string(src.Key)
		}
		if !r.StartedAt.IsZero() && !r.EndedAt.IsZero() {
			rows[i].Took = r.EndedAt.Sub(r.StartedAt)
		}
		if !r.Recovers.IsZero() {
			rows[i].Recovers = r.Recovers.String()
		}
	}
	return rows, nil
}

// Short is a commit for people's eyes; empty for none.
func Short(c fencepost.CommitID) string {
	if c.IsZero() {
		return ""
	}
	return c.String()[:7]
}

// Holder says how long a lock has been held, and since when it was not
// renewed; empty for a free one.
func Holder(l source.LockRow, now time.Time) string {
	if l.Free() {
		return ""
	}
	said := []string{
		"held for " + now.Sub(l.Acquired).Round(time.Second).String(),
		"renewed " + now.Sub(l.Renewed).Round(time.Second).String() + " ago",
	}
	if !l.Expires.After(now) {
		said = append(said, "expired")
	}
	return strings.Join(said, ", ")
}
