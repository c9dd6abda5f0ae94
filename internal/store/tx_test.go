package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
)

func TestWriteStoresAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		db := open(t, o)
		mine := errors.New("mine")
		write := func(fail error) error {
			return db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
				for _, name := range []string{"a", "b"} {
					if n, err := tx.Exec(ctx, "insert into schema_turns (name, turns) values (?, 1)", name); err != nil || n != 1 {
						t.Errorf("insert: %d rows, %v", n, err)
					}
				}
				return fail
			})
		}
		if err := write(mine); err != mine {
			t.Errorf("err = %v, want fn's own as it is", err)
		}
		if n := number(t, db, "select count(*) from schema_turns"); n != 0 {
			t.Errorf("%d rows after an error, want none", n)
		}
		must(t, write(nil))
		if n := number(t, db, "select count(*) from schema_turns"); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
	})
}

func TestWriteTriesAgainWhatOthersDefeated(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		o.Tries = 4
		db := open(t, o)
		tries := 0
		defeated := func(times int) error {
			tries = 0
			return db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
				if tries++; tries <= times {
					return errors.Join(store.ErrBusy)
				}
				return nil
			})
		}
		if err := defeated(3); err != nil || tries != 4 {
			t.Errorf("defeated 3 times: %v after %d tries, want none after 4", err, tries)
		}
		if err := defeated(100); !errors.Is(err, store.ErrBusy) || tries != 4 {
			t.Errorf("defeated for ever: %v after %d tries, want ErrBusy after 4", err, tries)
		}
	})
}

func TestErrorsOfTheDatabaseAreSorted(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		db := open(t, o)
		must(t, exec(t, db, "insert into schema_turns (name, turns) values ('canary', 1)"))
		for name, c := range map[string]struct {
			query  string
			class  error
			reason fencepost.Reason
		}{
			"duplicate": {"insert into schema_turns (name, turns) values ('canary', 1)", store.ErrDuplicate, fencepost.ReasonUnavailable},
			"not null":  {"insert into schema_turns (name, turns) values ('canary2', null)", store.ErrConstraint, fencepost.ReasonUnavailable},
			"key":       {"insert into source_locks (source) values ('canary')", store.ErrConstraint, fencepost.ReasonUnavailable},
			"syntax":    {"select canary from", store.ErrUnavailable, fencepost.ReasonUnavailable},
		} {
			err := exec(t, db, c.query)
			f, ok := errors.AsType[*store.Fault](err)
			if !ok || !errors.Is(err, c.class) || fencepost.ReasonOf(err) != c.reason || f.Code == "" || f.Unknown {
				t.Errorf("%s: %v, want class %v", name, err, c.class)
			}
			if errors.Is(err, store.ErrDuplicate) && !errors.Is(err, store.ErrConstraint) {
				t.Errorf("%s: a duplicate is no constraint", name)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: the error shows a value: %v", name, err)
			}
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		o.Wait = time.Second
		holder, waiter := open(t, store.Options{Path: o.Path, URL: o.URL, Now: o.Now}), open(t, o)
		must(t, exec(t, holder, "insert into schema_turns (name, turns) values ('x', 1)"))
		const touch = "update schema_turns set turns = turns + 1 where name = 'x'"
		err := holder.Write(t.Context(), "hold", func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.Exec(ctx, touch); err != nil {
				return err
			}
			if err := exec(t, waiter, touch); fencepost.ReasonOf(err) != fencepost.ReasonUnavailable ||
				!errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrBusy) {
				t.Errorf("behind a lock: err = %v, want unavailable or busy", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the holder: %v", err)
		}
		if err := exec(t, waiter, touch); err != nil {
			t.Errorf("once it is free: %v", err)
		}
		if n := number(t, waiter, "select turns from schema_turns where name = 'x'"); n != 3 {
			t.Errorf("%d changes, want 3", n)
		}
	})
}

