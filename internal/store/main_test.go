package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

// each runs a test on both databases, empty ones.
func each(t *testing.T, test func(t *testing.T, o store.Options)) {
	for name, options := range map[string]func(testing.TB) store.Options{
		"sqlite": func(t testing.TB) store.Options {
			return store.Options{Path: filepath.Join(t.TempDir(), "a b%?#&.db"), Now: time.Now}
		},
		"postgres": func(t testing.TB) store.Options {
			return store.Options{URL: postgres.Database(t), Connections: 4}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, options(t))
		})
	}
}

func open(t testing.TB, o store.Options) *store.DB {
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
}

// exec changes rows in a transaction of its own.
func exec(t testing.TB, db *store.DB, query string, args ...any) error {
	t.Helper()
	return db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// number reads one number.
func number(t testing.TB, db *store.DB, query string, args ...any) (n int64) {
	t.Helper()
	must(t, db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, query, args, &n)
		return err
	}))
	return n
}
