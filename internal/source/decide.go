package source

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
)

// ErrRevision: another policy of the source is in force than this process
// has; nothing may be asked for or applied under the old one.
var ErrRevision = fmt.Errorf("another policy of the source is in force: %w", unavailable())

// ErrIntent: a known request key asks for something else now.
var ErrIntent = errors.New("the request key is known with another intent")

// ErrDeliveryConflict: a known delivery id came with another body.
var ErrDeliveryConflict = &fencepost.Error{
	Op: "record push", Reason: fencepost.ReasonDeliveryConflict, Err: errors.New("a known delivery id with another body"),
}

func unavailable() error {
	return &fencepost.Error{Op: "decide", Reason: fencepost.ReasonUnavailable, Err: errors.New("try again")}
}

// RunFence is the identity of a run: no two logs of a source revision, a
// trigger, a commit and the contracts' digest exist. Domain
// "fencepost.run-fence/v1".
func RunFence(id fencepost.SourceID, r fencepost.SourceRevision, t Trigger, c fencepost.CommitID, contracts Digest) Digest {
	return fencepost.NewEncoder("fencepost.run-fence/v1").
		Bytes(id[:]).Bytes(r[:]).Uint(uint64(t.Kind)).Text(t.ID).Bytes(c.ObjectID[:]).Bytes(contracts[:]).Sum()
}

// HandlerRun is the handler of jobs that carry out a run.
const HandlerRun = "source.run"

// newRun is a queued run with its job.
func newRun(s Snapshot, p Policy, id fencepost.RunID, t Trigger, commit fencepost.CommitID) (*RunRow, *JobRow) {
	run := &RunRow{
		ID: id, Source: p.ID, Revision: p.Revision, Trigger: t, Commit: commit,
		Fence:  RunFence(p.ID, p.Revision, t, commit, p.Contracts),
		Status: Queued, QueuedAt: s.Now, NotBefore: s.Now,
	}
	return run, jobOf(run)
}

func jobOf(run *RunRow) *JobRow {
	return &JobRow{
		Handler: HandlerRun, Key: run.ID.String(), NotBefore: run.NotBefore,
		Payload: JobPayload{Source: run.Source, Run: run.ID, Revision: run.Revision},
	}
}

// current says whether the policy is the one in force.
func current(s Snapshot, p Policy) error {
	if s.Source.Revision != p.Revision {
		return ErrRevision
	}
	return nil
}

// earlier is the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// A Push is an authenticated and admitted push. Its Delivery has everything
// but the run.
type Push struct {
	Delivery DeliveryRow
	// NewRun is the id of the run, if it becomes one.
	NewRun fencepost.RunID
}

// A PushAnswer is what a push was found to be. The zero PushAnswer is none.
type PushAnswer uint8

// The answers.
const (
	// PushAccepted: a new run, or one that waits for just this commit.
	PushAccepted PushAnswer = iota + 1
	// PushReplayed: this delivery is recorded already.
	PushReplayed
	// PushCoalesced: the source is being synced, or about to be; one look at
	// the head is owed that covers this push.
	PushCoalesced
)

// OnPush decides what becomes of a push. Its errors are [ErrRevision] and
// [ErrDeliveryConflict].
func OnPush(s Snapshot, p Policy, push Push) (Change, PushAnswer, error) {
	if s.ByBody != nil {
		// A repeat of work that is not done wakes it up.
		return Change{Job: wake(s)}, PushReplayed, nil
	}
	if s.ByID != nil {
		return Change{}, 0, ErrDeliveryConflict
	}
	if err := current(s, p); err != nil {
		return Change{}, 0, err
	}
	row, d := s.Source, push.Delivery
	d.Received = s.Now
	row.UnmetSince = earlier(row.UnmetSince, s.Now)
	change := Change{Source: &row, Delivery: &d}
	same := s.Open != nil && s.Open.Commit == d.Commit
	if !same || row.Announced != d.Commit {
		row.Announced, row.AnnouncedAt = d.Commit, s.Now
		row.Announcements++
	}
	switch {
	case s.Open == nil:
		t := Trigger{ByPush, d.Delivery.Hex()}
		change.Insert, change.Job = newRun(s, p, push.NewRun, t, d.Commit)
		if failing(s.Source, p) {
			change.Job = change.Insert.wait(row.NextCheck)
		}
		d.Run = change.Insert.ID
		return change, PushAccepted, nil
	case same:
		d.Run, change.Job = s.Open.ID, wake(s)
		return change, PushAccepted, nil
	case s.Open.Status == Running && !row.FollowUp:
		// It may have looked at the head already.
		row.FollowUp, row.FollowUpSince = true, s.Now
	}
	d.Run = s.Open.ID
	return change, PushCoalesced, nil
}

// failing says of a source with no open run that its last one came to nothing:
// what was seen, or announced before, is still unmet. Then one run a window is
// enough, however many pushes there are.
func failing(row SourceRow, p Policy) bool {
	if row.UnmetSince.IsZero() {
		return false
	}
	// A head that was seen and may not be applied unannounced is no failure:
	// it waits for just this push.
	return p.AcceptUnannounced || !row.AnnouncedAt.IsZero() && !row.AnnouncedAt.Before(row.UnmetSince)
}

// wait puts off the first attempt of a new run, and returns its job.
func (r *RunRow) wait(until time.Time) *JobRow {
	r.NotBefore = later(r.NotBefore, until)
	return jobOf(r)
}

