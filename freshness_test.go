package fencepost_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

func TestDefaultTimingsAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	want := fencepost.Timings{
		Target: 14 * time.Minute, AlertAfter: 13 * time.Minute, Reconcile: 2 * time.Minute, Observe: 10 * time.Second,
		QueueAge: 30 * time.Second, Lease: 60 * time.Second, Renew: 20 * time.Second, Checkout: 60 * time.Second,
		Sink: 120 * time.Second, Attempts: 3, Backoff: 10 * time.Second, Evaluate: 30 * time.Second,
	}
	if diff := cmp.Diff(want, fencepost.DefaultTimings); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := fencepost.DefaultTimings.Validate(); err != nil {
		t.Error(err)
	}
}

func TestSumsHaveEveryTerm(t *testing.T) {
	t.Parallel()
	const s, m = time.Second, time.Minute
	one := fencepost.DefaultTimings
	one.Attempts = 1
	many := fencepost.DefaultTimings
	many.Attempts = 5
	tests := []struct {
		name            string
		timings         fencepost.Timings
		complete, alert []fencepost.Term
		total           time.Duration
	}{
		{"the defaults", fencepost.DefaultTimings,
			[]fencepost.Term{
				{"reconcile", 1, 2 * m}, {"observe", 8, 10 * s}, {"queue_age", 3, 30 * s}, {"checkout", 3, m}, {"sink", 3, 2 * m},
				{"backoff", 1, 10 * s}, {"backoff", 1, 20 * s}, {"lease", 1, m}, {"evaluate", 1, 30 * s},
			},
			[]fencepost.Term{{"observe", 1, 10 * s}, {"alert_after", 1, 13 * m}, {"evaluate", 1, 30 * s}},
			15*m + 50*s},
		{"one attempt", one,
			[]fencepost.Term{
				{"reconcile", 1, 2 * m}, {"observe", 4, 10 * s}, {"queue_age", 1, 30 * s}, {"checkout", 1, m}, {"sink", 1, 2 * m},
				{"lease", 1, m}, {"evaluate", 1, 30 * s},
			},
			[]fencepost.Term{{"observe", 1, 10 * s}, {"alert_after", 1, 13 * m}, {"evaluate", 1, 30 * s}},
			7*m + 40*s},
		{"five attempts", many,
			[]fencepost.Term{
				{"reconcile", 1, 2 * m}, {"observe", 12, 10 * s}, {"queue_age", 5, 30 * s}, {"checkout", 5, m}, {"sink", 5, 2 * m},
				{"backoff", 1, 10 * s}, {"backoff", 1, 20 * s}, {"backoff", 1, 40 * s}, {"backoff", 1, 80 * s}, {"lease", 1, m}, {"evaluate", 1, 30 * s},
			},
			[]fencepost.Term{{"observe", 1, 10 * s}, {"alert_after", 1, 13 * m}, {"evaluate", 1, 30 * s}},
			25*m + 30*s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sums := tt.timings.Sums()
			if diff := cmp.Diff(tt.complete, sums.Complete); diff != "" {
				t.Errorf("to complete (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.alert, sums.Alert); diff != "" {
				t.Errorf("to the alert (-want +got):\n%s", diff)
			}
			if got := fencepost.Total(sums.Complete); got != tt.total {
				t.Errorf("to complete = %v, want %v", got, tt.total)
			}
			if got, want := fencepost.Total(sums.Alert), 13*m+40*s; got != want {
				t.Errorf("to the alert = %v, want %v", got, want)
			}
		})
	}
	if got := fencepost.Total(nil); got != 0 {
		t.Errorf("Total of nothing = %v", got)
	}
}

func TestBackoffDoublesFromTheSecondAttempt(t *testing.T) {
	t.Parallel()
	d := fencepost.Timings{Backoff: 10 * time.Second}
	for attempt, want := range map[int]time.Duration{
		-1: 0, 0: 0, 1: 0, 2: 10 * time.Second, 3: 20 * time.Second, 4: 40 * time.Second, 10: 2560 * time.Second,
		// A number of attempts that no policy has must not overflow.
		1000: 10 * time.Second << 16,
	} {
		if got := d.BackoffBefore(attempt); got != want {
			t.Errorf("before attempt %d: %v, want %v", attempt, got, want)
		}
	}
}

func TestTimingsOutOfTheirRangesAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  func(*fencepost.Timings)
		want string
	}{
		{"target", func(t *fencepost.Timings) { t.Target = 0 }, "target must be above 0 and at most 24h, is 0s"},
		{"target over the promise", func(t *fencepost.Timings) { t.Target = 14*time.Minute + 1 }, "target must be at most 14m0s"},
		{"alert_after", func(t *fencepost.Timings) { t.AlertAfter = -1 }, "alert_after must be above 0"},
		{"alert_after within a pause", func(t *fencepost.Timings) { t.AlertAfter = 140 * time.Second }, "alert_after must be more than reconcile and two observations together (2m20s), or every pause raises the alert; is 2m20s"},
		{"reconcile", func(t *fencepost.Timings) { t.Reconcile = 0 }, "reconcile must be above 0"},
		{"observe", func(t *fencepost.Timings) { t.Observe = 0 }, "observe must be above 0"},
		{"queue_age", func(t *fencepost.Timings) { t.QueueAge = 0 }, "queue_age must be above 0"},
		{"lease", func(t *fencepost.Timings) { t.Lease = 25 * time.Hour }, "lease must be above 0 and at most 24h, is 25h0m0s"},
		{"renew", func(t *fencepost.Timings) { t.Renew = 0 }, "renew must be above 0"},
		{"renew over half of lease", func(t *fencepost.Timings) { t.Renew = 30*time.Second + 1 }, "renew must be at most half of lease (1m0s)"},
		{"checkout", func(t *fencepost.Timings) { t.Checkout = 0 }, "checkout must be above 0"},
		{"sink", func(t *fencepost.Timings) { t.Sink = 0 }, "sink must be above 0"},
		{"no attempt", func(t *fencepost.Timings) { t.Attempts = 0 }, "attempts must be 1 to 10, is 0"},
		{"eleven attempts", func(t *fencepost.Timings) { t.Attempts = 11 }, "attempts must be 1 to 10, is 11"},
		{"backoff", func(t *fencepost.Timings) { t.Backoff = 0 }, "backoff must be above 0"},
		{"evaluate", func(t *fencepost.Timings) { t.Evaluate = 0 }, "evaluate must be above 0"},
		{"neither sum", func(t *fencepost.Timings) { t.AlertAfter = 14 * time.Minute },
			"neither complete evidence (15m50s at worst) nor the alert (14m40s at worst) keeps the freshness target of 14m0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timings := fencepost.DefaultTimings
			tt.set(&timings)
			err := timings.Validate()
			if !errors.Is(err, fencepost.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOneSumIsEnough(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  func(*fencepost.Timings)
		kept bool
	}{
		{"the alert alone", func(*fencepost.Timings) {}, true},
		{"complete alone", func(t *fencepost.Timings) { t.Attempts, t.AlertAfter = 2, 14*time.Minute }, true},
		{"both", func(t *fencepost.Timings) { t.Attempts = 2 }, true},
		{"none", func(t *fencepost.Timings) { t.AlertAfter = 13*time.Minute + 21*time.Second }, false},
		{"the alert, to the second", func(t *fencepost.Timings) { t.AlertAfter = 13*time.Minute + 20*time.Second }, true},
		{"complete, to the second", func(t *fencepost.Timings) {
			t.AlertAfter, t.Sink, t.Evaluate = 14*time.Minute, 80*time.Second, 40*time.Second
		}, true},
		{"complete, a second over", func(t *fencepost.Timings) {
			t.AlertAfter, t.Sink, t.Evaluate = 14*time.Minute, 80*time.Second, 41*time.Second
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timings := fencepost.DefaultTimings
			tt.set(&timings)
			if got := timings.Kept(); got != tt.kept {
				t.Errorf("Kept = %v with %+v", got, timings.Sums())
			}
			if err := timings.Validate(); (err == nil) != tt.kept {
				t.Errorf("Validate = %v, want kept = %v", err, tt.kept)
			}
		})
	}
}

// drawTimings gives legal durations; whether their sums keep the target is open.
func drawTimings(t *rapid.T) fencepost.Timings {
	within := func(name string, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(most)).Draw(t, name))
	}
	return fencepost.Timings{
		Target: within("target", fencepost.MaxFreshness), AlertAfter: within("alert_after", 15*time.Minute),
		Reconcile: within("reconcile", 5*time.Minute), Observe: within("observe", time.Minute), QueueAge: within("queue_age", time.Minute),
		Lease: within("lease", 2*time.Minute), Renew: within("renew", time.Minute), Checkout: within("checkout", 2*time.Minute),
		Sink: within("sink", 3*time.Minute), Attempts: rapid.IntRange(1, 10).Draw(t, "attempts"), Backoff: within("backoff", time.Minute),
		Evaluate: within("evaluate", time.Minute),
	}
}

