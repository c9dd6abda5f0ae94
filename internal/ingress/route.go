package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

// A Route is one configured entry point: POST /hooks/ and its name, or /jobs/
// and its name for a job that waits.
type Route struct {
	// Rule names route and trust set, and says what holds for signed times.
	Rule fencepost.RouteRule
	// Verifier authenticates; see package webhook.
	Verifier fencepost.Verifier
	// Headers are the names of the headers that verifier, admission and
	// whoever takes the record up read. A request with one of them twice is
	// unauthenticated, and they alone are recorded.
	Headers []string
	// Admission judges what is authentic.
	Admission Admission
	// Recorder records what is admitted.
	Recorder Recorder
	// PlainOK answers 200 to new work instead of 202, and 200 ignored to what
	// is authentic but not what the policy names, instead of 403: GitLab's
	// senders are promised 200 or 201 (DESIGN §4), and stop a webhook that is
	// answered otherwise four times in a row.
	PlainOK bool
	// Job, if set, makes the route one of a job that waits for its result; nil
	// for webhooks.
	Job *Job
}

// An Admission judges an authentic request by its route's policy.
type Admission interface {
	// Admit decodes body strictly and returns nil for what is to be recorded.
	// Its errors have, by [fencepost.ReasonOf], the reason
	// [fencepost.ReasonMalformed] for what is not one valid object with the
	// needed fields, [fencepost.ReasonEventNotHandled] for an event of the
	// route's own that is outside its closed list, and
	// [fencepost.ReasonUnauthorized] for one that is not what the route's
	// policy names. Any other error is answered unavailable. It does no I/O,
	// keeps nothing of body, and is safe for concurrent use.
	Admit(h fencepost.Headers, body []byte) error
}

// A Recorder records admitted requests durably.
type Recorder interface {
	// Record returns when d is on stable storage, with what it was: a
	// [Recording] other than the zero one. An error with
	// [fencepost.ReasonFull] means that there is no room and nothing was
	// recorded; any other is answered unavailable. Record uses body until it
	// returns and keeps nothing of it; it returns soon after ctx ends. It is
	// safe for concurrent use.
	Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (Recording, error)
}

// A Recording is what a [Recorder] found d to be. The zero Recording is none.
type Recording uint8

// The recordings (DESIGN §4).
const (
	// Accepted: new work.
	Accepted Recording = iota + 1
	// Replayed: this delivery is recorded already.
	Replayed
	// Coalesced: what it asks for is under way, and one follow-up is pending.
	Coalesced
	// Conflict: a known delivery with other content; nothing was recorded.
	Conflict
)

// An Outcome is the word of an answer.
type Outcome string

// The outcomes of DESIGN §4, those of polls, and one for a request that got no
// answer.
const (
	OutcomeAccepted  Outcome = "accepted"
	OutcomeReplayed  Outcome = "replayed"
	OutcomeCoalesced Outcome = "coalesced"
	OutcomeIgnored   Outcome = "ignored"
	OutcomeRejected  Outcome = "rejected"
	// OutcomeWaiting, OutcomeResult, OutcomeEnded: what a job is told that polls.
	OutcomeWaiting Outcome = "waiting"
	OutcomeResult  Outcome = "result"
	OutcomeEnded   Outcome = "ended"
	// OutcomeAborted: the client broke off, or was too slow with its body.
	OutcomeAborted Outcome = "aborted"
)

// An Answered is what became of one request, for metrics.
type Answered struct {
	// Route is the route's name; empty for a path that is none.
	Route fencepost.RouteName
	// Poll is set for a job that asked for its result.
	Poll bool
	// Status is the HTTP status; 0 for [OutcomeAborted].
	Status int
	// Outcome and Reason are those of the answer.
	Outcome Outcome
	Reason  fencepost.Reason
	// Anchor is the key that authenticated the request; empty if none did.
	Anchor fencepost.AnchorID
	// Body is how many bytes of it were read.
	Body int
	// Took is the time from the end of the headers to the answer.
	Took time.Duration
}

