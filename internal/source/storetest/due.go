package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

var dueCases = []testCase{
	{"due/in stable order, claimed for a time", dueOrder},
	{"due/no source is claimed by two", dueExclusive},
	{"due/a clock that went back hides no source", dueClockBack},
	{"checked/stores what was seen, but not over news", checkedSkips},
}

// plan sets the next check of source n to so long from now.
func (w *world) plan(t *testing.T, n int, in time.Duration) {
	t.Helper()
	w.change(t, n, func(s source.Snapshot) source.Change {
		row := s.Source
		row.NextCheck = s.Now.Add(in)
		return source.Change{Source: &row}
	})
}

// due claims, and says which.
func (w *world) due(t *testing.T, limit int) []source.SourceRow {
	t.Helper()
	rows, err := w.store.Due(t.Context(), limit, time.Minute)
	if err != nil {
		t.Fatalf("due: %v", err)
	}
	return rows
}

func numbersOf(rows []source.SourceRow) []int {
	ids := make([]fencepost.SourceID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return numbers(ids)
}

func (w *world) wantDue(t *testing.T, when string, limit int, want ...int) []source.SourceRow {
	t.Helper()
	rows := w.due(t, limit)
	if diff := cmp.Diff(append([]int{}, want...), numbersOf(rows)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	return rows
}

func dueOrder(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 6)
	for n, in := range map[int]time.Duration{1: -time.Second, 2: -time.Minute, 3: time.Minute, 4: -time.Hour, 5: -2 * time.Hour, 6: -30 * time.Second} {
		w.plan(t, n, in)
	}
	w.change(t, 5, func(s source.Snapshot) source.Change {
		row := s.Source
		row.Enabled = false
		return source.Change{Source: &row}
	})
	rows := w.wantDue(t, "the first two", 2, 4, 2)
	for i, n := range numbersOf(rows) {
		r := rows[i]
		if s := w.see(t, n, source.Lookup{}).Source; cmp.Diff(r, s) != "" {
			t.Errorf("source %d (-there +given):\n%s", n, cmp.Diff(s, r))
		}
		if claimed := r.CheckUntil.Sub(r.TriedAt); claimed < 59*time.Second || claimed > 61*time.Second {
			t.Errorf("claimed from %v until %v, want about a minute", r.TriedAt, r.CheckUntil)
		}
	}
	w.wantDue(t, "the rest", 10, 6, 1)
	w.wantDue(t, "nothing more", 10)
	w.Elapse(t, time.Minute+time.Second)
	w.wantDue(t, "when the claims have passed, and the third's time has come", 10, 4, 2, 6, 1, 3)
}

func dueExclusive(t *testing.T, fresh func(testing.TB) Harness) {
	const sources = 60
	w := enter(t, fresh, sources)
	stores := []source.Store{w.store, w.Open(t)}
	var mu sync.Mutex
	claims := map[fencepost.SourceID]int{}
	together(4, func(i int) {
		for empty := 0; empty < 3; {
			rows, err := stores[i%2].Due(t.Context(), 7, time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			if len(rows) == 0 {
				empty++
			}
			mu.Lock()
			for _, r := range rows {
				claims[r.ID]++
			}
			mu.Unlock()
		}
	})
	if len(claims) != sources {
		t.Errorf("%d of %d sources were claimed", len(claims), sources)
	}
	for id, n := range claims {
		if n != 1 {
			t.Errorf("source %v was claimed %d times", id, n)
		}
	}
}

func dueClockBack(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	w.Elapse(t, 24*time.Hour)
	rows := w.wantDue(t, "a day ahead", 10, 1)
	if err := w.store.Checked(t.Context(), []source.Check{{Source: rows[0], Observed: Commit(1), Next: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	w.wantDue(t, "just checked", 10)
	w.Elapse(t, -24*time.Hour)
	w.wantDue(t, "what was planned for tomorrow", 10, 1)
	w.wantDue(t, "claimed", 10)
}

func checkedSkips(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 3)
	rows := w.due(t, 10)
	if len(rows) != 3 {
		t.Fatalf("%d due, want 3", len(rows))
	}
	// Meanwhile something happens to the second.
	w.change(t, 2, func(s source.Snapshot) source.Change {
		row := s.Source
		row.Announcements++
		return source.Change{Source: &row}
	})
	before := w.see(t, 2, source.Lookup{}).Source
	all := make([]source.Check, 0, 3)
	for _, r := range rows {
		all = append(all, source.Check{Source: r, Observed: Commit(9), Next: time.Minute})
	}
	if err := w.store.Checked(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3} {
		s := w.see(t, n, source.Lookup{})
		row := s.Source
		if row.Observed != Commit(9) || row.ObservedAt.IsZero() || !row.ObservedAt.Equal(row.TriedAt) || !row.CheckUntil.IsZero() ||
			!row.NextCheck.After(row.ObservedAt) || row.NextCheck.Sub(s.Now) > time.Minute {
			t.Errorf("source %d: %+v, want it observed", n, row)
		}
	}
	if after := w.see(t, 2, source.Lookup{}).Source; cmp.Diff(before, after) != "" {
		t.Errorf("news were overwritten:\n%s", cmp.Diff(before, after))
	}
	// A check is good for once.
	before = w.see(t, 1, source.Lookup{}).Source
	if err := w.store.Checked(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if after := w.see(t, 1, source.Lookup{}).Source; cmp.Diff(before, after) != "" {
		t.Errorf("a check was stored twice:\n%s", cmp.Diff(before, after))
	}
}
