package gate_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
)

// A log is a provider's open requests and delivery log.
type log struct {
	mu        sync.Mutex // guards open
	open      []gate.OpenRequest
	shown     map[int64]bool
	entries   []gate.LoggedDelivery
	subjects  map[string]gate.Subject
	refused   map[string]fencepost.Reason
	asked     []string
	inspected int
	fail      error
}

func (l *log) Open(context.Context) ([]gate.OpenRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.open), l.fail
}

func (l *log) Shown(_ context.Context, s gate.Subject) (bool, error) { return l.shown[s.Number], nil }

func (l *log) Log(_ context.Context, since time.Time) ([]gate.LoggedDelivery, error) {
	return slices.DeleteFunc(slices.Clone(l.entries), func(d gate.LoggedDelivery) bool { return d.At.Before(since) }), nil
}

func (l *log) Named(_ context.Context, id string) (gate.Subject, error) {
	l.inspected++
	if r, ok := l.refused[id]; ok {
		return gate.Subject{}, &fencepost.Error{Op: "admit", Reason: r}
	}
	return l.subjects[id], nil
}

func (l *log) Redeliver(_ context.Context, id string) error {
	l.asked = append(l.asked, id)
	return nil
}

type healing struct {
	t       *testing.T
	log     *log
	book    *notebook.Notebook
	alerts  *alerts
	reports []gate.HealReport
	errs    []error
	limits  gate.HealLimits
}

func inHealing(t *testing.T, test func(t *testing.T, h *healing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		book, err := notebook.Open(crashfs.New(crashfs.Options{}).Process(), notebook.Limits{}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		h := &healing{
			t: t, book: book, alerts: &alerts{open: map[string]gate.Alert{}},
			log: &log{shown: map[int64]bool{}, subjects: map[string]gate.Subject{}, refused: map[string]fencepost.Reason{}},
		}
		test(t, h)
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
}

// request opens a request, and logs a delivery for it where id is not empty.
func (h *healing) request(number int64, id string, taken bool) gate.Subject {
	s := gate.Subject{Number: number, Head: commitID("11"), BaseRef: "refs/heads/main"}
	h.log.open = append(h.log.open, gate.OpenRequest{Subject: s, Changed: time.Now()})
	if id != "" {
		h.log.entries = append([]gate.LoggedDelivery{{ID: id, Delivery: "guid-" + id, At: time.Now(), Taken: taken}}, h.log.entries...)
		h.log.subjects[id] = s
	}
	return s
}

// run lets the healer look for as long as d.
func (h *healing) run(d time.Duration) {
	h.t.Helper()
	healer, err := gate.NewHealer(gate.HealConfig{
		Gates: []gate.Watched{{Gate: "docs", Watcher: h.log, Log: h.log}}, Standings: h.book, Alerts: h.alerts, Now: time.Now,
		Limits: h.limits,
		Report: func(r gate.HealReport, err error) { h.reports, h.errs = append(h.reports, r), append(h.errs, err) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), d)
	defer cancel()
	if err := healer.Run(ctx); err != nil {
		h.t.Errorf("run: %v", err)
	}
}

func TestHealingAsksForWhatIsUnknown(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		known := h.request(1, "10", true)
		h.request(2, "20", false)
		h.request(3, "", false)
		h.log.shown[3] = true
		if _, err := h.book.Enter(t.Context(), "docs", known); err != nil {
			t.Fatal(err)
		}
		h.log.refused["30"] = fencepost.ReasonEventNotHandled
		h.log.entries = append([]gate.LoggedDelivery{{ID: "30", Delivery: "guid-30", At: time.Now()}}, h.log.entries...)
		time.Sleep(5 * time.Minute)
		h.run(time.Minute)
		if diff := cmp.Diff([]string{"20"}, h.log.asked); diff != "" {
			t.Errorf("asked for (-want +got):\n%s", diff)
		}
		want := []gate.HealReport{{Gate: "docs", Open: 3, Unknown: 1, Untaken: 2, Asked: 1}}
		if diff := cmp.Diff(want, h.reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		if len(h.alerts.raised) != 0 {
			t.Errorf("alerts %v", h.alerts.raised)
		}
		// What the provider shows is known from then on.
		if ok, err := h.book.Known(t.Context(), "docs", gate.Subject{Number: 3, Head: commitID("11")}); !ok || err != nil {
			t.Errorf("known %v, %v", ok, err)
		}
	})
}

func TestHealingGivesEventsTimeToArrive(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		h.request(2, "20", false)
		h.run(time.Minute)
		if len(h.log.asked) != 0 {
			t.Errorf("asked for %v", h.log.asked)
		}
		time.Sleep(2 * time.Minute)
		h.run(time.Minute)
		if len(h.log.asked) != 1 {
			t.Errorf("asked for %v", h.log.asked)
		}
	})
}

