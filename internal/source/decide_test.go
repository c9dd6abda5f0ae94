package source

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

// rows are one source's rows, changed as a store changes them. It is a double
// for tests of the decisions alone.
type rows struct {
	now       time.Time
	source    SourceRow
	lock      LockRow
	runs      []RunRow
	delivered []DeliveryRow
	requests  map[string]RequestRow
	jobs      map[string]int
	alerts    map[AlertCode]bool
	fences    map[Digest]bool
}

func newRows(p Policy) *rows {
	r := &rows{
		now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), requests: map[string]RequestRow{}, jobs: map[string]int{},
		alerts: map[AlertCode]bool{}, fences: map[Digest]bool{}, source: SourceRow{ID: p.ID},
	}
	r.change(func(s Snapshot) (Change, error) { return OnRevision(s, p, runID(9999)), nil }, Lookup{})
	return r
}

func (r *rows) open() *RunRow {
	for i := range r.runs {
		if !r.runs[i].Status.Ended() {
			return &r.runs[i]
		}
	}
	return nil
}

func (r *rows) snapshot(l Lookup) Snapshot {
	s := Snapshot{Now: r.now, Source: r.source, Lock: r.lock}
	if o := r.open(); o != nil {
		row := *o
		s.Open = &row
	}
	for _, run := range r.runs {
		if run.ID == l.Run && !l.Run.IsZero() {
			s.Run = &run
		}
	}
	if l.Delivery != nil {
		for _, d := range r.delivered {
			if d.ID == l.Delivery.ID {
				s.ByID = &d
			}
			if d.Body == l.Delivery.Body {
				s.ByBody = &d
			}
		}
	}
	if q, ok := r.requests[l.Request]; ok {
		s.Request = &q
	}
	return s
}

// change applies a transition, and panics where a database would refuse it.
func (r *rows) change(t Transition, l Lookup) error {
	s := r.snapshot(l)
	c, err := t(s)
	if err != nil {
		return err
	}
	if c.Source != nil {
		v := r.source.Version
		r.source = *c.Source
		r.source.Version = v + 1
	}
	if c.Lock != nil {
		r.lock = *c.Lock
	}
	if c.Update != nil {
		o := r.open()
		if o == nil || o.ID != c.Update.ID {
			panic("update of a run that is not open")
		}
		*o = *c.Update
	}
	if c.Insert != nil {
		if r.open() != nil {
			panic("a second open run")
		}
		if r.fences[c.Insert.Fence] {
			panic("a run fence twice: " + c.Insert.Trigger.Kind.String() + " " + c.Insert.Trigger.ID)
		}
		r.fences[c.Insert.Fence] = true
		r.runs = append(r.runs, *c.Insert)
	}
	if c.Job != nil {
		r.jobs[c.Job.Key]++
	}
	if c.Delivery != nil {
		r.delivered = append(r.delivered, *c.Delivery)
	}
	if c.Request != nil {
		r.requests[c.Request.Key] = *c.Request
	}
	for _, a := range c.Resolve {
		delete(r.alerts, a.Code)
	}
	for _, a := range c.Raise {
		r.alerts[a.Code] = true
	}
	return nil
}

func runID(n int) (id fencepost.RunID) {
	copy(id[:], fmt.Sprintf("run%013d", n))
	return id
}

func token(n int) (t Token) {
	copy(t[:], fmt.Sprintf("tok%013d", n))
	return t
}

func commit(n int) fencepost.CommitID {
	c, err := fencepost.ParseCommitID(fmt.Sprintf("%040x", n+1))
	if err != nil {
		panic(err)
	}
	return c
}

func testPolicy() Policy {
	return Policy{
		ID: fencepost.SourceID{1}, Key: "handbook", Revision: fencepost.SourceRevision{7}, Contracts: Digest{3}, Lineage: Digest{4},
		Enabled: true, AcceptUnannounced: true, Timings: fencepost.DefaultTimings,
	}
}

