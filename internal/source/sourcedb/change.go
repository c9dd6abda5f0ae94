package sourcedb

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

const (
	// Every change raises the version, also one of other rows alone: so the
	// changes of a source have an order, and what one decided on still is so.
	touchSource = `update sources set version = version + 1 where id = ? and version = ?`

	updateSource = `update sources set version = version + 1,
			key = ?, revision = ?, lineage = ?, enabled = ?,
			announced = ?, announced_at = ?, announcements = ?,
			observed = ?, observed_at = ?, tried_at = ?, trouble = ?,
			applied = ?, applied_tree = ?, applied_revision = ?, applied_at = ?,
			unmet_since = ?, follow_up = ?, follow_up_since = ?, registered_at = ?, next_check = ?, check_until = ?, last_fence = ?
		where id = ? and version = ? and last_fence <= ?`

	// The expiry is compared, too: who frees a lock because it expired must
	// not free one that was renewed meanwhile.
	updateLock = `update source_locks set owner = ?, token = ?, fence = ?, run = ?, acquired_at = ?, renewed_at = ?, expires_at = ?
		where source = ? and token = ? and fence = ? and expires_at = ?`

	updateRun = `update source_runs set version = version + 1, status = ?, reason = ?, detail = ?, attempts = ?, token = ?,
			seen_announcements = ?, not_before = ?, started_at = ?, ended_at = ?, head = ?, tree = ?,
			files = ?, added = ?, changed = ?, removed = ?, bytes = ?, wire = ?, refused = ?
		where id = ? and version = ? and token = ? and status in ('queued', 'running')`

	insertRun = `insert into source_runs (` + runColumns + `)
		values (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	insertDelivery = `insert into source_deliveries (` + deliveryColumns + `) values (?, ?, ?, ?, ?, ?, ?, ?)`
	insertRequest  = `insert into source_requests (source, key, intent, run, asked_at) values (?, ?, ?, ?, ?)`

	// A job fence that stands with another payload is not updated.
	upsertJob = `insert into source_jobs (handler, key, payload, source, run, revision, first_at, last_at)
		values (?, ?, ?, ?, ?, ?, ?, ?)
		on conflict (handler, key) do update set last_at = excluded.last_at where source_jobs.payload = excluded.payload`
)

// store stores a change, in an order in which the source's row comes first.
func (b *Bound) store(ctx context.Context, snap source.Snapshot, c source.Change) error {
	for _, step := range []func() error{
		func() error { return b.storeSource(ctx, snap, c.Source) },
		func() error { return b.storeLock(ctx, snap, c.Lock) },
		func() error { return b.updateRun(ctx, snap, c.Update) },
		func() error { return b.insertRun(ctx, c.Insert) },
		func() error { return b.storeFences(ctx, c) },
		func() error { return b.storeJob(ctx, snap, c.Job) },
		func() error { return b.storeAlerts(ctx, snap, c) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// swap runs a statement that must change one row, and matches [errMissed] if
// the row is not as it was read.
func swap(ctx context.Context, tx *store.Tx, query string, args ...any) error {
	n, err := tx.Exec(ctx, query, args...)
	if err == nil && n != 1 {
		err = errMissed
	}
	return err
}

func (b *Bound) storeSource(ctx context.Context, snap source.Snapshot, row *source.SourceRow) error {
	id, version := snap.Source.ID.String(), snap.Source.Version
	if row == nil {
		return swap(ctx, b.tx, touchSource, id, version)
	}
	return swap(ctx, b.tx, updateSource, append(sourceValues(row), id, version, int64(row.LastFence))...)
}

func (b *Bound) storeLock(ctx context.Context, snap source.Snapshot, l *source.LockRow) error {
	if l == nil {
		return nil
	}
	was := snap.Lock
	return swap(ctx, b.tx, updateLock,
		hexText(l.Owner[:]), hexText(l.Token[:]), int64(l.Fence), text(l.Run), us(l.Acquired), us(l.Renewed), us(l.Expires),
		snap.Source.ID.String(), hexText(was.Token[:]), int64(was.Fence), us(was.Expires))
}

func (b *Bound) updateRun(ctx context.Context, snap source.Snapshot, r *source.RunRow) error {
	if r == nil {
		return nil
	}
	refused, err := refusedText(r.Refused)
	if err != nil {
		return err
	}
	was, c := snap.Open, r.Counts
	return swap(ctx, b.tx, updateRun, r.Status.String(), string(r.Reason), r.Detail, int64(r.Attempts), hexText(r.Token[:]),
		r.SeenAnnouncements, us(r.NotBefore), us(r.StartedAt), us(r.EndedAt), commitText(r.Head), treeText(r.Tree),
		c.Files, c.Added, c.Changed, c.Removed, c.Bytes, c.Wire, refused,
		was.ID.String(), was.Version, hexText(was.Token[:]))
}

func (b *Bound) insertRun(ctx context.Context, r *source.RunRow) error {
	if r == nil {
		return nil
	}
	refused, err := refusedText(r.Refused)
	if err != nil {
		return err
	}
	c := r.Counts
	_, err = b.tx.Exec(ctx, insertRun, r.ID.String(), r.Source.String(), text(r.Revision), r.Trigger.Kind.String(), r.Trigger.ID,
		commitText(r.Commit), hexText(r.Fence[:]), text(r.Recovers),
		r.Status.String(), string(r.Reason), r.Detail, int64(r.Attempts), hexText(r.Token[:]), r.SeenAnnouncements,
		us(r.QueuedAt), us(r.NotBefore), us(r.StartedAt), us(r.EndedAt), commitText(r.Head), treeText(r.Tree),
		c.Files, c.Added, c.Changed, c.Removed, c.Bytes, c.Wire, refused)
	return err
}

func (b *Bound) storeFences(ctx context.Context, c source.Change) error {
	if d := c.Delivery; d != nil {
		if _, err := b.tx.Exec(ctx, insertDelivery, string(d.Namespace), hexText(d.ID[:]), hexText(d.Body[:]), d.Delivery.Hex(),
			d.Source.String(), commitText(d.Commit), text(d.Run), us(d.Received)); err != nil {
			return err
		}
	}
	if r := c.Request; r != nil {
		if _, err := b.tx.Exec(ctx, insertRequest, r.Source.String(), r.Key, hexText(r.Intent[:]), text(r.Run), us(r.At)); err != nil {
			return err
		}
	}
	return nil
}

// storeJob writes the job fence and puts the job in the queue, which is the
// same transaction.
func (b *Bound) storeJob(ctx context.Context, snap source.Snapshot, j *source.JobRow) error {
	if j == nil {
		return nil
	}
	p, digest := j.Payload, payloadDigest(j.Payload)
	n, err := b.tx.Exec(ctx, upsertJob, j.Handler, j.Key, hexText(digest[:]),
		p.Source.String(), p.Run.String(), p.Revision.String(), us(snap.Now), us(snap.Now))
	switch {
	case err != nil:
		return err
	case n != 1:
		return fmt.Errorf("job with another payload: %w", ErrTaken)
	}
	if err := b.s.queue.Enqueue(ctx, b.tx.Raw(), *j); err != nil {
		return fmt.Errorf("enqueue job: %w", store.Sanitize(err))
	}
	b.jobs = append(b.jobs, *j)
	return nil
}

// payloadDigest is what a job fence compares. Domain
// "fencepost.source-job/v1".
func payloadDigest(p source.JobPayload) source.Digest {
	return fencepost.NewEncoder("fencepost.source-job/v1").Bytes(p.Source[:]).Bytes(p.Run[:]).Bytes(p.Revision[:]).Sum()
}
