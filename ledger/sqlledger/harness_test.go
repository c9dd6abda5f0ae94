package sqlledger

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// stoppedChild names the database of a process that is stopped while it works.
const stoppedChild = "FENCEPOST_SQLLEDGER_STOPPED"

var postgres = pgtest.Server{Fast: true}

// walks is how many each test of properties takes; -rapid.checks says others.
const walks = "20"

func TestMain(m *testing.M) {
	if is, code := asProcess(); is {
		os.Exit(code)
	}
	if url := os.Getenv(stoppedChild); url != "" {
		os.Exit(workLate(url))
	}
	if err := flag.Set("rapid.checks", walks); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

// A fixture is a fresh database, opened by any number of processes.
type fixture struct {
	tb  testing.TB
	cfg Config
	// now reads the clock that judges; elapse moves all clocks; step moves
	// the one that judges alone.
	now          func() time.Time
	elapse, step func(time.Duration)
	// clock is this machine's.
	clock *ledgertest.Clock

	mu   sync.Mutex
	open []*Ledger // guarded by mu
}

// ledger opens the database as one more process.
func (f *fixture) ledger() *Ledger {
	f.tb.Helper()
	l, err := Open(f.tb.Context(), f.cfg)
	if err != nil {
		f.tb.Fatalf("open: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, l)
	return l
}

func (f *fixture) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.open {
		if err := l.Close(); err != nil {
			f.tb.Errorf("close: %v", err)
		}
	}
	f.open = nil
}

func newFixture(tb testing.TB, cfg Config) *fixture {
	f := &fixture{tb: tb, clock: ledgertest.NewClock(), cfg: cfg}
	f.cfg.Capacity, f.cfg.Parts, f.cfg.Connections, f.cfg.Volatile = 64, 2, 4, true
	// On a busy machine SQLite's one writer is waited for long.
	f.cfg.Wait = time.Minute
	f.cfg.Now, f.cfg.Instant = f.clock.Now, f.clock.Instant
	f.now, f.elapse, f.step = f.clock.Now, f.clock.Elapse, f.clock.StepWall
	tb.Cleanup(f.closeAll)
	return f
}

func onSQLite(tb testing.TB) *fixture {
	return newFixture(tb, Config{Path: filepath.Join(tb.TempDir(), "ledger.db")})
}

// copies makes fixtures on copies of one file with empty tables: to make the
// tables takes most of a test's time.
func copies(tb testing.TB) maker {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "empty.db")
	db, err := store.Open(tb.Context(), store.Options{Path: path, Now: time.Now})
	must0(tb, err)
	must0(tb, db.Close())
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		tb.Fatalf("stat: %v; a closed database is one file", err)
	}
	empty, err := os.ReadFile(path)
	must0(tb, err)
	return func(tb testing.TB) *fixture {
		f := onSQLite(tb)
		must0(tb, os.WriteFile(f.cfg.Path, empty, 0o600))
		return f
	}
}

// A server is a database of PostgreSQL in which each fixture has a schema of
// its own, with a clock that stands still until it is moved. A fixture's schema
// is emptied for a later one: to make one takes most of a test's time.
type server struct {
	database string
	admin    *sql.DB
	made     atomic.Int64
	free     chan string // schemas whose tests have ended
}

