package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
)

// TestQueue runs every case on every database.
func TestQueue(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		run  func(*testing.T, fixture)
	}{
		{"a committed job is worked with its payload", worksCommitted},
		{"a rolled back job leaves nothing", rollbackLeavesNothing},
		{"a transaction around it that is rolled back leaves nothing", outerRollback},
		{"a lost wake-up is made good by polling", lostWakeUp},
		{"a doubled wake-up works once", doubledWakeUp},
		{"a wake-up while its job is worked is not lost", wakeUpWhileWorked},
		{"a wake-up while its job is with a dead worker is not lost", wakeUpOfDead},
		{"many wake-ups beside dead workers are bounded", turnsAreBounded},
		{"a changed payload is refused", changedPayload},
		{"a malformed job is refused", malformedJob},
		{"a job is not worked before its time", notBefore},
		{"a job that is wanted sooner is worked sooner", wantedSooner},
		{"a job that is put off is worked again and not counted", again},
		{"a job that was put in again by its work is not doubled", againTwice},
		{"a failing job is tried a bounded number of times", boundedAttempts},
		{"a panic costs its own job", panics},
		{"a job of nobody's is given up", unknownHandler},
		{"only so many are worked at a time", boundedWorkers},
		{"stopping ends what does not end, waits, and does not count it", drains},
		{"what waits and runs is counted", depth},
		{"what is told to stop before it starts doesn't", stoppedBeforehand},
		{"two processes work each job once", sharesWork},
		{"no error text is stored", storesNoErrorText},
		{"a rescued worker that comes late finishes what another works", lateWorkerFinishes},
	}
	for name, open := range map[string]func(*testing.T) fixture{"sqlite": sqliteFixture, "postgres": postgresFixture} {
		for _, c := range cases {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, open(t))
			})
		}
	}
}

// expect receives a payload for each job, in any order.
func expect(t *testing.T, r recorder, want ...source.JobRow) {
	t.Helper()
	got, wanted := map[source.JobPayload]int{}, map[source.JobPayload]int{}
	for _, j := range want {
		wanted[j.Payload]++
	}
	for range want {
		got[next(t, r.worked)]++
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Fatalf("worked (-want +got):\n%s", diff)
	}
}

// patience is when a test that waits for what never comes gives up; what does
// come takes milliseconds.
const patience = 2 * time.Minute

// next receives from c.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// settled waits until nothing is waiting or running.
func settled(t *testing.T, q *jobs.Queue) {
	t.Helper()
	until(t, q, jobs.Depth{})
}

func until(t *testing.T, q *jobs.Queue, want jobs.Depth) {
	t.Helper()
	for began := time.Now(); ; {
		d, err := q.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Waiting == want.Waiting && d.Running == want.Running {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("there are %+v, want %+v", d, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func worksCommitted(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	run(t, q, r)
	put(t, f, q, jobRow(1))
	put(t, f, q, jobRow(2))
	expect(t, r, jobRow(1), jobRow(2))
	settled(t, q)
}

func rollbackLeavesNothing(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	tx, err := f.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), tx, jobRow(1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	q.Wake()
	until(t, q, jobs.Depth{})
	run(t, q, r)
	put(t, f, q, jobRow(2))
	expect(t, r, jobRow(2))
	// Its name is free: nothing of it is left that would keep it out.
	put(t, f, q, jobRow(1))
	expect(t, r, jobRow(1))
}

func outerRollback(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	for i, script := range [][2]string{{"release savepoint inner_one", "rollback"}, {"rollback to savepoint inner_one", "commit"}} {
		tx, err := f.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "savepoint inner_one"); err != nil {
			t.Fatal(err)
		}
		if err := q.Enqueue(t.Context(), tx, jobRow(byte(i+1))); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), script[0]); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if script[1] == "commit" {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, q, jobs.Depth{})
	run(t, q, r)
	put(t, f, q, jobRow(3))
	expect(t, r, jobRow(3))
}

func lostWakeUp(t *testing.T, f fixture) {
	f.Listen = nil
	q, r := f.queue(t), newRecorder()
	run(t, q, r)
	for i := range byte(3) {
		// No Wake, and nobody listens.
		if err := tryPut(t.Context(), f, q, jobRow(i+1)); err != nil {
			t.Fatal(err)
		}
		expect(t, r, jobRow(i+1))
	}
}

func doubledWakeUp(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	var together sync.WaitGroup
	for range 5 {
		together.Go(func() {
			if err := tryPut(t.Context(), f, q, jobRow(1)); err != nil {
				t.Error(err)
			}
			q.Wake()
			q.Wake()
		})
	}
	together.Wait()
	until(t, q, jobs.Depth{Waiting: 1})
	run(t, q, r)
	expect(t, r, jobRow(1))
	settled(t, q)
	if len(r.worked) != 0 {
		t.Fatalf("worked %d more times", len(r.worked))
	}
}

// A gate is a worker that says when it begins and ends when it is let.
type gate struct{ began, let chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 100), make(chan struct{}, 100)} }

