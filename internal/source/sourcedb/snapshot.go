package sourcedb

import (
	"context"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// lockSource makes others who are about to read the row for a change wait, on
// a database whose transactions don't do so by themselves. The lock is a record
// of the log, so that there a change of nothing waits for the synchronous standbys
// as well: what a repeat repeats is on them when it is answered.
const lockSource = `select version from sources where id = ? for update`

const selectSource = `select ` + sourceColumns + `, ` + lockColumns + `, {now}
	from sources join source_locks on source_locks.source = sources.id where sources.id = ?`

const (
	selectOpen = `select ` + runColumns + ` from source_runs where source = ? and status in ('queued', 'running')`
	selectRun  = `select ` + runColumns + ` from source_runs where id = ?`

	selectDeliveries = `select ` + deliveryColumns + ` from source_deliveries
		where namespace = ? and (body = ? or (id <> '' and id = ?))`
	selectRequest = `select intent, run, asked_at from source_requests where source = ? and key = ?`
)

// read reads a source's rows as they are now.
func (b *Bound) read(ctx context.Context, id fencepost.SourceID, l source.Lookup) (snap source.Snapshot, err error) {
	if b.tx.Kind() == store.Postgres && !b.s.optimistic {
		var version int64
		if _, err := b.tx.One(ctx, lockSource, []any{id.String()}, &version); err != nil {
			return snap, err
		}
	}
	var d decoder
	var row sourceRow
	var lock lockRow
	var now int64
	found, err := b.tx.One(ctx, selectSource, []any{id.String()}, append(append(row.dest(), lock.dest()...), &now)...)
	switch {
	case err != nil:
		return snap, err
	case !found:
		return snap, source.ErrUnknownSource
	}
	snap = source.Snapshot{Now: at(now), Source: row.decode(&d), Lock: lock.decode(&d)}
	if d.err != nil {
		return snap, d.err
	}
	if snap.Open, err = oneRun(ctx, b.tx, selectOpen, id.String()); err != nil {
		return snap, err
	}
	return snap, b.look(ctx, id, l, &snap)
}

// look reads what a lookup asks for.
func (b *Bound) look(ctx context.Context, id fencepost.SourceID, l source.Lookup, snap *source.Snapshot) (err error) {
	switch {
	case l.Run.IsZero():
	case snap.Open != nil && snap.Open.ID == l.Run:
		run := *snap.Open
		snap.Run = &run
	default:
		if snap.Run, err = oneRun(ctx, b.tx, selectRun, l.Run.String()); err != nil {
			return err
		}
		if snap.Run != nil && snap.Run.Source != id {
			snap.Run = nil
		}
	}
	if l.Delivery != nil {
		if err := b.lookDelivery(ctx, l.Delivery, snap); err != nil {
			return err
		}
	}
	if l.Request == "" {
		return nil
	}
	var intent, run string
	var asked int64
	found, err := b.tx.One(ctx, selectRequest, []any{id.String(), l.Request}, &intent, &run, &asked)
	if err != nil || !found {
		return err
	}
	var d decoder
	snap.Request = &source.RequestRow{Source: id, Key: l.Request, Run: parsed(&d, "run", run, fencepost.ParseRunID), At: at(asked)}
	d.hex("intent", intent, snap.Request.Intent[:])
	return d.err
}

func (b *Bound) lookDelivery(ctx context.Context, want *source.DeliveryRow, snap *source.Snapshot) error {
	args := []any{string(want.Namespace), hexText(want.Body[:]), hexText(want.ID[:])}
	return b.tx.Each(ctx, selectDeliveries, args, func(scan func(...any) error) error {
		row, err := scanDelivery(scan, &decoder{})
		if err != nil {
			return err
		}
		if row.Body == want.Body {
			snap.ByBody = row
		}
		if !want.ID.IsZero() && row.ID == want.ID {
			snap.ByID = row
		}
		return nil
	})
}

// oneRun is the first log of a query; nil for none.
func oneRun(ctx context.Context, tx *store.Tx, query string, args ...any) (run *source.RunRow, err error) {
	err = tx.Each(ctx, query, args, func(scan func(...any) error) error {
		if run != nil {
			return nil
		}
		run, err = scanRun(scan, &decoder{})
		return err
	})
	return run, err
}
