package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// A Worker works the jobs of one handler. It is safe for concurrent use, and
// may be called for one job by several processes at a time.
type Worker interface {
	// Work works a job. It returns a time, not zero, by the store's clock, at
	// which the job is to be worked again: that is no failure. An error means
	// that the answer is not known; the job is tried again, a bounded number
	// of times. Work returns soon after ctx ends.
	Work(ctx context.Context, p source.JobPayload) (again time.Time, err error)
}

// A Periodic is a task that one of the processes carries out every so often.
type Periodic struct {
	// Name tells it from others; it is the same in all processes.
	Name string
	// Every is the length of a window, at least 1 s. Times are multiples of it.
	Every time.Duration
	// Timeout is when the context of one round ends; at most the queue's.
	// Rounds that take longer than Every overlap, up to tickWorkers of them.
	Timeout time.Duration
	// Run carries out one round. A round that fails is not tried again: the
	// next one is.
	Run func(ctx context.Context) error
}

// tickWorkers is how many rounds of periodic tasks a process carries out at a
// time. They have a queue of their own, so that jobs can't hold them up.
const tickWorkers = 4

// tickPoll is the longest pause between two looks for rounds that are due.
const tickPoll = time.Second

// maxStuck bounds how many workers that don't end with their context are
// replaced by further ones.
const maxStuck = 64

// Run works jobs until ctx ends: those of the handlers that are named, and,
// when this process is elected, the periodic tasks. Then it takes no new ones,
// lets the running ones go on for Drain, ends their contexts, and returns when
// all of them have returned. Its error matches [ErrConfig] or has the reason
// [fencepost.ReasonUnavailable]; nil means that it was told to stop.
func (q *Queue) Run(ctx context.Context, handlers map[string]Worker, tasks []Periodic) error {
	config, err := q.workConfig(handlers, tasks)
	if err != nil {
		return err
	}
	client, err := river.NewClient[*sql.Tx](q.driver, config)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if q.config.Dialect == SQLite {
		err = q.takeOver(ctx)
	}
	if err == nil {
		err = client.Start(ctx)
	}
	switch {
	case err == nil:
		<-client.Stopped()
	case ctx.Err() == nil:
		return unavailable("jobs.run", err)
	}
	return nil
}

// takeOver ends the term of a leader that was killed: on SQLite no other
// process works, so nobody needs to wait for the term's end.
func (q *Queue) takeOver(ctx context.Context) error {
	exec := q.driver.GetExecutor()
	leader, err := exec.LeaderGetElectedLeader(ctx, &riverdriver.LeaderGetElectedLeaderParams{})
	if errors.Is(err, rivertype.ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = exec.LeaderResign(ctx, &riverdriver.LeaderResignParams{
			ElectedAt: leader.ElectedAt, LeaderID: leader.LeaderID, LeadershipTopic: "river_leadership",
		})
	}
	return err
}

// workConfig is that of the client that works.
func (q *Queue) workConfig(handlers map[string]Worker, tasks []Periodic) (*river.Config, error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &jobWorker{q: q, handlers: handlers}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	byName := make(map[string]Periodic, len(tasks))
	config := q.common()
	for _, t := range tasks {
		if _, twice := byName[t.Name]; twice || t.Name == "" || t.Every < time.Second || t.Run == nil ||
			t.Timeout <= 0 || t.Timeout > q.config.Timeout {
			return nil, fmt.Errorf("%w: periodic task %q", ErrConfig, t.Name)
		}
		byName[t.Name] = t
		config.PeriodicJobs = append(config.PeriodicJobs, q.periodic(t))
	}
	if err := river.AddWorkerSafely(workers, &tickWorker{q: q, tasks: byName}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	config.Workers = workers
	config.Queues = map[string]river.QueueConfig{
		jobQueue:  {MaxWorkers: q.config.Workers},
		tickQueue: {MaxWorkers: tickWorkers, FetchPollInterval: max(q.config.Poll, tickPoll)},
	}
	config.MaxAttempts = q.config.Attempts
	config.JobTimeout = q.config.Timeout
	config.JobStuckThreshold = q.config.Rescue / 2
	config.RescueStuckJobsAfter = q.config.Timeout + q.config.Rescue
	config.RetryPolicy = backoff{q.config}
	config.SoftStopTimeout = q.config.Drain
	config.CompletedJobRetentionPeriod = q.config.Retain
	config.CancelledJobRetentionPeriod = 24 * time.Hour
	config.DiscardedJobRetentionPeriod = 24 * time.Hour
	config.JobStuckHandler = func(_ context.Context, p river.JobStuckHandlerParams) river.JobStuckHandlerResult {
		return river.JobStuckHandlerResult{AddWorkerSlot: p.TotalStuckJobs <= maxStuck}
	}
	return config, nil
}

// periodic is River's part of a task. Its jobs are named by their window, so
// that no earlier one, whatever became of it, keeps a later one out.
func (q *Queue) periodic(t Periodic) *river.PeriodicJob {
	return river.NewPeriodicJob(aligned(t.Every), func() (river.JobArgs, *river.InsertOpts) {
		// River may be a little early.
		at := q.config.Now().Add(200 * time.Millisecond)
		return tickArgs{Task: t.Name, Window: at.UnixNano() / int64(t.Every)}, &river.InsertOpts{
			MaxAttempts: 1,
			Queue:       tickQueue,
			UniqueOpts:  river.UniqueOpts{ByArgs: true, ByState: rivertype.JobStates()},
		}
	}, &river.PeriodicJobOpts{ID: t.Name, RunOnStart: true})
}

// aligned is a schedule of multiples of itself: the starts of windows.
type aligned time.Duration

// Next implements [river.PeriodicSchedule].
func (a aligned) Next(now time.Time) time.Time {
	n := now.UnixNano()
	return time.Unix(0, n-n%int64(a)+int64(a)).UTC()
}

// backoff is the pause after a job failed, or was rescued.
type backoff struct{ config Config }

// NextRetry implements [river.ClientRetryPolicy].
func (b backoff) NextRetry(job *rivertype.JobRow) time.Time {
	t := fencepost.Timings{Backoff: b.config.Backoff}
	return b.config.Now().Add(t.BackoffBefore(job.Attempt + 1))
}

func decode(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", fencepost.ErrMalformed, err)
	}
	return nil
}
