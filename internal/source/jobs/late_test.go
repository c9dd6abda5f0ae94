package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

// rescue does what River's rescuer does to a job that it takes for dead.
func rescue(t *testing.T, f fixture) {
	t.Helper()
	if _, err := f.DB.ExecContext(t.Context(), `update river_job set state = 'available' where state = 'running' and kind = 'fencepost_job'`); err != nil {
		t.Fatal(err)
	}
}

// lateWorkerFinishes shows what River does not promise: whoever returns
// finishes the job, also one that was rescued from him and is being worked by
// another.
func lateWorkerFinishes(t *testing.T, f fixture) {
	f.Workers = 1
	stalled, other := newGate(), newGate()
	q1, q2 := f.queue(t), f.queue(t)
	run(t, q1, stalled)
	put(t, f, q1, jobRow(1))
	next(t, stalled.began)
	// Both keep the first one busy: it has one worker.
	rescue(t, f)
	run(t, q2, other)
	next(t, other.began)
	until(t, q2, jobs.Depth{Running: 1})
	stalled.let <- struct{}{}
	// The other one is still at it.
	until(t, q2, jobs.Depth{})
	other.let <- struct{}{}
	put(t, f, q2, jobRow(1))
	select {
	case <-stalled.began:
		stalled.let <- struct{}{}
	case <-other.began:
		other.let <- struct{}{}
	}
	settled(t, q2)
}

// A bench is a source in a real store, with two processes' queues.
type bench struct {
	fixture
	store  *sourcedb.Store
	policy source.Policy
	first  *jobs.Queue
	second *jobs.Queue
}

func newBench(t *testing.T, o store.Options, d jobs.Dialect, timings fencepost.Timings, poll time.Duration) bench {
	t.Helper()
	db, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	b := bench{fixture: fixture{jobs.Config{
		DB: db.Writer(), Dialect: d, Now: clock.System().Now, Log: slog.New(slog.DiscardHandler), Workers: 1, Poll: poll, Timeout: time.Minute,
	}}}
	b.migrate(t)
	b.first, b.second = b.queue(t), b.queue(t)
	b.store = sourcedb.New(db, b.first, sourcedb.Hooks{Job: func(source.JobRow) { b.first.Wake(); b.second.Wake() }})
	b.policy = source.Policy{
		ID: fencepost.SourceID{1}, Key: "handbook", Revision: fencepost.SourceRevision{2}, Lineage: source.Digest{3},
		Enabled: true, Timings: timings,
	}
	return b
}

// begin begins an attempt, if it may.
func (b bench) begin(ctx context.Context, p source.JobPayload) (is source.Beginning, err error) {
	begin := source.Begin{Run: p.Run, Owner: source.Owner{1}}
	if _, err := rand.Read(begin.Token[:]); err != nil {
		return nil, err
	}
	err = b.store.Change(ctx, p.Source, source.Lookup{Run: p.Run}, func(s source.Snapshot) (c source.Change, err error) {
		c, is = source.OnBegin(s, b.policy, begin)
		return c, nil
	})
	return is, err
}

// end ends an attempt complete, with a head of that number.
func (b bench) end(ctx context.Context, h source.Hold, head byte) error {
	e := source.Ending{Status: source.Complete}
	e.Head.ObjectID[0], e.Tree.ObjectID[0] = head, head
	if _, err := rand.Read(e.NewRun[:]); err != nil {
		return err
	}
	return b.store.Change(ctx, h.Source, source.Lookup{}, func(s source.Snapshot) (source.Change, error) {
		return source.OnEnd(s, b.policy, h, e)
	})
}

// rows are the source's, and those of one run.
func (b bench) rows(t *testing.T, run fencepost.RunID) (s source.Snapshot) {
	t.Helper()
	if err := b.store.Change(t.Context(), b.policy.ID, source.Lookup{Run: run}, func(now source.Snapshot) (source.Change, error) {
		s = now
		return source.Change{}, nil
	}); err != nil {
		t.Fatal(err)
	}
	s.Now = time.Time{}
	return s
}

