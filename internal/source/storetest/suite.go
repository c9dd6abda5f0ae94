package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// A testCase is one subtest.
type testCase struct {
	name string
	run  func(t *testing.T, fresh func(testing.TB) Harness)
}

// Run runs the suite, each case on a store of its own.
func Run(t *testing.T, fresh func(testing.TB) Harness) {
	for _, cases := range [][]testCase{changeCases, fenceCases, holdCases, raceCases, dueCases, watchCases} {
		runAll(t, cases, fresh)
	}
}

// Races runs the part of the suite in which several do the same at once.
func Races(t *testing.T, fresh func(testing.TB) Harness) { runAll(t, raceCases, fresh) }

func runAll(t *testing.T, cases []testCase, fresh func(testing.TB) Harness) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, fresh)
		})
	}
}

var changeCases = []testCase{
	{"register/says what needs its policy, once", registerOnce},
	{"register/names what is gone, and renames", registerOthers},
	{"change/of an unknown source is refused", changeUnknown},
	{"change/gives back what was stored", changeRoundTrip},
	{"change/an error of the transition leaves nothing", changeFails},
	{"change/an error of the queue leaves nothing", changeQueueFails},
	{"change/an ended log never changes", changeEnded},
	{"change/refuses what no row may become", changeIllegal},
	{"change/of alerts that are as they should be stores nothing", changeAlerts},
}

func registerOnce(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 3)
	changed, err := w.store.Register(t.Context(), []source.Registration{Registration(1), Registration(2), Registration(3)})
	if err != nil || len(changed) != 0 {
		t.Errorf("register again: %v, %v; want none", numbers(changed), err)
	}
	newer := Registration(2)
	newer.Revision = Revision(2)
	off := Registration(3)
	off.Enabled = false
	changed, err = w.store.Register(t.Context(), []source.Registration{Registration(1), newer, off, Registration(4)})
	if diff := cmp.Diff([]int{2, 3, 4}, numbers(changed)); diff != "" || err != nil {
		t.Errorf("changed (-want +got), %v:\n%s", err, diff)
	}
	if s := w.see(t, 4, source.Lookup{}); !s.Source.Revision.IsZero() || s.Source.Enabled || s.Source.RegisteredAt.IsZero() || !s.Lock.Free() {
		t.Errorf("a new source is %+v, want one without a policy, not enabled, dated, its lock free", s.Source)
	}
	if s := w.see(t, 2, source.Lookup{}); s.Source.Revision != Revision(1) {
		t.Errorf("registering brought revision %v into force", s.Source.Revision)
	}
}

func registerOthers(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 3)
	// Two swap their names.
	one, two := Registration(1), Registration(2)
	one.Key, two.Key = two.Key, one.Key
	changed, err := w.store.Register(t.Context(), []source.Registration{one, two})
	if err != nil {
		t.Fatal(err)
	}
	if len(changed) != 1 || changed[0] != Registration(3).ID {
		t.Errorf("changed are %v, want the one that is gone", changed)
	}
	w.change(t, 3, source.OnRemoval)
	type brief struct {
		Key     fencepost.RouteName
		Enabled bool
	}
	want := map[int]brief{1: {Key(2), true}, 2: {Key(1), true}, 3: {Key(3), false}}
	for n, b := range want {
		if s := w.see(t, n, source.Lookup{}).Source; (brief{s.Key, s.Enabled}) != b {
			t.Errorf("source %d is %v, %v; want %+v", n, s.Key, s.Enabled, b)
		}
	}
}

func changeUnknown(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	if err := w.try(t, 2, func(source.Snapshot) source.Change { return source.Change{} }); !errors.Is(err, source.ErrUnknownSource) {
		t.Errorf("err = %v, want ErrUnknownSource", err)
	}
}

