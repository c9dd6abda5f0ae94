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
	// successful observation, at which the freshness alert is raised. It is
	// longer than what passes between two observations.
	AlertAfter time.Duration
	// Reconcile is the longest pause from one observation of the source to the
	// next.
	Reconcile time.Duration
	// Observe bounds one observation.
	Observe time.Duration
	// QueueAge is how long a job may wait for a worker, before each attempt.
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
	// Evaluate is the time from one round of watchdog and freshness to the
	// next, start to start.
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
	// Name is the configuration's word.
	Name string
	// Times is how often it counts.
	Times int
	Each  time.Duration
}

// Total is what the term adds.
func (t Term) Total() time.Duration { return time.Duration(t.Times) * t.Each }

// Sums are the worst cases of a source: the two ways in which the promise of
// invariant 15 can be kept.
type Sums struct {
	// Complete adds up to the latest moment at which a head that moved has
	// complete evidence, or its run has ended with an alert.
	Complete []Term
	// Alert adds up to the latest moment at which the freshness alert is
	// raised, if nothing else was.
	Alert []Term
}

// Total adds terms up.
func Total(terms []Term) time.Duration {
	var sum time.Duration
	for _, t := range terms {
		sum += t.Total()
	}
	return sum
}

// looks is how many times Observe bounds a step of one attempt: the proof of
// the head, and that of its ancestry.
const looks = 2

// Sums returns both worst cases, term by term. Each begins when the head
// moves, right after an observation read the old one, and the webhook is lost.
// No other sign is trustworthy before the next observation; it doesn't say
// since when the new head has been there, so what it finds counts from the
// observation before it.
//
// On the path to complete every attempt but the last fails at its end, and
// the last one's worker dies at its end: the alert is then that of the
// watchdog, who ends the log when the lock has expired. What a job engine does
// about a dead worker by itself comes later, and nothing waits for it.
//
// On the path to the alert nothing succeeds any more, or everything hangs:
// the watchdog alone is needed.
func (t Timings) Sums() Sums {
	complete := []Term{
		{"reconcile", 1, t.Reconcile},
		// The one that saw the old head, the one that finds the new, and those
		// of each attempt.
		{"observe", 2 + looks*t.Attempts, t.Observe},
		{"queue_age", t.Attempts, t.QueueAge},
		{"checkout", t.Attempts, t.Checkout},
		{"sink", t.Attempts, t.Sink},
	}
	for n := 2; n <= t.Attempts; n++ {
		complete = append(complete, Term{"backoff", 1, t.BackoffBefore(n)})
	}
	complete = append(complete, Term{"lease", 1, t.Lease}, Term{"evaluate", 1, t.Evaluate})
	return Sums{
		Complete: complete,
		// The observation that saw the old head may be stored at its end.
		Alert: []Term{{"observe", 1, t.Observe}, {"alert_after", 1, t.AlertAfter}, {"evaluate", 1, t.Evaluate}},
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
	case t.AlertAfter <= t.Reconcile+2*t.Observe:
		return fmt.Errorf("alert_after must be more than reconcile and two observations together (%v), or every pause raises the alert; is %v: %w",
			t.Reconcile+2*t.Observe, t.AlertAfter, ErrMalformed)
	case !t.Kept():
		s := t.Sums()
		return fmt.Errorf("neither complete evidence (%v at worst) nor the alert (%v at worst) keeps the freshness target of %v: %w",
			Total(s.Complete), Total(s.Alert), t.Target, ErrMalformed)
	}
	return nil
}
