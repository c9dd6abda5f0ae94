package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
)

var fenceCases = []testCase{
	{"fences/one thing has one", fencesUnique},
	{"fences/a job may be queued again, never with another payload", fencesJob},
	{"fences/a delivery is found by its id and by its body", fencesDelivery},
	{"fences/a commit is named by the deliveries of its source alone", fencesNamed},
}

// fencesUnique stores each fence twice, by a transition that did not look.
func fencesUnique(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 2)
	w.change(t, 1, everything)
	w.change(t, 1, func(s source.Snapshot) source.Change {
		log := *s.Open
		log.Status, log.EndedAt = source.Failed, s.Now
		return source.Change{Update: &log}
	})
	lookup := source.Lookup{Run: RunID(1)}
	before := w.see(t, 1, lookup)
	for name, decide := range map[string]func(source.Snapshot) source.Change{
		"run fence": func(s source.Snapshot) source.Change {
			run := Log(2, 1, s.Now)
			run.Fence = before.Run.Fence
			return source.Change{Insert: run, Job: Job(run)}
		},
		"run id": func(s source.Snapshot) source.Change {
			run := Log(2, 1, s.Now)
			run.ID = RunID(1)
			return source.Change{Insert: run}
		},
		"delivery id with another body": func(s source.Snapshot) source.Change {
			d := Delivery(2, 1, Commit(1))
			d.ID, d.Run, d.Received = Digest(1001), RunID(1), s.Now
			return source.Change{Delivery: &d}
		},
		"delivery body with another id": func(s source.Snapshot) source.Change {
			d := Delivery(2, 1, Commit(1))
			d.Body, d.Run, d.Received = Digest(2001), RunID(1), s.Now
			return source.Change{Delivery: &d}
		},
		"request key": func(s source.Snapshot) source.Change {
			return source.Change{Request: &source.RequestRow{Source: ID(1), Key: "request/1", Intent: Digest(6), Run: RunID(1), At: s.Now}}
		},
	} {
		if err := w.try(t, 1, decide); !errors.Is(err, w.Taken) {
			t.Errorf("%s: err = %v, want one that says it is taken", name, err)
		}
	}
	w.untouched(t, 1, before, lookup)

	// A log is recovered once.
	recover := func(n int) error {
		return w.try(t, 2, func(s source.Snapshot) source.Change {
			run := Log(n, 2, s.Now)
			run.Recovers, run.Status, run.EndedAt = RunID(1), source.Failed, s.Now
			return source.Change{Insert: run}
		})
	}
	if err := recover(10); err != nil {
		t.Fatal(err)
	}
	if err := recover(11); !errors.Is(err, w.Taken) {
		t.Errorf("a second recovery: err = %v, want one that says it is taken", err)
	}
	// The same names of another source are others.
	w.change(t, 2, func(s source.Snapshot) source.Change {
		d := Delivery(1, 2, Commit(1))
		d.Run, d.Received = RunID(1), s.Now
		return source.Change{
			Delivery: &d,
			Request:  &source.RequestRow{Source: ID(2), Key: "request/1", Intent: Digest(6), Run: RunID(1), At: s.Now},
		}
	})
}

func fencesJob(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	w.change(t, 1, everything)
	w.change(t, 1, func(s source.Snapshot) source.Change { return source.Change{Job: Job(s.Open)} })
	before := w.see(t, 1, source.Lookup{})
	if err := w.try(t, 1, func(s source.Snapshot) source.Change {
		job := Job(s.Open)
		job.Payload.Revision = Revision(2)
		return source.Change{Job: job}
	}); !errors.Is(err, w.Taken) {
		t.Errorf("another payload: err = %v, want one that says it is taken", err)
	}
	w.untouched(t, 1, before, source.Lookup{})
}

func fencesDelivery(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	w.change(t, 1, everything)
	anonymous := Delivery(5, 1, Commit(5))
	anonymous.ID = source.Digest{}
	w.change(t, 1, func(s source.Snapshot) source.Change {
		d := anonymous
		d.Run, d.Received = RunID(1), s.Now
		return source.Change{Delivery: &d}
	})
	known := Delivery(1, 1, Commit(1))
	for _, test := range []struct {
		name         string
		edit         func(*source.DeliveryRow)
		byID, byBody bool
	}{
		{"the same", func(*source.DeliveryRow) {}, true, true},
		{"other body", func(d *source.DeliveryRow) { d.Body = Digest(1) }, true, false},
		{"other id", func(d *source.DeliveryRow) { d.ID = Digest(1) }, false, true},
		{"no id", func(d *source.DeliveryRow) { d.ID = source.Digest{} }, false, true},
		{"neither", func(d *source.DeliveryRow) { d.ID, d.Body = Digest(1), Digest(2) }, false, false},
		{"no id, other body", func(d *source.DeliveryRow) { d.ID, d.Body = source.Digest{}, Digest(2) }, false, false},
		{"other namespace", func(d *source.DeliveryRow) { d.Namespace = "other" }, false, false},
	} {
		d := known
		test.edit(&d)
		s := w.see(t, 1, source.Lookup{Delivery: &d})
		if (s.ByID != nil) != test.byID || (s.ByBody != nil) != test.byBody {
			t.Errorf("%s: by id %v, by body %v; want %v, %v", test.name, s.ByID != nil, s.ByBody != nil, test.byID, test.byBody)
		}
	}
}

