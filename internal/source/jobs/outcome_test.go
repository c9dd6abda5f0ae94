package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
)

// outcomes is an observer.
type outcomes struct{ seen chan jobs.Outcome }

// Worked implements [jobs.Observer].
func (o outcomes) Worked(_ string, got jobs.Outcome, _, _ time.Duration) { o.seen <- got }

func boundedAttempts(t *testing.T, f fixture) {
	f.Backoff = 20 * time.Millisecond
	o := outcomes{make(chan jobs.Outcome, 100)}
	f.Observer = o
	q := f.queue(t)
	at := make(chan time.Time, 100)
	run(t, q, workerFunc(func(context.Context, source.JobPayload) (time.Time, error) {
		at <- time.Now()
		return time.Time{}, errors.New("no answer")
	}))
	put(t, f, q, jobRow(1))
	var got []jobs.Outcome
	for range 3 {
		got = append(got, next(t, o.seen))
	}
	if diff := cmp.Diff([]jobs.Outcome{jobs.Failed, jobs.Failed, jobs.GivenUp}, got); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	one, two, three := <-at, <-at, <-at
	if two.Sub(one) < f.Backoff-2*time.Millisecond || three.Sub(two) < 2*f.Backoff-2*time.Millisecond {
		t.Fatalf("pauses of %v and %v, want at least %v and %v", two.Sub(one), three.Sub(two), f.Backoff, 2*f.Backoff)
	}
	settled(t, q)
	// The watchdog may put in again what was given up.
	put(t, f, q, jobRow(1))
	next(t, at)
}

func panics(t *testing.T, f fixture) {
	f.Attempts = 1
	o := outcomes{make(chan jobs.Outcome, 100)}
	f.Observer = o
	q := f.queue(t)
	run(t, q, workerFunc(func(_ context.Context, p source.JobPayload) (time.Time, error) {
		if p == jobRow(1).Payload {
			panic("a bug")
		}
		return time.Time{}, nil
	}))
	for i, want := range []jobs.Outcome{jobs.GivenUp, jobs.Done} {
		put(t, f, q, jobRow(byte(i+1)))
		if got := next(t, o.seen); got != want {
			t.Fatalf("job %d: %v, want %v", i+1, got, want)
		}
	}
}

func unknownHandler(t *testing.T, f fixture) {
	o := outcomes{make(chan jobs.Outcome, 100)}
	f.Observer = o
	q := f.queue(t)
	run(t, q, newRecorder())
	j := jobRow(1)
	j.Handler = "source.unheard_of"
	put(t, f, q, j)
	if got := next(t, o.seen); got != jobs.GivenUp {
		t.Fatalf("outcome = %v, want given up", got)
	}
	settled(t, q)
}

func boundedWorkers(t *testing.T, f fixture) {
	f.Workers = 2
	q, g := f.queue(t), newGate()
	for i := range byte(6) {
		put(t, f, q, jobRow(i+1))
	}
	run(t, q, g)
	next(t, g.began)
	next(t, g.began)
	until(t, q, jobs.Depth{Waiting: 4, Running: 2})
	for range 4 {
		if len(g.began) != 0 {
			t.Fatal("a third one is worked")
		}
		g.let <- struct{}{}
		next(t, g.began)
	}
	g.let <- struct{}{}
	g.let <- struct{}{}
	settled(t, q)
}

func drains(t *testing.T, f fixture) {
	f.Drain, f.Attempts = 20*time.Millisecond, 1
	q := f.queue(t)
	began, ended := make(chan struct{}), make(chan struct{})
	stop := run(t, q, workerFunc(func(ctx context.Context, _ source.JobPayload) (time.Time, error) {
		close(began)
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		close(ended)
		return time.Time{}, ctx.Err()
	}))
	put(t, f, q, jobRow(1))
	next(t, began)
	stop()
	select {
	case <-ended:
	default:
		t.Fatal("Run returned before its job")
	}
	q, r := f.queue(t), newRecorder()
	run(t, q, r)
	expect(t, r, jobRow(1))
}

func stoppedBeforehand(t *testing.T, f fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.queue(t).Run(ctx, nil, nil); err != nil {
		t.Fatalf("err = %v, want none", err)
	}
}
