package sourcedb_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
)

// queued lists the keys in the queue.
func queued(t *testing.T, db *store.DB) (keys []string) {
	t.Helper()
	if err := db.Read(t.Context(), "read queue", func(ctx context.Context, tx *store.Tx) error {
		keys = nil
		return tx.Each(ctx, "select key from test_queue order by key", nil, func(scan func(...any) error) error {
			var key string
			err := scan(&key)
			keys = append(keys, key)
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	return keys
}

// asked is a change with a new run and an alert.
func asked(n, of int) source.Transition {
	return func(s source.Snapshot) (source.Change, error) {
		run := storetest.Log(n, of, s.Now)
		return source.Change{
			Insert: run, Job: storetest.Job(run), Raise: []source.AlertRow{{Code: source.AlertProvider, Source: storetest.Key(of)}},
		}, nil
	}
}

// TestTogetherIsAllOrNothing: the rollback of an outer transaction takes what
// was changed within, with its jobs, and no hook hears of it.
func TestTogetherIsAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		var alerts []sourcedb.Alert
		var jobs []string
		s, db := w.open(t, sourcedb.Hooks{
			Alert: func(a sourcedb.Alert) { alerts = append(alerts, a) },
			Job:   func(j source.JobRow) { jobs = append(jobs, j.Key) },
		})
		enable(t, s, 1, 2)
		mine := errors.New("mine")
		both := func(fail error) error {
			return s.Together(t.Context(), func(ctx context.Context, b *sourcedb.Bound) error {
				if err := b.Change(ctx, storetest.ID(1), source.Lookup{}, asked(1, 1)); err != nil {
					return err
				}
				if err := b.Change(ctx, storetest.ID(2), source.Lookup{}, asked(2, 2)); err != nil {
					return err
				}
				return fail
			})
		}
		if err := both(mine); !errors.Is(err, mine) {
			t.Fatalf("err = %v, want the outer one", err)
		}
		for _, n := range []int{1, 2} {
			if open := see(t, s, n).Open; open != nil {
				t.Errorf("source %d has the run %v", n, open.ID)
			}
		}
		if keys := queued(t, db); len(keys)+len(jobs)+len(alerts) != 0 {
			t.Errorf("queue %v, hooks %v and %v; want nothing", keys, jobs, alerts)
		}
		if err := both(nil); err != nil {
			t.Fatal(err)
		}
		want := []string{storetest.RunID(1).String(), storetest.RunID(2).String()}
		if keys := queued(t, db); !slices.Equal(keys, want) || !slices.Equal(jobs, want) || len(alerts) != 2 {
			t.Errorf("queue %v, hooks %v and %v; want both runs and alerts", keys, jobs, alerts)
		}
	})
}

// TestHooksHearOfAlertsOnce: of what is new, in the order in which it was
// stored.
func TestHooksHearOfAlertsOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		type event struct {
			Code   source.AlertCode
			Open   bool
			Raised int64
		}
		var got []event
		s, _ := w.open(t, sourcedb.Hooks{Alert: func(a sourcedb.Alert) {
			if a.Source != storetest.ID(1) || a.AlertRow.Source != storetest.Key(1) || a.Since.IsZero() {
				t.Errorf("alert %+v is not of source 1", a)
			}
			got = append(got, event{a.Code, a.Open(), a.Raised})
		}})
		enable(t, s, 1)
		rows := func(codes ...source.AlertCode) (all []source.AlertRow) {
			for _, c := range codes {
				all = append(all, source.AlertRow{Code: c, Source: storetest.Key(1)})
			}
			return all
		}
		for _, c := range []source.Change{
			{Raise: rows(source.AlertRunFailed, source.AlertProvider, source.AlertRunFailed)},
			{Raise: rows(source.AlertRunFailed, source.AlertCredential)},
			{Resolve: rows(source.AlertRunFailed, source.AlertFreshness)},
			{Raise: rows(source.AlertRunFailed)},
		} {
			change(t, s, 1, func(source.Snapshot) source.Change { return c })
		}
		want := []event{
			{source.AlertRunFailed, true, 1}, {source.AlertProvider, true, 1}, {source.AlertCredential, true, 1},
			{source.AlertRunFailed, false, 2}, {source.AlertRunFailed, true, 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
