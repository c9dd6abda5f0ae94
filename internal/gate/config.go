package gate

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A Gate is one configured gate.
type Gate struct {
	// Name is the gate's key.
	Name Name
	// Rule is its route's: what a proof is held against.
	Rule fencepost.RouteRule
	// Trust is the trust set of the route as it is now.
	Trust Trust
	// Lane is the gate's side at its provider.
	Lane Lane
	// Provider and RepositoryID are for the program's request: "github", and
	// the provider's immutable id in decimal.
	Provider, RepositoryID string
	// Plan is what runs.
	Plan Plan
}

// A Trust authenticates requests by the anchors that are trusted at present.
// It is safe for concurrent use.
type Trust interface {
	fencepost.Verifier
	// Trusts reports whether the anchor is in the set now, in its window or
	// not. One that is not was revoked.
	Trusts(anchor fencepost.AnchorID) bool
}

// A Plan pins what a gate runs. DESIGN §1
type Plan struct {
	// Action is the repository that holds the program, Commit the one commit
	// of it.
	Action Source
	Commit fencepost.CommitID
	// Program is a slash-separated path in it, SHA256 the digest of its bytes.
	Program string
	SHA256  check.Digest
	// Limits bound a run.
	Limits runner.Limits
	// ExternalVerification adds the assessment to the evidence.
	ExternalVerification bool
	// Policy and Budgets are of both fetches.
	Policy  gitfetch.Policy
	Budgets gitfetch.Budgets
}

// Limits bound a [Pool]. The zero value of a field is its default.
type Limits struct {
	// Workers is how many deliveries are worked on at once; default 4.
	Workers int
	// Waiting is how many recorded deliveries are known at once beside those;
	// further ones wait in the queue itself. Default 100,000.
	Waiting int
	// Ahead is how many of those may wait to be taken up for the first time:
	// where several processes share a queue, the rest is left to the others.
	// Default Waiting.
	Ahead int
	// Lease is the ledger's own; it must be what [fencepost.Lease.Window]
	// says. Default 60 s.
	Lease time.Duration
	// Attempts is how often an evaluation is tried that gave no conclusion,
	// before a failure is staged; default 5.
	Attempts int
	// Starts is how often an evaluation is begun at all, attempts that a crash
	// cut off included; default 50.
	Starts int
	// Backoff is the pause after the first attempt, doubling with each up to
	// MaxBackoff, from half of it to all of it by chance. Defaults 10 s, 2 min.
	Backoff, MaxBackoff time.Duration
	// PublishAttempts is how often a staged result is tried to be published
	// before an alert; it is tried on. Default 8.
	PublishAttempts int
	// Looks is how often the provider is asked for a write whose outcome is
	// not known, LookPause the pause before the second time, doubling with
	// each; only then may it be written again. Defaults 4, 1 s.
	Looks     int
	LookPause time.Duration
	// NotYetVisible is how long a commit that the provider does not show is
	// waited for before a staged result ends unpublished; default 45 s.
	NotYetVisible time.Duration
	// QueueAge is how long a delivery of no configured gate waits for its gate
	// to come back; default 24 h. That of a gate's own is its rule's.
	QueueAge time.Duration
	// MaxWorkAge is how long after its receipt a delivery that has become work
	// is given up; default 72 h. How long it may wait to become work is the
	// replay window's.
	MaxWorkAge time.Duration
	// Drain is how long evaluations may go on after the end of Run's context;
	// default 30 s.
	Drain time.Duration
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.Workers, 4)
	setDefault(&l.Waiting, 100_000)
	setDefault(&l.Ahead, l.Waiting)
	setDefault(&l.Lease, 60*time.Second)
	setDefault(&l.Attempts, 5)
	setDefault(&l.Starts, 50)
	setDefault(&l.Backoff, 10*time.Second)
	setDefault(&l.MaxBackoff, 2*time.Minute)
	setDefault(&l.PublishAttempts, 8)
	setDefault(&l.Looks, 4)
	setDefault(&l.LookPause, time.Second)
	setDefault(&l.NotYetVisible, 45*time.Second)
	setDefault(&l.QueueAge, fencepost.DefaultReplayWindow.MaxQueueAge)
	setDefault(&l.MaxWorkAge, 72*time.Hour)
	setDefault(&l.Drain, 30*time.Second)
	return l
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate reports every value out of range; its error matches
// [fencepost.ErrMalformed]. Zero fields are their defaults.
func (l Limits) Validate() error {
	l = l.withDefaults()
	var errs []error
	inRange := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s: %w", field, want, fencepost.ErrMalformed))
		}
	}
	inRange(l.Workers >= 1 && l.Workers <= 256, "workers", "1 to 256")
	inRange(l.Waiting >= l.Workers, "waiting", "at least workers")
	inRange(l.Ahead >= 1, "ahead", "1 or more")
	inRange(l.Lease >= time.Second && l.Lease <= time.Hour, "lease", "1s to 1h")
	inRange(l.Attempts >= 1 && l.Attempts <= 50, "attempts", "1 to 50")
	inRange(l.Starts >= l.Attempts, "starts", "at least attempts")
	inRange(l.Backoff > 0 && l.MaxBackoff >= l.Backoff && l.MaxBackoff <= time.Hour, "backoff", "above 0, at most max_backoff, at most 1h")
	inRange(l.PublishAttempts >= 1, "publish_attempts", "1 or more")
	inRange(l.Looks >= 1 && l.Looks <= 10 && l.LookPause > 0 && l.LookPause<<l.Looks <= l.Lease, "looks", "1 to 10, and their pauses within the lease")
	inRange(l.NotYetVisible > 0, "not_yet_visible", "above 0")
	inRange(l.MaxWorkAge > 0, "max_work_age", "above 0")
	inRange(l.Drain > 0, "drain", "above 0")
	return errors.Join(errs...)
}

func (g *Gate) validate() error {
	switch {
	case g.Name == "" || g.Rule.Route == "" || g.Rule.TrustSet == "":
		return fmt.Errorf("gate without name or route: %w", fencepost.ErrZeroValue)
	case g.Trust == nil || g.Lane == nil:
		return fmt.Errorf("gate %s without trust or lane: %w", g.Name, fencepost.ErrZeroValue)
	case g.Plan.Commit.IsZero() || g.Plan.Program == "" || g.Plan.SHA256.IsZero() || g.Plan.Action.URL == "":
		return fmt.Errorf("gate %s: plan is not pinned: %w", g.Name, fencepost.ErrZeroValue)
	}
	if err := g.Plan.Limits.Validate(); err != nil {
		return fmt.Errorf("gate %s: plan: %w: %w", g.Name, fencepost.ErrMalformed, err)
	}
	if err := g.Rule.Window.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.Name, err)
	}
	return nil
}
