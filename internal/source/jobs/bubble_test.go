package jobs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
)

// inBubble runs a story of hours on a clock that nobody waits for. SQLite and
// River keep to it: times in rows come from Config.Now.
func inBubble(t *testing.T, story func(t *testing.T, f fixture)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sqliteFixture(t)
		f.Poll = time.Second // each look takes time of the test's
		story(t, f)
	})
}

func TestFailuresPauseTenThenTwentySeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, f fixture) {
		q := f.queue(t)
		var at []time.Time
		stop := run(t, q, workerFunc(func(context.Context, source.JobPayload) (time.Time, error) {
			at = append(at, time.Now())
			return time.Time{}, errors.New("no answer")
		}))
		put(t, f, q, jobRow(1))
		time.Sleep(time.Minute)
		stop()
		if len(at) != 3 {
			t.Fatalf("worked %d times, want 3", len(at))
		}
		// River's leader looks every 5 s for what has paused for longer.
		const late = 5*time.Second + 1200*time.Millisecond
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if got := at[i+1].Sub(at[i]); got < want || got > want+late {
				t.Errorf("pause %d was %v, want %v to %v", i+1, got, want, want+late)
			}
		}
	})
}

func TestAJobThatIsDueLaterNeedsNoLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, f fixture) {
		q, r := f.queue(t), newRecorder()
		stop := run(t, q, r)
		time.Sleep(time.Second)
		usurp(t, f)
		time.Sleep(10 * time.Second) // the leader has noticed
		j := jobRow(1)
		j.NotBefore = time.Now().Add(20 * time.Second)
		put(t, f, q, j)
		begun := time.Now()
		<-r.worked
		if took := time.Since(begun); took < 20*time.Second || took > 20*time.Second+1200*time.Millisecond {
			t.Errorf("worked after %v, want 20s and at most one poll", took)
		}
		stop()
	})
}

// lead writes down a leader.
func lead(t *testing.T, f fixture, id string, term time.Duration) {
	t.Helper()
	statement := `insert into river_leader (elected_at, expires_at, leader_id) values (?, ?, ?)`
	args := []any{stamp(f.Now()), stamp(f.Now().Add(term)), id}
	if f.Dialect == jobs.PostgreSQL {
		statement = `insert into river_leader (elected_at, expires_at, leader_id) values (now(), now() + make_interval(secs => $1), $2)`
		args = []any{term.Seconds(), id}
	}
	if _, err := f.DB.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// stamp is how River writes times in SQLite.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

// usurp makes somebody the leader who is dead, for the rest of the story.
func usurp(t *testing.T, f fixture) {
	t.Helper()
	if _, err := f.DB.ExecContext(t.Context(), `delete from river_leader`); err != nil {
		t.Fatal(err)
	}
	lead(t, f, "dead", 24*time.Hour)
}

func TestPeriodicWorkGoesOn(t *testing.T) {
	const every = 5 * time.Second
	for name, c := range map[string]struct {
		// before and during prepare the database, and disturb what runs.
		before func(*testing.T, fixture)
		during func(*testing.T, fixture)
		// hang: the first round never ends by itself, nor by its context.
		hang bool
		// fail: each round does.
		fail bool
	}{
		"undisturbed":                            {},
		"when its rounds fail":                   {fail: true},
		"beside a round that hangs for ever":     {hang: true},
		"after a leader that died with its term": {before: func(t *testing.T, f fixture) { lead(t, f, "dead", time.Hour) }},
		"beside a round that died with its process": {during: func(t *testing.T, f fixture) {
			if _, err := f.DB.ExecContext(t.Context(), `insert into river_job (args, attempt, attempted_at, kind, max_attempts, queue, state)
				select args, 1, ?, kind, 1, queue, 'running' from river_job where kind = 'fencepost_tick' limit 1`, stamp(f.Now())); err != nil {
				t.Error(err)
			}
		}},
		"after its leader lost its term": {during: func(t *testing.T, f fixture) {
			if _, err := f.DB.ExecContext(t.Context(), `delete from river_leader`); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f fixture) {
				if c.before != nil {
					c.before(t, f)
				}
				f.Timeout = time.Minute
				q := f.queue(t)
				var rounds atomic.Int32
				release := make(chan struct{})
				stop := run(t, q, newRecorder(), jobs.Periodic{Name: "reconcile", Every: every, Timeout: 30 * time.Second, Run: func(context.Context) error {
					if rounds.Add(1) == 1 && c.hang {
						<-release
					}
					if c.fail {
						return errors.New("no luck")
					}
					return nil
				}})
				time.Sleep(30 * time.Second)
				if c.during != nil {
					c.during(t, f)
				}
				time.Sleep(30 * time.Second)
				// One at the start, and one for each window; where a term was lost,
				// up to three less.
				if got := int(rounds.Load()); got < 9 || got > 14 {
					t.Errorf("%d rounds in a minute, want about 13", got)
				}
				close(release)
				stop()
			})
		})
	}
}

