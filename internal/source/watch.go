package source

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// An Observed is the outcome of one observation by the reconciler.
type Observed struct {
	// Head is the branch's tip; zero if Reason is not none.
	Head   fencepost.CommitID
	Reason fencepost.Reason
	// Age is how long ago the look began.
	Age time.Duration
	// Named says whether an accepted delivery named Head.
	Named bool
	// Next is the pause until the next observation, jitter included.
	Next   time.Duration
	NewRun fencepost.RunID
}

// OnObservation decides what an observation calls for: nothing, or one run,
// at most one for each window of the policy's reconcile time.
func OnObservation(s Snapshot, p Policy, o Observed) (Change, error) {
	if err := current(s, p); err != nil {
		return Change{}, err
	}
	row := s.Source
	row.TriedAt, row.Trouble = s.Now, o.Reason
	row.NextCheck, row.CheckUntil = s.Now.Add(o.Next), time.Time{}
	change := Change{Source: &row}
	if o.Reason != fencepost.ReasonNone {
		// One failed look is no news: the alert is for what stays.
		if s.Source.Trouble != fencepost.ReasonNone || fateOf(o.Reason) != FateRetry {
			change.Raise = raise(p, alertOf(o.Reason))
		}
		return change, nil
	}
	if began := s.Now.Add(-o.Age); row.ObservedAt.After(began) && !row.ObservedAt.After(s.Now) {
		// A run has looked since, and its end says what it saw.
		return change, nil
	}
	news := o.Head != row.Applied || row.AppliedRevision != row.Revision
	if news {
		// The head moved after the last look that saw another one.
		since := s.Now.Add(-o.Age)
		if row.Observed == row.Applied {
			since = earlier(since, row.ObservedAt)
		}
		row.UnmetSince = earlier(row.UnmetSince, since)
	}
	row.Observed, row.ObservedAt = o.Head, later(row.ObservedAt, s.Now.Add(-o.Age))
	change.Resolve = alerts(p.Key, AlertCredential, AlertProvider)
	if !news && row.UnmetSince.IsZero() {
		return change, nil
	}
	if news && o.Head != row.Applied && !o.Named && !p.AcceptUnannounced {
		change.Raise = raise(p, AlertHeadContradiction)
		return change, nil
	}
	switch {
	case s.Open == nil && s.Request == nil && row.Enabled:
		window := Window(s.Now, p)
		change.Insert, change.Job = newRun(s, p, o.NewRun, Trigger{ByReconciler, window}, o.Head)
		change.Request = &RequestRow{Source: p.ID, Key: window, Intent: windowIntent(p), Run: o.NewRun, At: s.Now}
	case s.Open != nil && s.Open.Status == Running && news && s.Open.Commit != o.Head && !row.FollowUp:
		// The attempt may have looked before the head moved.
		row.FollowUp, row.FollowUpSince = true, s.Now
	}
	return change, nil
}

// Window is the request key of the reconcile window that a moment is in.
func Window(now time.Time, p Policy) string {
	n := now.UnixNano() / int64(p.Timings.Reconcile)
	return fmt.Sprintf("reconcile/%d/%d", int64(p.Timings.Reconcile/time.Millisecond), n)
}

func windowIntent(p Policy) Digest {
	return fencepost.NewEncoder("fencepost.reconcile-window/v1").Bytes(p.ID[:]).Sum()
}

