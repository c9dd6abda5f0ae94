package sourcedb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
)

func TestReadModels(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s, _ := w.open(t, sourcedb.Hooks{})
		enable(t, s, 1, 2)
		start(t, s, 1)
		end(t, s)
		w.Elapse(t, time.Second)
		start(t, s, 2)
		for _, c := range []source.Change{
			{Raise: []source.AlertRow{{Code: source.AlertRunFailed, Source: storetest.Key(1)}, {Code: source.AlertProvider, Source: storetest.Key(1)}}},
			{Resolve: []source.AlertRow{{Code: source.AlertProvider, Source: storetest.Key(1)}}},
		} {
			change(t, s, 1, func(source.Snapshot) source.Change { return c })
		}

		o, err := s.Sources(t.Context(), "")
		if err != nil || len(o.Sources) != 2 || o.Now.IsZero() {
			t.Fatalf("overview %+v, %v; want two sources at a time", o, err)
		}
		now := see(t, s, 1)
		got := o.Sources[0]
		if diff := cmp.Diff([]any{now.Source, now.Lock, now.Open}, []any{got.SourceRow, got.Lock, got.Run}); diff != "" {
			t.Errorf("(-stored +shown):\n%s", diff)
		}
		if len(got.Alerts) != 1 || got.Alerts[0].Code != source.AlertRunFailed || !got.Alerts[0].Open() {
			t.Errorf("open alerts %+v, want run_failed", got.Alerts)
		}
		if one, err := s.Sources(t.Context(), storetest.Key(2)); err != nil || len(one.Sources) != 1 || one.Sources[0].ID != storetest.ID(2) {
			t.Errorf("by key: %+v, %v; want source 2", one, err)
		}

		for name, c := range map[string]struct {
			filter sourcedb.RunFilter
			limit  int
			want   []fencepost.RunID
		}{
			"all, newest first": {sourcedb.RunFilter{}, 10, []fencepost.RunID{storetest.RunID(2), storetest.RunID(1)}},
			"one":               {sourcedb.RunFilter{}, 1, []fencepost.RunID{storetest.RunID(2)}},
			"failed":            {sourcedb.RunFilter{Status: source.Failed}, 10, []fencepost.RunID{storetest.RunID(1)}},
			"of a source":       {sourcedb.RunFilter{Source: storetest.ID(2)}, 10, nil},
		} {
			var ids []fencepost.RunID
			runs, err := s.Runs(t.Context(), c.filter, c.limit)
			for _, r := range runs {
				ids = append(ids, r.ID)
			}
			if diff := cmp.Diff(c.want, ids); diff != "" || err != nil {
				t.Errorf("runs, %s: %v (-want +got):\n%s", name, err, diff)
			}
		}
		if run, err := s.Run(t.Context(), storetest.RunID(2)); err != nil || cmp.Diff(*now.Open, run) != "" {
			t.Errorf("run: %+v, %v; want %+v", run, err, *now.Open)
		}
		if _, err := s.Run(t.Context(), storetest.RunID(3)); !errors.Is(err, sourcedb.ErrUnknownRun) {
			t.Errorf("unknown run: err = %v", err)
		}

		alerts, err := s.Alerts(t.Context(), 10)
		if err != nil || len(alerts) != 2 || !alerts[0].Open() || alerts[1].Code != source.AlertProvider || alerts[1].Until.IsZero() {
			t.Errorf("alerts %+v, %v; want the open one first, then the resolved one", alerts, err)
		}
		counts, err := s.OpenAlerts(t.Context())
		if diff := cmp.Diff(map[source.AlertCode]int64{source.AlertRunFailed: 1}, counts); diff != "" || err != nil {
			t.Errorf("open alerts, %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestPruneKeepsWhatIsOpenNewestOrForEver(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s, _ := w.open(t, sourcedb.Hooks{})
		enable(t, s, 1)
		delivery := storetest.Delivery(1, 1, storetest.Commit(1))
		change(t, s, 1, func(snap source.Snapshot) source.Change {
			d := delivery
			d.Run, d.Received = storetest.RunID(1), snap.Now
			return source.Change{
				Delivery: &d,
				Request:  &source.RequestRow{Source: storetest.ID(1), Key: "old", Intent: storetest.Digest(1), Run: storetest.RunID(1), At: snap.Now},
				Raise:    []source.AlertRow{{Code: source.AlertProvider, Source: storetest.Key(1)}, {Code: source.AlertCredential, Source: storetest.Key(1)}},
			}
		})
		change(t, s, 1, func(source.Snapshot) source.Change {
			return source.Change{Resolve: []source.AlertRow{{Code: source.AlertProvider, Source: storetest.Key(1)}}}
		})
		for n := 1; n <= 4; n++ {
			start(t, s, n)
			end(t, s)
			w.Elapse(t, time.Second)
		}
		start(t, s, 5) // stays open

		r := sourcedb.Retention{Runs: 24 * time.Hour, Newest: 2, Alerts: time.Hour, Batch: 1}
		if p, err := s.Prune(t.Context(), r); err != nil || p != (sourcedb.Pruned{}) {
			t.Fatalf("at once: %+v, %v; want nothing", p, err)
		}
		w.Elapse(t, 25*time.Hour)
		var sum sourcedb.Pruned
		for more := true; more; {
			p, err := s.Prune(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			sum = sourcedb.Pruned{Runs: sum.Runs + p.Runs, Jobs: sum.Jobs + p.Jobs, Requests: sum.Requests + p.Requests, Alerts: sum.Alerts + p.Alerts}
			more = p.More(r)
		}
		if want := (sourcedb.Pruned{Runs: 2, Jobs: 4, Requests: 1, Alerts: 1}); sum != want {
			t.Errorf("removed %+v, want %+v", sum, want)
		}
		runs, err := s.Runs(t.Context(), sourcedb.RunFilter{}, 10)
		if err != nil || len(runs) != 3 || runs[0].ID != storetest.RunID(5) || runs[2].ID != storetest.RunID(3) {
			t.Errorf("left %+v, %v; want 5, 4 and 3", runs, err)
		}
		var found *source.DeliveryRow
		if err := s.Change(t.Context(), storetest.ID(1), source.Lookup{Delivery: &delivery}, func(snap source.Snapshot) (source.Change, error) {
			found = snap.ByBody
			return source.Change{}, nil
		}); err != nil || found == nil {
			t.Errorf("the delivery fence is %v, %v; want it kept", found, err)
		}
		if alerts, err := s.Alerts(t.Context(), 10); err != nil || len(alerts) != 1 || alerts[0].Code != source.AlertCredential {
			t.Errorf("alerts %+v, %v; want the open one kept", alerts, err)
		}
		if _, err := s.Prune(t.Context(), sourcedb.Retention{Runs: time.Minute}); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("a retention of a minute: err = %v, want ErrMalformed", err)
		}
	})
}
