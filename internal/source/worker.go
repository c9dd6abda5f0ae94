package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// A Worker carries out attempts of runs. It is safe for concurrent use.
type Worker struct {
	// Store holds the rows. Required.
	Store Store
	// Sources are those of the configuration. Required.
	Sources map[fencepost.SourceID]*Source
	// Owner names this process. Required.
	Owner Owner
	// Random draws ids and tokens. Required.
	Random io.Reader
	// Now is the wall clock, for durations in the log. Required.
	Now func() time.Time
	// Log takes one line for each attempt. Required.
	Log *slog.Logger
	// Meter, where set, counts attempts.
	Meter Meter
	// Grace is how long a sink may go on after its time before the attempt is
	// given up without it; then its lock is left to the watchdog, and the
	// sink's own fence holds back what it does late. Default 5 s.
	Grace time.Duration

	// attempts counts those that go on, also after they were given up.
	attempts sync.WaitGroup

	mu sync.Mutex
	// hung counts, by source, attempts that were given up and go on. Guarded
	// by mu.
	hung map[fencepost.SourceID]int
}

// A Meter counts attempts. It is safe for concurrent use.
type Meter interface {
	// SourceAttempt counts one by how it ended: in a status, or in "trouble",
	// of which the run may have another attempt.
	SourceAttempt(source, status string, reason fencepost.Reason, took time.Duration)
}

// Wait returns when no attempt goes on any more. It is called when nothing
// calls Work any more.
func (w *Worker) Wait() { w.attempts.Wait() }

// Work carries out one attempt of the job's run. It returns a time, not zero,
// at which the job is to be worked again; that is no failure, and the number
// of attempts is in the run log. Its error means that the answer is not known,
// and that the job is to be tried again soon.
func (w *Worker) Work(ctx context.Context, job JobPayload) (again time.Time, err error) {
	src, ok := w.Sources[job.Source]
	if !ok || src.Revision != job.Revision {
		// Of a policy that this process doesn't have: whoever has it in force
		// has ended the run, or will.
		return time.Time{}, nil
	}
	if w.hangs(src.ID) {
		// Another one would hang as well, and hold as much. Another process may
		// have better luck.
		return w.Now().Add(src.Timings.QueueAge), nil
	}
	token, err := w.token()
	if err != nil {
		return time.Time{}, err
	}
	var b Beginning
	begin := Begin{Run: job.Run, Owner: w.Owner, Token: token}
	if err := w.Store.Change(ctx, src.ID, Lookup{Run: job.Run}, func(s Snapshot) (c Change, err error) {
		c, b = OnBegin(s, src.Policy, begin)
		return c, nil
	}); err != nil {
		return time.Time{}, fmt.Errorf("begin attempt: %w", err)
	}
	switch b := b.(type) {
	case Over:
		return time.Time{}, nil
	case NotNow:
		return b.Until, nil
	case Began:
		return w.attempt(ctx, src, b)
	}
	return time.Time{}, fmt.Errorf("begin attempt: %w", fencepost.ErrZeroValue)
}

func (w *Worker) token() (t Token, err error) {
	for t.IsZero() {
		if _, err := io.ReadFull(w.Random, t[:]); err != nil {
			return Token{}, fmt.Errorf("draw token: %w", err)
		}
	}
	return t, nil
}

// attempt carries out one attempt under its hold, and stores how it ended.
func (w *Worker) attempt(ctx context.Context, src *Source, b Began) (again time.Time, err error) {
	begun := w.Now()
	t := src.Timings
	// The hold ends with the attempt's longest time, whatever hangs.
	limit := 2*t.Observe + t.Checkout + t.Sink + w.grace()
	run, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	run, lose := context.WithCancelCause(run)
	defer lose(nil)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		w.renew(run, b.Hold, t, lose)
	}()
	done := make(chan result, 1)
	w.attempts.Go(func() {
		// As with a worker that died: the watchdog ends it.
		defer caught(w.Log, src, func() {
			done <- result{trouble: &Trouble{Reason: fencepost.ReasonLost, Detail: "panic"}, hung: true}
		})
		done <- w.carryOut(run, src, b)
	})
	var r result
	select {
	case r = <-done:
	case <-run.Done():
		r = w.abandon(ctx, run, src, done)
	}
	lose(nil)
	<-renewed
	again, err = w.conclude(ctx, src, b, r)
	w.report(ctx, src, b, r, again, w.Now().Sub(begun), err)
	return again, err
}

func (w *Worker) grace() time.Duration {
	if w.Grace > 0 {
		return w.Grace
	}
	return 5 * time.Second
}

// abandon waits a little for an attempt whose time is over.
func (w *Worker) abandon(ctx, run context.Context, src *Source, done <-chan result) result {
	timer := time.NewTimer(w.grace())
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	}
	why := fencepost.ReasonTimeout
	if errors.Is(context.Cause(run), ErrLost) || ctx.Err() != nil {
		why = fencepost.ReasonLost
	}
	w.countHung(src.ID, 1)
	w.attempts.Go(func() {
		<-done
		w.countHung(src.ID, -1)
	})
	return result{trouble: &Trouble{Reason: why, Detail: "hung"}, hung: true}
}

