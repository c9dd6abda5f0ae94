package sqlledger

import (
	"crypto/sha256"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/store"
)

// TestABadDatabaseIsNamed: each kind of database that can't be opened has its
// own error, which says what and the mend.
func TestABadDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	used := func(tb testing.TB, db database) *fixture {
		f := db.fresh(tb)
		fill(tb, f.ledger(), time.Now())
		f.closeAll()
		return f
	}
	for _, db := range databases(t) {
		for name, tt := range map[string]struct {
			spoil []string
			cfg   func(*Config)
			is    error
			says  string
		}{
			"other parameters": {cfg: func(c *Config) { c.Lease = 30 * time.Second }, is: ErrParameters, says: "set it back"},
			"a later version":  {spoil: []string{"insert into schema_versions (version_id, is_applied) values (999, true)", "insert into schema_steps (version) values (999)"}, is: store.ErrNewerSchema, says: "run that one"},
		} {
			t.Run(db.name+" "+name, func(t *testing.T) {
				t.Parallel()
				f := used(t, db)
				if len(tt.spoil) > 0 {
					l := f.ledger()
					for _, s := range tt.spoil {
						f.exec(l, s)
					}
					f.closeAll()
				}
				cfg := f.cfg
				if tt.cfg != nil {
					tt.cfg(&cfg)
				}
				if _, err := Open(t.Context(), cfg); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("open: %v, want %v that says %q", err, tt.is, tt.says)
				}
			})
		}
		t.Run(db.name+" a foreign schema", func(t *testing.T) {
			t.Parallel()
			f := db.fresh(t)
			foreign, err := store.Open(t.Context(), store.Options{Path: f.cfg.Path, URL: f.cfg.URL, Now: time.Now, Foreign: true})
			must0(t, err)
			_, err = foreign.Writer().ExecContext(t.Context(), "create table ledger_rows (name text)")
			must0(t, errors.Join(err, foreign.Close()))
			if _, err := Open(t.Context(), f.cfg); !errors.Is(err, store.ErrForeignSchema) || !strings.Contains(err.Error(), "of its own") {
				t.Errorf("open: %v, want ErrForeignSchema", err)
			}
		})
	}
	t.Run("a user without rights", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, Config{URL: postgres.Database(t)})
		l := f.ledger()
		name := "nobody" + time.Now().Format("150405000000")
		_, err := l.db.Writer().ExecContext(t.Context(), "create role "+name+" login password 'secret'")
		must0(t, err)
		f.closeAll()
		u, err := url.Parse(f.cfg.URL)
		must0(t, err)
		u.User = url.UserPassword(name, "secret")
		cfg := f.cfg
		cfg.URL = u.String()
		if _, err := Open(t.Context(), cfg); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "grant") {
			t.Errorf("open: %v, want ErrDenied", err)
		}
	})
	t.Run("a file that is no database", func(t *testing.T) {
		t.Parallel()
		f := onSQLite(t)
		must0(t, os.WriteFile(f.cfg.Path, []byte(strings.Repeat("not a database. ", 300)), 0o600))
		before, err := os.ReadFile(f.cfg.Path)
		must0(t, err)
		if _, err := Open(t.Context(), f.cfg); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("open: %v, want ErrCorrupt", err)
		}
		after, err := os.ReadFile(f.cfg.Path)
		if err != nil || sha256.Sum256(after) != sha256.Sum256(before) {
			t.Errorf("the file was changed; %v", err)
		}
	})
}
