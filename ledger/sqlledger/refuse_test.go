package sqlledger

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/store"
)

// newestOf takes the newest migration back, as a version before this one left
// the database.
var newestOf = map[string][]string{
	"sqlite":   {"drop trigger ledger_rows_retired", "drop table ledger_moves", "drop table ledger_retired", "delete from schema_versions where version_id = 5", "delete from schema_steps where version = 5"},
	"postgres": {"drop table results", "drop table result_usage", "drop table result_key", "delete from schema_versions where version_id = 7", "delete from schema_steps where version = 7"},
}

// contents is what the database's schema has, and its newest version, read
// without anything of ours.
func contents(t *testing.T, f *fixture) string {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: f.cfg.Path, URL: f.cfg.URL, Now: time.Now, Foreign: true})
	must0(t, err)
	defer func() { must0(t, db.Close()) }()
	query := "select count(*), coalesce(group_concat(name), '') from (select name from sqlite_schema order by name)"
	if db.Kind() == store.Postgres {
		query = "select count(*), coalesce(string_agg(relname::text || oid::text, ',' order by oid), '') from pg_class where relnamespace = current_schema()::regnamespace"
	}
	var n, steps, versions int64
	var names string
	_, err = db.Ask(t.Context(), "test", query, nil, &n, &names)
	must0(t, err)
	if strings.Contains(names, "schema_versions") {
		_, err = db.Ask(t.Context(), "test", "select (select count(*) from schema_steps), (select count(*) from schema_versions)", nil, &steps, &versions)
		must0(t, err)
	}
	return fmt.Sprint(n, names, steps, versions)
}

// TestARefusedDatabaseIsNotChanged: what the ledger refuses is refused before
// the schema is made or brought up to date.
func TestARefusedDatabaseIsNotChanged(t *testing.T) {
	t.Parallel()
	for _, db := range databases(t) {
		for name, c := range map[string]struct {
			older bool
			open  func(t *testing.T, cfg Config) error
			is    error
			on    string
		}{
			"older, other parameters": {older: true, is: ErrParameters, open: func(t *testing.T, cfg Config) error {
				cfg.Lease = 30 * time.Second
				return opens(t, cfg)
			}},
			"empty, a server that forgets": {is: ErrVolatile, on: "postgres", open: func(t *testing.T, cfg Config) error {
				cfg.Volatile = false
				return opens(t, cfg)
			}},
			"older, a server that forgets": {older: true, is: ErrVolatile, on: "postgres", open: func(t *testing.T, cfg Config) error {
				cfg.Volatile = false
				return opens(t, cfg)
			}},
			"empty, to receive on a server that forgets": {is: ErrVolatile, on: "postgres", open: func(t *testing.T, cfg Config) error {
				cfg.Volatile = false
				in, err := Receive(t.Context(), cfg)
				if err == nil {
					must0(t, in.Close())
				}
				return err
			}},
			"empty, to move from": {is: store.ErrNoSchema, open: func(t *testing.T, cfg Config) error {
				h, err := Hold(t.Context(), cfg)
				if err == nil {
					must0(t, h.Close())
				}
				return err
			}},
		} {
			if c.on != "" && c.on != db.name {
				continue
			}
			t.Run(db.name+" "+name, func(t *testing.T) {
				t.Parallel()
				f := db.fresh(t)
				if c.older {
					l := f.ledger()
					for _, s := range newestOf[db.name] {
						f.exec(l, s)
					}
					f.closeAll()
				}
				before := contents(t, f)
				if err := c.open(t, f.cfg); !errors.Is(err, c.is) {
					t.Errorf("open: %v, want %v", err, c.is)
				}
				if after := contents(t, f); after != before {
					t.Errorf("the refusal left %s, was %s", after, before)
				}
			})
		}
	}
}

func opens(t *testing.T, cfg Config) error {
	l, err := Open(t.Context(), cfg)
	if err == nil {
		must0(t, l.Close())
	}
	return err
}

// volume is a directory of which the file system says so.
type volume struct {
	durable.FS
	durability durable.Durability
}

func (v volume) Volume() (durable.Volume, error) {
	return durable.Volume{Type: "nfs", Durability: v.durability}, nil
}

// TestAFileSystemThatDoesNotLockIsRefused, before the file is made.
func TestAFileSystemThatDoesNotLockIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		durability durable.Durability
		volatile   bool
		says       string
	}{
		"no locks":               {durable.Unsuitable, true, "locks can't be relied on"},
		"gone with the machine":  {durable.Volatile, false, "keeps nothing over a restart"},
		"the same, for a trial":  {durable.Volatile, true, ""},
		"a file system as usual": {durable.Durable, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onSQLite(t)
			f.cfg.Volatile = c.volatile
			f.cfg.volume = func(dir string) durable.FS { return volume{durable.OS(dir), c.durability} }
			for kind, open := range map[string]func() error{
				"open": func() error { return opens(t, f.cfg) },
				"receive": func() error {
					in, err := Receive(t.Context(), f.cfg)
					if err == nil {
						must0(t, in.Close())
					}
					return err
				},
			} {
				err := open()
				if c.says == "" {
					must0(t, err)
					continue
				}
				u, ok := errors.AsType[*durable.UnsuitableError](err)
				if !ok || !strings.Contains(err.Error(), c.says) || u.Mend == "" || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
					t.Errorf("%s: %v, want an UnsuitableError that says %q", kind, err, c.says)
				}
				if there := contentsOfDir(t, f.cfg.Path); there != "" {
					t.Errorf("%s made %s", kind, there)
				}
			}
		})
	}
}

// contentsOfDir names the files beside path, and that one.
func contentsOfDir(t *testing.T, path string) string {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	must0(t, err)
	return strings.Join(files, " ")
}
