package jobs_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
)

// A fixture is an empty queue over an empty database.
type fixture struct {
	jobs.Config
}

// openSQLite opens a database as the store does: one connection that writes,
// whose transactions hold the write lock from their beginning.
// It syncs nothing: no test here takes the power away.
func openSQLite(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+
		"?_busy_timeout=5000&_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(on)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func sqliteFixture(t *testing.T) fixture {
	f := fixture{jobs.Config{
		DB: openSQLite(t, filepath.Join(t.TempDir(), "jobs.db")), Dialect: jobs.SQLite,
		Now: clock.System().Now, Log: slog.New(slog.DiscardHandler),
	}}
	f.migrate(t)
	return f
}

func (f fixture) migrate(t *testing.T) {
	t.Helper()
	if err := jobs.Migrate(t.Context(), f.Config); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) queue(t *testing.T) *jobs.Queue {
	t.Helper()
	q, err := jobs.New(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run runs q until the test ends, or the returned function is called.
func run(t *testing.T, q *jobs.Queue, w jobs.Worker, tasks ...jobs.Periodic) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx, map[string]jobs.Worker{"source.run": w}, tasks) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// put enqueues in one transaction of its own.
func put(t *testing.T, f fixture, q *jobs.Queue, all ...source.JobRow) {
	t.Helper()
	if err := tryPut(t.Context(), f, q, all...); err != nil {
		t.Fatal(err)
	}
	q.Wake()
}

func tryPut(ctx context.Context, f fixture, q *jobs.Queue, all ...source.JobRow) error {
	tx, err := f.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, j := range all {
		if err := q.Enqueue(ctx, tx, j); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// jobRow is the n-th job.
func jobRow(n byte) source.JobRow {
	run := fencepost.RunID{n, 1}
	return source.JobRow{
		Handler: "source.run", Key: run.String(),
		Payload: source.JobPayload{Source: fencepost.SourceID{n, 2}, Run: run, Revision: fencepost.SourceRevision{n, 3}},
	}
}

// A workerFunc is a worker.
type workerFunc func(ctx context.Context, p source.JobPayload) (time.Time, error)

// Work implements [jobs.Worker].
func (f workerFunc) Work(ctx context.Context, p source.JobPayload) (time.Time, error) {
	return f(ctx, p)
}

// A recorder notes when it works what, and is done.
type recorder struct{ worked chan source.JobPayload }

func newRecorder() recorder { return recorder{make(chan source.JobPayload, 100)} }

// Work implements [jobs.Worker].
func (r recorder) Work(_ context.Context, p source.JobPayload) (time.Time, error) {
	r.worked <- p
	return time.Time{}, nil
}

// logs keeps what is logged.
type logs struct {
	mu  sync.Mutex
	buf strings.Builder
}

func newLogs() *logs { return &logs{} }

// Write implements [io.Writer].
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) has(s string) bool    { return strings.Contains(l.text(), s) }
func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
