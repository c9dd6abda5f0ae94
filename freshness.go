package fencepost

import (
	"fmt"
	"time"
)

// Timings are the bounds of one source, all durations above zero. DESIGN §9,
// "Defaults".
type Timings struct {
	// Target is how long it may take from the first local sign of a new head
	// to complete evidence or a raised alert; at most 14 min.
	Target time.Duration
	// AlertAfter is the age of the earliest unmet sign, and of the last
	// successful observation, at which the freshness alert is raised.
	AlertAfter time.Duration
	// Reconcile is the pause between two observations of the source.
	Reconcile time.Duration
	// Observe bounds one observation.
	Observe time.Duration
	// QueueAge is how long a job may wait for a worker.
	QueueAge time.Duration
	// Lease is how long a source lock lives without being renewed, Renew the
	// pause between two renewals; Renew is at most half of Lease.
	Lease, Renew time.Duration
	// Checkout bounds fetch and verification of one attempt, Sink what the
	// sink does.
	Checkout, Sink time.Duration
	// Attempts is how many attempts one run has; Backoff the pause before the
	// second, doubled before each further one.
	Attempts int
	Backoff  time.Duration
	// Evaluate is the pause between two rounds of watchdog and freshness.
	Evaluate time.Duration
}

// MaxFreshness is the longest freshness target. DESIGN §2, invariant 15.
const MaxFreshness = 14 * time.Minute

// DefaultTimings are those of DESIGN §9.
var DefaultTimings = Timings{
	Target: MaxFreshness, AlertAfter: 13 * time.Minute,
	Reconcile: 2 * time.Minute, Observe: 10 * time.Second, QueueAge: 30 * time.Second,
	Lease: time.Minute, Renew: 20 * time.Second,
	Checkout: time.Minute, Sink: 2 * time.Minute,
	Attempts: 3, Backoff: 10 * time.Second, Evaluate: 30 * time.Second,
}

// A Term is one summand of a worst case.
type Term struct {
	// Name is the configuration's word, Times how often it counts.
	Name  string
	Times int
	Each  time.Duration
}

// Sums are the worst cases of a source: the two ways in which the promise of
// invariant 15 can be kept.
type Sums struct {
	// Complete adds up to the latest moment of complete evidence when the
	// webhook was lost and every attempt but the last fails at its end.
	Complete []Term
	// Alert adds up to the latest moment at which an alert is raised.
	Alert []Term
}

// Total adds terms up.
func Total(terms []Term) time.Duration {
	var sum time.Duration
	for _, t := range terms {
		sum += time.Duration(t.Times) * t.Each
	}
	return sum
}

// Sums returns both worst cases, term by term. Each begins where the head
// moved and nobody was told: right after an observation.
func (t Timings) Sums() Sums {
	complete := []Term{
		{"reconcile", 1, t.Reconcile},
		{"queue_age", 1, t.QueueAge},
		{"observe", 1 + t.Attempts, t.Observe},
		{"checkout", t.Attempts, t.Checkout},
		{"sink", t.Attempts, t.Sink},
	}
	for i := 1; i < t.Attempts; i++ {
		complete = append(complete, Term{"backoff", 1, t.BackoffBefore(i + 1)})
	}
	return Sums{
		Complete: complete,
		// The last successful observation is no later than the head's move,
		// so its age reaches AlertAfter first, whatever fails.
		Alert: []Term{{"alert_after", 1, t.AlertAfter}, {"evaluate", 1, t.Evaluate}},
	}
}

// BackoffBefore is the pause before attempt n, counted from 1; the first has
// none.
func (t Timings) BackoffBefore(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return t.Backoff << min(n-2, 16)
}

// Kept reports whether a worst case keeps the target.
func (t Timings) Kept() bool {
	s := t.Sums()
	return Total(s.Complete) <= t.Target || Total(s.Alert) <= t.Target
}

// Validate checks the ranges that [Timings] names, and that a worst case
// keeps the target. Its error matches [ErrMalformed].
func (t Timings) Validate() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"target", t.Target}, {"alert_after", t.AlertAfter}, {"reconcile", t.Reconcile}, {"observe", t.Observe},
		{"queue_age", t.QueueAge}, {"lease", t.Lease}, {"renew", t.Renew}, {"checkout", t.Checkout}, {"sink", t.Sink},
		{"backoff", t.Backoff}, {"evaluate", t.Evaluate},
	} {
		if f.d <= 0 || f.d > 24*time.Hour {
			return fmt.Errorf("%s must be above 0 and at most 24h, is %v: %w", f.name, f.d, ErrMalformed)
		}
	}
	switch {
	case t.Target > MaxFreshness:
		return fmt.Errorf("target must be at most %v, is %v: %w", MaxFreshness, t.Target, ErrMalformed)
	case t.Attempts < 1 || t.Attempts > 10:
		return fmt.Errorf("attempts must be 1 to 10, is %d: %w", t.Attempts, ErrMalformed)
	case t.Renew > t.Lease/2:
		return fmt.Errorf("renew must be at most half of lease (%v), is %v: %w", t.Lease, t.Renew, ErrMalformed)
	case !t.Kept():
		s := t.Sums()
		return fmt.Errorf("neither complete evidence (%v at worst) nor the alert (%v at worst) keeps the freshness target of %v: %w",
			Total(s.Complete), Total(s.Alert), t.Target, ErrMalformed)
	}
	return nil
}