// full is a source row with a value in every field.
func full(s source.Snapshot) source.SourceRow {
	tick := func(n int) time.Time { return s.Now.Add(time.Duration(n) * time.Second) }
	return source.SourceRow{
		ID: s.Source.ID, Key: "renamed", Revision: Revision(2), Lineage: Digest(3), Enabled: true, Version: s.Source.Version,
		Announced: Commit(1), AnnouncedAt: tick(1), Announcements: 7,
		Observed: Commit(2), ObservedAt: tick(2), TriedAt: tick(3), Trouble: fencepost.ReasonProvider,
		Applied: Commit(3), AppliedTree: Tree(3), AppliedRevision: Revision(1), AppliedAt: tick(4),
		UnmetSince: tick(-1), FollowUp: true, FollowUpSince: tick(5), RegisteredAt: tick(-9),
		NextCheck: tick(6), CheckUntil: tick(7), LastFence: 41,
	}
}

func changeRoundTrip(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	var want source.Snapshot
	delivery := Delivery(1, 1, Commit(1))
	lookup := source.Lookup{Run: RunID(1), Delivery: &delivery, Request: "request/1"}
	w.change(t, 1, func(s source.Snapshot) source.Change {
		row := full(s)
		run := Log(1, 1, s.Now)
		run.Recovers, run.Status, run.Token, run.Attempts = RunID(77), source.Running, Token(1), 2
		run.Reason, run.Detail, run.SeenAnnouncements = fencepost.ReasonTimeout, "sink", 6
		run.NotBefore, run.StartedAt = s.Now.Add(time.Minute), s.Now.Add(time.Hour)
		run.Head, run.Tree = Commit(4), Tree(4)
		run.Counts = source.Counts{Files: 1, Added: 2, Changed: 3, Removed: 4, Bytes: 1 << 40, Wire: 6}
		run.Refused = []source.Refusal{{Entry: 3, Reason: fencepost.ReasonContent}, {Entry: 9, Reason: fencepost.ReasonTooLarge}}
		lock := source.LockRow{
			Owner: source.Owner(Token(2)), Token: Token(1), Fence: 41, Run: run.ID,
			Acquired: s.Now, Renewed: s.Now.Add(time.Second), Expires: s.Now.Add(time.Minute),
		}
		d := delivery
		d.Run, d.Received = run.ID, s.Now
		request := source.RequestRow{Source: ID(1), Key: "request/1", Intent: Digest(5), Run: run.ID, At: s.Now}
		want = source.Snapshot{Source: row, Lock: lock, Open: run, Run: run, ByID: &d, ByBody: &d, Request: &request}
		return source.Change{Source: &row, Lock: &lock, Insert: run, Job: Job(run), Delivery: &d, Request: &request}
	})
	want.Source.Version++
	got := w.see(t, 1, lookup)
	want.Now = got.Now
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-stored +read):\n%s", diff)
	}
	if other := w.see(t, 1, source.Lookup{Run: RunID(2), Request: "request/2"}); other.Run != nil || other.Request != nil || other.ByID != nil {
		t.Errorf("rows that nobody stored: %+v", other)
	}
	w.finish(t, 1)
	got = w.see(t, 1, lookup)
	if got.Open != nil || got.Run == nil || got.Run.Status != source.Complete || got.Run.Version != 2 || !got.Lock.Free() {
		t.Errorf("after the end: open %v, run %+v, lock %+v", got.Open, got.Run, got.Lock)
	}
}

