package gate

import (
	"context"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// A Name is the key of one configured gate. It is safe to log.
type Name string

// A Subject is what one event asks a verdict about: this head of this
// request against this base, never "the latest". It is comparable.
type Subject struct {
	// Number is the request's number at the provider, 1 or more.
	Number int64
	// Head is the commit that the event named.
	Head fencepost.CommitID
	// BaseRef is the full name of the branch to merge into.
	BaseRef string
	// Job is the job that asked; zero where requests are told of by webhooks.
	Job Job
}

// A Job is a job that asks for the result of a request, as its own signed token
// names it. Whether the provider says the same of it, [Refresher.Refresh] finds
// out. It is comparable; the zero Job is none.
type Job struct {
	// ID and Pipeline are the provider's ids, 1 or more.
	ID       int64 `json:"id,string"`
	Pipeline int64 `json:"pipeline,string"`
	// Source says where the job's definition comes from; PolicyURL and
	// PolicyCommit name the policy that brought it, as the provider wrote them.
	// They are at most [MaxJobText] bytes each, and empty where the token lacks
	// them.
	Source       string `json:"source,omitzero"`
	PolicyURL    string `json:"policy_url,omitzero"`
	PolicyCommit string `json:"policy_commit,omitzero"`
}

// MaxJobText bounds each text of a [Job], in bytes.
const MaxJobText = 2 << 10

// Valid reports whether j is a job.
func (j Job) Valid() bool {
	return j.ID >= 1 && j.Pipeline >= 1 && max(len(j.Source), len(j.PolicyURL), len(j.PolicyCommit)) <= MaxJobText
}

// A Commit is a commit and its tree.
type Commit struct {
	ID   fencepost.CommitID `json:"commit"`
	Tree fencepost.TreeID   `json:"tree"`
}

// A Fact is one thing that must hold for a pass, as the provider or the
// fetched objects showed it. All texts are of our own making or object ids; none
// holds anything personal.
type Fact struct {
	Name     string `json:"fact"`
	Expected string `json:"expected"`
	Observed string `json:"observed"`
	// Mend is what whoever opened the request can do where it is not met; empty
	// where that is an operator's.
	Mend string `json:"mend,omitzero"`
}

// Met reports whether what was observed is what was expected.
func (f Fact) Met() bool { return f.Expected == f.Observed }

// A Snapshot is what the provider says a gate is at one moment.
type Snapshot struct {
	// State is [fencepost.ReasonNone] when the gate is open, proven and has a
	// candidate; else why not. It is what the provider certainly said: what
	// could not be learnt is an error of [Refresher.Refresh].
	State fencepost.Reason
	// Revision is the digest of everything that a verdict depends on. It is
	// zero when the request has ended (superseded, closed, a draft).
	Revision fencepost.GateRevision
	// Repository is the name by which the provider knows the repository now.
	Repository string
	// Base is the present tip of the base branch, Head the event's head,
	// Candidate what would be merged. Candidate is zero where State says that
	// there is none.
	Base, Head, Candidate Commit
	// Facts are what the revision stands for, in a fixed order.
	Facts []Fact
}

// Moved reports whether head or base of t are other commits than those of s.
func (s Snapshot) Moved(t Snapshot) bool { return s.Base != t.Base || s.Head != t.Head }

// An Admitter decides what an authenticated event asks for.
type Admitter interface {
	// Admit parses body strictly and holds it against the gate's policy. Its
	// errors are *[fencepost.Error]s with the reasons
	// [fencepost.ReasonEventNotHandled], [fencepost.ReasonMalformed] or
	// [fencepost.ReasonUnauthorized]. It does no I/O and is safe for
	// concurrent use. DESIGN §4
	Admit(h fencepost.Headers, body []byte) (Subject, error)
}

// A Refresher reads a gate at its provider.
type Refresher interface {
	// Refresh returns what the provider says now. An error means that it could
	// not be learnt, and carries a reason; a [*WaitError] in its chain says
	// when to ask again. It is safe for concurrent use.
	Refresh(ctx context.Context, s Subject) (Snapshot, error)
	// Source says where and as whom the objects of a snapshot are fetched.
	Source(s Snapshot) (Source, error)
}

// A Source is a repository to fetch from.
type Source struct {
	// URL is the repository's, without user or query.
	URL string
	// Credential gives user and password for HTTP Basic authentication; nil
	// asks anonymously.
	Credential gitfetch.Credential
	// AllowHTTP permits a plain HTTP URL.
	AllowHTTP bool
	// AllowPrivate lets a host name lead to private addresses.
	AllowPrivate bool
}

// Documents turns verdicts into the exact bytes that are staged, and back. It
// does no I/O.
type Documents interface {
	// Compose writes the one document that holds all that Find and Create
	// need, so that every publication of it is by the same bytes.
	Compose(v Verdict) ([]byte, error)
	// Inspect reads what Compose wrote, with times cut to what the provider
	// keeps. Its error matches [fencepost.ErrMalformed].
	Inspect(document []byte) (Verdict, error)
}

// A Publisher shows staged documents at the provider.
type Publisher interface {
	// Find looks up whether the provider shows document. What is shown under
	// its key but differs from it, or is shown twice, is an error with
	// [fencepost.ReasonPublishConflict].
	Find(ctx context.Context, document []byte) (p Published, found bool, err error)
	// Create asks the provider, once, to show document. An error that matches
	// [ErrUnknown] means that the provider may have taken it; any other that it
	// did not. [ErrNotYet] among them: the commit is not visible yet.
	Create(ctx context.Context, document []byte) (Published, error)
}

// A Retracter is a [Publisher] whose result is more than one write, so that a
// part of it can be shown alone.
type Retracter interface {
	// Retract takes back what is shown of a document that is not to be shown
	// any more, as far as it could count for something else. Doing it again
	// does nothing.
	Retract(ctx context.Context, document []byte) error
}

// An Awaited is a [Lane] whose sender waits for the end of its delivery: the
// result is fetched, not sent, so an end without one has to be told as well.
type Awaited interface {
	// Ended says durably that a delivery has reached its end: why is none
	// where its result is published or was told of before. It is called before
	// the delivery leaves the queue, perhaps more than once, and changes
	// nothing where a result or an end is told of already. Its error means that
	// it is not known to be told; the delivery stays in the queue until it is.
	Ended(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error
}

// A Lane is one provider's side of one gate.
type Lane interface {
	Admitter
	Refresher
	Documents
	Publisher
}

// Published names what the provider shows.
type Published struct {
	// ID is the provider's own id of it.
	ID string
}

// A Conclusion is what is published of an evaluation.
type Conclusion uint8

// The conclusions. There is no third: neutral ones let a gate pass.
const (
	// Fail blocks.
	Fail Conclusion = iota + 1
	// Pass lets through.
	Pass
)

// String returns "failure" or "success".
func (c Conclusion) String() string {
	switch c {
	case Pass:
		return "success"
	case Fail:
		return "failure"
	}
	return "invalid"
}

// A Verdict is what an evaluation came to, before it is frozen.
type Verdict struct {
	Gate       Name
	Delivery   fencepost.DeliveryID
	Evaluation fencepost.EvaluationID
	Subject    Subject
	Conclusion Conclusion
	// Reason is why there is no conclusion of the program; with it the
	// Conclusion is Fail.
	Reason fencepost.Reason
	// Title is at most [MaxTitle] characters, Summary at most [MaxSummary]
	// bytes of Markdown.
	Title, Summary string
	// Artifact refers to the evidence; empty where none could be stored, which
	// no Pass may be.
	Artifact string
	// Revision is the gate the verdict is for; zero where none was ever
	// learnt, which no Pass may be.
	Revision fencepost.GateRevision
	// Received is when the event came, Started when the evaluation began,
	// Completed when it ended; UTC, by our clock.
	Received, Started, Completed time.Time
}

// Bounds of a [Verdict]'s texts. DESIGN §7
const (
	MaxTitle   = 120
	MaxSummary = 8 << 10
)
