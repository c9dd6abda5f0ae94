package jobs_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source/jobs"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

// unmigrated are fixtures over databases without tables.
func unmigrated() map[string]func(*testing.T) fixture {
	return map[string]func(*testing.T) fixture{
		"sqlite": func(t *testing.T) fixture {
			return fixture{jobs.Config{
				DB: openSQLite(t, filepath.Join(t.TempDir(), "jobs.db")), Dialect: jobs.SQLite,
				Now: clock.System().Now, Log: slog.New(slog.DiscardHandler),
			}}
		},
		"postgres": func(t *testing.T) fixture { return connect(t, postgres.Database(t)) },
	}
}

func TestSeveralProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range unmigrated() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			var together sync.WaitGroup
			for range 4 {
				together.Go(func() {
					if err := jobs.Migrate(t.Context(), f.Config); err != nil {
						t.Error(err)
					}
				})
			}
			together.Wait()
			q, r := f.queue(t), newRecorder()
			run(t, q, r)
			put(t, f, q, jobRow(1))
			expect(t, r, jobRow(1))
		})
	}
}

func TestNewerTablesAreRefused(t *testing.T) {
	t.Parallel()
	for name, open := range unmigrated() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.migrate(t)
			if _, err := f.DB.ExecContext(t.Context(), `insert into river_migration (line, version) values ('main', 1000)`); err != nil {
				t.Fatal(err)
			}
			if err := jobs.Migrate(t.Context(), f.Config); !errors.Is(err, jobs.ErrNewerSchema) {
				t.Fatalf("err = %v, want ErrNewerSchema", err)
			}
		})
	}
}

// TestTheServerIsRestarted: what runs goes on by itself.
func TestTheServerIsRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Server{Fast: true}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	f := connect(t, server.Database(t))
	f.migrate(t)
	q, r := f.queue(t), newRecorder()
	run(t, q, r)
	put(t, f, q, jobRow(1))
	expect(t, r, jobRow(1))
	server.Restart(t)
	restarted := time.Now()
	// Its connections are broken; which error is the database's affair.
	for tryPut(t.Context(), f, q, jobRow(2)) != nil {
		if time.Since(restarted) > patience {
			t.Fatal("nothing can be put in after a restart")
		}
		time.Sleep(10 * time.Millisecond)
	}
	expect(t, r, jobRow(2))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jobs.Config){
		"no database":        func(c *jobs.Config) { c.DB = nil },
		"no clock":           func(c *jobs.Config) { c.Now = nil },
		"no log":             func(c *jobs.Config) { c.Log = nil },
		"no dialect":         func(c *jobs.Config) { c.Dialect = 0 },
		"too many workers":   func(c *jobs.Config) { c.Workers = 1001 },
		"polls all the time": func(c *jobs.Config) { c.Poll = time.Millisecond },
		"ends before":        func(c *jobs.Config) { c.Timeout = -1 },
		"too many attempts":  func(c *jobs.Config) { c.Attempts = 101 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := unmigrated()["sqlite"](t)
			change(&f.Config)
			if _, err := jobs.New(f.Config); !errors.Is(err, jobs.ErrConfig) {
				t.Errorf("New: err = %v, want ErrConfig", err)
			}
			if err := jobs.Migrate(t.Context(), f.Config); !errors.Is(err, jobs.ErrConfig) {
				t.Errorf("Migrate: err = %v, want ErrConfig", err)
			}
		})
	}
}

func TestTasksAreChecked(t *testing.T) {
	t.Parallel()
	good := tick(func() {})
	for name, change := range map[string]func(*jobs.Periodic){
		"no name":           func(p *jobs.Periodic) { p.Name = "" },
		"no task":           func(p *jobs.Periodic) { p.Run = nil },
		"too often":         func(p *jobs.Periodic) { p.Every = 999 * time.Millisecond },
		"no bound":          func(p *jobs.Periodic) { p.Timeout = 0 },
		"longer than a job": func(p *jobs.Periodic) { p.Timeout = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			change(&bad)
			q := sqliteFixture(t).queue(t)
			if err := q.Run(t.Context(), nil, []jobs.Periodic{bad}); !errors.Is(err, jobs.ErrConfig) {
				t.Errorf("err = %v, want ErrConfig", err)
			}
		})
	}
	q := sqliteFixture(t).queue(t)
	if err := q.Run(t.Context(), nil, []jobs.Periodic{good, good}); !errors.Is(err, jobs.ErrConfig) {
		t.Errorf("twice: err = %v, want ErrConfig", err)
	}
}
