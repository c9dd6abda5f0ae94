package sourcedb

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

const (
	selectOpenAlerts = `select ` + alertColumns + ` from source_alerts where source = ? and until = 0`

	// One that is open counts on; one that was resolved begins anew.
	raiseAlert = `insert into source_alerts (source, code, subject, since, until, raised) values (?, ?, ?, ?, 0, 1)
		on conflict (source, code) do update set subject = excluded.subject,
			since = case when source_alerts.until = 0 then source_alerts.since else excluded.since end,
			raised = case when source_alerts.until = 0 then source_alerts.raised + 1 else 1 end,
			until = 0`
	resolveAlert = `update source_alerts set until = ? where source = ? and code = ? and until = 0`
)

// effective leaves of a change's alerts what changes something: so judging a
// source whose alerts are as they should be writes nothing. An alert that is
// both raised and resolved is raised.
func (b *Bound) effective(ctx context.Context, id fencepost.SourceID, c source.Change) (source.Change, error) {
	if len(c.Raise) == 0 && len(c.Resolve) == 0 {
		return c, nil
	}
	open, err := b.openAlerts(ctx, id)
	if err != nil {
		return c, err
	}
	var resolve []source.AlertRow
	for _, a := range c.Resolve {
		same := func(r source.AlertRow) bool { return r.Code == a.Code }
		if _, is := open[a.Code]; is && !slices.ContainsFunc(c.Raise, same) && !slices.ContainsFunc(resolve, same) {
			resolve = append(resolve, a)
		}
	}
	var raise []source.AlertRow
	news := len(resolve) > 0
	for _, a := range c.Raise {
		if slices.ContainsFunc(raise, func(r source.AlertRow) bool { return r.Code == a.Code }) {
			continue
		}
		raise = append(raise, a)
		_, is := open[a.Code]
		news = news || !is
	}
	c.Raise, c.Resolve = nil, resolve
	if news || !nothing(c) {
		c.Raise = raise
	}
	return c, nil
}

func (b *Bound) openAlerts(ctx context.Context, id fencepost.SourceID) (map[source.AlertCode]Alert, error) {
	open := map[source.AlertCode]Alert{}
	err := b.tx.Each(ctx, selectOpenAlerts, []any{id.String()}, func(scan func(...any) error) error {
		a, err := scanAlert(scan, &decoder{})
		open[a.Code] = a
		return err
	})
	return open, err
}

// storeAlerts writes the alerts of a change down, and keeps for the hooks what
// was not so before.
func (b *Bound) storeAlerts(ctx context.Context, snap source.Snapshot, c source.Change) error {
	if len(c.Raise) == 0 && len(c.Resolve) == 0 {
		return nil
	}
	id := snap.Source.ID
	open, err := b.openAlerts(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range c.Resolve {
		if err := swap(ctx, b.tx, resolveAlert, us(snap.Now), id.String(), string(a.Code)); err != nil {
			return err
		}
		was := open[a.Code]
		was.Until = snap.Now
		b.alerts = append(b.alerts, was)
	}
	for _, a := range c.Raise {
		if _, err := b.tx.Exec(ctx, raiseAlert, id.String(), string(a.Code), string(a.Source), us(snap.Now)); err != nil {
			return err
		}
		if _, is := open[a.Code]; !is {
			b.alerts = append(b.alerts, Alert{Source: id, AlertRow: a, Since: snap.Now, Raised: 1})
		}
	}
	return nil
}
