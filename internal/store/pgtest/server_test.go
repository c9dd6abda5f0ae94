package pgtest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, &postgres)) }

func TestDatabasesAreApartAndOutliveARestart(t *testing.T) {
	one, other := postgres.Database(t), postgres.Database(t)
	postgres.Exec(t, one, "create table here (n bigint); insert into here values (42)")
	postgres.Restart(t)
	conn, err := pgx.Connect(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var n int64
	if err := conn.QueryRow(t.Context(), "select n from here").Scan(&n); err != nil || n != 42 {
		t.Errorf("read %d, %v; want 42", n, err)
	}
	elsewhere, err := pgx.Connect(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close(t.Context())
	var tables int64
	if err := elsewhere.QueryRow(t.Context(), "select count(*) from pg_tables where tablename = 'here'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("the other database has %d of the tables, %v; want 0", tables, err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	// Not below the test's own directory, which only its owner may enter.
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	s := pgtest.Server{Fast: true}
	if err := s.Stop(); err != nil {
		t.Errorf("stop before the start: %v", err)
	}
	var url string
	t.Run("start", func(t *testing.T) { url = s.Database(t) })
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v; want nothing", left, err)
	}
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		t.Errorf("the server still answers: %v", conn.Close(t.Context()))
	}
}