// lateWorkerIsStopped brings back a worker whose run was ended, whose lock was
// given to another one, and whose job was rescued and finished: pass sees to
// the last.
func (b bench) lateWorkerIsStopped(t *testing.T, pass func()) {
	began, release := make(chan source.Hold, 1), make(chan struct{})
	late, ended := make(chan [3]error, 1), make(chan fencepost.RunID, 10)
	var first sync.Once
	worker := workerFunc(func(ctx context.Context, p source.JobPayload) (time.Time, error) {
		is, err := b.begin(ctx, p)
		switch is := is.(type) {
		case source.NotNow:
			return is.Until, err
		case source.Began:
			stalled := false
			first.Do(func() { stalled = true })
			if !stalled {
				if err = b.end(ctx, is.Hold, 2); err == nil {
					ended <- p.Run
				}
				break
			}
			began <- is.Hold
			<-release // deaf to its context: as a process that was stopped
			ctx = context.WithoutCancel(ctx)
			_, renewed := b.store.Renew(ctx, is.Hold, time.Minute)
			late <- [3]error{b.store.Holds(ctx, is.Hold), renewed, b.end(ctx, is.Hold, 1)}
		}
		return time.Time{}, err
	})
	run(t, b.first, worker)
	if err := (&source.Intake{Store: b.store, Random: rand.Reader}).Register(t.Context(), []source.Policy{b.policy}); err != nil {
		t.Fatal(err)
	}
	lost, since := next(t, began), time.Now()
	run(t, b.second, worker)
	b.watch(t)
	if id := next(t, ended); id == lost.Run {
		t.Fatal("the run was attempted again after its worker was lost")
	}
	t.Logf("complete %v after the worker was lost", time.Since(since))
	pass()
	settled(t, b.second)
	before := b.rows(t, lost.Run)
	close(release)
	for i, err := range next(t, late) {
		if !errors.Is(err, source.ErrLost) {
			t.Errorf("%s of the late worker: err = %v, want ErrLost", []string{"Holds", "Renew", "Change"}[i], err)
		}
	}
	after := b.rows(t, lost.Run)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the late worker changed (-before +after):\n%s", diff)
	}
	if after.Run.Status != source.Failed || after.Source.Applied.ObjectID[0] != 2 {
		t.Errorf("the lost run is %v, and head %d is applied; want failed, and 2", after.Run.Status, after.Source.Applied.ObjectID[0])
	}
}

// watch runs a watchdog until the test ends.
func (b bench) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	dog := &source.Watchdog{
		Store: b.store, Random: rand.Reader, Every: b.policy.Timings.Evaluate,
		Sources: map[fencepost.SourceID]*source.Source{b.policy.ID: {Policy: b.policy}},
		OnError: func(err error) {
			if ctx.Err() == nil {
				t.Error(err)
			}
		},
	}
	done := make(chan error, 1)
	go func() { done <- dog.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestALateWorkerIsStopped: with timings scaled down, and River's rescue made
// by hand.
func TestALateWorkerIsStopped(t *testing.T) {
	t.Parallel()
	timings := fencepost.DefaultTimings
	// Long enough for whoever is not lost, on a busy machine.
	timings.Lease, timings.Evaluate, timings.QueueAge = 4*time.Second, 100*time.Millisecond, 30*time.Second
	for name, o := range map[string]func(t *testing.T) (store.Options, jobs.Dialect){
		"sqlite": func(t *testing.T) (store.Options, jobs.Dialect) {
			return store.Options{Path: filepath.Join(t.TempDir(), "late.db"), Now: clock.System().Now}, jobs.SQLite
		},
		"postgres": func(t *testing.T) (store.Options, jobs.Dialect) {
			return store.Options{URL: postgres.Database(t)}, jobs.PostgreSQL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, dialect := o(t)
			b := newBench(t, options, dialect, timings, 0)
			b.lateWorkerIsStopped(t, func() { rescue(t, b.fixture) })
		})
	}
}

// TestALateWorkerIsStoppedAfterARealRescue: with the timings of DESIGN §9,
// and River's own rescue.
func TestALateWorkerIsStoppedAfterARealRescue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{Path: filepath.Join(t.TempDir(), "late.db"), Now: clock.System().Now}
		b := newBench(t, o, jobs.SQLite, fencepost.DefaultTimings, time.Second)
		// A minute and 10 s, one round of the rescuer, the pause before the
		// second attempt, one round of River's scheduler.
		b.lateWorkerIsStopped(t, func() { time.Sleep(2 * time.Minute) })
	})
}
