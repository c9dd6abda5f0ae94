package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
)

func TestOpenRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]store.Options{
		"nothing":              {},
		"both":                 {Path: "x", URL: "postgres://x", Now: time.Now},
		"no clock":             {Path: "x"},
		"wait too short":       {Path: "x", Now: time.Now, Wait: time.Millisecond},
		"wait too long":        {Path: "x", Now: time.Now, Wait: 25 * time.Hour},
		"too many connections": {Path: "x", Now: time.Now, Connections: 1001},
		"too many tries":       {Path: "x", Now: time.Now, Tries: 101},
		"not a URL":            {URL: "postgres://user:hunter2@host:port/x"},
	} {
		_, err := store.Open(t.Context(), o)
		if !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: err = %v, want ErrMalformed", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

// TestManyOpenAtOnce: each migration is made once, however many start at once.
func TestManyOpenAtOnce(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		const processes = 6
		var group sync.WaitGroup
		dbs := make([]*store.DB, processes)
		for i := range dbs {
			group.Go(func() {
				var err error
				if dbs[i], err = store.Open(t.Context(), o); err != nil {
					t.Errorf("process %d: %v", i, err)
				}
			})
		}
		group.Wait()
		for _, db := range dbs {
			if db == nil {
				continue
			}
			if n := number(t, db, "select count(*) - count(distinct version_id) from schema_versions"); n != 0 {
				t.Errorf("%d migrations were made twice", n)
			}
			if steps, made := number(t, db, "select count(*) from schema_steps"), number(t, db, "select count(*) from schema_versions where version_id > 0"); steps != made {
				t.Errorf("%d steps for %d migrations", steps, made)
			}
			must(t, db.Close())
		}
	})
}

func TestExistingMakesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.db")
	if _, err := store.Open(t.Context(), store.Options{Path: path, Now: time.Now, Existing: true}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("err = %v, want ErrUnavailable", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: %v, want no file", err)
	}
	url := postgres.Database(t)
	if _, err := store.Open(t.Context(), store.Options{URL: url, Existing: true}); !errors.Is(err, store.ErrNoSchema) || !errors.Is(err, store.ErrOlderSchema) {
		t.Errorf("an empty database: err = %v, want ErrNoSchema", err)
	}
}

func TestEverySettingHoldsOnEveryConnection(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		db := open(t, o)
		want := map[string]string{"pragma journal_mode": "wal", "pragma synchronous": "2", "pragma foreign_keys": "1", "pragma busy_timeout": "5000", "pragma trusted_schema": "0"}
		if db.Kind() == store.Postgres {
			want = map[string]string{"show statement_timeout": "10s", "show lock_timeout": "10s", "show idle_in_transaction_session_timeout": "10s", "show timezone": "UTC"}
		}
		var held []*sql.Conn
		for n := range 4 {
			// Held all at once, so that each is another.
			conn, err := db.Reader().Conn(t.Context())
			must(t, err)
			held = append(held, conn)
			got := map[string]string{}
			for query := range want {
				var v string
				must(t, conn.QueryRowContext(t.Context(), query).Scan(&v))
				got[query] = v
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("connection %d (-want +got):\n%s", n, diff)
			}
		}
		for _, conn := range held {
			must(t, conn.Close())
		}
		if db.Kind() == store.Postgres {
			return
		}
		if info, err := os.Stat(o.Path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("file mode %v, %v; want 0600", info.Mode(), err)
		}
		if _, err := db.Reader().ExecContext(t.Context(), "delete from sources"); err == nil {
			t.Error("a reader may write")
		}
	})
}

// TestBothSchemasSayTheSame: tables, columns and their defaults, and what is
// indexed, are alike in both databases.
func TestBothSchemasSayTheSame(t *testing.T) {
	t.Parallel()
	read := func(db *store.DB, query string) (rows []string) {
		must(t, db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
			return tx.Each(ctx, query, nil, func(scan func(...any) error) error {
				var row string
				err := scan(&row)
				rows = append(rows, row)
				return err
			})
		}))
		return rows
	}
	lite := open(t, store.Options{Path: filepath.Join(t.TempDir(), "x.db"), Now: time.Now})
	pg := open(t, store.Options{URL: postgres.Database(t)})
	columns := []string{
		`select m.name || '.' || p.name || ' ' || replace(replace(lower(p.type), 'integer', 'bigint'), 'blob', 'bytea') || ' ' || coalesce(p.dflt_value, '-')
			from sqlite_schema m, pragma_table_info(m.name) p where m.type = 'table' and (m.name like 'source%' or m.name like 'ledger%') order by 1`,
		`select table_name || '.' || column_name || ' ' || data_type || ' ' || replace(replace(coalesce(column_default, '-'), '::text', ''), '::bigint', '')
			from information_schema.columns where table_schema = current_schema() and (table_name like 'source%' or table_name like 'ledger%')
			order by (table_name || '.' || column_name || ' ' || data_type || ' ' || replace(coalesce(column_default, '-'), '::text', '')) collate "C"`,
	}
	if diff := cmp.Diff(read(lite, columns[0]), read(pg, columns[1])); diff != "" {
		t.Errorf("columns (-sqlite +postgres):\n%s", diff)
	}
	indexes := []string{
		`select name from sqlite_schema where type in ('index', 'trigger') and sql is not null order by name`,
		`select name from (select indexname::text as name from pg_indexes where schemaname = current_schema() and indexname not like '%key' and (tablename like 'source%' or tablename like 'ledger%')
			union select tgname::text from pg_trigger where not tgisinternal) as x where name not like '%pkey' order by name collate "C"`,
	}
	if diff := cmp.Diff(read(lite, indexes[0]), read(pg, indexes[1])); diff != "" {
		t.Errorf("indexes and triggers (-sqlite +postgres):\n%s", diff)
	}
}

// TestInABubble: SQLite works under a simulated clock, also where one waits
// for another.
func TestInABubble(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{Path: path, Now: time.Now}
		one, other := open(t, o), open(t, o)
		before, err := one.Now(t.Context())
		must(t, err)
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				db := []*store.DB{one, other}[i%2]
				if err := exec(t, db, "insert into schema_turns (name, turns) values (?, {now})", fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := number(t, one, "select count(*) from schema_turns"); n != 10 {
			t.Errorf("%d rows, want 10", n)
		}
		time.Sleep(time.Hour)
		if after, err := other.Now(t.Context()); err != nil || after.Sub(before) < time.Hour {
			t.Errorf("from %v to %v, %v; want an hour", before, after, err)
		}
	})
}

// TestNothingOfTheURLIsShown: whatever goes wrong, errors name neither user,
// password, host nor database.
func TestNothingOfTheURLIsShown(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	closed := l.Addr().String()
	must(t, l.Close())
	good := postgres.Database(t)
	for name, url := range map[string]string{
		"nobody there":   "postgres://canaryuser:canarypassword@" + closed + "/canarydb?sslmode=disable",
		"no such host":   "postgres://canaryuser:canarypassword@canaryhost.invalid/canarydb",
		"wrong password": strings.Replace(good, "fencepost:", "canaryuser:canarypassword", 1),
		"no database":    good[:strings.LastIndex(good, "/")] + "/canarydb?sslmode=disable",
	} {
		_, err := store.Open(t.Context(), store.Options{URL: url, Wait: 5 * time.Second})
		if !errors.Is(err, store.ErrUnavailable) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
			t.Errorf("%s: err = %v, want unavailable", name, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, "canary") || strings.Contains(text, closed) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}