// wake is the job of an open run that waits; nil for none.
func wake(s Snapshot) *JobRow {
	if s.Open == nil || s.Open.Status != Queued {
		return nil
	}
	return jobOf(s.Open)
}

// A Request is an explicit wish to look at a source's head now.
type Request struct {
	// Key is the caller's, 1 to 128 characters; the same key with the same
	// intent is the same request.
	Key string
	// Intent is the digest of what the caller wants beyond that.
	Intent Digest
	NewRun fencepost.RunID
}

// OnRequest decides what becomes of a request, and which run it has. Its
// errors are [ErrRevision] and [ErrIntent].
func OnRequest(s Snapshot, p Policy, r Request) (Change, fencepost.RunID, error) {
	if known := s.Request; known != nil {
		if known.Intent != r.Intent {
			return Change{}, fencepost.RunID{}, ErrIntent
		}
		return Change{Job: wake(s)}, known.Run, nil
	}
	if err := current(s, p); err != nil {
		return Change{}, fencepost.RunID{}, err
	}
	row := s.Source
	request := &RequestRow{Source: p.ID, Key: r.Key, Intent: r.Intent, At: s.Now}
	change := Change{Source: &row, Request: request}
	switch {
	case s.Open == nil:
		change.Insert, change.Job = newRun(s, p, r.NewRun, Trigger{ByRequest, r.Key}, fencepost.CommitID{})
		request.Run = change.Insert.ID
		return change, request.Run, nil
	case s.Open.Status == Running && !row.FollowUp:
		row.FollowUp, row.FollowUpSince = true, s.Now
	}
	request.Run = s.Open.ID
	return change, request.Run, nil
}

// OnRevision brings a policy into force: what is queued or under way under
// another one ends, whoever held the lock holds it no more, and the first run
// of the new one is asked for.
func OnRevision(s Snapshot, p Policy, id fencepost.RunID) Change {
	row := s.Source
	old := row.Revision
	if old == p.Revision && row.Enabled == p.Enabled {
		return Change{}
	}
	if !row.Enabled {
		// Nobody was owed anything while it was off.
		row.RegisteredAt, row.UnmetSince = s.Now, time.Time{}
	}
	if row.Lineage != p.Lineage {
		// Nothing of another repository or branch says anything here. What the
		// sink has stays up until the first run of this one.
		row = SourceRow{ID: row.ID, Version: row.Version, LastFence: row.LastFence, RegisteredAt: s.Now, Lineage: p.Lineage}
	}
	row.Key, row.Revision, row.Enabled, row.NextCheck = p.Key, p.Revision, p.Enabled, s.Now
	row.FollowUp, row.FollowUpSince = false, time.Time{}
	change := Change{Source: &row}
	if s.Open != nil {
		change.Update = ended(s, s.Open, Coalesced, fencepost.ReasonSuperseded)
		if s.Open.Status == Running {
			unproven(&row)
		}
	}
	if !s.Lock.Free() {
		change.Lock = &LockRow{Fence: s.Lock.Fence}
	}
	if !p.Enabled {
		row.UnmetSince = time.Time{}
		change.Resolve = allAlerts(p.Key)
		return change
	}
	row.UnmetSince = earlier(row.UnmetSince, s.Now)
	trigger := Trigger{ByRevision, "none"}
	if !old.IsZero() {
		// With the version, so that going back to a policy is one more run.
		trigger.ID = fmt.Sprintf("%s.%d", old, row.Version)
	}
	change.Insert, change.Job = newRun(s, p, id, trigger, fencepost.CommitID{})
	return change
}

// OnRemoval takes a source out that no configuration has any more: what is
// queued or under way ends, the lock is free, and no alert stays. Its content
// stays as it is.
func OnRemoval(s Snapshot) Change {
	if !s.Source.Enabled {
		return Change{}
	}
	p := Policy{ID: s.Source.ID, Key: s.Source.Key, Revision: s.Source.Revision, Lineage: s.Source.Lineage}
	return OnRevision(s, p, fencepost.RunID{})
}

// unproven forgets that the sink has what was applied last: an attempt may
// have changed it since. The next run asks the sink, also for the same head.
func unproven(row *SourceRow) { row.AppliedRevision = fencepost.SourceRevision{} }

// ended is the log of a run that ends now.
func ended(s Snapshot, run *RunRow, status Status, why fencepost.Reason) *RunRow {
	row := *run
	row.Status, row.Reason, row.Token, row.EndedAt = status, why, Token{}, s.Now
	return &row
}

func allAlerts(key fencepost.RouteName) []AlertRow {
	return alerts(key, AlertFreshness, AlertLockStale, AlertRunFailed, AlertRunPartial, AlertRetriesExhausted,
		AlertCredential, AlertProvider, AlertFollowUpStuck, AlertHeadContradiction, AlertCleanupFailed)
}

// raise names alerts of a source, but for those that its policy leaves out.
func raise(p Policy, codes ...AlertCode) []AlertRow {
	return slices.DeleteFunc(alerts(p.Key, codes...), func(a AlertRow) bool {
		return (a.Code == AlertRunFailed || a.Code == AlertRunPartial) && slices.Contains(p.Muted, a.Code)
	})
}

func alerts(key fencepost.RouteName, codes ...AlertCode) []AlertRow {
	rows := make([]AlertRow, 0, len(codes))
	for _, c := range codes {
		if c != "" {
			rows = append(rows, AlertRow{c, key})
		}
	}
	return rows
}
