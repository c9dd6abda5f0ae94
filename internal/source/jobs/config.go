package jobs

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Dialect is a kind of database.
type Dialect uint8

// The dialects.
const (
	// SQLite is for one process: whatever holds the data directory sees to it.
	SQLite Dialect = iota + 1
	// PostgreSQL is for any number of processes.
	PostgreSQL
)

// Config says how a [Queue] works. The zero value of an optional field is its
// default.
type Config struct {
	// DB is the store's, with the pgx driver of database/sql on PostgreSQL.
	// On SQLite its transactions must be immediate. Required; the caller
	// closes it after Run has returned.
	DB *sql.DB
	// Dialect is DB's kind. Required.
	Dialect Dialect
	// Listen is where a connection is taken from that hears of other
	// processes' jobs at once; one connection stays taken while Run runs. Nil,
	// as on SQLite: by polling alone.
	Listen *pgxpool.Pool
	// Now is the process's clock, which must never go back. Required.
	Now func() time.Time
	// Log takes what River has to say, without the text of foreign errors.
	// Required.
	Log *slog.Logger
	// Observer, where set, hears of each job that was worked.
	Observer Observer

	// Workers is how many jobs this process works at a time, 1 to 1000;
	// default 16.
	Workers int
	// Poll is the longest pause between two looks for jobs that are due, at
	// least 10 ms; default 250 ms.
	Poll time.Duration
	// Timeout is when the context of a job ends. It must be longer than what a
	// job bounds itself, as it is for one that hangs. Default 5 min.
	Timeout time.Duration
	// Rescue is how long after Timeout a job is taken for dead and is worked
	// again, at most once every 30 s; default 10 s. A job in whose place a new
	// one was put in is not waited for.
	Rescue time.Duration
	// Drain is how long jobs may go on when Run is told to stop, before their
	// contexts end too; default 20 s.
	Drain time.Duration
	// Attempts is how often a job is worked that fails without an answer;
	// Backoff the pause after the first time, doubled after each further one,
	// plus up to 5 s if it is above 5 s. Defaults: those of
	// [fencepost.DefaultTimings].
	Attempts int
	Backoff  time.Duration
	// Retain is how long finished jobs are kept to be looked at; default
	// 15 min, or 24 h for those that were given up.
	Retain time.Duration
}

// ErrConfig: a [Config] or [Periodic] has a field out of its range.
var ErrConfig = errors.New("job queue configuration")

// withDefaults returns c with every field set, or an error that matches
// [ErrConfig].
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Workers, 16)
	setDefault(&c.Poll, 250*time.Millisecond)
	setDefault(&c.Timeout, 5*time.Minute)
	setDefault(&c.Rescue, 10*time.Second)
	setDefault(&c.Drain, 20*time.Second)
	setDefault(&c.Attempts, fencepost.DefaultTimings.Attempts)
	setDefault(&c.Backoff, fencepost.DefaultTimings.Backoff)
	setDefault(&c.Retain, 15*time.Minute)
	var fault string
	switch {
	case c.DB == nil || c.Now == nil || c.Log == nil:
		fault = "DB, Now and Log are required"
	case c.Dialect != SQLite && c.Dialect != PostgreSQL:
		fault = "unknown dialect"
	case c.Listen != nil && c.Dialect != PostgreSQL:
		fault = "Listen is for PostgreSQL"
	case c.Workers < 1 || c.Workers > 1000:
		fault = "Workers must be 1 to 1000"
	case c.Poll < 10*time.Millisecond || c.Poll > time.Minute:
		fault = "Poll must be 10ms to 1m"
	case c.Timeout < 0 || c.Rescue < 0 || c.Drain < 0 || c.Backoff < 0 || c.Retain < 0:
		fault = "a duration is negative"
	case c.Attempts < 1 || c.Attempts > 100:
		fault = "Attempts must be 1 to 100"
	default:
		return c, nil
	}
	return Config{}, fmt.Errorf("%w: %s", ErrConfig, fault)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// An Observer hears of jobs, to count them. It must not block.
type Observer interface {
	// Worked is told that a job of the handler, or a periodic task of that
	// name, was worked: how long it had waited since it was due, and how long
	// it took.
	Worked(handler string, o Outcome, waited, took time.Duration)
}

// An Outcome is how the work on a job ended. The zero Outcome is none.
type Outcome uint8

// The outcomes.
const (
	// Done: it was worked.
	Done Outcome = iota + 1
	// Later: it is to be worked again, which is no failure.
	Later
	// Failed: its answer is not known; it is worked again after a pause.
	Failed
	// GivenUp: it failed for the last time, or nobody can work it.
	GivenUp
)

// String returns the outcome's word.
func (o Outcome) String() string {
	words := []string{"none", "done", "later", "failed", "given_up"}
	if int(o) < len(words) {
		return words[o]
	}
	return words[0]
}