// TestSumsAgreeWithTheStory tells the worst case step by step, as a clock would
// see it, and compares the end with the sum.
func TestSumsAgreeWithTheStory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawTimings(t)
		// The head moves as a look begins, which sees the old one.
		clock := p.Observe + p.Reconcile + p.Observe
		pause := p.Backoff
		for attempt := 1; attempt <= p.Attempts; attempt++ {
			if attempt > 1 {
				clock += pause
				pause *= 2
			}
			clock += p.QueueAge + p.Observe + p.Observe + p.Checkout + p.Sink
		}
		// The last renewal was as late as it could be.
		clock += p.Lease + p.Evaluate
		if got := fencepost.Total(p.Sums().Complete); got != clock {
			t.Fatalf("to complete = %v, the story takes %v", got, clock)
		}
		if got, want := fencepost.Total(p.Sums().Alert), p.Observe+p.AlertAfter+p.Evaluate; got != want {
			t.Fatalf("to the alert = %v, the story takes %v", got, want)
		}
	})
}

func TestValidTimingsKeepTheTarget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawTimings(t)
		err := p.Validate()
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) {
				t.Fatalf("err = %v, want one that matches ErrMalformed", err)
			}
			return
		}
		sums := p.Sums()
		best := min(fencepost.Total(sums.Complete), fencepost.Total(sums.Alert))
		if best > p.Target || p.Target > fencepost.MaxFreshness || p.Renew > p.Lease/2 || p.AlertAfter <= p.Reconcile+2*p.Observe {
			t.Fatalf("taken: %+v", p)
		}
	})
}

// TestLongerTimingsNeverPromiseMore: no bound may be raised and a sum fall.
func TestLongerTimingsNeverPromiseMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawTimings(t)
		more := p
		fields := []*time.Duration{
			&more.AlertAfter, &more.Reconcile, &more.Observe, &more.QueueAge, &more.Lease, &more.Checkout, &more.Sink, &more.Backoff, &more.Evaluate,
		}
		i := rapid.IntRange(0, len(fields)).Draw(t, "field")
		if i == len(fields) {
			more.Attempts++
		} else {
			*fields[i] += time.Second
		}
		before, after := p.Sums(), more.Sums()
		if fencepost.Total(after.Complete) < fencepost.Total(before.Complete) || fencepost.Total(after.Alert) < fencepost.Total(before.Alert) {
			t.Fatalf("sums fell: %+v, then %+v", before, after)
		}
		names := func(terms []fencepost.Term) (names []string) {
			for _, term := range terms {
				names = append(names, term.Name)
			}
			return names
		}
		if i < len(fields) && !slices.Equal(names(before.Complete), names(after.Complete)) {
			t.Fatalf("terms changed: %v, then %v", names(before.Complete), names(after.Complete))
		}
	})
}
