package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

func TestRebind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query, sqlite, postgres string
		clock                   bool
	}{
		{"select 1", "select 1", "select 1", false},
		{"a = ? and b = ?", "a = ?1 and b = ?2", "a = $1 and b = $2", false},
		{"a > {now} - ? or {now} < ?", "a > ?3 - ?1 or ?3 < ?2", "a > " + postgresNow + " - $1 or " + postgresNow + " < $2", true},
		{"{now}", "?1", postgresNow, true},
	} {
		if got := rebind(SQLite, c.query); got.text != c.sqlite || got.clock != c.clock {
			t.Errorf("sqlite: %q, clock %v; want %q, %v", got.text, got.clock, c.sqlite, c.clock)
		}
		if got := rebind(Postgres, c.query); got.text != c.postgres || got.clock {
			t.Errorf("postgres: %q, clock %v; want %q, false", got.text, got.clock, c.postgres)
		}
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"40001": ErrBusy, "40P01": ErrBusy, "55P03": ErrBusy, "23505": ErrDuplicate, "23514": ErrConstraint, "23001": ErrConstraint,
		"53100": ErrFull, "XX001": ErrCorrupt, "57P01": ErrUnavailable, "57014": ErrUnavailable, "28P01": ErrUnavailable, "": ErrUnavailable,
	} {
		if got := postgresClass(code); got != want {
			t.Errorf("SQLSTATE %q: %v, want %v", code, got, want)
		}
	}
	for code, want := range map[int]error{
		5: ErrBusy, 517: ErrBusy, 6: ErrBusy, 13: ErrFull, 11: ErrCorrupt, 26: ErrCorrupt, 19: ErrConstraint, 275: ErrConstraint,
		1811: ErrConstraint, 2067: ErrDuplicate, 1555: ErrDuplicate, 1034: ErrPoisoned, 1290: ErrPoisoned, 10: ErrUnavailable, 14: ErrUnavailable,
	} {
		if got := sqliteClass(code); got != want {
			t.Errorf("SQLite %d: %v, want %v", code, got, want)
		}
	}
}

func TestSanitize(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	if got := Sanitize(mine); got != mine {
		t.Errorf("another's error became %v", got)
	}
	for _, err := range []error{
		&pgconn.PgError{Code: "57P01", Message: "canary"}, driver.ErrBadConn, sql.ErrTxDone, context.Canceled,
		errors.Join(errors.New("canary"), context.DeadlineExceeded),
		fmt.Errorf("queue: %w", &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: 5432}, Err: io.ErrUnexpectedEOF}),
	} {
		got := Sanitize(err)
		f, ok := errors.AsType[*Fault](got)
		if !ok || f.Class == nil {
			t.Errorf("%T became %v, want a Fault", err, got)
		}
		if text := fmt.Sprintf("%v", got); strings.Contains(text, "canary") || strings.Contains(text, "5432") {
			t.Errorf("%T shows %s", err, text)
		}
	}
}

// TestCommitUnknown: only what the database itself refused is known not to be
// stored.
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		unknown bool
	}{
		"refused":     {&pgconn.PgError{Code: "40001"}, false},
		"constraint":  {&pgconn.PgError{Code: "23505"}, false},
		"full":        {&pgconn.PgError{Code: "53100"}, false},
		"shut down":   {&pgconn.PgError{Code: "57P01"}, true},
		"broken":      {errors.New("unexpected EOF"), true},
		"cut off":     {driver.ErrBadConn, true},
		"out of time": {context.DeadlineExceeded, true},
	} {
		err := committed(c.err)
		if errors.Is(err, ErrUnknownOutcome) != c.unknown {
			t.Errorf("%s: %v, want unknown %v", name, err, c.unknown)
		}
	}
	if err := committed(nil); err != nil {
		t.Errorf("a commit that went well: %v", err)
	}
}

// TestAFailedSyncIsFinal: after one, this process writes no more.
func TestAFailedSyncIsFinal(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), Options{Path: t.TempDir() + "/x.db", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	calls := 0
	for range 2 {
		err = db.Write(t.Context(), "test", func(context.Context, *Tx) error {
			calls++
			return &Fault{Class: ErrPoisoned}
		})
		if !errors.Is(err, ErrPoisoned) {
			t.Errorf("err = %v, want ErrPoisoned", err)
		}
	}
	if calls != 1 {
		t.Errorf("%d transactions were begun, want one", calls)
	}
	if err := db.Read(t.Context(), "test", func(context.Context, *Tx) error { return nil }); err != nil {
		t.Errorf("read: %v", err)
	}
}

func TestConstraintNameHoldsNoValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"constraint failed: UNIQUE constraint failed: source_runs.fence (2067)":       "source_runs.fence",
		"constraint failed: UNIQUE constraint failed: a.b, a.c (2067)":                "a.b",
		"constraint failed: CHECK constraint failed: length(id) = 36 (275)":           "",
		"constraint failed: an ended run log never changes (1811)":                    "",
		"constraint failed: NOT NULL constraint failed: schema_turns.turns (1299)":    "schema_turns.turns",
		"constraint failed: CHECK constraint failed: Value with 'canary' in it (275)": "",
	} {
		if got := sqliteConstraint(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMicrosRoundTrip(t *testing.T) {
	t.Parallel()
	if got := FromMicros(Micros(time.Time{})); !got.IsZero() {
		t.Errorf("the zero time became %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(1, 4e15).Draw(t, "us")
		if got := Micros(FromMicros(us)); got != us {
			t.Fatalf("%d became %d", us, got)
		}
	})
}
