package jobs_test

import (
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source/jobs"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

func postgresFixture(t *testing.T) fixture {
	f := connect(t, postgres.Database(t))
	f.migrate(t)
	return f
}

// connect is one process's side of a database.
func connect(t *testing.T, url string) fixture {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	listen, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listen.Close)
	return fixture{jobs.Config{
		DB: db, Dialect: jobs.PostgreSQL, Listen: listen, Now: clock.System().Now, Log: slog.New(slog.DiscardHandler),
	}}
}
