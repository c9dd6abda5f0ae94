package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// A Source is one configured source as this process runs it: its policy, and
// what carries it out.
type Source struct {
	Policy
	// Remote is the provider's and Git's side.
	Remote Remote
	// Sink takes the content.
	Sink Sink
}

// A Policy is what the decisions need of a source policy; the whole of it is
// in the configuration, and its digest is Revision.
type Policy struct {
	ID       fencepost.SourceID
	Key      fencepost.RouteName
	Revision fencepost.SourceRevision
	// Contracts is the digest of the contracts that the run fence names: how
	// content is fetched, checked and given to the sink.
	Contracts Digest
	// Lineage is the digest of provider, repository id and ref.
	Lineage Digest
	Enabled bool
	// AcceptUnannounced lets a head be applied that no accepted delivery
	// named.
	AcceptUnannounced bool
	// AcceptForced lets a head be applied that doesn't contain the last one.
	AcceptForced bool
	// Muted are alerts that the policy leaves out: of [AlertRunFailed] and
	// [AlertRunPartial] alone.
	Muted   []AlertCode
	Timings fencepost.Timings
}

// A Remote looks at one source's repository with the source's own credential,
// and with no other. It is safe for concurrent use. Its errors have one of the
// reasons [fencepost.ReasonIdentity] (renamed, transferred, another
// repository under the name), [fencepost.ReasonCommitGone] (repository, branch
// or commit is not there), [fencepost.ReasonCredential],
// [fencepost.ReasonRateLimited], [fencepost.ReasonProvider],
// [fencepost.ReasonUnavailable], [fencepost.ReasonAcquisition] or
// [fencepost.ReasonContent].
type Remote interface {
	// Observe proves repository and owner ids and reads the branch's head,
	// both in one window of at most Timings.Observe. It costs one ls-refs
	// exchange and one conditional identity request when nothing changed.
	Observe(ctx context.Context) (Observation, error)
	// Contains says how head stands to other, both having been heads, by
	// commits that were fetched and verified, or by the provider's comparison.
	Contains(ctx context.Context, head, other fencepost.CommitID) (Ancestry, error)
	// Fetch gets the tree of an observed head into a place that the sink chose.
	Fetch(ctx context.Context, head fencepost.CommitID, into Place) (*gitfetch.Checkout, error)
}

// An Observation is one successful look at a repository.
type Observation struct {
	// Head is the branch's tip.
	Head fencepost.CommitID
	// At is when the look began, by the process's clock.
	At time.Time
}

// Ancestry is how a head stands to another commit. The zero Ancestry is none.
type Ancestry uint8

// The ways to stand.
const (
	// Same: they are one.
	Same Ancestry = iota + 1
	// Ahead: the head contains the other.
	Ahead
	// Behind: the other contains the head.
	Behind
	// Apart: neither contains the other; the branch was forced.
	Apart
	// Unknown: it could not be told within the budget, or the other is gone.
	Unknown
)

// String returns the word of a.
func (a Ancestry) String() string {
	words := []string{"none", "same", "ahead", "behind", "apart", "unknown"}
	if int(a) < len(words) {
		return words[a]
	}
	return words[0]
}

// A Place says where a checkout is to be made, and what is there already.
type Place struct {
	// Workspace holds the checkout until the sink takes or removes it.
	Workspace *gitfetch.Workspace
	// Select says which paths the sink wants, nil for all. Paths that it
	// leaves out are verified as names, and neither written nor, where the
	// server can filter, transferred.
	Select func(path string) bool
	// Have is the content that the sink had last, to fetch on top of; nil for
	// none.
	Have *gitfetch.Have
}

// ErrSink: a sink could not take the content. The reason and a word of detail
// are in a [SinkError].
var ErrSink = errors.New("the sink did not take the content")

// A SinkError is why a sink took nothing. It matches [ErrSink].
type SinkError struct {
	// Reason is [fencepost.ReasonContent] (its rules refuse the content, such
	// as a required path that is missing), [fencepost.ReasonFull] (no room),
	// [fencepost.ReasonUnavailable], [fencepost.ReasonTimeout],
	// [fencepost.ReasonLost] or one of a run.
	Reason fencepost.Reason
	// Detail is a word of a closed list; no path, no content.
	Detail string
	// Err is for the log of the process alone.
	Err error
}

// Error is what may be shown.
func (e *SinkError) Error() string {
	if e.Detail == "" {
		return ErrSink.Error() + ": " + string(e.Reason)
	}
	return ErrSink.Error() + ": " + string(e.Reason) + ": " + e.Detail
}

// Unwrap returns [ErrSink] and the cause.
func (e *SinkError) Unwrap() []error { return []error{ErrSink, e.Err} }

// A Sink takes the content of one source. Between attempts of different
// processes it compares fences itself, since no lock elsewhere can hold back
// a write that is late: an application with a lower fence than one that it
// has seen changes nothing and matches [ErrLost].
type Sink interface {
	// Probe checks at start that the sink can work at all: its place exists,
	// can be written, has the right owner. It changes nothing that a reader
	// sees. Its error says the mend.
	Probe(ctx context.Context) error
	// Place says where the checkout of a run is to be made.
	Place(ctx context.Context) (Place, error)
	// Apply takes a checkout, which it then owns, whatever it returns; what it
	// can't remove matches [ErrLeftover]. Until it returns nil readers see all
	// of the old content or all of the new. It is idempotent. Its other errors
	// are [*SinkError]s or match [ErrLost].
	Apply(ctx context.Context, a Application) (Applied, error)
}

// A BehindError says that the sink has seen a higher fence than that of the
// application. It matches [ErrLost]. For one who holds the source all the
// same it means that the store is older than the sink, such as one that was
// restored: the fences go on above Seen.
type BehindError struct{ Seen uint64 }

// Error says both.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the sink has seen fence %d already: %v", e.Seen, ErrLost)
}

// Unwrap returns [ErrLost].
func (e *BehindError) Unwrap() error { return ErrLost }

// ErrLeftover: something temporary could not be removed.
var ErrLeftover = errors.New("something temporary could not be removed")

// An Application is one checkout to be applied.
type Application struct {
	Hold     Hold
	Revision fencepost.SourceRevision
	Checkout *gitfetch.Checkout
	// Guard proves that the hold stands. The sink calls it right before the
	// change that readers see, and makes none if it returns an error.
	Guard func(ctx context.Context) error
}

// Applied is what a sink did.
type Applied struct {
	Counts Counts
	// Unchanged: the sink had just this content, under this revision, before.
	Unchanged bool
	// Refused is what its rule refused; with an entry in it the run is
	// [Partial]. At most 100 entries.
	Refused []Refusal
	// Leftover is nil, or matches [ErrLeftover]: the content was taken, and
	// something else could not be removed.
	Leftover error
}
