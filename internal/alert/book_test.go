package alert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

var start = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

// A clock is a wall clock that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type meter struct {
	mu     sync.Mutex
	raised map[string]int
	open   map[string]int
}

func newMeter() *meter { return &meter{raised: map[string]int{}, open: map[string]int{}} }

func (m *meter) AlertRaised(code string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raised[code]++
}

func (m *meter) AlertsOpen(code string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[code] = n
}

func openBook(t *testing.T, fsys durable.FS, c *clock, limits Limits) *Book {
	t.Helper()
	b, err := OpenBook(Options{FS: fsys, Now: c.now, Log: slog.New(slog.DiscardHandler), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRaiseWritesARowALogLineAndAMetric(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	c, m := &clock{at: start}, newMeter()
	var log bytes.Buffer
	b, err := OpenBook(Options{FS: disk.Process(), Now: c.now, Log: slog.New(slog.NewTextHandler(&log, nil)), Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.Raise(PublishConflict, GateSubject("docs")); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
	}
	want := []Alert{{Code: PublishConflict, Subject: "gate:docs", Status: Open, Since: start, Count: 3}}
	if diff := cmp.Diff(want, b.Alerts()); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	if got := b.Alerts()[0].Age(c.now()); got != 3*time.Minute {
		t.Errorf("Age = %v, want 3m", got)
	}
	if m.raised["publish_conflict"] != 1 || m.open["publish_conflict"] != 1 || m.open["freshness"] != 0 {
		t.Errorf("metrics = %+v, want one raised and open", m)
	}
	if n := strings.Count(log.String(), "alert raised"); n != 1 || !strings.Contains(log.String(), "reason=publish_conflict subject=gate:docs status=open") {
		t.Errorf("log:\n%s\nwant one line with reason, subject and status", log.String())
	}

	if err := b.Resolve(PublishConflict, GateSubject("docs")); err != nil {
		t.Fatal(err)
	}
	want[0].Status, want[0].Until = Resolved, start.Add(3*time.Minute)
	if diff := cmp.Diff(want, b.Alerts()); diff != "" {
		t.Errorf("after Resolve (-want +got):\n%s", diff)
	}
	if m.open["publish_conflict"] != 0 || !strings.Contains(log.String(), "alert resolved") {
		t.Errorf("metrics = %+v, log:\n%s\nwant it resolved in both", m, log.String())
	}
	if err := b.Resolve(PublishConflict, GateSubject("docs")); err != nil {
		t.Errorf("resolving what is not open: %v", err)
	}
}

func TestRaiseRefusesWhatIsNoCodeOrSubject(t *testing.T) {
	t.Parallel()
	b := openBook(t, crashfs.New(crashfs.Options{}).Process(), &clock{at: start}, Limits{})
	for _, n := range []name{{"other", "x"}, {Provider, ""}, {Provider, "Acme/docs"}, {Provider, "a\nb"}, {Provider, Subject(strings.Repeat("x", 81))}} {
		if err := b.Raise(n.code, n.subject); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("Raise(%q, %q) = %v, want ErrMalformed", n.code, n.subject, err)
		}
	}
	if got := b.Alerts(); len(got) != 0 {
		t.Errorf("alerts = %v, want none", got)
	}
}

// TestAnAlertThatWasRaisedSurvivesACrash crashes at every call of a raise and
// a resolve, and holds what the next start finds against what was answered.
func TestAnAlertThatWasRaisedSurvivesACrash(t *testing.T) {
	t.Parallel()
	work := func(disk *crashfs.Disk) (raised, resolved bool) {
		b, err := OpenBook(Options{FS: disk.Process(), Now: (&clock{at: start}).now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return false, false
		}
		raised = b.Raise(Provider, "gate:a") == nil
		if b.Raise(Provider, "gate:b") != nil {
			return raised, false
		}
		return raised, b.Resolve(Provider, "gate:a") == nil
	}
	clean := crashfs.New(crashfs.Options{})
	if raised, resolved := work(clean); !raised || !resolved {
		t.Fatal("the work fails without a crash")
	}
	for n := 1; n <= clean.Calls(); n++ {
		for _, when := range []crashfs.When{crashfs.Before, crashfs.After} {
			for name, policy := range map[string]crashfs.Policy{"lose": crashfs.LoseAll, "keep": crashfs.KeepAll} {
				disk := crashfs.New(crashfs.Options{})
				disk.Plan(crashfs.CrashAt(n, when, 0))
				raised, resolved := work(disk)
				b := openBook(t, disk.After(policy).Process(), &clock{at: start}, Limits{})
				status := map[Subject]Status{}
				for _, a := range b.Alerts() {
					status[a.Subject] = a.Status
				}
				if raised && status["gate:a"] == 0 {
					t.Errorf("crash %v of call %d, %s: a raised alert is gone", when, n, name)
				}
				if resolved && status["gate:a"] != Resolved {
					t.Errorf("crash %v of call %d, %s: a resolved alert is %v", when, n, name, status["gate:a"])
				}
			}
		}
	}
}

func TestAnAlertThatCouldNotBeWrittenIsWrittenByTheNextChange(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	c := &clock{at: start}
	b := openBook(t, disk.Process(), c, Limits{})
	disk.SetReadOnly(true)
	if err := b.Raise(Provider, "gate:a"); !errors.Is(err, durable.ErrReadOnly) {
		t.Fatalf("Raise = %v, want ErrReadOnly", err)
	}
	if got := b.Alerts(); len(got) != 1 {
		t.Fatalf("alerts = %v, want the one that was not written", got)
	}
	disk.SetReadOnly(false)
	if err := b.Raise(Provider, "gate:b"); err != nil {
		t.Fatal(err)
	}
	disk.Crash()
	again := openBook(t, disk.After(crashfs.LoseAll).Process(), c, Limits{})
	if diff := cmp.Diff(b.Alerts(), again.Alerts()); diff != "" {
		t.Errorf("after a crash (-had +has):\n%s", diff)
	}
}

func TestOpenBookRefusesASecondProcess(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	first := openBook(t, disk.Process(), &clock{at: start}, Limits{})
	_, err := OpenBook(Options{FS: disk.Process(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("second OpenBook = %v, want ErrInUse", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	openBook(t, disk.Process(), &clock{at: start}, Limits{})
}

func TestOpenBookRefusesDamage(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	b := openBook(t, disk.Process(), &clock{at: start}, Limits{})
	if err := b.Raise(Provider, "gate:a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	proc := disk.Process()
	whole, err := durable.ReadFile(proc, fileName, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 1
		if err := durable.WriteFile(proc, fileName, damaged); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenBook(Options{FS: proc, Now: time.Now, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: err = %v, want ErrCorrupt", i, err)
		}
	}
}

func TestTheBookIsBounded(t *testing.T) {
	t.Parallel()
	c := &clock{at: start}
	b := openBook(t, crashfs.New(crashfs.Options{}).Process(), c, Limits{MaxOpen: 10, Keep: time.Hour})
	for i := range 30 {
		if err := b.Raise(InboxExpired, Subject(fmt.Sprintf("dlv_%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Raise(Provider, "gate:a"); err != nil {
		t.Fatal(err)
	}
	over := map[Code]int64{}
	list := b.Alerts()
	for _, a := range list {
		if a.Subject == overflow {
			over[a.Code] = a.Count
		}
	}
	if len(list) != 12 || over[InboxExpired] != 20 || over[Provider] != 1 {
		t.Fatalf("%d alerts, overflow %v; want 10 of their own, and 20 and 1 in the overflow", len(list), over)
	}
	if err := b.Resolve(InboxExpired, "dlv_0"); err != nil {
		t.Fatal(err)
	}
	for _, a := range b.Alerts() {
		if a.Subject == overflow && a.Status == Open {
			t.Errorf("%s: the overflow is open although there is room", a.Code)
		}
	}
	if err := b.Settle(InboxExpired, "dlv_3"); err != nil {
		t.Fatal(err)
	}
	var open []Subject
	for _, a := range b.Alerts() {
		if a.Status == Open {
			open = append(open, a.Subject)
		}
	}
	if !slices.Equal(open, []Subject{"dlv_3"}) {
		t.Errorf("open after Settle = %v, want dlv_3", open)
	}
	if n := len(b.Alerts()) - 1; n != 10 {
		t.Errorf("%d resolved are kept, want 10", n)
	}
}

func TestHousekeepingDropsWhatIsPastItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(crashfs.Options{})
		b, err := OpenBook(Options{FS: disk.Process(), Now: time.Now, Log: slog.New(slog.DiscardHandler), Limits: Limits{Keep: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Raise(Provider, "gate:a"), b.Raise(Provider, "gate:a"), b.Resolve(Provider, "gate:a"), b.Raise(Provider, "gate:b"), b.Raise(Provider, "gate:b")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := len(b.Alerts()); got != 2 {
			t.Fatalf("%d alerts before the hour, want 2", got)
		}
		time.Sleep(3 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		disk.Crash()
		again := openBook(t, disk.After(crashfs.LoseAll).Process(), &clock{at: start}, Limits{})
		if diff := cmp.Diff(b.Alerts(), again.Alerts()); diff != "" {
			t.Errorf("on disk (-had +has):\n%s", diff)
		}
		if got := again.Alerts(); len(got) != 1 || got[0].Subject != "gate:b" || got[0].Count != 2 {
			t.Errorf("alerts = %+v, want gate:b alone, counted twice", got)
		}
	})
}

func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Codes() {
		if !strings.Contains(string(doc), "\n| `"+string(c)+"` |") {
			t.Errorf("docs/alerts.md has no line for %s", c)
		}
		if c.Meaning() == "unknown" {
			t.Errorf("%s has no meaning", c)
		}
	}
	if got := strings.Count(string(doc), "\n| `"); got != len(Codes()) {
		t.Errorf("docs/alerts.md has %d lines for %d codes", got, len(Codes()))
	}
}

func FuzzDecode(f *testing.F) {
	disk := crashfs.New(crashfs.Options{})
	b, err := OpenBook(Options{FS: disk.Process(), Now: func() time.Time { return start }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(b.Raise(Provider, "gate:a"), b.Resolve(Provider, "gate:a"), b.Raise(Freshness, "x")); err != nil {
		f.Fatal(err)
	}
	whole, err := durable.ReadFile(disk.Process(), fileName, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[headerLen:])
	f.Add([]byte(`{"alerts":[]}`))
	f.Add([]byte(`{"alerts":[{"code":"provider","subject":"a","status":"open","since":"2026-11-05T12:00:00Z","count":1},{"code":"provider","subject":"a","status":"open","since":"2026-11-05T12:00:00Z","count":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		alerts, err := decode(sealed(text))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || alerts != nil {
				t.Fatalf("decode = %v, %v, want nothing and ErrCorrupt", alerts, err)
			}
			return
		}
		for _, a := range alerts {
			if !a.Code.Valid() || a.Status.String() == "none" || a.Count < 1 || a.Age(start) < 0 {
				t.Fatalf("accepted %+v", a)
			}
		}
	})
}