// untouched fails unless source n is as it was.
func (w *world) untouched(t *testing.T, n int, before source.Snapshot, l source.Lookup) {
	t.Helper()
	after := w.see(t, n, l)
	after.Now = before.Now
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

// everything is a change of every kind.
func everything(s source.Snapshot) source.Change {
	row := s.Source
	row.Announcements++
	run := Log(1, 1, s.Now)
	d := Delivery(1, 1, Commit(1))
	d.Run, d.Received = run.ID, s.Now
	return source.Change{
		Source: &row, Insert: run, Job: Job(run), Delivery: &d,
		Request: &source.RequestRow{Source: ID(1), Key: "request/1", Intent: Digest(5), Run: run.ID, At: s.Now},
		Raise:   []source.AlertRow{{Code: source.AlertFreshness, Source: Key(1)}},
	}
}

func changeFails(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	d := Delivery(1, 1, Commit(1))
	lookup := source.Lookup{Run: RunID(1), Delivery: &d, Request: "request/1"}
	before, mine := w.see(t, 1, lookup), errors.New("mine")
	err := w.store.Change(t.Context(), ID(1), lookup, func(s source.Snapshot) (source.Change, error) { return everything(s), mine })
	if !errors.Is(err, mine) {
		t.Errorf("err = %v, want the transition's own", err)
	}
	w.untouched(t, 1, before, lookup)
}

func changeQueueFails(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	d := Delivery(1, 1, Commit(1))
	lookup := source.Lookup{Run: RunID(1), Delivery: &d, Request: "request/1"}
	before := w.see(t, 1, lookup)
	w.Queue.Fail(ErrQueue)
	if err := w.try(t, 1, everything); !errors.Is(err, ErrQueue) {
		t.Errorf("err = %v, want the queue's", err)
	}
	w.untouched(t, 1, before, lookup)
	w.Queue.Fail(nil)
	w.change(t, 1, everything)
	if s := w.see(t, 1, lookup); s.Open == nil || s.ByID == nil || s.ByBody == nil || s.Request == nil {
		t.Errorf("once the queue works there is %+v, want all of it", s)
	}
}

func changeEnded(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	w.begin(t, 1, 1, time.Minute)
	w.finish(t, 1)
	lookup := source.Lookup{Run: RunID(1)}
	before := w.see(t, 1, lookup)
	err := w.store.Change(t.Context(), ID(1), lookup, func(s source.Snapshot) (source.Change, error) {
		again := *s.Run
		again.Status, again.EndedAt = source.Queued, time.Time{}
		return source.Change{Update: &again}, nil
	})
	if !errors.Is(err, w.Illegal) {
		t.Errorf("err = %v, want an illegal change", err)
	}
	w.untouched(t, 1, before, lookup)
}

func changeIllegal(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 2)
	w.begin(t, 1, 1, time.Minute)
	before := w.see(t, 1, source.Lookup{})
	for name, decide := range map[string]func(source.Snapshot) source.Change{
		"a second open log": func(s source.Snapshot) source.Change { return source.Change{Insert: Log(2, 1, s.Now)} },
		"a fence that goes back": func(s source.Snapshot) source.Change {
			row := s.Source
			row.LastFence--
			return source.Change{Source: &row}
		},
		"a lock's fence that goes back": func(s source.Snapshot) source.Change { return source.Change{Lock: &source.LockRow{}} },
		"the row of another source": func(s source.Snapshot) source.Change {
			row := s.Source
			row.ID = ID(2)
			return source.Change{Source: &row}
		},
		"another trigger of a log": func(s source.Snapshot) source.Change {
			log := *s.Open
			log.Trigger.ID = "another"
			return source.Change{Update: &log}
		},
		"a job of another source": func(s source.Snapshot) source.Change {
			job := Job(s.Open)
			job.Payload.Source = ID(2)
			return source.Change{Job: job}
		},
	} {
		if err := w.try(t, 1, decide); !errors.Is(err, w.Illegal) {
			t.Errorf("%s: err = %v, want an illegal change", name, err)
		}
	}
	w.untouched(t, 1, before, source.Lookup{})
}

func changeAlerts(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	alert := []source.AlertRow{{Code: source.AlertFreshness, Source: Key(1)}}
	version := func() int64 { return w.see(t, 1, source.Lookup{}).Source.Version }
	was := version()
	for _, step := range []struct {
		name   string
		change source.Change
		stored int64
	}{
		{"resolve what is not open", source.Change{Resolve: alert}, 0},
		{"raise", source.Change{Raise: alert}, 1},
		{"raise again", source.Change{Raise: alert}, 0},
		{"raise and resolve: it stays", source.Change{Raise: alert, Resolve: alert}, 0},
		{"resolve", source.Change{Resolve: alert}, 1},
		{"resolve again", source.Change{Resolve: alert}, 0},
	} {
		w.change(t, 1, func(source.Snapshot) source.Change { return step.change })
		if now := version(); now-was != step.stored {
			t.Errorf("%s: %d changes were stored, want %d", step.name, now-was, step.stored)
		}
		was = version()
	}
}
