package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// ErrChanged: handler and key stand for another payload already. Nothing was
// put in; the caller must roll back.
var ErrChanged = errors.New("the job has another payload")

// A Queue holds jobs. It is safe for concurrent use; Run runs once.
type Queue struct {
	config Config
	driver riverdriver.Driver[*sql.Tx]
	insert *river.Client[*sql.Tx]
	wake   chan struct{}
}

// New returns a queue over tables that [Migrate] made. It opens and starts
// nothing. Its error matches [ErrConfig].
func New(c Config) (*Queue, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	q := &Queue{config: c, wake: make(chan struct{}, 1)}
	q.driver = driverOf(c, q.wake)
	// This client works nothing: it puts in, also before and after Run.
	if q.insert, err = river.NewClient[*sql.Tx](q.driver, q.common()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return q, nil
}

// common is what both clients are made of.
func (q *Queue) common() *river.Config {
	return &river.Config{
		// The limit of River's notices too: within it a second job of this
		// process gives no notice of its own.
		FetchCooldown:       river.FetchCooldownMin,
		FetchPollInterval:   q.config.Poll,
		Hooks:               []rivertype.Hook{river.HookInsertBeginFunc(dueByItself)},
		Logger:              quiet(q.config.Log),
		SkipUnknownJobCheck: true,
		Test:                river.TestConfig{Time: timeSource{q.config.Now, q.config.Dialect == PostgreSQL}},
	}
}

// dueByItself makes a job that is due later available from the start, as River
// does for short pauses: whoever fetches compares its time. Otherwise it would
// wait for a round, every 5 s, of a leader that may be dead.
func dueByItself(_ context.Context, p *rivertype.JobInsertParams) error {
	if p.State == rivertype.JobStateScheduled {
		p.State = rivertype.JobStateAvailable
	}
	return nil
}

// maxTurns bounds how many jobs of one name may be unfinished, all but the
// last of them with workers that died, were too slow or failed. With more, a
// further one waits until one of them is rescued.
const maxTurns = 8

// Enqueue puts j in, in tx, to be worked not before j.NotBefore, which is by
// the store's clock and may be zero. It puts in nothing if j is waiting
// already to be worked by then. The caller calls [Queue.Wake] after the
// commit. Its error matches [ErrChanged], [fencepost.ErrMalformed] or
// [fencepost.ErrZeroValue], or has the reason
// [fencepost.ReasonUnavailable]; whatever it is, tx must be rolled back.
func (q *Queue) Enqueue(ctx context.Context, tx *sql.Tx, j source.JobRow) error {
	args, err := argsOf(j)
	if err != nil {
		return err
	}
	for args.Turn = range maxTurns {
		settled, err := q.take(ctx, tx, j, args)
		if settled || err != nil {
			return err
		}
	}
	return nil
}

// take puts j in as the turn of args. It reports whether j will be worked in
// time, by this row or by the one that has the turn.
func (q *Queue) take(ctx context.Context, tx *sql.Tx, j source.JobRow, args jobArgs) (settled bool, err error) {
	opts := &river.InsertOpts{
		MaxAttempts: q.config.Attempts,
		Queue:       jobQueue,
		UniqueOpts:  river.UniqueOpts{ByArgs: true, ByState: unfinished()},
	}
	if q.config.Dialect == PostgreSQL || j.NotBefore.After(q.config.Now()) {
		opts.ScheduledAt = j.NotBefore
	}
	res, err := q.insert.InsertTx(ctx, tx, args, opts)
	if err != nil {
		return false, unavailable("jobs.enqueue", err)
	}
	if !res.UniqueSkippedAsDuplicate {
		return true, nil
	}
	var known jobArgs
	if err := decode(res.Job.EncodedArgs, &known); err != nil {
		return false, fmt.Errorf("job of handler %q: stored payload: %w", j.Handler, err)
	}
	if known != args {
		return false, fmt.Errorf("job of handler %q: %w", j.Handler, ErrChanged)
	}
	// Now is read after the row: the insert may have waited for it.
	wanted := q.config.Now()
	if j.NotBefore.After(wanted) {
		wanted = j.NotBefore
	}
	// Rows keep milliseconds on SQLite.
	inTime := !res.Job.ScheduledAt.After(wanted.Add(time.Millisecond))
	return inTime && res.Job.State == rivertype.JobStateAvailable, nil
}

// unfinished are the states in which a job has its turn.
func unfinished() []rivertype.JobState {
	return []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}
}

// Wake makes this process look for jobs at once. It is called after a commit
// with jobs; it never blocks, and calling it too often does no harm. On
// PostgreSQL the commit itself gives notice, to all processes.
func (q *Queue) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
		// One is pending that nobody has seen yet.
	}
}

// A Depth is what is in a queue at a moment.
type Depth struct {
	// Waiting counts jobs that are due or will be, Running those that are
	// being worked, or whose worker died.
	Waiting, Running int
	// Oldest is for how long the first of those that are due has been so.
	Oldest time.Duration
}

// Depth counts the jobs of all processes. Its error has the reason
// [fencepost.ReasonUnavailable].
func (q *Queue) Depth(ctx context.Context) (Depth, error) {
	counts, err := q.driver.GetExecutor().JobCountByQueueAndState(ctx,
		&riverdriver.JobCountByQueueAndStateParams{QueueNames: []string{jobQueue}})
	if err != nil {
		return Depth{}, unavailable("jobs.depth", err)
	}
	var d Depth
	for _, c := range counts {
		d.Waiting, d.Running = d.Waiting+int(c.CountAvailable), d.Running+int(c.CountRunning)
	}
	first, err := q.insert.JobList(ctx, river.NewJobListParams().Queues(jobQueue).States(rivertype.JobStateAvailable).
		OrderBy(river.JobListOrderByScheduledAt, river.SortOrderAsc).First(1))
	if err != nil {
		return Depth{}, unavailable("jobs.depth", err)
	}
	for _, job := range first.Jobs {
		d.Oldest = max(0, q.config.Now().Sub(job.ScheduledAt))
	}
	return d, nil
}

func unavailable(op string, err error) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonUnavailable, Err: err}
}