func TestContextEndsATransaction(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		db := open(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		err := db.Write(ctx, "test", func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.Exec(ctx, "insert into schema_turns (name, turns) values ('x', 1)"); err != nil {
				return err
			}
			cancel()
			_, err := tx.Exec(ctx, "insert into schema_turns (name, turns) values ('y', 1)")
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want canceled", err)
		}
		if n := number(t, db, "select count(*) from schema_turns"); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}

func TestExclusiveTakesTurns(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		dbs := []*store.DB{open(t, o), open(t, o)}
		var mu sync.Mutex
		inside, most, ran := 0, 0, 0
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				if err := dbs[i%2].Exclusive(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					ran++
					mu.Unlock()
					_, err := tx.Exec(ctx, "update schema_turns set turns = turns where name = 'test'")
					mu.Lock()
					inside--
					mu.Unlock()
					return err
				}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if most != 1 || ran < 6 {
			t.Errorf("%d ran, %d at once; want 6, one at a time", ran, most)
		}
		if n := number(t, dbs[0], "select turns from schema_turns where name = 'test'"); n != 6 {
			t.Errorf("%d turns, want 6", n)
		}
	})
}

func TestOneClockForAll(t *testing.T) {
	each(t, func(t *testing.T, o store.Options) {
		db := open(t, o)
		before, err := db.Now(t.Context())
		must(t, err)
		must(t, exec(t, db, "insert into schema_turns (name, turns) values ('x', {now} + ?)", 5))
		at := store.FromMicros(number(t, db, "select turns from schema_turns where name = ? and turns > {now} - ?", "x", time.Hour.Microseconds()))
		after, err := db.Now(t.Context())
		must(t, err)
		if at.Before(before) || at.After(after.Add(5*time.Microsecond)) || before.Location() != time.UTC {
			t.Errorf("wrote %v between %v and %v", at, before, after)
		}
	})
}

// TestCallEndsWithItsCommit: a row that was read is not stored before the
// commit, which may refuse it.
func TestCallEndsWithItsCommit(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	postgres.Exec(t, url, `create table late (n int unique deferrable initially deferred); insert into late values (1)`)
	db, err := store.Open(t.Context(), store.Options{URL: url, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for n, want := range map[int]error{1: store.ErrDuplicate, 2: nil} {
		var got int
		_, err := db.Call(t.Context(), "test", "insert into late values (?) returning n", []any{n}, &got)
		if !errors.Is(err, want) || (err == nil) != (want == nil) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%d: %v, want %v, known", n, err, want)
		}
	}
	var count int
	found, err := db.Ask(t.Context(), "test", "select count(*) from late", nil, &count)
	if !found || err != nil || count != 2 {
		t.Errorf("%d rows, %v, %v; want 2", count, found, err)
	}
}

// TestACallCutOffIsUnknown: a session that dies between the statement and its
// answer may have stored it; a server that can't be reached has not.
func TestACallCutOffIsUnknown(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	db, err := store.Open(t.Context(), store.Options{URL: url, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Call(t.Context(), "test", "select pg_terminate_backend(pg_backend_pid())", nil, new(bool))
	if !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("err = %v, want unknown", err)
	}
	away, err := store.Open(t.Context(), store.Options{URL: "postgres://u@127.0.0.1:1/x?sslmode=disable", Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	if _, err := away.Call(t.Context(), "test", "select 1", nil, new(int)); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("err = %v, want known to be unavailable", err)
	}
}

// TestASessionIsMadeDurable: whatever the database or the user says, unless
// the connection string does.
func TestASessionIsMadeDurable(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		url := postgres.Database(t)
		postgres.Exec(t, url, "do $$ begin execute 'alter database ' || current_database() || ' set synchronous_commit = "+set+"'; end $$")
		for suffix, want := range map[string]string{"": want, "&synchronous_commit=local": "local"} {
			db, err := store.Open(t.Context(), store.Options{URL: url + suffix, Foreign: true})
			if err != nil {
				t.Fatal(err)
			}
			var got string
			_, err = db.Ask(t.Context(), "test", "select current_setting('synchronous_commit')", nil, &got)
			if err := errors.Join(err, db.Close()); err != nil || got != want {
				t.Errorf("the database says %s, the connection string %q: %s, %v; want %s", set, suffix, got, err, want)
			}
		}
	}
}
