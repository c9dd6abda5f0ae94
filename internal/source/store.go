package source

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost"
)

// Errors of a [Store].
var (
	// ErrUnknownSource: no such source was registered.
	ErrUnknownSource = errors.New("unknown source")
	// ErrContention: the rows changed under every one of the bounded number of
	// tries. Nothing was stored.
	ErrContention = errors.New("rows changed at each try")
	// ErrLost: the hold's lock or attempt is not the caller's any more; what
	// it asked for was not stored.
	ErrLost = errors.New("the hold was lost")
)

// A Lookup says which further rows a [Snapshot] needs.
type Lookup struct {
	// Run, if not zero, is read into Snapshot.Run.
	Run fencepost.RunID
	// Delivery, if not nil, is looked for by its id and by its body.
	Delivery *DeliveryRow
	// Request, if not empty, is looked for.
	Request string
}

// A Snapshot is the rows of one source at one moment.
type Snapshot struct {
	// Now is the store's clock: the database server's, or on SQLite the
	// process's, which never goes back.
	Now    time.Time
	Source SourceRow
	Lock   LockRow
	// Open is the run that has not ended; there is at most one. Nil for none.
	Open *RunRow
	// Run is the one that was looked up, open or not; nil if there is none.
	Run *RunRow
	// ByID and ByBody are the delivery fences found; nil for none.
	ByID, ByBody *DeliveryRow
	// Request is the request fence found; nil for none.
	Request *RequestRow
}

// A Change is what to store, all of it or nothing. Nil fields stay as they
// are.
type Change struct {
	// Source replaces the row that was read, if its Version still is what was
	// read; its own is one more.
	Source *SourceRow
	// Lock replaces the lock, if Token and Fence still are what was read.
	Lock *LockRow
	// Update replaces the open run, if its Version and Token still are what
	// was read and it has not ended.
	Update *RunRow
	// Insert is a new run; with the open one ended by Update if there is one.
	Insert *RunRow
	// Job is put in the queue for Insert, or again for the open run. One that
	// is queued already stays one.
	Job *JobRow
	// Delivery and Request are new fences.
	Delivery *DeliveryRow
	Request  *RequestRow
	// Raise and Resolve are alerts: a raised one has a row before the
	// transaction ends.
	Raise, Resolve []AlertRow
}

// A Transition decides what becomes of a source's rows. It is a function of
// its argument, may be called several times, and keeps nothing. Its error
// ends the transaction and is returned as it is.
type Transition func(Snapshot) (Change, error)

// A Changer makes one change of a source's rows.
type Changer interface {
	Change(ctx context.Context, id fencepost.SourceID, l Lookup, t Transition) error
}

// A Store holds the rows of all sources: several processes may share it. It
// is safe for concurrent use.
type Store interface {
	// Change reads a source's rows, lets t decide, and stores what it says, in
	// one transaction; again from the start if a row changed meanwhile, a
	// bounded number of times. When it returns nil, all of it is on stable
	// storage. Its errors match [ErrUnknownSource], [ErrContention], those of
	// t, or have the reason [fencepost.ReasonUnavailable], or one of a store
	// that takes no more: full, corrupt, poisoned. After an error that has a
	// reason it is not always known that nothing was stored.
	Change(ctx context.Context, id fencepost.SourceID, l Lookup, t Transition) error

	// Group lets fn make changes that are stored together, all or none; fn may be
	// called several times, and returns the errors of its changes as they are.
	// Its errors are those of Change and of fn.
	Group(ctx context.Context, fn func(context.Context, Changer) error) error

	// Register makes the sources of a configuration known: it adds a row, with
	// no revision, for each new one, and keeps keys up to date. It returns those
	// whose row has another revision, or is not enabled as wanted: each needs
	// [OnRevision] by Change; and those that are enabled and not of the
	// configuration: each needs [OnRemoval].
	Register(ctx context.Context, all []Registration) (changed []fencepost.SourceID, err error)
	// Named reports whether an accepted delivery of the source named the commit.
	Named(ctx context.Context, id fencepost.SourceID, commit fencepost.CommitID) (bool, error)

	// Renew moves a hold's expiry: lock, run and fences are compared in the
	// one statement that does it. It matches [ErrLost] if any differs or the
	// expiry has passed.
	Renew(ctx context.Context, h Hold, lease time.Duration) (expires time.Time, err error)
	// Holds compares the same and changes nothing.
	Holds(ctx context.Context, h Hold) error

	// Due claims at most limit enabled sources whose next check has come and
	// that nobody is at, in stable order, for the given time. Their TriedAt is
	// the claim's.
	Due(ctx context.Context, limit int, claim time.Duration) ([]SourceRow, error)
	// Checked stores for each source that was observed without news: when,
	// which is taken to be the claim's time, and the next check. One transaction for all; a source whose row changed
	// since is left out.
	Checked(ctx context.Context, all []Check) error

	// Stale lists sources in need of the watchdog: a lock that expired, a run
	// queued longer than queueAge after its NotBefore, a follow-up with no open
	// run; and locks and queued runs that a clock dated which went back since.
	Stale(ctx context.Context, queueAge time.Duration, limit int) ([]fencepost.SourceID, error)
	// Unfresh lists enabled sources with a sign unmet, or a last successful
	// observation, older than after; and those that have a freshness alert open.
	Unfresh(ctx context.Context, after time.Duration, limit int) ([]fencepost.SourceID, error)
}

// A Registration is a source of the configuration.
type Registration struct {
	ID       fencepost.SourceID
	Key      fencepost.RouteName
	Revision fencepost.SourceRevision
	Enabled  bool
}

// A Check is an observation without news.
type Check struct {
	// Source is the row as [Store.Due] gave it.
	Source SourceRow
	// Observed is the head that was seen.
	Observed fencepost.CommitID
	// Next is the pause until the next check.
	Next time.Duration
}

// A Hold is what an attempt holds: the values that each of its changes is
// compared with. [OnBegin] alone makes one that means something.
type Hold struct {
	Source fencepost.SourceID
	Run    fencepost.RunID
	Token  Token
	// Fence orders the attempts of a source, for ever; a sink refuses one
	// lower than it has seen.
	Fence   uint64
	Expires time.Time
}
