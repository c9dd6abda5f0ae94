package sourcedb_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	if path := os.Getenv(victimEnv); path != "" {
		os.Exit(victim(path))
	}
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

// A world is one fresh database, with what a test needs to look into it.
type world struct {
	storetest.Harness
	// connect opens the database, as one more process does.
	connect func(t testing.TB) *store.DB
}

// open opens a store with hooks.
func (w *world) open(t testing.TB, h sourcedb.Hooks) (*sourcedb.Store, *store.DB) {
	t.Helper()
	db := w.connect(t)
	return sourcedb.New(db, w.Queue, h), db
}

// A kind makes worlds on one database.
type kind struct {
	name string
	make func(t testing.TB) *world
}

// kinds are both databases.
var kinds = []kind{{"sqlite", onSQLite}, {"postgres", onPostgres}}

// each runs a test on both databases.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k.make(t))
		})
	}
}

// finish makes a world of what differs between the databases.
func finish(t testing.TB, o store.Options, elapse func(testing.TB, time.Duration)) *world {
	t.Helper()
	w := &world{connect: func(t testing.TB) *store.DB {
		t.Helper()
		db, err := store.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	}}
	w.Harness = storetest.Harness{
		Open: func(t testing.TB) source.Store {
			s, _ := w.open(t, sourcedb.Hooks{})
			return s
		},
		Elapse: elapse, Queue: &storetest.Queue{}, Taken: sourcedb.ErrTaken, Illegal: sourcedb.ErrIllegal,
	}
	if err := w.connect(t).Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, storetest.QueueTable)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// A clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) elapse(_ testing.TB, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func onSQLite(t testing.TB) *world {
	t.Helper()
	c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)}
	return finish(t, store.Options{Path: filepath.Join(t.TempDir(), "test.db"), Now: c.Now}, c.elapse)
}

func onPostgres(t testing.TB) *world { return onPostgresWith(t, store.Options{}) }

func onPostgresWith(t testing.TB, o store.Options) *world {
	t.Helper()
	o.URL, o.Connections = postgres.Database(t), 4
	return finish(t, o, postgres.Clock(t, o.URL).Elapse)
}

func TestStore(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB) storetest.Harness { return k.make(t).Harness })
		})
	}
}

// TestStoreWithoutRowLocks: what makes a write legal is compared in the
// statement, and no row lock is needed for it.
func TestStoreWithoutRowLocks(t *testing.T) {
	storetest.Races(t, func(t testing.TB) storetest.Harness {
		// Each loser tries again by itself, so there are more tries.
		w := onPostgresWith(t, store.Options{Tries: 100})
		w.Harness.Open = func(t testing.TB) source.Store {
			s, _ := w.open(t, sourcedb.Hooks{})
			return sourcedb.Optimistic(s)
		}
		return w.Harness
	})
}
