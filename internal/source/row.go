package source

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// A Status is that of a run log. The zero Status is none.
type Status uint8

// The statuses (DESIGN §9). The last five are ends: such a log never changes
// again.
const (
	// Queued: waiting for a worker, for the first or a further attempt.
	Queued Status = iota + 1
	// Running: an attempt is under way.
	Running
	// Complete: the sink has the exact tree of the head.
	Complete
	// Unchanged: it had it already.
	Unchanged
	// Coalesced: another run took this one's place.
	Coalesced
	// Partial: the sink took what its rule allows and refused the rest.
	Partial
	// Failed: the sink was left as it was, or its state is not proven.
	Failed
)

func statusWords() []string {
	return []string{"none", "queued", "running", "complete", "unchanged", "coalesced", "partial", "failed"}
}

// String returns the status' word, "none" for the zero Status.
func (s Status) String() string {
	if w := statusWords(); int(s) < len(w) {
		return w[s]
	}
	return "none"
}

// ParseStatus parses a status' word. Its error matches
// [fencepost.ErrMalformed].
func ParseStatus(word string) (Status, error) {
	for i, w := range statusWords() {
		if i > 0 && w == word {
			return Status(i), nil
		}
	}
	return 0, fmt.Errorf("run status: %w", fencepost.ErrMalformed)
}

// Ended reports whether a log of this status never changes again.
func (s Status) Ended() bool { return s >= Complete && s <= Failed }

// A TriggerKind is why a run was asked for. The zero TriggerKind is none.
type TriggerKind uint8

// The kinds of triggers.
const (
	// ByPush: an accepted delivery. Its id is the delivery key in hex.
	ByPush TriggerKind = iota + 1
	// ByReconciler: an observation. Its id is the reconcile window.
	ByReconciler
	// ByFollowUp: a run ended while more was pending. Its id is that run's.
	ByFollowUp
	// ByRecovery: the watchdog ended a run whose worker died. Its id is that
	// run's.
	ByRecovery
	// ByRevision: the policy changed. Its id is the old revision, or "none".
	ByRevision
	// ByRequest: an explicit request. Its id is the request's key.
	ByRequest
)

func triggerWords() []string {
	return []string{"none", "push", "reconciler", "follow_up", "recovery", "revision", "request"}
}

// String returns the kind's word, "none" for the zero TriggerKind.
func (k TriggerKind) String() string {
	if w := triggerWords(); int(k) < len(w) {
		return w[k]
	}
	return "none"
}

// ParseTriggerKind parses a kind's word. Its error matches
// [fencepost.ErrMalformed].
func ParseTriggerKind(word string) (TriggerKind, error) {
	for i, w := range triggerWords() {
		if i > 0 && w == word {
			return TriggerKind(i), nil
		}
	}
	return 0, fmt.Errorf("trigger kind: %w", fencepost.ErrMalformed)
}

// A Trigger is why a run was asked for.
type Trigger struct {
	Kind TriggerKind
	// ID tells it from others of the kind; 1 to 128 characters.
	ID string
}

// A Digest is a domain-separated SHA-256 over the encoding of
// [fencepost.Encoder].
type Digest [32]byte

// IsZero reports whether d is the digest of nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// A SourceRow is what is known about one source. Times are the store's.
type SourceRow struct {
	ID fencepost.SourceID
	// Key is the source's key in the configuration now.
	Key fencepost.RouteName
	// Revision is that of the policy in force.
	Revision fencepost.SourceRevision
	// Lineage is the digest of provider, repository and ref: heads of another
	// one are forgotten, as they can't be compared.
	Lineage Digest
	// Enabled says whether runs may begin.
	Enabled bool
	// Version grows by one with each change of the row; a change of another
	// version than the one that was read is not made.
	Version int64

	// Announced is the head that the last accepted push named, Announcements
	// how many of them there were.
	Announced     fencepost.CommitID
	AnnouncedAt   time.Time
	Announcements int64
	// Observed is the head of the last successful observation: one that also
	// proved repository and owner.
	Observed   fencepost.CommitID
	ObservedAt time.Time
	// TriedAt and Trouble are the time of the last observation of any kind, or
	// of its claim while it is under way, and its reason if it was none.
	TriedAt time.Time
	Trouble fencepost.Reason
	// Applied is the newest commit that the sink took whole, under
	// AppliedRevision; that is zero if an attempt may have changed the sink
	// since.
	Applied         fencepost.CommitID
	AppliedTree     fencepost.TreeID
	AppliedRevision fencepost.SourceRevision
	AppliedAt       time.Time

	// UnmetSince is the earliest sign of a head for which there is no complete
	// evidence yet; zero while there is none.
	UnmetSince time.Time
	// FollowUp says that one more look at the head is owed after the open run,
	// since FollowUpSince.
	FollowUp      bool
	FollowUpSince time.Time
	// RegisteredAt is since when this repository and branch have been looked
	// at: without a successful observation its age counts from there. A policy
	// that changes otherwise makes no look younger.
	RegisteredAt time.Time

	// NextCheck is when the source is to be observed again. Until CheckUntil,
	// which may be zero, somebody is at it.
	NextCheck  time.Time
	CheckUntil time.Time
	// LastFence is the highest fence that was given out; fences only grow.
	LastFence uint64
}

