package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/source"
)

var watchCases = []testCase{
	{"stale/lists what needs the watchdog, and nothing else", staleLists},
	{"unfresh/lists who is to be told first", unfreshLists},
	{"unfresh/a clock that went back hides no source", unfreshClockBack},
}

func staleLists(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 7)
	stale := func() []int {
		t.Helper()
		ids, err := w.store.Stale(t.Context(), 30*time.Second, 100)
		if err != nil {
			t.Fatal(err)
		}
		return numbers(ids)
	}
	if got := stale(); len(got) != 0 {
		t.Errorf("at rest %v are stale", got)
	}
	// 1 is idle. 2's worker dies, 3's lives. 4 waits, 5 will wait later.
	w.begin(t, 2, 2, 20*time.Second)
	w.begin(t, 3, 3, time.Hour)
	for n, in := range map[int]time.Duration{4: 0, 5: time.Hour} {
		w.change(t, n, func(s source.Snapshot) source.Change {
			run := Log(n, n, s.Now)
			run.NotBefore = s.Now.Add(in)
			return source.Change{Insert: run, Job: Job(run)}
		})
	}
	// 6 owes a look that nothing will take; 7 does, with a run under way.
	w.begin(t, 7, 7, time.Hour)
	for _, n := range []int{6, 7} {
		w.change(t, n, func(s source.Snapshot) source.Change {
			row := s.Source
			row.FollowUp, row.FollowUpSince = true, s.Now
			return source.Change{Source: &row}
		})
	}
	if diff := cmp.Diff([]int{6}, stale()); diff != "" {
		t.Errorf("at once (-want +got):\n%s", diff)
	}
	w.Elapse(t, 31*time.Second)
	if diff := cmp.Diff([]int{2, 6, 4}, stale()); diff != "" {
		t.Errorf("after 31s (-want +got):\n%s", diff)
	}
	// A log under way without its lock.
	w.change(t, 3, func(s source.Snapshot) source.Change {
		return source.Change{Lock: &source.LockRow{Fence: s.Lock.Fence}}
	})
	if diff := cmp.Diff([]int{2, 3, 6, 4}, stale()); diff != "" {
		t.Errorf("with a log without a lock (-want +got):\n%s", diff)
	}
	if ids, err := w.store.Stale(t.Context(), 30*time.Second, 2); err != nil || cmp.Diff([]int{2, 3}, numbers(ids)) != "" {
		t.Errorf("the first two are %v, %v; want 2 and 3", numbers(ids), err)
	}
}

// date edits a source's row.
func (w *world) date(t *testing.T, n int, edit func(now time.Time, row *source.SourceRow)) {
	t.Helper()
	w.change(t, n, func(s source.Snapshot) source.Change {
		row := s.Source
		edit(s.Now, &row)
		return source.Change{Source: &row}
	})
}

func (w *world) unfresh(t *testing.T, limit int) []int {
	t.Helper()
	ids, err := w.store.Unfresh(t.Context(), 13*time.Minute, limit)
	if err != nil {
		t.Fatal(err)
	}
	return numbers(ids)
}

func unfreshLists(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 9)
	if got := w.unfresh(t, 100); len(got) != 0 {
		t.Errorf("at the start %v are not fresh", got)
	}
	observed := func(ago time.Duration) func(time.Time, *source.SourceRow) {
		return func(now time.Time, row *source.SourceRow) { row.Observed, row.ObservedAt = Commit(1), now.Add(-ago) }
	}
	raise := func(n int, code source.AlertCode) {
		w.change(t, n, func(source.Snapshot) source.Change {
			return source.Change{Raise: []source.AlertRow{{Code: code, Source: Key(n)}}}
		})
	}
	w.Elapse(t, 20*time.Minute)
	w.date(t, 1, observed(time.Minute))    // fresh
	w.date(t, 2, observed(14*time.Minute)) // not looked at
	// 3 was never looked at, since its registration.
	w.date(t, 4, func(now time.Time, row *source.SourceRow) { // sign unmet
		observed(0)(now, row)
		row.UnmetSince = now.Add(-15 * time.Minute)
	})
	w.date(t, 5, func(now time.Time, row *source.SourceRow) { row.Enabled = false }) // not enabled
	w.date(t, 6, observed(16*time.Minute))                                           // told already
	raise(6, source.AlertFreshness)
	w.date(t, 7, observed(0)) // fresh again
	raise(7, source.AlertFreshness)
	w.date(t, 8, func(now time.Time, row *source.SourceRow) { // a look is owed
		observed(0)(now, row)
		row.FollowUp, row.FollowUpSince, row.UnmetSince = true, now.Add(-14*time.Minute-time.Second), now.Add(-time.Minute)
	})
	w.date(t, 9, observed(0)) // another alert
	raise(9, source.AlertRunFailed)
	if diff := cmp.Diff([]int{3, 4, 8, 2, 7, 6}, w.unfresh(t, 100)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{3, 4}, w.unfresh(t, 2)); diff != "" {
		t.Errorf("the first two (-want +got):\n%s", diff)
	}
}

func unfreshClockBack(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 2)
	w.date(t, 1, func(now time.Time, row *source.SourceRow) { row.UnmetSince = now.Add(24 * time.Hour) })
	w.date(t, 2, func(now time.Time, row *source.SourceRow) { row.ObservedAt = now.Add(24 * time.Hour) })
	if got := w.unfresh(t, 100); len(got) != 2 {
		t.Errorf("%v are listed, want both whose signs lie ahead", got)
	}
}