func newServer(tb testing.TB, pg *pgtest.Server) *server {
	tb.Helper()
	s := &server{database: pg.Database(tb), free: make(chan string, 64)}
	var err error
	if s.admin, err = sql.Open("pgx/v5", s.database+"&default_query_exec_mode=simple_protocol"); err != nil {
		tb.Fatal(err)
	}
	s.admin.SetMaxIdleConns(4)
	tb.Cleanup(func() {
		if err := s.admin.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// exec runs SQL beside the ledgers.
func (s *server) exec(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if _, err := s.admin.ExecContext(tb.Context(), fmt.Sprintf(format, args...)); err != nil {
		tb.Fatal(err)
	}
}

// schema is an empty one, or one of empty tables.
func (s *server) schema(tb testing.TB) string {
	tb.Helper()
	var name string
	select {
	case name = <-s.free:
		s.exec(tb, `
			truncate %[1]s.ledger_rows, %[1]s.ledger_parts, %[1]s.ledger_root;
			update %[1]s.moved set now = '2026-10-01T12:00:00Z';`, name)
	default:
		name = fmt.Sprintf("ledger_%d", s.made.Add(1))
		s.exec(tb, `
			create schema %[1]s;
			create table %[1]s.moved (now timestamptz not null);
			insert into %[1]s.moved values ('2026-10-01T12:00:00Z');
			create function %[1]s.clock_timestamp() returns timestamptz language sql volatile as 'select now from %[1]s.moved';`, name)
	}
	tb.Cleanup(func() { s.free <- name })
	return name
}

func (s *server) fixture(tb testing.TB) *fixture {
	tb.Helper()
	schema := s.schema(tb)
	u, err := url.Parse(s.database)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema+",pg_catalog")
	u.RawQuery = q.Encode()
	f := newFixture(tb, Config{URL: u.String()})
	move := func(d time.Duration) {
		// In whole microseconds, as it counts; never less than asked for.
		us := (d + time.Microsecond - 1).Truncate(time.Microsecond).Microseconds()
		s.exec(tb, "update %s.moved set now = now + interval '%d microseconds'", schema, us)
	}
	f.step = move
	f.elapse = func(d time.Duration) { f.clock.Elapse(d); move(d) }
	f.now = func() time.Time {
		tb.Helper()
		f.mu.Lock()
		l := f.open[len(f.open)-1]
		f.mu.Unlock()
		now, err := l.db.Now(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		return now
	}
	return f
}

func (f *fixture) harness() ledgertest.Harness {
	current := f.ledger()
	reopen := func() fencepost.Ledger {
		f.closeAll()
		current = f.ledger()
		return current
	}
	h := ledgertest.Harness{
		Ledger: current, Lease: current.cfg.Lease, Window: current.cfg.Window, Capacity: current.cfg.Capacity,
		Now: f.now, Elapse: f.elapse, Frozen: true, Reopen: reopen,
		Peer:    func() fencepost.Ledger { return f.ledger() },
		CleanUp: func(ctx ctx) error { return current.CleanUp(ctx) },
	}
	if current.db.Kind() == store.SQLite {
		h.StepWall = f.step
		h.Restart = func() fencepost.Ledger { f.clock.Restart(); return reopen() }
	}
	return h
}

func hasTheProperties(t *testing.T, fresh maker) {
	ledgertest.Properties(t, func(tb testing.TB) ledgertest.Harness { return fresh(tb).harness() })
}

// A maker makes fixtures on one of the databases.
type maker = func(testing.TB) *fixture

func conforms(t *testing.T, fresh maker) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness { return fresh(tb).harness() })
}

// common is what must hold on both databases.
func common() map[string]func(*testing.T, maker) {
	return map[string]func(*testing.T, maker){
		"conforms":                     conforms,
		"properties":                   hasTheProperties,
		"each acquired once":           eachDeliveryIsAcquiredOnce,
		"capacity under contention":    capacityHoldsUnderContention,
		"a claim rests on its part":    aClaimRestsOnItsPart,
		"a lost answer is read back":   aLostAnswerIsReadBack,
		"a lost change is unknown":     aLostChangeIsUnknown,
		"damage is not believed":       aDamagedRowIsNotBelieved,
		"clean-up":                     cleanUpTakesWhatMayGo,
		"running time counted once":    runningTimeIsCountedOnce,
		"abandon":                      anAbandonedLeaseNeedsNoWaiting,
		"other parameters are refused": openRefusesOtherParameters,
		"many make one":                manyMakeOneLedger,
		"a shared pool":                aPoolIsShared,
	}
}

func runAll(t *testing.T, fresh maker, tests map[string]func(*testing.T, maker)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh)
		})
	}
}

func TestOnSQLite(t *testing.T) {
	t.Parallel()
	runAll(t, copies(t), common())
}

// conformsWithAClockThatJumps runs the rows about replay ends that need it.
// Those about leases under a jump want frozen clocks as well, and are skipped.
func conformsWithAClockThatJumps(t *testing.T, fresh maker) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness {
		f := fresh(tb)
		h := f.harness()
		h.StepWall, h.Frozen = f.step, false
		return h
	})
}

// TestOnPostgres: the suite's rows in which a lease outlives a jump of the
// wall clock, or ends with a restart of the machine, are skipped: on a server,
// one clock times leases and judges replay ends.
func TestOnPostgres(t *testing.T) {
	t.Parallel()
	tests := common()
	tests["conforms with a clock that jumps"] = conformsWithAClockThatJumps
	tests["what was read must still be there"] = whatWasReadMustStillBeThere
	tests["the server's clock jumps"] = aServersClockThatJumps
	tests["a client's clock"] = aClientsClockDoesNotMatter
	tests["the function is the table"] = theFunctionIsTheTable
	tests["the server's clock jumps under many"] = theServersClockJumpsUnderMany
	tests["one round trip"] = anOperationIsOneRoundTrip
	s := newServer(t, &postgres)
	tests["fences outlive a failover"] = fencesOutliveAFailover
	tests["the function compares what it read"] = s.theFunctionComparesWhatItRead
	runAll(t, s.fixture, tests)
}
