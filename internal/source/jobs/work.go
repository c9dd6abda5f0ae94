package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/riverqueue/river"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// errPanic: a worker panicked.
var errPanic = errors.New("the worker panicked")

// A failure is all that River gets to see of an error, since it stores and
// logs the text.
type failure struct {
	reason fencepost.Reason
	// stopped is the context's error if the process stops, by which River
	// knows that the attempt is not to be counted.
	stopped error
}

// Error is the reason.
func (f failure) Error() string { return string(f.reason) }

// Unwrap returns the context's error.
func (f failure) Unwrap() error { return f.stopped }

// A jobWorker works jobs with their handlers.
type jobWorker struct {
	river.WorkerDefaults[jobArgs]
	q        *Queue
	handlers map[string]Worker
}

// Work implements [river.Worker].
func (w *jobWorker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	begun := w.q.config.Now()
	again, err := w.once(ctx, job.Args)
	outcome := Done
	var gone *goneError
	switch {
	case errors.As(err, &gone):
		outcome, err = GivenUp, river.JobCancel(failure{reason: fencepost.ReasonMalformed})
	case err != nil:
		outcome, err = w.q.failed(ctx, job.Args.Handler, job.Attempt, job.MaxAttempts, err)
	case !again.IsZero():
		outcome = Later
	}
	w.q.worked(job.Args.Handler, outcome, begun, job.ScheduledAt)
	return err
}

// once calls the handler, and puts the job in again if it is to be worked
// again: what ended an attempt may have done so itself, in its transaction.
func (w *jobWorker) once(ctx context.Context, args jobArgs) (again time.Time, err error) {
	handler := w.handlers[args.Handler]
	payload, err := args.payload()
	if handler == nil || err != nil {
		return time.Time{}, &goneError{args.Handler}
	}
	if err := guarded(w.q.config.Log, args.Handler, func() error {
		again, err = handler.Work(ctx, payload)
		return err
	}); err != nil || again.IsZero() {
		return time.Time{}, err
	}
	// The process may be stopping: this short write is still to be made.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	tx, err := w.q.config.DB.BeginTx(ctx, nil)
	if err != nil {
		return time.Time{}, unavailable("jobs.again", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	row := source.JobRow{Handler: args.Handler, Key: args.Key, Payload: payload, NotBefore: again}
	if err := w.q.Enqueue(ctx, tx, row); err != nil {
		return time.Time{}, err
	}
	if err := tx.Commit(); err != nil {
		return time.Time{}, unavailable("jobs.again", err)
	}
	return again, nil
}

// requeueTimeout bounds the write that puts a job in again.
const requeueTimeout = 5 * time.Second

// A goneError: nobody here can work the job, now or later.
type goneError struct{ handler string }

// Error says whose job it is.
func (e *goneError) Error() string {
	return fmt.Sprintf("no job of handler %q can be worked", e.handler)
}

// A tickWorker carries out rounds of periodic tasks.
type tickWorker struct {
	river.WorkerDefaults[tickArgs]
	q     *Queue
	tasks map[string]Periodic
}

// Timeout implements [river.Worker].
func (w *tickWorker) Timeout(job *river.Job[tickArgs]) time.Duration {
	return w.tasks[job.Args.Task].Timeout
}

// Work implements [river.Worker].
func (w *tickWorker) Work(ctx context.Context, job *river.Job[tickArgs]) error {
	task, ok := w.tasks[job.Args.Task]
	if !ok {
		return river.JobCancel(failure{reason: fencepost.ReasonMalformed})
	}
	begun := w.q.config.Now()
	outcome := Done
	err := guarded(w.q.config.Log, task.Name, func() error { return task.Run(ctx) })
	if err != nil {
		outcome, err = w.q.failed(ctx, task.Name, job.Attempt, job.MaxAttempts, err)
	}
	w.q.worked(task.Name, outcome, begun, job.ScheduledAt)
	return err
}

// guarded calls work. A panic is a bug of ours: it costs its own job, and the
// log says where it was.
func guarded(log *slog.Logger, name string, work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("job panicked", "handler", name, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return work()
}

// failed turns an error into what River gets to see.
func (q *Queue) failed(ctx context.Context, name string, attempt, attempts int, err error) (Outcome, error) {
	f := failure{reason: fencepost.ReasonOf(err)}
	if ctx.Err() != nil {
		f.stopped = ctx.Err()
	}
	outcome := Failed
	if attempt >= attempts {
		outcome = GivenUp
	}
	q.config.Log.Warn("job failed", "handler", name, "reason", string(f.reason), "attempt", attempt, "status", outcome.String())
	return outcome, f
}

func (q *Queue) worked(name string, o Outcome, begun, due time.Time) {
	if q.config.Observer != nil {
		q.config.Observer.Worked(name, o, max(0, begun.Sub(due)), max(0, q.config.Now().Sub(begun)))
	}
}