// An Observer is told of every request. It must not block, and is safe for
// concurrent use.
type Observer interface {
	Answered(Answered)
}

// A Table is the routes of one configuration. It never changes.
type Table struct {
	hooks, jobs side
}

// A side is the routes below one path, and the one that stands for all others.
type side struct {
	routes  map[string]*Route
	unknown Route
}

// unknownRoute is the route name in checks of requests to no route. It is no
// legal name.
const unknownRoute = "?"

// Decoys authenticate what has no route: they refuse, at the cost of a refusal
// by any of the routes' verifiers.
type Decoys struct {
	// Hooks is for everything but jobs.
	Hooks fencepost.Verifier
	// Jobs is for what is below /jobs/; nil, where no route is a job's, is
	// Hooks.
	Jobs fencepost.Verifier
}

// NewTable makes a table. The names of routes are unique among hooks and jobs
// together. The error lists every fault and matches [fencepost.ErrMalformed] or
// [fencepost.ErrZeroValue].
func NewTable(decoys Decoys, routes ...Route) (*Table, error) {
	var faults []error
	if decoys.Hooks == nil {
		faults = append(faults, fmt.Errorf("table: decoy: %w", fencepost.ErrZeroValue))
	}
	t := &Table{hooks: newSide(decoys.Hooks), jobs: newSide(cmp.Or(decoys.Jobs, decoys.Hooks))}
	t.jobs.unknown.Job = nobodysJob()
	for _, r := range routes {
		name := string(r.Rule.Route)
		side := &t.hooks
		if r.Job != nil {
			side = &t.jobs
		}
		switch twice := t.hooks.routes[name] != nil || t.jobs.routes[name] != nil; {
		case !isRouteName(name):
			faults = append(faults, fmt.Errorf("table: a route's name must be 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen, beginning with a letter or digit: %w", fencepost.ErrMalformed))
		case twice:
			faults = append(faults, fmt.Errorf("table: route %s stands twice: %w", name, fencepost.ErrMalformed))
		case r.Verifier == nil, r.Admission == nil, r.Recorder == nil, r.Rule.TrustSet == "", r.Rule.SignedTime == 0:
			faults = append(faults, fmt.Errorf("table: route %s lacks verifier, admission, recorder, trust set or signed-time rule: %w", name, fencepost.ErrZeroValue))
		case r.Job != nil && (r.Job.Key.Len() < pollKeyBytes || r.Job.Results == nil):
			faults = append(faults, fmt.Errorf("table: job route %s lacks a poll key of 32 bytes or results: %w", name, fencepost.ErrZeroValue))
		case r.Job != nil && decoys.Jobs == nil:
			faults = append(faults, fmt.Errorf("table: job route %s lacks a decoy: %w", name, fencepost.ErrZeroValue))
		default:
			if err := r.Rule.Window.Validate(); err != nil {
				faults = append(faults, fmt.Errorf("table: route %s: %w", name, err))
			}
		}
		side.routes[name] = &r
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

func newSide(decoy fencepost.Verifier) side {
	return side{
		routes:  map[string]*Route{},
		unknown: Route{Rule: fencepost.RouteRule{Route: unknownRoute}, Verifier: decoy},
	}
}

// named returns the route of that name, or the one that stands for all others.
func (s *side) named(name string) *Route {
	if r := s.routes[name]; r != nil {
		return r
	}
	return &s.unknown
}

// side returns the side that an escaped path is on, and the path below it. What
// is on neither is a hook of no name.
func (t *Table) side(path string) (s *side, below string) {
	if below, ok := strings.CutPrefix(path, jobs); ok {
		return &t.jobs, below
	}
	if below, ok := strings.CutPrefix(path, hooks); ok {
		return &t.hooks, below
	}
	return &t.hooks, ""
}

// hooks and jobs are where the routes are.
const (
	hooks = "/hooks/"
	jobs  = "/jobs/"
)

func isRouteName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