// Work implements [jobs.Worker]. It does not heed its context.
func (g gate) Work(context.Context, source.JobPayload) (time.Time, error) {
	g.began <- struct{}{}
	<-g.let
	return time.Time{}, nil
}

func wakeUpWhileWorked(t *testing.T, f fixture) {
	q, g := f.queue(t), newGate()
	run(t, q, g)
	put(t, f, q, jobRow(1))
	next(t, g.began)
	// What is worked now may have looked already.
	put(t, f, q, jobRow(1), jobRow(1))
	next(t, g.began)
	g.let <- struct{}{}
	g.let <- struct{}{}
	settled(t, q)
	if len(g.began) != 0 {
		t.Fatalf("worked %d more times", len(g.began))
	}
}

// bury makes every job that waits look as if a worker that is dead had it,
// for that long.
func bury(t *testing.T, f fixture, ago time.Duration) {
	t.Helper()
	statement := `update river_job set state = 'running', attempt = attempt + 1, attempted_at = datetime('now', 'subsec', '-` +
		fmt.Sprint(int(ago.Seconds())) + ` seconds') where state = 'available'`
	if f.Dialect == jobs.PostgreSQL {
		statement = fmt.Sprintf(`update river_job set state = 'running', attempt = attempt + 1,
			attempted_at = now() - interval '%d seconds' where state = 'available'`, int(ago.Seconds()))
	}
	if _, err := f.DB.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func wakeUpOfDead(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	put(t, f, q, jobRow(1))
	bury(t, f, 0)
	until(t, q, jobs.Depth{Running: 1})
	run(t, q, r)
	put(t, f, q, jobRow(1))
	expect(t, r, jobRow(1))
	until(t, q, jobs.Depth{Running: 1})
}

func turnsAreBounded(t *testing.T, f fixture) {
	q := f.queue(t)
	for range 20 {
		put(t, f, q, jobRow(1))
		bury(t, f, 0)
	}
	until(t, q, jobs.Depth{Running: 8})
}

func changedPayload(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	put(t, f, q, jobRow(1))
	for name, change := range map[string]func(*source.JobPayload){
		"source":   func(p *source.JobPayload) { p.Source[0]++ },
		"run":      func(p *source.JobPayload) { p.Run[0]++ },
		"revision": func(p *source.JobPayload) { p.Revision[0]++ },
	} {
		j := jobRow(1)
		change(&j.Payload)
		if err := tryPut(t.Context(), f, q, j); !errors.Is(err, jobs.ErrChanged) {
			t.Errorf("another %s: err = %v, want ErrChanged", name, err)
		}
	}
	run(t, q, r)
	expect(t, r, jobRow(1))
	settled(t, q)
}

func malformedJob(t *testing.T, f fixture) {
	q := f.queue(t)
	for name, c := range map[string]struct {
		change func(*source.JobRow)
		want   error
	}{
		"no handler":  {func(j *source.JobRow) { j.Handler = "" }, fencepost.ErrMalformed},
		"no key":      {func(j *source.JobRow) { j.Key = "" }, fencepost.ErrMalformed},
		"no source":   {func(j *source.JobRow) { j.Payload.Source = fencepost.SourceID{} }, fencepost.ErrZeroValue},
		"no run":      {func(j *source.JobRow) { j.Payload.Run = fencepost.RunID{} }, fencepost.ErrZeroValue},
		"no revision": {func(j *source.JobRow) { j.Payload.Revision = fencepost.SourceRevision{} }, fencepost.ErrZeroValue},
	} {
		j := jobRow(1)
		c.change(&j)
		if err := tryPut(t.Context(), f, q, j); !errors.Is(err, c.want) {
			t.Errorf("%s: err = %v, want %v", name, err, c.want)
		}
	}
	until(t, q, jobs.Depth{})
}

func notBefore(t *testing.T, f fixture) {
	q := f.queue(t)
	at := make(chan time.Time, 1)
	run(t, q, workerFunc(func(context.Context, source.JobPayload) (time.Time, error) {
		at <- time.Now()
		return time.Time{}, nil
	}))
	j := jobRow(1)
	j.NotBefore = time.Now().Add(300 * time.Millisecond)
	put(t, f, q, j)
	// Rows keep milliseconds on SQLite.
	if got := next(t, at); got.Before(j.NotBefore.Add(-time.Millisecond)) {
		t.Fatalf("worked %v early", j.NotBefore.Sub(got))
	}
}

func wantedSooner(t *testing.T, f fixture) {
	q, r := f.queue(t), newRecorder()
	j := jobRow(1)
	j.NotBefore = time.Now().Add(time.Hour)
	put(t, f, q, j)
	put(t, f, q, j)
	until(t, q, jobs.Depth{Waiting: 1})
	run(t, q, r)
	put(t, f, q, jobRow(1))
	expect(t, r, jobRow(1))
	until(t, q, jobs.Depth{Waiting: 1})
}

func again(t *testing.T, f fixture) {
	f.Attempts = 1
	q := f.queue(t)
	var n atomic.Int32
	done := make(chan struct{})
	run(t, q, workerFunc(func(context.Context, source.JobPayload) (time.Time, error) {
		if n.Add(1) < 4 {
			return time.Now().Add(10 * time.Millisecond), nil
		}
		close(done)
		return time.Time{}, nil
	}))
	put(t, f, q, jobRow(1))
	next(t, done)
	settled(t, q)
}

// againTwice: what ends an attempt puts the job in again in its transaction,
// and returns the time, too.
func againTwice(t *testing.T, f fixture) {
	q := f.queue(t)
	later := time.Now().Add(time.Hour)
	worked := make(chan struct{}, 1)
	run(t, q, workerFunc(func(ctx context.Context, p source.JobPayload) (time.Time, error) {
		j := jobRow(1)
		j.NotBefore = later
		if err := tryPut(ctx, f, q, j); err != nil {
			t.Error(err)
		}
		worked <- struct{}{}
		return later, nil
	}))
	put(t, f, q, jobRow(1))
	next(t, worked)
	until(t, q, jobs.Depth{Waiting: 1})
}

func sharesWork(t *testing.T, f fixture) {
	const n = 40
	r := newRecorder()
	q1, q2 := f.queue(t), f.queue(t)
	run(t, q1, r)
	run(t, q2, r)
	var all []source.JobRow
	for i := range byte(n) {
		all = append(all, jobRow(i+1))
		put(t, f, q1, jobRow(i+1))
	}
	expect(t, r, all...)
	settled(t, q1)
	if len(r.worked) != 0 {
		t.Fatalf("%d were worked more than once", len(r.worked))
	}
}

func depth(t *testing.T, f fixture) {
	f.Workers = 1
	q, g := f.queue(t), newGate()
	stop := run(t, q, g)
	put(t, f, q, jobRow(1))
	next(t, g.began)
	put(t, f, q, jobRow(2))
	put(t, f, q, jobRow(3))
	until(t, q, jobs.Depth{Waiting: 2, Running: 1})
	time.Sleep(10 * time.Millisecond)
	d, err := q.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Oldest < 10*time.Millisecond {
		t.Fatalf("the oldest waits for %v, want 10ms or more", d.Oldest)
	}
	for range 3 {
		g.let <- struct{}{}
	}
	settled(t, q)
	stop()
}

func storesNoErrorText(t *testing.T, f fixture) {
	const canary = "canary-9d1c"
	f.Attempts = 1
	log := newLogs()
	f.Log = log.logger()
	o := outcomes{make(chan jobs.Outcome, 100)}
	f.Observer = o
	q := f.queue(t)
	run(t, q, workerFunc(func(_ context.Context, p source.JobPayload) (time.Time, error) {
		if p == jobRow(1).Payload {
			panic(canary)
		}
		return time.Time{}, &fencepost.Error{Op: canary, Reason: fencepost.ReasonProvider, Err: errors.New(canary)}
	}))
	for i := range byte(2) {
		put(t, f, q, jobRow(i+1))
		next(t, o.seen)
	}
	settled(t, q)
	var rows, with int
	for pattern, n := range map[string]*int{"%": &rows, "%" + canary + "%": &with} {
		column := "json(errors) || json(args) || json(metadata)"
		if f.Dialect == jobs.PostgreSQL {
			column = "errors::text || args::text || metadata::text"
		}
		statement := "select count(*) from river_job where " + column + " like '" + pattern + "'"
		if err := f.DB.QueryRowContext(t.Context(), statement).Scan(n); err != nil {
			t.Fatal(err)
		}
	}
	if rows != 2 || with != 0 {
		t.Fatalf("%d of %d rows hold the canary, want 0 of 2", with, rows)
	}
	if log.has(canary) || !log.has("provider") {
		t.Fatalf("log:\n%s", log.text())
	}
}
