//go:build unix

package sqlledger

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/internal/contest"
)

// contestSpeed is how much faster than the machine's the clocks of a contest
// are: a lease of five seconds has passed after a quarter of one.
const contestSpeed = 20

// startTries bounds how often a process tries to open its ledger while its
// server is away, startPause is what it waits between two.
const (
	startTries = 600
	startPause = 100 * time.Millisecond
)

func openForContest(ctx context.Context, a contest.Assignment, now func() time.Time, instant func() ledger.Instant) (fencepost.Ledger, func() error, error) {
	cfg := Config{Path: a.Where, Lease: MinLease, Parts: 2, Connections: 2, Volatile: true, Now: now, Instant: instant}
	if strings.Contains(a.Where, "://") {
		cfg.Path, cfg.URL = "", a.Where
	}
	for n := 1; ; n++ {
		l, err := Open(ctx, cfg)
		if err == nil {
			return l, l.Close, nil
		}
		away := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrBusy)
		if !away || n == startTries {
			return nil, nil, err
		}
		time.Sleep(startPause)
	}
}

// asProcess runs as a process of a contest, if this is one.
func asProcess() (is bool, code int) {
	return contest.Process(context.Background(), openForContest)
}

// TestProcessesInContestOnSQLite: what eight processes are answered is
// linearizable, though they are killed, stopped for longer than a lease
// lasts, and their wall clock jumps.
func TestProcessesInContestOnSQLite(t *testing.T) {
	long(t)
	t.Parallel()
	contest.Series(t, func(int) contest.Contest {
		return contest.Contest{
			Where: filepath.Join(t.TempDir(), "ledger.db"), Speed: contestSpeed, Stop: 700 * time.Millisecond,
		}
	}, func(c contest.Contest) { verifyAfterContest(t, Config{Path: c.Where, Wait: time.Minute}) })
}

func verifyAfterContest(t *testing.T, cfg Config) {
	t.Helper()
	report, err := Verify(t.Context(), cfg)
	if err != nil || report.Err() != nil {
		t.Fatalf("verify: %v, %v", err, report.Err())
	}
}

// TestProcessesInContestOnPostgres: the same, and the server ends sessions, is
// restarted, and is killed. Its clock, which times the leases, runs faster,
// too.
func TestProcessesInContestOnPostgres(t *testing.T) {
	long(t)
	t.Parallel()
	pg := pgtest.Server{Fast: true}
	t.Cleanup(func() { must0(t, pg.Stop()) })
	contest.Series(t, func(int) contest.Contest {
		database := pg.Database(t)
		pg.Exec(t, database, `create schema fast;
			create function fast.clock_timestamp() returns timestamptz language sql volatile as
				$$ select '2026-01-01Z'::timestamptz + (pg_catalog.clock_timestamp() - '2026-01-01Z'::timestamptz) * 20 $$`)
		u, err := url.Parse(database)
		must0(t, err)
		q := u.Query()
		q.Set("search_path", "fast,pg_catalog")
		u.RawQuery = q.Encode()
		times := 0
		return contest.Contest{
			Where: u.String(), Stop: 700 * time.Millisecond,
			Disturb: func(tb testing.TB) {
				switch times++; times % 6 {
				case 0:
					pg.Kill(tb, func() {})
				case 3:
					pg.Restart(tb)
				default:
					pg.Exec(tb, database, `select pg_terminate_backend(pid) from pg_stat_activity
						where datname = current_database() and pid <> pg_backend_pid() order by random() limit 3`)
				}
			},
		}
	}, func(c contest.Contest) { verifyAfterContest(t, Config{URL: c.Where, Wait: time.Minute}) })
}