func TestHealingAsksABoundedNumberOfTimes(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		h.request(2, "20", false)
		time.Sleep(5 * time.Minute)
		h.run(3 * time.Hour)
		if len(h.log.asked) != 3 {
			t.Errorf("asked %d times", len(h.log.asked))
		}
		if _, open := h.alerts.open["missed_delivery docs:2"]; !open {
			t.Errorf("alerts %v", h.alerts.open)
		}
	})
}

func TestHealingAlertsWhereNothingCanBeAskedFor(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		s := h.request(2, "", false)
		h.request(4, "40", false) // too long ago for the provider
		time.Sleep(73 * time.Hour)
		go func() {
			time.Sleep(20 * time.Minute)
			_, err := h.book.Enter(t.Context(), "docs", s)
			if err != nil {
				t.Error(err)
			}
		}()
		h.run(15 * time.Minute)
		if len(h.log.asked) != 0 || !h.alerts.isOpen(gate.AlertMissedDelivery) || len(h.alerts.open) != 2 {
			t.Errorf("asked for %v, alerts %v", h.log.asked, h.alerts.open)
		}
		if last := h.reports[len(h.reports)-1]; last.Missed != 2 {
			t.Errorf("report %+v", last)
		}
		time.Sleep(10 * time.Minute)
	})
}

func TestHealingEndsAlertsWithTheirCause(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		h.request(2, "", false)
		time.Sleep(time.Hour)
		go func() {
			time.Sleep(20 * time.Minute)
			h.log.mu.Lock()
			defer h.log.mu.Unlock()
			h.log.open = nil // closed
		}()
		h.run(40 * time.Minute)
		if len(h.alerts.raised) == 0 || len(h.alerts.open) != 0 {
			t.Errorf("raised %v, open %v", h.alerts.raised, h.alerts.open)
		}
	})
}

func TestHealingIsBoundedAndGoesOn(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		h.limits.Redeliveries = 2
		for n := range int64(5) {
			h.request(n+1, strconv.FormatInt(n+1, 10), false)
		}
		time.Sleep(5 * time.Minute)
		h.run(time.Minute)
		if len(h.log.asked) != 2 || len(h.alerts.raised) != 0 {
			t.Fatalf("asked for %v, alerts %v", h.log.asked, h.alerts.raised)
		}
		// What was asked for has come by the next look.
		for _, id := range h.log.asked {
			if _, err := h.book.Enter(t.Context(), "docs", h.log.subjects[id]); err != nil {
				t.Fatal(err)
			}
		}
		h.run(time.Minute)
		if len(h.log.asked) != 4 {
			t.Errorf("asked for %v", h.log.asked)
		}
	})
}

func TestHealingOutlivesAProviderThatIsDown(t *testing.T) {
	t.Parallel()
	inHealing(t, func(t *testing.T, h *healing) {
		down := errors.New("down")
		h.log.fail = down
		h.run(12 * time.Minute)
		if len(h.errs) < 2 || !errors.Is(h.errs[0], down) || len(h.alerts.raised) != 0 {
			t.Errorf("errors %v, alerts %v", h.errs, h.alerts.raised)
		}
	})
}

