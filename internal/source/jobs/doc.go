// Package jobs carries the jobs of sources on River, in the database of the
// store: SQLite for one process, PostgreSQL for several (DESIGN §9, §12).
//
// # What it promises
//
// [Queue.Enqueue] inserts in the caller's transaction: the job is there if,
// and only if, what asked for it is. A committed job is worked at least once,
// by one of the processes that [Queue.Run], not before its time, within Poll
// of it, and within milliseconds in the process that calls [Queue.Wake] after
// the commit. A wake-up that is lost costs Poll; one too many costs nothing.
//
// # What it does not promise
//
// A job is no permission. River finishes a job by its state alone: a worker
// that stalled, was taken for dead and comes back late finishes what another
// one took over. So two workers may carry out the same job at the same time,
// and each change that a job makes must compare the store's own fences
// ([source.Hold]) in the statement that makes it.
//
// # Handler, key, turn
//
// A job is named by handler and key, which stand for one immutable payload of
// scalars. River's uniqueness counts running jobs in, and one may be running
// in a process that is dead, or be just about to end without having seen what
// the new one was put in for; either would swallow a wake-up. So each row of
// River's has a turn, too: Enqueue takes the first turn that no unfinished job
// has, unless one is waiting already that will be worked in time.
// So of one job at most one is waiting for each time that was asked for.
//
// # Periodic work
//
// River elects a leader, which puts in one job for each window of a periodic
// task; the window is part of the job's name, so that one that hangs, or died
// with its process, never stands in the way of the next, and two leaders put
// in one. On PostgreSQL a leader that was killed is followed after its term,
// 15 s, and one round of the others' bids, 5 to 6 s. On SQLite the one
// process takes the term over when it starts.
//
// # Clocks
//
// Whether a job is due is judged by the clock of the database server, on
// SQLite by the process's, which never goes back. Timers of River's periodic
// work follow the process's clock: with one that steps back an hour they would
// stand still for an hour, so it gets one that doesn't either. It judges which
// jobs are stuck by the machine's wall clock, which may step: then a live
// job is worked twice, or a dead one is rescued late, and the watchdog, which
// needs neither queue nor leader, ends its run.
package jobs