// TestPeriodicWorkGoesOnWhenTheClockSteps: River counts the time to the next
// round by the process's clock, and would wait out a step back.
func TestPeriodicWorkGoesOnWhenTheClockSteps(t *testing.T) {
	for name, step := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f fixture) {
				var offset atomic.Int64
				// Without the monotonic reading, as if it were another machine's.
				f.Now = clock.NewWall(func() time.Time {
					return time.Now().Add(time.Duration(offset.Load()))
				}, time.Time{}).Now
				q, r := f.queue(t), newRecorder()
				var rounds atomic.Int32
				stop := run(t, q, r, jobs.Periodic{Name: "reconcile", Every: 5 * time.Second, Timeout: 30 * time.Second, Run: func(context.Context) error {
					rounds.Add(1)
					return nil
				}})
				time.Sleep(20 * time.Second)
				offset.Store(int64(step))
				before := rounds.Load()
				put(t, f, q, jobRow(1))
				begun := time.Now()
				<-r.worked
				if took := time.Since(begun); took > 1200*time.Millisecond {
					t.Errorf("a job waited for %v", took)
				}
				time.Sleep(40 * time.Second)
				// A clock that catches up goes at half speed.
				if got := rounds.Load() - before; got < 3 || got > 10 {
					t.Errorf("%d rounds in 40 seconds after the step, want 4 to 9", got)
				}
				stop()
			})
		})
	}
}

func TestAJobWhoseProcessDiedIsRescued(t *testing.T) {
	inBubble(t, func(t *testing.T, f fixture) {
		f.Timeout = 40 * time.Second
		q, r := f.queue(t), newRecorder()
		put(t, f, q, jobRow(1))
		if _, err := f.DB.ExecContext(t.Context(), `update river_job set state = 'running', attempt = 1, attempted_at = ?`, stamp(f.Now())); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		stop := run(t, q, r)
		<-r.worked
		// The bound, what is added to it, one round of the rescuer, the pause
		// before the second attempt, one round of River's scheduler.
		atMost := f.Timeout + 10*time.Second + 31*time.Second + 10*time.Second + 6*time.Second
		if took := time.Since(begun); took < f.Timeout || took > atMost {
			t.Errorf("rescued after %v, want %v to %v", took, f.Timeout, atMost)
		}
		stop()
	})
}

func TestFinishedJobsAreRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, f fixture) {
		f.Retain = 10 * time.Second
		q, r := f.queue(t), newRecorder()
		stop := run(t, q, r, jobs.Periodic{Name: "reconcile", Every: 10 * time.Second, Timeout: time.Second, Run: func(context.Context) error { return nil }})
		put(t, f, q, jobRow(1))
		<-r.worked
		time.Sleep(90 * time.Second)
		var job, all int
		if err := f.DB.QueryRowContext(t.Context(), `select count(*) filter (where kind = 'fencepost_job'), count(*) from river_job`).Scan(&job, &all); err != nil {
			t.Fatal(err)
		}
		if job != 0 || all > 8 {
			t.Errorf("there are %d jobs and %d rows, want none and those of a minute", job, all)
		}
		stop()
	})
}