func delivery(id, body, head int) DeliveryRow {
	d := DeliveryRow{Namespace: "handbook", Source: fencepost.SourceID{1}, Commit: commit(head)}
	d.ID[0], d.ID[1] = byte(id), 1
	d.Body[0], d.Body[1] = byte(body), 2
	d.Delivery[0], d.Delivery[1] = byte(body), 3
	return d
}

func (r *rows) push(p Policy, d DeliveryRow, n int) (answer PushAnswer, err error) {
	err = r.change(func(s Snapshot) (c Change, err error) {
		c, answer, err = OnPush(s, p, Push{Delivery: d, NewRun: runID(n)})
		return c, err
	}, Lookup{Delivery: &d})
	return answer, err
}

func (r *rows) begin(p Policy, run fencepost.RunID, n int) (b Beginning) {
	if err := r.change(func(s Snapshot) (c Change, err error) {
		c, b = OnBegin(s, p, Begin{Run: run, Token: token(n)})
		return c, nil
	}, Lookup{Run: run}); err != nil {
		panic(err)
	}
	return b
}

func (r *rows) end(p Policy, h Hold, e Ending) error {
	return r.change(func(s Snapshot) (Change, error) { return OnEnd(s, p, h, e) }, Lookup{})
}

// settled is a source whose first run is complete at head 0.
func settled(t *testing.T) (*rows, Policy) {
	t.Helper()
	p := testPolicy()
	r := newRows(p)
	b, ok := r.begin(p, runID(9999), 9999).(Began)
	if !ok {
		t.Fatal("the first run did not begin")
	}
	if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(0)}); err != nil {
		t.Fatal(err)
	}
	if !r.source.UnmetSince.IsZero() {
		t.Fatal("a sign is unmet after a complete run")
	}
	return r, p
}

func TestPushes(t *testing.T) {
	t.Parallel()
	t.Run("a push to an idle source becomes a run with a job", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		if got, err := r.push(p, delivery(1, 1, 1), 1); err != nil || got != PushAccepted {
			t.Fatalf("answered %v, %v", got, err)
		}
		if o := r.open(); o == nil || o.Commit != commit(1) || r.jobs[o.ID.String()] != 1 {
			t.Fatalf("open run %+v", o)
		}
		if r.source.UnmetSince != r.now {
			t.Errorf("unmet since %v, want now", r.source.UnmetSince)
		}
	})
	t.Run("the same bytes are a replay under any id, and wake what waits", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		_, _ = r.push(p, delivery(1, 1, 1), 1)
		for _, id := range []int{1, 2} {
			if got, err := r.push(p, delivery(id, 1, 1), 2); err != nil || got != PushReplayed {
				t.Fatalf("id %d: answered %v, %v", id, got, err)
			}
		}
		if len(r.runs) != 2 || r.jobs[r.open().ID.String()] != 3 {
			t.Errorf("%d runs, %v", len(r.runs), r.jobs)
		}
	})
	t.Run("a known id with other bytes is a conflict and leaves no trace", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		_, _ = r.push(p, delivery(1, 1, 1), 1)
		before := r.source
		_, err := r.push(p, delivery(1, 2, 2), 2)
		if fencepost.ReasonOf(err) != fencepost.ReasonDeliveryConflict {
			t.Fatalf("got %v", err)
		}
		if diff := cmp.Diff(before, r.source); diff != "" || len(r.delivered) != 1 {
			t.Errorf("it left a trace: %s", diff)
		}
	})
	t.Run("a push before the run began joins it", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		_, _ = r.push(p, delivery(1, 1, 1), 1)
		if got, _ := r.push(p, delivery(2, 2, 2), 2); got != PushCoalesced {
			t.Fatalf("answered %v", got)
		}
		if r.source.FollowUp {
			t.Error("a follow-up is owed although the run has not looked yet")
		}
		b := r.begin(p, runID(1), 1).(Began)
		if b.Source.Announced != commit(2) {
			t.Error("the run doesn't know the last announcement")
		}
		if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(2)}); err != nil {
			t.Fatal(err)
		}
		if r.open() != nil || !r.source.UnmetSince.IsZero() {
			t.Errorf("open %v, unmet since %v", r.open(), r.source.UnmetSince)
		}
	})
	t.Run("many pushes during a run are one follow-up", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		_, _ = r.push(p, delivery(1, 1, 1), 1)
		b := r.begin(p, runID(1), 1).(Began)
		first := r.now.Add(time.Second)
		for i := 2; i < 7; i++ {
			r.now = r.now.Add(time.Second)
			if got, err := r.push(p, delivery(i, i, i), i); err != nil || got != PushCoalesced {
				t.Fatalf("answered %v, %v", got, err)
			}
		}
		if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(1), NewRun: runID(77)}); err != nil {
			t.Fatal(err)
		}
		o := r.open()
		if o == nil || o.ID != runID(77) || o.Trigger.Kind != ByFollowUp || r.source.FollowUp {
			t.Fatalf("open %+v, follow-up bit %v", o, r.source.FollowUp)
		}
		if r.source.UnmetSince != first {
			t.Errorf("unmet since %v, want the first of them, %v", r.source.UnmetSince, first)
		}
	})
	t.Run("a process with another policy records nothing", func(t *testing.T) {
		t.Parallel()
		r, p := settled(t)
		p.Revision = fencepost.SourceRevision{8}
		if _, err := r.push(p, delivery(1, 1, 1), 1); !errors.Is(err, ErrRevision) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
			t.Fatalf("got %v", err)
		}
	})
}

