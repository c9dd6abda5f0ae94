package sourcedb

import (
	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// The columns of each table, in the order in which they are scanned.
const (
	sourceColumns = `id, key, revision, lineage, enabled, version, announced, announced_at, announcements,
		observed, observed_at, tried_at, trouble, applied, applied_tree, applied_revision, applied_at,
		unmet_since, follow_up, follow_up_since, registered_at, next_check, check_until, last_fence`
	lockColumns = `owner, token, fence, run, acquired_at, renewed_at, expires_at`
	runColumns  = `id, source, revision, trigger_kind, trigger_id, announced, fence, recovers, version,
		status, reason, detail, attempts, token, seen_announcements,
		queued_at, not_before, started_at, ended_at, head, tree,
		files, added, changed, removed, bytes, wire, refused`
	deliveryColumns = `namespace, id, body, delivery, source, announced, run, received_at`
	alertColumns    = `source, code, subject, since, until, raised`
)

// A scanner scans a row: the argument of what [store.Tx.Each] calls.
type scanner func(dest ...any) error

// sourceRow is a row of sources as it is stored.
type sourceRow struct {
	id, key, revision, lineage, announced, observed, trouble, applied, tree, appliedRevision string

	enabled, version, announcedAt, announcements, observedAt, triedAt, appliedAt, unmet, followUp, followUpSince,
	registered, next, until, fence int64
}

func (r *sourceRow) dest() []any {
	return []any{
		&r.id, &r.key, &r.revision, &r.lineage, &r.enabled, &r.version, &r.announced, &r.announcedAt, &r.announcements,
		&r.observed, &r.observedAt, &r.triedAt, &r.trouble, &r.applied, &r.tree, &r.appliedRevision, &r.appliedAt,
		&r.unmet, &r.followUp, &r.followUpSince, &r.registered, &r.next, &r.until, &r.fence,
	}
}

func (r *sourceRow) decode(d *decoder) source.SourceRow {
	row := source.SourceRow{
		ID: parsed(d, "id", r.id, fencepost.ParseSourceID), Key: fencepost.RouteName(r.key),
		Revision: parsed(d, "revision", r.revision, fencepost.ParseSourceRevision),
		Enabled:  r.enabled != 0, Version: r.version,
		Announced: parsed(d, "announced", r.announced, fencepost.ParseCommitID), AnnouncedAt: at(r.announcedAt), Announcements: r.announcements,
		Observed: parsed(d, "observed", r.observed, fencepost.ParseCommitID), ObservedAt: at(r.observedAt),
		TriedAt: at(r.triedAt), Trouble: fencepost.Reason(r.trouble),
		Applied: parsed(d, "applied", r.applied, fencepost.ParseCommitID), AppliedTree: parsed(d, "applied_tree", r.tree, parseTree),
		AppliedRevision: parsed(d, "applied_revision", r.appliedRevision, fencepost.ParseSourceRevision), AppliedAt: at(r.appliedAt),
		UnmetSince: at(r.unmet), FollowUp: r.followUp != 0, FollowUpSince: at(r.followUpSince), RegisteredAt: at(r.registered),
		NextCheck: at(r.next), CheckUntil: at(r.until), LastFence: d.fence("last_fence", r.fence),
	}
	d.hex("lineage", r.lineage, row.Lineage[:])
	return row
}

func parseTree(s string) (fencepost.TreeID, error) {
	id, err := fencepost.ParseObjectID(s)
	return fencepost.TreeID{ObjectID: id}, err
}

// sourceValues are the columns of a row behind id, in the order of
// sourceColumns, without the version.
func sourceValues(r *source.SourceRow) []any {
	return []any{
		string(r.Key), text(r.Revision), hexText(r.Lineage[:]), bit(r.Enabled),
		commitText(r.Announced), us(r.AnnouncedAt), r.Announcements,
		commitText(r.Observed), us(r.ObservedAt), us(r.TriedAt), string(r.Trouble),
		commitText(r.Applied), treeText(r.AppliedTree), text(r.AppliedRevision), us(r.AppliedAt),
		us(r.UnmetSince), bit(r.FollowUp), us(r.FollowUpSince), us(r.RegisteredAt), us(r.NextCheck), us(r.CheckUntil), int64(r.LastFence),
	}
}

// lockRow is a row of source_locks as it is stored.
type lockRow struct {
	owner, token, run                 string
	fence, acquired, renewed, expires int64
}

func (r *lockRow) dest() []any {
	return []any{&r.owner, &r.token, &r.fence, &r.run, &r.acquired, &r.renewed, &r.expires}
}

func (r *lockRow) decode(d *decoder) source.LockRow {
	row := source.LockRow{
		Fence: d.fence("fence", r.fence), Run: parsed(d, "run", r.run, fencepost.ParseRunID),
		Acquired: at(r.acquired), Renewed: at(r.renewed), Expires: at(r.expires),
	}
	d.hex("owner", r.owner, row.Owner[:])
	d.hex("token", r.token, row.Token[:])
	return row
}

// scanRun scans a row of source_runs.
func scanRun(scan scanner, d *decoder) (*source.RunRow, error) {
	var (
		r                                                        source.RunRow
		id, src, revision, kind, commit, fence, recovers, status string
		reason, token, head, tree, refused                       string
		queued, notBefore, started, ended, attempts              int64
		c                                                        = &r.Counts
		triggerID, detail                                        string
	)
	if err := scan(&id, &src, &revision, &kind, &triggerID, &commit, &fence, &recovers, &r.Version,
		&status, &reason, &detail, &attempts, &token, &r.SeenAnnouncements,
		&queued, &notBefore, &started, &ended, &head, &tree,
		&c.Files, &c.Added, &c.Changed, &c.Removed, &c.Bytes, &c.Wire, &refused); err != nil {
		return nil, err
	}
	r.ID, r.Source = parsed(d, "id", id, fencepost.ParseRunID), parsed(d, "source", src, fencepost.ParseSourceID)
	r.Revision = parsed(d, "revision", revision, fencepost.ParseSourceRevision)
	r.Trigger = source.Trigger{Kind: parsed(d, "trigger_kind", kind, source.ParseTriggerKind), ID: triggerID}
	r.Commit = parsed(d, "announced", commit, fencepost.ParseCommitID)
	r.Recovers = parsed(d, "recovers", recovers, fencepost.ParseRunID)
	r.Status, r.Reason, r.Detail = parsed(d, "status", status, source.ParseStatus), fencepost.Reason(reason), detail
	r.Attempts = int(attempts)
	r.QueuedAt, r.NotBefore, r.StartedAt, r.EndedAt = at(queued), at(notBefore), at(started), at(ended)
	r.Head, r.Tree = parsed(d, "head", head, fencepost.ParseCommitID), parsed(d, "tree", tree, parseTree)
	r.Refused = d.refused(refused)
	d.hex("fence", fence, r.Fence[:])
	d.hex("token", token, r.Token[:])
	return &r, d.err
}

func scanDelivery(scan scanner, d *decoder) (*source.DeliveryRow, error) {
	var namespace, id, body, delivery, src, commit, run string
	var received int64
	if err := scan(&namespace, &id, &body, &delivery, &src, &commit, &run, &received); err != nil {
		return nil, err
	}
	r := &source.DeliveryRow{
		Namespace: fencepost.RouteName(namespace), Delivery: parsed(d, "delivery", delivery, fencepost.ParseDeliveryKey),
		Source: parsed(d, "source", src, fencepost.ParseSourceID), Commit: parsed(d, "announced", commit, fencepost.ParseCommitID),
		Run: parsed(d, "run", run, fencepost.ParseRunID), Received: at(received),
	}
	d.hex("id", id, r.ID[:])
	d.hex("body", body, r.Body[:])
	return r, d.err
}

func scanAlert(scan scanner, d *decoder) (Alert, error) {
	var src, code, subject string
	var since, until, raised int64
	if err := scan(&src, &code, &subject, &since, &until, &raised); err != nil {
		return Alert{}, err
	}
	return Alert{
		Source:   parsed(d, "source", src, fencepost.ParseSourceID),
		AlertRow: source.AlertRow{Code: source.AlertCode(code), Source: fencepost.RouteName(subject)},
		Since:    at(since), Until: at(until), Raised: raised,
	}, d.err
}
