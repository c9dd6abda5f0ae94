package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// A Runner runs programs. [Open] makes it, Close ends it. It is safe for
// concurrent use; each run is independent.
type Runner struct {
	cfg       Config
	backend   backend
	workspace *workspace
	swept     Swept

	mu     sync.Mutex
	runs   int  // guarded by mu
	closed bool // guarded by mu
}

// Swept is what [Open] found of processes that ended without cleaning up.
type Swept struct {
	// Runs is how many directories of runs were removed, Killed how many
	// processes of them were still alive and are gone now.
	Runs, Killed int
	// Err is why something could not be removed; whoever gets it raises the
	// alert cleanup_failed. Processes that could not be killed are not here
	// but fail Open.
	Err error
}

// Open sweeps what killed processes left in the scratch directory, finds out
// what the system offers, and returns a runner. Its error matches [ErrConfig],
// [ErrSandbox] (a [SandboxError] with the list, in mode [Required]),
// [ErrUnsupported], or [ErrLeftover] when a process of an earlier run can't be
// proven gone.
func Open(ctx context.Context, cfg Config) (*Runner, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("open runner: %w", err)
	}
	ws, swept, err := openWorkspace(ctx, cfg.Scratch, cfg.SystemDirs)
	if err != nil {
		return nil, fmt.Errorf("open runner: %w", err)
	}
	b, err := openBackend(ctx, cfg, ws)
	if err != nil {
		return nil, fmt.Errorf("open runner: %w", errors.Join(err, ws.close()))
	}
	return &Runner{cfg: cfg, backend: b, workspace: ws, swept: swept}, nil
}

// Swept is what Open found of earlier processes.
func (r *Runner) Swept() Swept { return r.swept }

// Close removes the process's scratch directory. Its error matches [ErrBusy]
// while a run lasts. A closed runner fails every run.
func (r *Runner) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.runs > 0 {
		return fmt.Errorf("close runner with %d runs: %w", r.runs, ErrBusy)
	}
	r.closed = true
	return errors.Join(r.backend.close(), r.workspace.close())
}

func (r *Runner) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.runs++
	return nil
}

func (r *Runner) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs--
}

// Run runs one job to its end and returns what it ended as. When it returns,
// no process of the run is alive, unless the outcome is unavailable with an
// error that matches [ErrDrain].
//
// A context that ends stops the run: the outcome is then unavailable with the
// context's cause, or lost where that cause matches [ErrLost].
func (r *Runner) Run(ctx context.Context, job Job) Record {
	if err := r.enter(); err != nil {
		return Record{Outcome: failed(fencepost.ReasonUnavailable, err)}
	}
	defer r.leave()
	if err := job.validate(r.cfg.Limits); err != nil {
		return Record{Outcome: failed(fencepost.ReasonUnavailable, err)}
	}
	if ctx.Err() != nil {
		return Record{Outcome: stopped(ctx, context.Cause(ctx))}
	}
	beat, err := beginHeartbeat(ctx, job.Lease, r.cfg.Now)
	if err != nil {
		return Record{Outcome: failed(fencepost.ReasonLost, err)}
	}
	record := r.underLease(beat.ctx, &job)
	// Lost comes before all else: not even a timeout may be staged then.
	if err := beat.end(); err != nil {
		record.Outcome = failed(fencepost.ReasonLost, err)
	}
	return record
}

// underLease is a run within the context that the lease's loss ends.
func (r *Runner) underLease(ctx context.Context, job *Job) (record Record) {
	s, err := r.backend.begin(job.Limits)
	if err != nil {
		return Record{Outcome: failed(fencepost.ReasonUnavailable, err)}
	}
	defer func() { record.Cleanup = errors.Join(record.Cleanup, s.release()) }()
	how := r.supervise(ctx, s, job, &record)
	// From here on nothing is trusted before the tree is gone.
	drained := s.drain()
	if !record.Started.IsZero() {
		record.Duration = r.cfg.Now().Sub(record.Started)
	}
	record.Exit = how.exit
	record.MemoryKills = s.memoryKills()
	switch {
	case how.err != nil:
		record.Outcome = stopped(ctx, errors.Join(how.err, drained))
	case drained != nil:
		record.Outcome = failed(fencepost.ReasonUnavailable, drained)
	default:
		record.Outcome = examine(s, job, record.Request, *how.exit)
	}
	return record
}

// supervise proves everything again, lets the program go and waits for how it
// ends.
func (r *Runner) supervise(ctx context.Context, s session, job *Job, record *Record) ending {
	if err := r.prove(ctx, s, job, record); err != nil {
		return ending{err: err}
	}
	record.Protections = s.protections()
	if ctx.Err() != nil {
		return ending{err: context.Cause(ctx)}
	}
	record.Started = r.cfg.Now().UTC()
	return await(ctx, s, job.Limits.Wall)
}

// prove reads every byte of both checkouts again, while the program is copied
// and its surroundings are built. The request is derived when the checkouts
// are proven, and the program can't be let go before. That a checkout is not
// what it should be goes before what may only follow from it.
func (r *Runner) prove(ctx context.Context, s session, job *Job, record *Record) error {
	var proof error
	proven := make(chan struct{})
	go func() {
		defer close(proven)
		proof = job.verify(ctx)
	}()
	err := s.load(ctx, job)
	if err == nil {
		err = s.prepare(ctx, job, func() ([]byte, error) {
			if <-proven; proof != nil {
				return nil, proof
			}
			request, err := job.request(r.backend.roots(), r.cfg.Now())
			record.Request = request
			return request, err
		})
	}
	if <-proven; proof != nil {
		return proof
	}
	return err
}

// await lets the program go and waits for its end, the wall limit or the
// context, whichever is first.
func await(ctx context.Context, s session, wall time.Duration) ending {
	timer := time.NewTimer(wall)
	defer timer.Stop()
	if err := s.launch(); err != nil {
		return ending{err: err}
	}
	select {
	case how := <-s.ended():
		return how
	case <-timer.C:
		return ending{err: ErrWall}
	case <-ctx.Done():
		return ending{err: context.Cause(ctx)}
	}
}

func examine(s session, job *Job, request []byte, exit ProgramExit) Outcome {
	if err := s.unaltered(); err != nil {
		return failed(fencepost.ReasonRuntimeTampered, err)
	}
	return judge(s.outputs(), job.Run, request, exit)
}

// stopped is the outcome of a run that an error ended.
func stopped(ctx context.Context, err error) Failed {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	switch {
	case errors.Is(err, ErrLost):
		return failed(fencepost.ReasonLost, err)
	case errors.Is(err, ErrProgram):
		return failed(fencepost.ReasonProgramDigest, err)
	case errors.Is(err, ErrWall) && !errors.Is(err, ErrDrain):
		return failed(fencepost.ReasonTimeout, err)
	default:
		return failed(fencepost.ReasonUnavailable, err)
	}
}