func TestRequestsKeepTheirIntent(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	ask := func(intent byte, n int) (run fencepost.RunID, err error) {
		err = r.change(func(s Snapshot) (c Change, err error) {
			c, run, err = OnRequest(s, p, Request{Key: "k", Intent: Digest{intent}, NewRun: runID(n)})
			return c, err
		}, Lookup{Request: "k"})
		return run, err
	}
	first, err := ask(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ask(1, 2); err != nil || again != first {
		t.Errorf("the same request got run %v, %v", again, err)
	}
	if _, err := ask(2, 3); !errors.Is(err, ErrIntent) {
		t.Errorf("another intent got %v", err)
	}
	b := r.begin(p, first, 1).(Began)
	_ = r.end(p, b.Hold, Ending{Status: Unchanged, Head: commit(0)})
	if again, err := ask(1, 4); err != nil || again != first || r.open() != nil {
		t.Errorf("after its end the same request got %v, %v", again, err)
	}
}

func TestHoldsAreLost(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	late := r.begin(p, runID(1), 1).(Began)
	if _, ok := r.begin(p, runID(1), 2).(NotNow); !ok {
		t.Fatal("a second worker began the same run")
	}
	r.now = r.now.Add(p.Timings.Lease)
	if _, ok := r.begin(p, runID(1), 3).(NotNow); !ok {
		t.Fatal("a worker took an expired lock that the watchdog had not freed")
	}
	if err := r.change(func(s Snapshot) (Change, error) { return OnWatch(s, p, runID(50)), nil }, Lookup{}); err != nil {
		t.Fatal(err)
	}
	o := r.open()
	if o == nil || o.Recovers != runID(1) || !r.alerts[AlertLockStale] {
		t.Fatalf("after the watchdog: open %+v, alerts %v", o, r.alerts)
	}
	if err := r.end(p, late.Hold, Ending{Status: Complete, Head: commit(1)}); !errors.Is(err, ErrLost) {
		t.Fatalf("the late worker ended: %v", err)
	}
	next := r.begin(p, o.ID, 4).(Began)
	if next.Hold.Fence <= late.Hold.Fence {
		t.Errorf("fence %d after %d", next.Hold.Fence, late.Hold.Fence)
	}
	if err := r.end(p, late.Hold, Ending{Status: Complete, Head: commit(1)}); !errors.Is(err, ErrLost) {
		t.Fatalf("the late worker ended its successor's run: %v", err)
	}
	// A recovery that is lost, too, is not followed by a third at once.
	r.now = r.now.Add(p.Timings.Lease)
	_ = r.change(func(s Snapshot) (Change, error) { return OnWatch(s, p, runID(51)), nil }, Lookup{})
	if r.open() != nil || !r.lock.Free() {
		t.Errorf("open %+v, lock %+v", r.open(), r.lock)
	}
	if r.source.UnmetSince.IsZero() {
		t.Error("nothing is unmet although nothing was applied")
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	for n := 1; n <= p.Timings.Attempts; n++ {
		b, ok := r.begin(p, runID(1), n).(Began)
		if !ok {
			t.Fatalf("attempt %d did not begin", n)
		}
		var until time.Time
		err := r.change(func(s Snapshot) (c Change, err error) {
			c, until, err = OnTrouble(s, p, b.Hold, Trouble{Reason: fencepost.ReasonProvider})
			return c, err
		}, Lookup{})
		if err != nil {
			t.Fatal(err)
		}
		if n < p.Timings.Attempts {
			if want := r.now.Add(p.Timings.BackoffBefore(n + 1)); until != want {
				t.Errorf("attempt %d: again at %v, want %v", n, until, want)
			}
			if _, ok := r.begin(p, runID(1), 90+n).(NotNow); !ok {
				t.Error("an attempt began before its time")
			}
			r.now = until
		}
	}
	if o := r.open(); o != nil || !r.alerts[AlertRetriesExhausted] || !r.alerts[AlertProvider] {
		t.Errorf("open %+v, alerts %v", o, r.alerts)
	}
}

func TestARevisionTakesTheHoldAway(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	b := r.begin(p, runID(1), 1).(Began)
	next := p
	next.Revision = fencepost.SourceRevision{8}
	_ = r.change(func(s Snapshot) (Change, error) { return OnRevision(s, next, runID(60)), nil }, Lookup{})
	if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(1)}); !errors.Is(err, ErrLost) {
		t.Fatalf("work of the old revision ended: %v", err)
	}
	if _, ok := r.begin(p, runID(60), 2).(Over); !ok {
		t.Error("a process with the old policy began the new one's run")
	}
	if _, ok := r.begin(next, runID(60), 3).(Began); !ok {
		t.Error("the new revision's run did not begin")
	}
}