func fencesNamed(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 2)
	w.change(t, 1, everything)
	for _, test := range []struct {
		of, commit int
		want       bool
	}{{1, 1, true}, {1, 2, false}, {2, 1, false}} {
		if got, err := w.store.Named(t.Context(), ID(test.of), Commit(test.commit)); err != nil || got != test.want {
			t.Errorf("source %d names commit %d: %v, %v; want %v", test.of, test.commit, got, err, test.want)
		}
	}
}

var holdCases = []testCase{
	{"hold/stands and is renewed", holdRenewed},
	{"hold/is lost in every way", holdLost},
}

func holdRenewed(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	h := w.begin(t, 1, 1, time.Minute)
	w.Elapse(t, 50*time.Second)
	expires, err := w.store.Renew(t.Context(), h, time.Minute)
	if err != nil || expires.Before(h.Expires.Add(50*time.Second)) {
		t.Fatalf("renewed until %v, %v; want 50s after %v or later", expires, err, h.Expires)
	}
	if s := w.see(t, 1, source.Lookup{}); !s.Lock.Expires.Equal(expires) || s.Lock.Renewed.Before(s.Lock.Acquired.Add(50*time.Second)) {
		t.Errorf("the lock says %+v, want expiry at %v", s.Lock, expires)
	}
	if again, err := w.store.Renew(t.Context(), h, time.Second); err != nil || again.Before(expires) {
		t.Errorf("a shorter lease: %v, %v; want no expiry before %v", again, err, expires)
	}
	w.Elapse(t, 50*time.Second)
	if err := w.store.Holds(t.Context(), h); err != nil {
		t.Errorf("holds: %v", err)
	}
	// A clock that was a day ahead doesn't leave the lock standing for a day.
	w.Elapse(t, -24*time.Hour)
	now := w.see(t, 1, source.Lookup{}).Now
	if expires, err = w.store.Renew(t.Context(), h, time.Minute); err != nil || expires.Sub(now) > 2*time.Minute {
		t.Errorf("after the clock went back to %v: %v, %v; want about a minute later", now, expires, err)
	}
}

func holdLost(t *testing.T, fresh func(testing.TB) Harness) {
	const ways = 12
	w, n := enter(t, fresh, ways+1), 0
	same := func(h source.Hold) source.Hold { return h }
	for name, c := range map[string]struct {
		hold func(source.Hold) source.Hold
		by   func(t *testing.T, w *world, n int)
	}{
		"another token":  {func(h source.Hold) source.Hold { h.Token = Token(800); return h }, nil},
		"no token":       {func(h source.Hold) source.Hold { h.Token = source.Token{}; return h }, nil},
		"an older fence": {func(h source.Hold) source.Hold { h.Fence--; return h }, nil},
		"a newer fence":  {func(h source.Hold) source.Hold { h.Fence++; return h }, nil},
		"another run":    {func(h source.Hold) source.Hold { h.Run = RunID(800); return h }, nil},
		"another source": {func(h source.Hold) source.Hold { h.Source = ID(ways + 1); return h }, nil},
		"no hold":        {func(source.Hold) source.Hold { return source.Hold{} }, nil},
		"the run ended":  {same, func(t *testing.T, w *world, n int) { w.finish(t, n) }},
		"the lease passed": {same, func(t *testing.T, w *world, n int) {
			w.Elapse(t, time.Minute+time.Second)
		}},
		"queued again": {same, func(t *testing.T, w *world, n int) {
			w.change(t, n, func(s source.Snapshot) source.Change {
				log := *s.Open
				log.Status, log.Token = source.Queued, source.Token{}
				return source.Change{Lock: &source.LockRow{Fence: s.Lock.Fence}, Update: &log}
			})
		}},
		"freed while the log stands": {same, func(t *testing.T, w *world, n int) {
			w.change(t, n, func(s source.Snapshot) source.Change {
				return source.Change{Lock: &source.LockRow{Fence: s.Lock.Fence}}
			})
		}},
		"the log taken over": {same, func(t *testing.T, w *world, n int) {
			w.change(t, n, func(s source.Snapshot) source.Change {
				log := *s.Open
				log.Token = Token(800)
				return source.Change{Update: &log}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n++
			h := w.begin(t, n, n, time.Minute)
			if err := w.store.Holds(t.Context(), h); err != nil {
				t.Fatalf("holds before: %v", err)
			}
			h = c.hold(h)
			if c.by != nil {
				c.by(t, w, n)
			}
			before := w.see(t, n, source.Lookup{})
			if err := w.store.Holds(t.Context(), h); !errors.Is(err, source.ErrLost) {
				t.Errorf("holds: err = %v, want ErrLost", err)
			}
			if _, err := w.store.Renew(t.Context(), h, time.Minute); !errors.Is(err, source.ErrLost) {
				t.Errorf("renew: err = %v, want ErrLost", err)
			}
			w.untouched(t, n, before, source.Lookup{})
		})
	}
}