// A LockRow is the source lock: free if Token is zero.
type LockRow struct {
	Owner Owner
	Token Token
	Fence uint64
	Run   fencepost.RunID
	// Expires is when the watchdog may free it.
	Acquired, Renewed, Expires time.Time
}

// Free reports whether nobody holds the lock.
func (l LockRow) Free() bool { return l.Token.IsZero() }

// An Owner names a process; a Token one holding of a lock. Both are random.
type (
	Owner [16]byte
	Token [16]byte
)

// IsZero reports whether t is no token.
func (t Token) IsZero() bool { return t == Token{} }

// A RunRow is a run log.
type RunRow struct {
	ID       fencepost.RunID
	Source   fencepost.SourceID
	Revision fencepost.SourceRevision
	Trigger  Trigger
	// Commit is the head as the trigger knew it; zero for one that looks anew.
	Commit fencepost.CommitID
	// Fence is [RunFence]; no two logs have the same.
	Fence Digest
	// Recovers is the log that this one recovers; may be zero.
	Recovers fencepost.RunID
	// Version grows by one with each change.
	Version int64

	Status Status
	// Reason is why the last attempt, or the run, did not end complete.
	Reason fencepost.Reason
	// Detail is the budget's or rule's name that goes with Reason; from a
	// closed list of words, at most 64 characters; may be empty.
	Detail string
	// Attempts counts those that began. Token is that of the attempt under way
	// and equals the lock's; zero while queued.
	Attempts int
	Token    Token
	// SeenAnnouncements is how many announcements there were when the present
	// attempt began.
	SeenAnnouncements int64
	// NotBefore is when the next attempt may begin.
	QueuedAt, NotBefore, StartedAt, EndedAt time.Time

	// Head is the head that the attempt proved and applied, with its Tree.
	Head fencepost.CommitID
	Tree fencepost.TreeID
	// Counts say what the sink did.
	Counts Counts
	// Refused lists what a partial sink refused, at most 100 entries.
	Refused []Refusal
}

// Counts say what one run moved.
type Counts struct {
	// Files and Bytes are the content's; Added, Changed and Removed what the
	// sink did; Wire the bytes received.
	Files, Added, Changed, Removed int64
	Bytes, Wire                    int64
}

// A Refusal is one entry that a sink's rule refused.
type Refusal struct {
	// Entry is its number in the order of paths, from 1: no name leaves.
	Entry  int64
	Reason fencepost.Reason
}

// A DeliveryRow is a delivery fence: the namespace and the digest of the
// delivery's id, and the digest of its body. Both pairs are unique.
type DeliveryRow struct {
	Namespace fencepost.RouteName
	// ID is the digest of the provider's delivery id; zero if it had none.
	ID Digest
	// Body is the SHA-256 of the exact body.
	Body Digest
	// Delivery is the key that was answered.
	Delivery fencepost.DeliveryKey
	Source   fencepost.SourceID
	// Commit is the head that it named.
	Commit fencepost.CommitID
	// Run is the run that it asked for or joined.
	Run      fencepost.RunID
	Received time.Time
}

// A RequestRow is a request fence: Key names it, Intent is what it asked for.
type RequestRow struct {
	Source fencepost.SourceID
	// Key is explicit, or derived from the reconcile window; 1 to 128
	// characters.
	Key    string
	Intent Digest
	Run    fencepost.RunID
	At     time.Time
}

// A JobRow is a job fence: handler and key name one immutable payload.
type JobRow struct {
	// Handler is "source.run"; Key the run's id.
	Handler, Key string
	Payload      JobPayload
	// NotBefore is when it may be worked.
	NotBefore time.Time
}

// A JobPayload is what a job carries: scalars alone.
type JobPayload struct {
	Source   fencepost.SourceID
	Run      fencepost.RunID
	Revision fencepost.SourceRevision
}

// An AlertRow names an alert.
type AlertRow struct {
	Code AlertCode
	// Source is what it is about.
	Source fencepost.RouteName
}

// An AlertCode is one of DESIGN §10's that concern sources.
type AlertCode string

// The codes.
const (
	AlertFreshness         AlertCode = "freshness"
	AlertLockStale         AlertCode = "lock_stale"
	AlertRunFailed         AlertCode = "run_failed"
	AlertRunPartial        AlertCode = "run_partial"
	AlertRetriesExhausted  AlertCode = "retries_exhausted"
	AlertCredential        AlertCode = "credential"
	AlertProvider          AlertCode = "provider"
	AlertFollowUpStuck     AlertCode = "follow_up_stuck"
	AlertHeadContradiction AlertCode = "head_contradiction"
	AlertCleanupFailed     AlertCode = "cleanup_failed"
)