// reasons are the constants of the root package's closed list.
func reasons(t *testing.T) []fencepost.Reason {
	t.Helper()
	text, err := os.ReadFile("../../reason.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []fencepost.Reason
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason += "(\w*)"$`).FindAllSubmatch(text, -1) {
		all = append(all, fencepost.Reason(m[1]))
	}
	if len(all) < 40 {
		t.Fatalf("found %d reasons", len(all))
	}
	return all
}

func TestEveryReasonHasAFate(t *testing.T) {
	t.Parallel()
	for _, r := range reasons(t) {
		if _, ok := FateOf(r); !ok && r != fencepost.ReasonNone {
			t.Errorf("%s has no fate", r)
		}
	}
	if _, ok := FateOf("no such reason"); ok {
		t.Error("a reason that is not of the list has a fate")
	}
}

// Whatever happens in whatever order: the rows keep what DESIGN §9 says.
func TestDecisionsKeepTheInvariants(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run without -short")
	}
	t.Parallel()
	all := reasons(t)
	rapid.Check(t, func(t *rapid.T) {
		p := testPolicy()
		r := newRows(p)
		n := 0
		fresh := func() int { n++; return n }
		var holds []Hold
		var ended []RunRow
		lastFence, followUps := uint64(0), map[string]int{}
		check := func() {
			for i, e := range ended {
				for _, run := range r.runs {
					if run.ID == e.ID && cmp.Diff(e, run) != "" {
						t.Fatalf("an ended log changed: %s", cmp.Diff(ended[i], run))
					}
				}
			}
			ended = ended[:0]
			for _, run := range r.runs {
				if run.Status.Ended() {
					ended = append(ended, run)
				}
				if run.Status == Running != (!r.lock.Free() && r.lock.Run == run.ID && r.lock.Token == run.Token) {
					t.Fatalf("run %v is %v, the lock %+v", run.ID, run.Status, r.lock)
				}
			}
			followUps = map[string]int{}
			for _, run := range r.runs {
				if run.Trigger.Kind == ByFollowUp || run.Trigger.Kind == ByRecovery {
					if followUps[run.Trigger.ID]++; followUps[run.Trigger.ID] > 1 {
						t.Fatalf("two runs after %s", run.Trigger.ID)
					}
				}
			}
			// Nothing announced is forgotten: it is applied, unmet, or owed.
			if a := r.source.Announced; !a.IsZero() && a != r.source.Applied && r.source.UnmetSince.IsZero() {
				covered := false
				for _, run := range r.runs {
					covered = covered || run.Status == Complete || run.Status == Unchanged
				}
				if !covered {
					t.Fatal("an announcement is neither met nor unmet")
				}
			}
		}
		must := func(err error) {
			if err != nil && !errors.Is(err, ErrLost) && fencepost.ReasonOf(err) != fencepost.ReasonDeliveryConflict {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"push": func(t *rapid.T) {
				_, err := r.push(p, delivery(rapid.IntRange(0, 6).Draw(t, "id"), rapid.IntRange(0, 9).Draw(t, "body"),
					rapid.IntRange(0, 5).Draw(t, "head")), fresh())
				must(err)
			},
			"begin": func(t *rapid.T) {
				o := r.open()
				if o == nil {
					t.Skip("nothing to begin")
				}
				if b, ok := r.begin(p, o.ID, fresh()).(Began); ok {
					if b.Hold.Fence <= lastFence {
						t.Fatalf("fence %d after %d", b.Hold.Fence, lastFence)
					}
					lastFence = b.Hold.Fence
					holds = append(holds, b.Hold)
				}
			},
			"end": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip("no hold")
				}
				h := rapid.SampledFrom(holds).Draw(t, "hold")
				status := rapid.SampledFrom([]Status{Complete, Unchanged, Partial, Failed}).Draw(t, "status")
				must(r.end(p, h, Ending{Status: status, Head: commit(rapid.IntRange(0, 5).Draw(t, "head")), NewRun: runID(fresh())}))
			},
			"trouble": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip("no hold")
				}
				h := rapid.SampledFrom(holds).Draw(t, "hold")
				why := rapid.SampledFrom(all).Draw(t, "reason")
				must(r.change(func(s Snapshot) (c Change, err error) {
					c, _, err = OnTrouble(s, p, h, Trouble{Reason: why, Shutdown: rapid.Bool().Draw(t, "shutdown"), NewRun: runID(fresh())})
					return c, err
				}, Lookup{}))
			},
			"observe": func(t *rapid.T) {
				o := Observed{Next: p.Timings.Reconcile, Named: true, NewRun: runID(fresh()), Head: commit(rapid.IntRange(0, 5).Draw(t, "head"))}
				if rapid.Bool().Draw(t, "fails") {
					o.Head, o.Reason = fencepost.CommitID{}, fencepost.ReasonProvider
				}
				must(r.change(func(s Snapshot) (Change, error) { return OnObservation(s, p, o) }, Lookup{Request: Window(r.now, p)}))
			},
			"watch": func(*rapid.T) {
				must(r.change(func(s Snapshot) (Change, error) { return OnWatch(s, p, runID(fresh())), nil }, Lookup{}))
			},
			"time": func(t *rapid.T) {
				r.now = r.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
			"revision": func(t *rapid.T) {
				p.Revision[0]++
				must(r.change(func(s Snapshot) (Change, error) { return OnRevision(s, p, runID(fresh())), nil }, Lookup{}))
			},
		})
	})
}

// A store that was restored knows of fewer fences than the sink has seen: it
// catches up at once, and the attempt isn't held against the run.
func TestFencesGoOnAboveTheSinks(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	b := r.begin(p, runID(1), 1).(Began)
	trouble := func(h Hold, seen uint64) error {
		return r.change(func(s Snapshot) (c Change, err error) {
			c, _, err = OnTrouble(s, p, h, Trouble{Reason: fencepost.ReasonSuperseded, Seen: seen})
			return c, err
		}, Lookup{})
	}
	if err := trouble(b.Hold, 41); err != nil {
		t.Fatal(err)
	}
	next, ok := r.begin(p, runID(1), 2).(Began)
	if !ok || next.Hold.Fence != 42 || next.Run.Attempts != 1 {
		t.Fatalf("then %+v", next)
	}
	if err := trouble(b.Hold, 99); !errors.Is(err, ErrLost) {
		t.Errorf("one who holds nothing raised the fence: %v", err)
	}
}

// What is taken out of the configuration leaves nothing open.
func TestRemovalEndsEverything(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	b := r.begin(p, runID(1), 1).(Began)
	r.alerts[AlertFreshness], r.alerts[AlertCleanupFailed] = true, true
	_ = r.change(func(s Snapshot) (Change, error) { return OnRemoval(s), nil }, Lookup{})
	if r.open() != nil || !r.lock.Free() || r.source.Enabled || len(r.alerts) > 0 {
		t.Errorf("open %+v, lock %+v, alerts %v", r.open(), r.lock, r.alerts)
	}
	if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(1)}); !errors.Is(err, ErrLost) {
		t.Errorf("work of a removed source ended: %v", err)
	}
}

// A clock that goes back makes no age negative for as long as it went.
func TestAgesSurviveAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	r.now = r.now.Add(-6 * time.Hour)
	judge := func() {
		_ = r.change(func(s Snapshot) (Change, error) { return OnFreshness(s, p), nil }, Lookup{})
	}
	judge()
	r.now = r.now.Add(p.Timings.AlertAfter)
	judge()
	if !r.alerts[AlertFreshness] {
		t.Error("no alert, though nothing was complete since")
	}
}

// A source that never converges costs one run a window, and not one for each
// push: DESIGN §9.
func TestPushesOfAFailingSourceWaitForTheNextLook(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	next := r.now.Add(p.Timings.Reconcile)
	_, _ = r.push(p, delivery(1, 1, 1), 1)
	b := r.begin(p, runID(1), 1).(Began)
	// One more arrives while the content is refused.
	_, _ = r.push(p, delivery(2, 2, 2), 2)
	if err := r.end(p, b.Hold, Ending{Status: Failed, Reason: fencepost.ReasonContent, NewRun: runID(3)}); err != nil {
		t.Fatal(err)
	}
	if o := r.open(); o == nil || o.NotBefore.Before(next) {
		t.Fatalf("the follow-up of a failed run: %+v, want it not before %v", o, next)
	}
	r.now = next
	b = r.begin(p, runID(3), 2).(Began)
	if err := r.end(p, b.Hold, Ending{Status: Failed, Reason: fencepost.ReasonContent}); err != nil {
		t.Fatal(err)
	}
	r.source.NextCheck = r.now.Add(p.Timings.Reconcile)
	for i := 4; i < 9; i++ {
		r.now = r.now.Add(time.Second)
		if _, err := r.push(p, delivery(i, i, i), i); err != nil {
			t.Fatal(err)
		}
	}
	if o := r.open(); o == nil || o.ID != runID(4) || o.NotBefore != r.source.NextCheck {
		t.Errorf("open %+v, want one run that waits for the next look at %v", o, r.source.NextCheck)
	}
	// What succeeds is followed up at once again.
	r.now = r.source.NextCheck
	b = r.begin(p, runID(4), 3).(Began)
	if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(8)}); err != nil {
		t.Fatal(err)
	}
	_, _ = r.push(p, delivery(20, 20, 1), 20)
	if o := r.open(); o == nil || o.NotBefore.After(r.now) {
		t.Errorf("a push to a source that is well waits: %+v", o)
	}
}
