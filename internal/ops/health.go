package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// A Check is one thing that must be well for the controller to do its work.
type Check struct {
	// Name is a metric label: a-z and _, unique.
	Name string
	// Probe returns nil if all is well. It is called by one caller at a time,
	// and ends soon after ctx does.
	Probe func(ctx context.Context) error
}

// A Result is what a check said when it was last asked.
type Result struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Reason is why not; never the error's own text, which may hold more
	// than may be shown.
	Reason string `json:"reason,omitempty"`
}

// Health asks checks, all at once, and keeps their answers for a moment, so
// that many askers cost as much as one. It is safe for concurrent use.
type Health struct {
	checks  []Check
	timeout time.Duration
	keep    time.Duration
	now     func() time.Time

	// turn is held, by a token in it, by the one who asks; results and at are
	// guarded by it. It is a channel so that waiting for it is seen by
	// testing/synctest.
	turn    chan struct{}
	results []Result
	at      time.Time
}

// HealthOptions bound how checks are asked.
type HealthOptions struct {
	// Timeout of one check; default 3 s. One that takes longer is not well.
	Timeout time.Duration
	// Keep is how long answers are kept; default 1 s.
	Keep time.Duration
	// Now is the wall clock.
	Now func() time.Time
}

// NewHealth takes the checks. Without any, all is always well.
func NewHealth(o HealthOptions, checks ...Check) *Health {
	h := &Health{checks: checks, timeout: o.Timeout, keep: o.Keep, now: o.Now, turn: make(chan struct{}, 1)}
	if h.timeout == 0 {
		h.timeout = 3 * time.Second
	}
	if h.keep == 0 {
		h.keep = time.Second
	}
	return h
}

// Results returns an answer for each check, in their order, and whether all
// are well.
func (h *Health) Results(ctx context.Context) (results []Result, ready bool) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.results == nil || h.now().Sub(h.at) >= h.keep {
		h.results = h.ask(ctx)
		h.at = h.now()
	}
	ready = true
	for _, r := range h.results {
		ready = ready && r.OK
	}
	return append([]Result(nil), h.results...), ready
}

func (h *Health) ask(ctx context.Context) []Result {
	// What one asker learns, others are told: its going away must not make
	// checks fail.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timeout)
	defer cancel()
	results := make([]Result, len(h.checks))
	var wg sync.WaitGroup
	for i, c := range h.checks {
		wg.Go(func() {
			results[i] = Result{Name: c.Name, OK: true}
			if err := probe(ctx, c); err != nil {
				results[i].OK, results[i].Reason = false, string(fencepost.ReasonOf(err))
			}
		})
	}
	wg.Wait()
	return results
}

// probe turns a panic into a failed check: a check must not end the program
// that it is there to watch.
func probe(ctx context.Context, c Check) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("check %s panicked", c.Name)
		}
	}()
	return c.Probe(ctx)
}