func (w *Worker) hangs(id fencepost.SourceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hung[id] > 0
}

func (w *Worker) countHung(id fencepost.SourceID, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hung == nil {
		w.hung = map[fencepost.SourceID]int{}
	}
	if w.hung[id] += by; w.hung[id] == 0 {
		delete(w.hung, id)
	}
}

// renew keeps the hold until run ends. The first failure, whatever its cause,
// loses it.
func (w *Worker) renew(run context.Context, h Hold, t fencepost.Timings, lose context.CancelCauseFunc) {
	tick := time.NewTicker(t.Renew)
	defer tick.Stop()
	for {
		select {
		case <-run.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(run, t.Renew)
		_, err := w.Store.Renew(ctx, h, t.Lease)
		cancel()
		if err != nil {
			lose(fmt.Errorf("renew: %w", errors.Join(ErrLost, err)))
			return
		}
	}
}

// A result is how an attempt ended: in an ending, or in trouble.
type result struct {
	ending  Ending
	trouble *Trouble
	cost    gitfetch.Stats // of an ending for which something was fetched
	// hung: something of the attempt goes on, or broke off in the middle; its
	// lock is left to the watchdog.
	hung bool
}

// conclude stores a result.
func (w *Worker) conclude(ctx context.Context, src *Source, b Began, r result) (again time.Time, err error) {
	if r.hung || r.trouble != nil && fateOf(r.trouble.Reason) == FateLost {
		// Not ours any more, or not provably: the watchdog ends it.
		return time.Time{}, nil
	}
	id, err := fencepost.NewRunID(w.Random)
	if err != nil {
		return time.Time{}, err
	}
	// Also when the process stops: a short, bounded write, without which the
	// lock stands until its lease ends.
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.grace())
	defer cancel()
	err = w.Store.Change(stop, src.ID, Lookup{}, func(s Snapshot) (c Change, err error) {
		if r.trouble == nil {
			e := r.ending
			e.NewRun = id
			c, err = OnEnd(s, src.Policy, b.Hold, e)
			return c, err
		}
		t := *r.trouble
		t.NewRun, t.Shutdown = id, ctx.Err() != nil
		c, again, err = OnTrouble(s, src.Policy, b.Hold, t)
		return c, err
	})
	switch {
	case errors.Is(err, ErrLost):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("end attempt: %w", err)
	}
	return again, nil
}

// report writes the attempt's line. Commits of sources are in no log.
func (w *Worker) report(ctx context.Context, src *Source, b Began, r result, again time.Time, took time.Duration, err error) {
	status, reason, detail := r.ending.Status.String(), r.ending.Reason, r.ending.Detail
	if r.trouble != nil {
		status, reason, detail = "trouble", r.trouble.Reason, r.trouble.Detail
		if again.IsZero() && err == nil && !r.hung && fateOf(reason) != FateLost {
			status = Failed.String()
		}
	}
	if w.Meter != nil {
		w.Meter.SourceAttempt(string(src.Key), status, reason, took)
	}
	level := slog.LevelInfo
	if reason != fencepost.ReasonNone || err != nil {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("source", string(src.Key)), slog.String("run", b.Run.ID.String()),
		slog.String("revision", src.Revision.String()[:16]), slog.Int("attempt", b.Run.Attempts),
		slog.Uint64("fence", b.Hold.Fence), slog.String("status", status), slog.Int64("duration_ms", took.Milliseconds()),
	}
	if reason != fencepost.ReasonNone {
		attrs = append(attrs, slog.String("reason", string(reason)))
	}
	if detail != "" {
		attrs = append(attrs, slog.String("detail", detail))
	}
	if err != nil {
		attrs = append(attrs, slog.String("store", string(fencepost.ReasonOf(err))))
	}
	c := r.ending.Counts
	if r.trouble == nil {
		attrs = append(attrs, slog.Int64("files", c.Files), slog.Int64("added", c.Added), slog.Int64("changed", c.Changed),
			slog.Int64("removed", c.Removed), slog.Int64("wire_bytes", c.Wire))
		attrs = append(attrs, shortcuts(r.cost)...)
	}
	w.Log.LogAttrs(ctx, level, "source run", attrs...)
}

// shortcuts says of a fetch what was spared, or why it was not: that of what
// the globs leave out nothing came, or that all of it did; and why the earlier
// checkout, or the server's filter, was of no use.
func shortcuts(cost gitfetch.Stats) []slog.Attr {
	var attrs []slog.Attr
	if cost.LeftOut > 0 {
		attrs = append(attrs, slog.Int64("left_out", cost.LeftOut), slog.Bool("filtered", cost.Filtered))
	}
	if cost.Fallback != "" {
		attrs = append(attrs, slog.String("fallback", string(cost.Fallback)))
	}
	return attrs
}
