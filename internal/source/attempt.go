package source

import (
	"time"

	"github.com/fencepost/fencepost"
)

// A Begin is a worker's wish to begin an attempt of a run.
type Begin struct {
	Run   fencepost.RunID
	Owner Owner
	Token Token
}

// A Beginning is the closed set of answers to it.
//
//sumtype:decl
type Beginning interface{ isBeginning() }

// Began: the attempt may go on, as long as it holds Hold.
type Began struct {
	Hold Hold
	// Source is the row as the attempt begins.
	Source SourceRow
	// Run is the run, with this attempt counted.
	Run RunRow
}

// NotNow: try again at Until.
type NotNow struct{ Until time.Time }

// Over: there is nothing to do for this job, now and for ever.
type Over struct{}

func (Began) isBeginning()  {}
func (NotNow) isBeginning() {}
func (Over) isBeginning()   {}

// OnBegin decides whether an attempt may begin. It takes no lock from
// anybody: only the watchdog frees one that expired.
func OnBegin(s Snapshot, p Policy, b Begin) (Change, Beginning) {
	run := s.Run
	switch {
	case run == nil || run.Status.Ended():
		return Change{}, Over{}
	case run.Revision != s.Source.Revision || run.Revision != p.Revision || !s.Source.Enabled:
		// What is queued under an old policy is never applied. One who has the
		// old policy leaves the end to whoever has the new one.
		if s.Source.Revision != p.Revision || run.Status == Running {
			return Change{}, Over{}
		}
		return Change{Update: ended(s, run, Coalesced, fencepost.ReasonSuperseded)}, Over{}
	case !s.Lock.Free():
		return Change{}, NotNow{later(s.Lock.Expires, s.Now.Add(time.Second))}
	case run.NotBefore.After(s.Now):
		return Change{}, NotNow{run.NotBefore}
	}
	row, log := s.Source, *run
	row.LastFence = max(row.LastFence, s.Lock.Fence) + 1
	// The attempt looks at the head anew: that is the look that was owed.
	row.FollowUp, row.FollowUpSince = false, time.Time{}
	lock := LockRow{
		Owner: b.Owner, Token: b.Token, Fence: row.LastFence, Run: log.ID,
		Acquired: s.Now, Renewed: s.Now, Expires: s.Now.Add(p.Timings.Lease),
	}
	log.Status, log.Token = Running, b.Token
	log.Attempts++
	log.SeenAnnouncements = row.Announcements
	if log.StartedAt.IsZero() {
		log.StartedAt = s.Now
	}
	return Change{Source: &row, Lock: &lock, Update: &log}, Began{
		Hold:   Hold{Source: p.ID, Run: log.ID, Token: b.Token, Fence: lock.Fence, Expires: lock.Expires},
		Source: row, Run: log,
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// held says whether the hold stands: lock, log and fences are those that it
// names. Whether its time has passed decides nothing: a takeover frees the
// lock first, in one change with the log's end.
func held(s Snapshot, h Hold) bool {
	return !h.Token.IsZero() && s.Lock.Token == h.Token && s.Lock.Fence == h.Fence && s.Lock.Run == h.Run &&
		s.Open != nil && s.Open.ID == h.Run && s.Open.Token == h.Token
}

// An Ending is how an attempt ended.
type Ending struct {
	// Status is one that ends a log.
	Status Status
	Reason fencepost.Reason
	Detail string
	// Head and Tree are what was proven and, for [Complete] and [Unchanged],
	// what the sink has now.
	Head    fencepost.CommitID
	Tree    fencepost.TreeID
	Counts  Counts
	Refused []Refusal
	// Leftover: something temporary could not be removed.
	Leftover bool
	// NewRun is the id of the follow-up, if there is to be one.
	NewRun fencepost.RunID
}

// maxRefused is how many refusals a log keeps.
const maxRefused = 100

// OnEnd ends an attempt and its run, frees the lock, and turns the follow-up
// bit into at most one new run. Its error is [ErrLost].
func OnEnd(s Snapshot, p Policy, h Hold, e Ending) (Change, error) {
	if !held(s, h) {
		return Change{}, ErrLost
	}
	row := s.Source
	log := ended(s, s.Open, e.Status, e.Reason)
	log.Detail, log.Head, log.Tree, log.Counts = e.Detail, e.Head, e.Tree, e.Counts
	log.Refused = e.Refused[:min(len(e.Refused), maxRefused)]
	change := Change{Source: &row, Lock: &LockRow{Fence: s.Lock.Fence}, Update: log}
	switch e.Status {
	case Complete, Unchanged:
		if e.Status == Complete {
			row.AppliedAt = s.Now
		}
		row.Applied, row.AppliedTree, row.AppliedRevision = e.Head, e.Tree, log.Revision
		// The attempt looked after it began, and not at its end.
		looked := later(row.ObservedAt, s.Lock.Acquired)
		row.Observed, row.ObservedAt, row.TriedAt, row.Trouble = e.Head, looked, s.Now, fencepost.ReasonNone
		row.NextCheck = looked.Add(p.Timings.Reconcile)
		row.UnmetSince = unmet(row, log)
		change.Resolve = alerts(p.Key, AlertRunFailed, AlertRunPartial, AlertRetriesExhausted, AlertCredential,
			AlertProvider, AlertHeadContradiction, AlertLockStale)
		if row.UnmetSince.IsZero() {
			change.Resolve = append(change.Resolve, alerts(p.Key, AlertFreshness, AlertFollowUpStuck)...)
		}
		if !e.Leftover {
			// Each attempt sweeps what earlier ones left.
			change.Resolve = append(change.Resolve, alerts(p.Key, AlertCleanupFailed)...)
		}
	case Partial:
		change.Raise = raise(p, AlertRunPartial)
		unproven(&row)
		row.UnmetSince = earlier(row.UnmetSince, s.Now)
	default:
		change.Raise = failed(p, e.Reason)
		row.UnmetSince = earlier(row.UnmetSince, s.Now)
	}
	change.Raise = append(change.Raise, leftover(p, e.Leftover)...)
	if row.FollowUp {
		change.Insert, change.Job = followUp(s, p, &row, log.ID, e.NewRun)
		if change.Insert != nil && e.Status != Complete && e.Status != Unchanged {
			// Content that fails costs one run a window, whatever is pushed.
			change.Job = change.Insert.wait(row.NextCheck)
		}
	}
	return change, nil
}

// unmet is the earliest sign that a complete log does not cover: what was
// announced after its attempt began.
func unmet(row SourceRow, log *RunRow) time.Time {
	switch {
	case row.FollowUp:
		return row.FollowUpSince
	case row.Announcements != log.SeenAnnouncements && row.Announced != log.Head:
		return row.AnnouncedAt
	}
	return time.Time{}
}

// followUp turns the bit into a run.
func followUp(s Snapshot, p Policy, row *SourceRow, after, id fencepost.RunID) (*RunRow, *JobRow) {
	row.FollowUp, row.FollowUpSince = false, time.Time{}
	if !row.Enabled {
		return nil, nil
	}
	return newRun(s, p, id, Trigger{ByFollowUp, after.String()}, row.Announced)
}

// failed are the alerts of a run that ends failed.
func failed(p Policy, why fencepost.Reason) []AlertRow {
	code := AlertRunFailed
	if why == fencepost.ReasonRetriesExhausted {
		code = AlertRetriesExhausted
	}
	return raise(p, code, alertOf(why))
}

// A Trouble is why an attempt came to nothing.
type Trouble struct {
	Reason fencepost.Reason
	Detail string
	// Leftover: something temporary could not be removed.
	Leftover bool
	// Seen is the higher fence that the sink has seen; zero for none. The
	// fences go on above it, and the attempt isn't counted.
	Seen uint64
	// Touched: the sink was asked, and may not have what it had before.
	Touched bool
	// Shutdown: the process stops; the attempt was not at fault and isn't
	// counted.
	Shutdown bool
	NewRun   fencepost.RunID
}

// OnTrouble pauses a run whose attempt came to nothing, or ends it failed:
// by the reason's [Fate], and after the last attempt. until is when the next
// attempt may begin; zero if the run has ended. Its error is [ErrLost].
func OnTrouble(s Snapshot, p Policy, h Hold, t Trouble) (change Change, until time.Time, err error) {
	if !held(s, h) {
		return Change{}, time.Time{}, ErrLost
	}
	spared := t.Shutdown || t.Seen >= s.Lock.Fence && t.Seen > 0
	exhausted := !spared && s.Open.Attempts >= p.Timings.Attempts
	if t.Touched {
		unproven(&s.Source)
	}
	if f := fateOf(t.Reason); !spared && (f != FateRetry || exhausted) {
		change, err = OnEnd(s, p, h, Ending{Status: Failed, Reason: t.Reason, Detail: t.Detail, NewRun: t.NewRun})
		if exhausted && f == FateRetry {
			change.Raise = raise(p, AlertRetriesExhausted, alertOf(t.Reason))
		}
		change.Raise = append(change.Raise, leftover(p, t.Leftover)...)
		return change, time.Time{}, err
	}
	log := *s.Open
	log.Status, log.Token, log.Reason, log.Detail = Queued, Token{}, t.Reason, t.Detail
	log.NotBefore = s.Now
	if spared {
		log.Attempts--
	} else {
		log.NotBefore = s.Now.Add(p.Timings.BackoffBefore(log.Attempts + 1))
	}
	// One failed attempt is no news: the alerts are for the run's end.
	change = Change{Lock: &LockRow{Fence: s.Lock.Fence}, Update: &log, Job: jobOf(&log), Raise: leftover(p, t.Leftover)}
	if row := s.Source; t.Touched || t.Seen > row.LastFence {
		row.LastFence = max(row.LastFence, t.Seen)
		change.Source = &row
	}
	return change, log.NotBefore, nil
}

func leftover(p Policy, is bool) []AlertRow {
	if !is {
		return nil
	}
	return raise(p, AlertCleanupFailed)
}
