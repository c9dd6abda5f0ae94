package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

var server pgtest.Server

type pgxTx = pgx.Tx

func TestMain(m *testing.M) {
	if url := os.Getenv(riverChild); url != "" {
		if err := childMain(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	if what := os.Getenv(sizeChild); what != "" {
		if err := sizeMain(new(child), what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Run(m, &server))
}

// A child is what a process that runs no test of its own has for one.
type child struct{ testing.TB }

func (child) Helper()                  {}
func (child) Context() context.Context { return context.Background() }
func (child) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (child) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func keyOf(id string) [32]byte { return sha256.Sum256([]byte(id)) }

// A ledgerStore is one of our ledgers.
type ledgerStore struct {
	tb    testing.TB
	clock *ledgertest.Clock
	fencepost.Ledger
	cleanUp func(context.Context) error
	rows    func(context.Context) (int, error)
	close   func() error
}

func (s *ledgerStore) Cycle(ctx context.Context, key [32]byte, value []byte) error {
	p, err := fencepost.NewPublication(value)
	if err != nil {
		return err
	}
	spec := ledgertest.Spec{ID: fmt.Sprintf("%x", key[:12]), Body: "x"}
	if s.clock != nil {
		spec.Signed = s.clock.Now()
	}
	d := ledgertest.Deliver(s.tb, spec)
	c, err := s.Claim(ctx, d)
	a, ok := c.(fencepost.Acquired)
	if err != nil || !ok {
		return fmt.Errorf("claim: %T, %w", c, cmp.Or(err, errLost))
	}
	o, err := s.Stage(ctx, d, a.Lease, p)
	staged, ok := o.(fencepost.Staged)
	if err != nil || !ok {
		return fmt.Errorf("stage: %T, %w", o, cmp.Or(err, errLost))
	}
	e, err := s.Complete(ctx, d, staged.Staged)
	if _, ok := e.(fencepost.Completed); err != nil || !ok {
		return fmt.Errorf("complete: %T, %w", e, cmp.Or(err, errLost))
	}
	return nil
}

// Clean lets the replay ends pass, where the clock can be moved, and cleans
// up.
func (s *ledgerStore) Clean(ctx context.Context) (int64, error) {
	before, err := s.rows(ctx)
	if err != nil {
		return 0, err
	}
	if s.clock != nil {
		w := fencepost.DefaultReplayWindow
		s.clock.Elapse(w.MaxSignedAge + w.MaxQueueAge + time.Second)
	}
	if err := s.cleanUp(ctx); err != nil {
		return 0, err
	}
	after, err := s.rows(ctx)
	return int64(before - after), err
}

func (s *ledgerStore) Close() error { return s.close() }

func newFileLedger(tb testing.TB, dir string) (store, error) {
	clock := ledgertest.NewClock()
	l, err := fileledger.Open(tb.Context(), fileledger.Config{Dir: filepath.Join(dir, "ledger"), Maintain: -1, Now: clock.Now, Instant: clock.Instant})
	if err != nil {
		return nil, err
	}
	return &ledgerStore{tb, clock, l, l.CleanUp, func(ctx context.Context) (int, error) {
		st, err := l.Stat(ctx)
		return st.Rows(), err
	}, l.Close}, nil
}

func newSQLLedger(tb testing.TB, cfg sqlledger.Config, clock *ledgertest.Clock) (store, error) {
	cfg.Capacity = 1_000_000
	if clock != nil {
		cfg.Now, cfg.Instant = clock.Now, clock.Instant
	}
	l, err := sqlledger.Open(tb.Context(), cfg)
	if err != nil {
		return nil, err
	}
	return &ledgerStore{tb, clock, l, l.CleanUp, func(ctx context.Context) (int, error) {
		st, err := l.Stat(ctx)
		return st.Rows(), err
	}, l.Close}, nil
}

// socket is the URL of a new database over the server's unix socket.
func socket(tb testing.TB) string {
	tb.Helper()
	address := server.Database(tb)
	conn, err := pgx.Connect(tb.Context(), address)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(tb.Context())
	var dir string
	if err := conn.QueryRow(tb.Context(), "show unix_socket_directories").Scan(&dir); err != nil {
		tb.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", u.Port())
	u.Host, u.RawQuery = "", q.Encode()
	return u.String()
}

// syncRate is how many writes of 4 KiB into a file of zeros one writer alone
// gets synced a second, here and now.
func syncRate(tb testing.TB, dir string) float64 {
	tb.Helper()
	f, err := os.Create(filepath.Join(dir, "rate"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4<<20)); err != nil {
		tb.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	b := make([]byte, 4096)
	start, n := time.Now(), 0
	for ; time.Since(start) < 500*time.Millisecond; n++ {
		if _, err := f.WriteAt(b, int64(n%1024)*4096); err != nil {
			tb.Fatal(err)
		}
		if err := dataSync(f); err != nil {
			tb.Fatal(err)
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

// setting is a number of the environment.
func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// BenchmarkLedger has every store do the same in turns, round after round, and
// tells the medians and their ratio to the file ledger's of the same round.
func BenchmarkLedger(b *testing.B) {
	const workers = 64
	each := time.Duration(setting("BENCH_MS", 2000)) * time.Millisecond
	names := []string{
		"file ledger", "SQLite", "bbolt", "PostgreSQL, 8 connections", "PostgreSQL, 64 connections",
		"SQL ledger on SQLite", "SQL ledger on PostgreSQL, 8 connections", "SQL ledger on PostgreSQL, 64 connections",
	}
	made := map[string]store{}
	dir := b.TempDir()
	for _, name := range names {
		s, err := open(b, name, dir)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				b.Errorf("%s: %v", name, err)
			}
		}()
		made[name] = s
	}
	results := map[string][]result{}
	var syncs []float64
	var rivers []float64
	for round := range setting("BENCH_ROUNDS", 3) {
		syncs = append(syncs, syncRate(b, dir))
		var files float64
		for _, name := range names {
			r := measure(b, made[name], fmt.Sprint("r", round, "."), workers, each)
			if name == names[0] {
				files = r.rate
			}
			r.ratio = files / r.rate
			results[name] = append(results[name], r)
		}
		rivers = append(rivers, riverRate(b, workers, each))
	}
	fmt.Printf("%d workers, %v a round, %d rounds; medians\n", workers, each, len(syncs))
	fmt.Printf("%-44s %10.0f /s\n", "one writer's syncs of 4 KiB", median(syncs))
	for _, name := range names {
		all := results[name]
		pick := func(f func(result) float64) float64 {
			var v []float64
			for _, r := range all {
				v = append(v, f(r))
			}
			return median(v)
		}
		fmt.Printf("%-44s %10.0f cycles/s  p50 %6.1f ms  p99 %6.1f ms  cleaned %8.0f rows/s  file ledger is %.1f times as fast\n", name,
			pick(func(r result) float64 { return r.rate }), pick(func(r result) float64 { return r.p50 }), pick(func(r result) float64 { return r.p99 }),
			pick(func(r result) float64 { return r.cleaned }), pick(func(r result) float64 { return r.ratio }))
	}
	fmt.Printf("%-44s %10.0f jobs/s\n", "River, insert and complete, 64 connections", median(rivers))
}

type result struct{ rate, p50, p99, cleaned, ratio float64 }

func open(b *testing.B, name, dir string) (store, error) {
	switch name {
	case "file ledger":
		return newFileLedger(b, dir)
	case "SQLite":
		return newSQLite(b.Context(), filepath.Join(dir, "peer.db"))
	case "bbolt":
		return newBolt(filepath.Join(dir, "peer.bolt"))
	case "PostgreSQL, 8 connections":
		return newPostgres(b.Context(), socket(b), 8)
	case "PostgreSQL, 64 connections":
		return newPostgres(b.Context(), socket(b), 64)
	case "SQL ledger on SQLite":
		return newSQLLedger(b, sqlledger.Config{Path: filepath.Join(dir, "ledger.db"), Wait: time.Minute}, ledgertest.NewClock())
	case "SQL ledger on PostgreSQL, 8 connections":
		return newSQLLedger(b, sqlledger.Config{URL: socket(b), Connections: 8}, nil)
	case "SQL ledger on PostgreSQL, 64 connections":
		return newSQLLedger(b, sqlledger.Config{URL: socket(b), Connections: 64}, nil)
	}
	return nil, errors.New("no such store")
}

func measure(b *testing.B, s store, prefix string, workers int, each time.Duration) result {
	l, err := drive(b.Context(), s, prefix, workers, each)
	if err != nil {
		b.Fatal(err)
	}
	slices.Sort(l.each)
	at := func(q float64) float64 { return float64(l.each[int(q*float64(l.n-1))].Microseconds()) / 1000 }
	r := result{rate: float64(l.n) / l.took.Seconds(), p50: at(0.5), p99: at(0.99)}
	start := time.Now()
	n, err := s.Clean(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	r.cleaned = float64(n) / time.Since(start).Seconds()
	return r
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// riverRate is how many jobs a second go from Insert to completed, with as
// many that insert, one by one, as there are workers.
func riverRate(b *testing.B, workers int, each time.Duration) float64 {
	ctx := b.Context()
	client, pool, err := openRiver(ctx, socket(b), 64, true, func(w *river.Workers) { river.AddWorker(w, idleWorker{}) }, river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, FetchCooldown: time.Millisecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if err := client.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := client.Stop(ctx); err != nil {
			b.Error(err)
		}
	}()
	var group sync.WaitGroup
	start := time.Now()
	for range workers {
		group.Go(func() {
			for time.Since(start) < each {
				if _, err := client.Insert(ctx, idleArgs{}, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for {
		var open, ended int
		if err := pool.QueryRow(ctx, "select count(*) filter (where state <> 'completed'), count(*) filter (where state = 'completed') from river_job").Scan(&open, &ended); err != nil {
			b.Fatal(err)
		}
		if open == 0 {
			return float64(ended) / time.Since(start).Seconds()
		}
		time.Sleep(5 * time.Millisecond)
	}
}