// OnWatch ends what a dead worker left, and puts back what the queue lost. It
// compares log and lock fences in the change that it makes.
func OnWatch(s Snapshot, p Policy, id fencepost.RunID) Change {
	switch {
	case s.Source.Revision != p.Revision:
		return Change{}
	case !s.Lock.Free() && (!s.Lock.Expires.After(s.Now) || s.Lock.Renewed.After(s.Now.Add(p.Timings.Lease))):
		// It has expired, or was renewed by a clock that went back since: who
		// still lives renews it by the one of now.
		return recoverRun(s, p, id)
	case s.Open != nil && s.Open.Status == Running && s.Lock.Free():
		// No change of ours leaves that; end it rather than wait for ever.
		return recoverRun(s, p, id)
	case s.Open != nil && s.Open.Status == Queued && s.Now.Sub(s.Open.NotBefore) >= p.Timings.QueueAge:
		return Change{Job: jobOf(s.Open)}
	case s.Open != nil && s.Open.Status == Queued && s.Open.NotBefore.After(s.Now.Add(p.Timings.BackoffBefore(p.Timings.Attempts))):
		// No pause is as long: the clock went back since.
		log := *s.Open
		log.NotBefore = s.Now
		return Change{Update: &log, Job: jobOf(&log)}
	case s.Open == nil && s.Source.FollowUp:
		row := s.Source
		change := Change{Source: &row}
		change.Insert, change.Job = followUp(s, p, &row, fencepost.RunID{}, id)
		if change.Insert != nil {
			change.Insert.Trigger.ID = fmt.Sprintf("lost.%d", row.Version)
			change.Insert.Fence = RunFence(p.ID, p.Revision, change.Insert.Trigger, change.Insert.Commit, p.Contracts)
		}
		return change
	}
	return Change{}
}

// recoverRun ends a log whose worker is gone, frees that lock alone, and asks
// for at most one linked run: a recovery that is lost, too, is left to the
// reconciler's next window, so that content that kills its worker can't do it
// all the time.
func recoverRun(s Snapshot, p Policy, id fencepost.RunID) Change {
	row := s.Source
	change := Change{Source: &row, Raise: raise(p, AlertLockStale)}
	if !s.Lock.Free() {
		change.Lock = &LockRow{Fence: s.Lock.Fence}
	}
	if s.Open == nil || s.Open.Status != Running || !s.Lock.Free() && s.Open.Token != s.Lock.Token {
		return change
	}
	change.Update = ended(s, s.Open, Failed, fencepost.ReasonLost)
	unproven(&row)
	row.UnmetSince = earlier(row.UnmetSince, s.Now)
	row.NextCheck = s.Now
	change.Raise = append(change.Raise, raise(p, AlertRunFailed)...)
	if !row.Enabled || s.Open.Trigger.Kind == ByRecovery && !row.FollowUp {
		return change
	}
	row.FollowUp, row.FollowUpSince = false, time.Time{}
	t := Trigger{ByRecovery, s.Open.ID.String()}
	change.Insert, change.Job = newRun(s, p, id, t, s.Open.Commit)
	change.Insert.Recovers = s.Open.ID
	return change
}

// OnFreshness raises or resolves what the age of the earliest unmet sign, and
// that of the last successful observation, call for. DESIGN §2, invariant 15.
func OnFreshness(s Snapshot, p Policy) Change {
	row := s.Source
	if !row.Enabled {
		return Change{Resolve: alerts(p.Key, AlertFreshness, AlertFollowUpStuck)}
	}
	var change Change
	if clamp(&row, s.Now) {
		// The clock went back: an age counts on from now, rather than not at all
		// until that time comes again.
		change.Source = &row
	}
	judge := func(code AlertCode, since time.Time, after time.Duration) {
		if !since.IsZero() && s.Now.Sub(since) >= after {
			change.Raise = append(change.Raise, AlertRow{code, p.Key})
		} else {
			change.Resolve = append(change.Resolve, AlertRow{code, p.Key})
		}
	}
	judge(AlertFreshness, earlier(row.UnmetSince, lastSeen(row)), p.Timings.AlertAfter)
	judge(AlertFollowUpStuck, row.FollowUpSince, stuckAfter(p.Timings))
	return change
}

// clamp takes times that lie ahead back to now, and reports whether one did.
func clamp(row *SourceRow, now time.Time) (ahead bool) {
	for _, t := range []*time.Time{&row.UnmetSince, &row.ObservedAt, &row.RegisteredAt, &row.FollowUpSince} {
		if t.After(now) {
			*t, ahead = now, true
		}
	}
	return ahead
}

// lastSeen is since when a source has not been observed successfully.
func lastSeen(row SourceRow) time.Time { return later(row.ObservedAt, row.RegisteredAt) }

// stuckAfter is how long a follow-up may be owed: one whole attempt, its
// renewal's end, and the wait for a worker.
func stuckAfter(t fencepost.Timings) time.Duration {
	return t.Observe + t.Checkout + t.Sink + t.Lease + t.Evaluate + t.QueueAge
}