// TestARequestThatEndedWithoutAResultIsUnknownAgain: it may come back as it was,
// and the event that says so be lost.
func TestARequestThatEndedWithoutAResultIsUnknownAgain(t *testing.T) {
	t.Parallel()
	draft := func(p *provider) { p.state = fencepost.ReasonDraft }
	closed := func(p *provider) { p.state = fencepost.ReasonClosed }
	moved := func(p *provider) { p.head = commit("44") }
	inTheRun := func(move func(p *provider)) func(w *world) {
		return func(w *world) {
			w.program.during = func(int) { w.provider.set(move) }
			w.run()
		}
	}
	at := func(call string, before bool, move func(p *provider)) func(w *world) {
		return func(w *world) {
			w.killAt(call, before)
			w.provider.set(move)
			w.run()
		}
	}
	for name, end := range map[string]func(w *world){
		"a draft from the beginning": func(w *world) { w.provider.set(draft); w.run() },
		"a draft in the run":         inTheRun(draft),
		"closed in the run":          inTheRun(closed),
		"another head in the run":    inTheRun(moved),
		"closed once staged":         at("stage", false, closed),
		"a draft once staged":        at("stage", false, draft),
		"another head once staged":   at("stage", false, moved),
		"closed as it was written":   at("create", true, closed),
		"a crash before it is ended": func(w *world) { w.provider.set(draft); w.killAt("complete", true); w.run() },
		"a crash when it was ended":  func(w *world) { w.provider.set(draft); w.killAt("complete", false); w.run() },
		"a crash before it is left":  func(w *world) { w.provider.set(draft); w.killAt("leave", true); w.run() },
		"a crash when it was left":   func(w *world) { w.provider.set(draft); w.killAt("leave", false); w.run() },
		"overtaken without a result": func(w *world) { w.provider.set(func(p *provider) { p.onFind = overtaken }); w.run() },
		"after an older one, too": func(w *world) {
			w.killAt("stage", false)
			w.provider.set(closed)
			w.deliverAs(7, w.provider.head.ID, "a", "again")
			w.run()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				s := gate.Subject{Number: 7, Head: w.provider.head.ID, BaseRef: "refs/heads/main"}
				w.deliver(7, s.Head)
				end(w)
				w.wantRuns()
				if w.known(s) {
					t.Fatalf("known: healing would not ask for it\n%s", w.journal)
				}
				w.heal(s)
			})
		})
	}
}

// TestARequestWithAResultStaysKnown: nothing is asked for again of what has one,
// or is to get one with what made it end.
func TestARequestWithAResultStaysKnown(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"a result": (*world).run,
		// Its head has to be brought up to date, by which another one comes.
		"another base in the run": func(w *world) {
			w.program.during = func(int) { w.provider.set(func(p *provider) { p.base = commit("55") }) }
			w.run()
		},
		"a newer evaluation": func(w *world) {
			w.killAt("stage", true)
			w.deliverAs(7, w.provider.head.ID, "a", "again")
			w.run()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				s := gate.Subject{Number: 7, Head: w.provider.head.ID, BaseRef: "refs/heads/main"}
				w.deliver(7, s.Head)
				end(w)
				if !w.known(s) {
					t.Errorf("not known\n%s", w.journal)
				}
			})
		})
	}
}

// heal lets a healer look at a provider that shows the request open and has no
// log, and wants it told of.
func (w *world) heal(s gate.Subject) {
	w.t.Helper()
	book, err := notebook.Open(w.disk.Process(), notebook.Limits{}, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	watcher := &log{open: []gate.OpenRequest{{Subject: s, Changed: time.Now().Add(-time.Hour)}}, shown: map[int64]bool{}}
	told := &alerts{open: map[string]gate.Alert{}}
	healer, err := gate.NewHealer(gate.HealConfig{
		Gates: []gate.Watched{{Gate: "docs", Watcher: watcher}}, Standings: book, Alerts: told, Now: time.Now,
		Report: func(_ gate.HealReport, err error) {
			if err != nil {
				w.t.Error(err)
			}
			cancel()
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(healer.Run(ctx), book.Close()); err != nil {
		w.t.Error(err)
	}
	if _, open := told.open["missed_delivery docs:7"]; !open {
		w.t.Errorf("alerts %v, want that a delivery was missed", told.all())
	}
}
