package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

func record(t testing.TB, b *Inbox, m mail, want Outcome) {
	t.Helper()
	got, err := b.Record(t.Context(), m.accepted(t), headers, m.body)
	if err != nil || got != want {
		t.Fatalf("Record(%d) = %v, %v; want %v", m.id, got, err, want)
	}
}

// take hands out the next item at once.
func take(t tester, b *Inbox) (Item, Recorded) {
	t.Helper()
	if b.Stats().Entries == b.Stats().Leased {
		t.Fatal("nothing is ready")
	}
	item, err := b.Next(t.Context())
	must(t, err)
	r, err := b.Read(t.Context(), item.ID)
	must(t, err)
	return item, r
}

// drain takes all that is ready, and is done with it.
func drain(t testing.TB, b *Inbox) []string {
	t.Helper()
	var bodies []string
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, r := take(t, b)
		bodies = append(bodies, string(r.Body))
		must(t, b.Done(item.ID, ""))
	}
	return bodies
}

func text(s string) []byte { return []byte(s) }

func TestRecordedRequestsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
	m := mail{id: 1, body: text(`{"a":1}`), at: epoch.Add(time.Nanosecond), signed: epoch.Add(-time.Second)}
	d := m.accepted(t)
	record(t, b, m, Accepted)
	item, r := take(t, b)
	if item.Key != d.Key() || !item.Received.Equal(m.at) {
		t.Errorf("item %+v, want key %v received %v", item, d.Key(), m.at)
	}
	if id, err := ParseItemID(item.ID.String()); err != nil || id != item.ID {
		t.Errorf("ParseItemID(%q) = %v, %v", item.ID, id, err)
	}
	want := Recorded{
		Route: "docs", Received: m.at, Anchor: "2026-q4", Headers: headers, Body: m.body,
		Key: d.Key(), Binding: d.Binding(), Lifetime: d.Lifetime(),
	}
	opts := cmp.AllowUnexported(fencepost.Headers{}, fencepost.ReplayLifetime{})
	if diff := cmp.Diff(want, r, opts); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	must(t, b.Done(item.ID, fencepost.ReasonSuperseded))
	if err := b.Done(item.ID, ""); !errors.Is(err, ErrNotLeased) {
		t.Errorf("second Done = %v, want ErrNotLeased", err)
	}
	if _, err := b.Read(t.Context(), item.ID); !errors.Is(err, ErrNotLeased) {
		t.Errorf("Read of a done item = %v, want ErrNotLeased", err)
	}
	must(t, b.Close())
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
	first := mail{id: 1, body: text("one")}
	record(t, b, first, Accepted)
	record(t, b, first, Replayed)
	record(t, b, mail{id: 1, body: text("other")}, Conflict)
	record(t, b, mail{id: 2, body: text("one")}, Accepted)
	item, _ := take(t, b)
	record(t, b, first, Replayed) // handed out is not done
	must(t, b.Done(item.ID, ""))
	record(t, b, first, Accepted) // what is done is the ledger's to know
	if got := b.Stats().Entries; got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
	must(t, b.Close())
}

func TestALaterReplayEndIsRecorded(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	first := mail{id: 1, body: text("one"), at: epoch, signed: epoch}
	later := mail{id: 1, body: text("one"), at: epoch.Add(time.Minute), signed: epoch.Add(time.Minute)}
	record(t, b, first, Accepted)
	record(t, b, later, Replayed)
	record(t, b, first, Replayed) // ends earlier: nothing new
	if got := b.Stats().Entries; got != 1 {
		t.Fatalf("%d entries, want 1", got)
	}
	after := open(t, d.After(crashfs.LoseAll).Process(), small)
	item, r := take(t, after)
	if want := later.accepted(t).Lifetime(); r.Lifetime != want || !item.Received.Equal(later.at) {
		t.Errorf("after a crash the lifetime is %v, want %v", r.Lifetime, want)
	}
	if got := after.Stats().Entries; got != 1 {
		t.Errorf("after a crash %d entries, want 1", got)
	}
	must(t, after.Close())

	// One that is handed out stays so, and the repeat comes after it.
	item, _ = take(t, b)
	latest := mail{id: 1, body: text("one"), at: epoch.Add(2 * time.Minute), signed: epoch.Add(2 * time.Minute)}
	record(t, b, latest, Replayed)
	must(t, b.Done(item.ID, ""))
	if _, r := take(t, b); r.Lifetime != latest.accepted(t).Lifetime() {
		t.Errorf("next is %v, want the repeat", r.Lifetime)
	}
	must(t, b.Close())
}

func TestItemsComeInOrderOfReceipt(t *testing.T) {
	t.Parallel()
	b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
	for _, i := range []int{3, 1, 2, 5, 4} {
		at := epoch.Add(time.Duration(i) * time.Second)
		record(t, b, mail{id: uint64(i), body: fmt.Append(nil, i), at: at}, Accepted)
	}
	if got := b.Stats().Oldest; !got.Equal(epoch.Add(time.Second)) {
		t.Errorf("Oldest = %v, want the first", got)
	}
	item, _ := take(t, b)
	must(t, b.Release(item.ID))
	if err := b.Release(item.ID); !errors.Is(err, ErrNotLeased) {
		t.Errorf("second Release = %v, want ErrNotLeased", err)
	}
	if diff := cmp.Diff([]string{"1", "2", "3", "4", "5"}, drain(t, b)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	must(t, b.Close())
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
	m := mail{id: 1, body: text("one")}
	if _, err := b.Record(t.Context(), fencepost.AcceptedDelivery{}, headers, nil); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("zero delivery: %v, want ErrZeroValue", err)
	}
	long := mail{id: 2, body: make([]byte, small.MaxBody+1)}
	if _, err := b.Record(t.Context(), long.accepted(t), headers, long.body); !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("long body: %v, want ErrTooLarge", err)
	}
	many := fencepost.NewHeaders(make([]fencepost.Header, maxHeaders+1))
	if _, err := b.Record(t.Context(), m.accepted(t), many, m.body); !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("many headers: %v, want ErrTooLarge", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone away")
	cancel(cause)
	if _, err := b.Record(gone, m.accepted(t), headers, m.body); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
	if _, err := b.Next(gone); !errors.Is(err, cause) {
		t.Errorf("Next cancelled: %v, want the cause", err)
	}
	if got := b.Stats().Entries; got != 0 {
		t.Errorf("%d entries after refusals, want 0", got)
	}
	must(t, b.Close())
	if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
	if _, err := b.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Next closed: %v, want ErrClosed", err)
	}
	if err := b.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no entries":        {MaxEntries: -1},
		"tiny segment":      {SegmentBytes: 100},
		"bytes < 2 segment": {SegmentBytes: 1 << 20, MaxBytes: 1 << 20},
		"huge body":         {MaxBody: 1 << 30},
		"negative time":     {RetryAfter: -1},
	} {
		if _, err := Open(t.Context(), crashfs.New(crashfs.Options{}).Process(), cfg); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	foreign := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.WriteFile(foreign, "notes.txt", nil))
	if _, err := Open(t.Context(), foreign, small); !errors.Is(err, ErrVersion) {
		t.Errorf("foreign directory: %v, want ErrVersion", err)
	}
	later := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.WriteFile(later, "FORMAT", text("fencepost inbox 2\n")))
	if _, err := Open(t.Context(), later, small); !errors.Is(err, ErrVersion) {
		t.Errorf("later version: %v, want ErrVersion", err)
	}
}

func TestNextWaitsForNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
		got := make(chan Item, 3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				item, err := b.Next(t.Context())
				if err == nil {
					got <- item
				} else if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		record(t, b, mail{id: 1, body: text("1")}, Accepted)
		record(t, b, mail{id: 2, body: text("2")}, Accepted)
		synctest.Wait()
		if len(got) != 2 {
			t.Errorf("%d items were handed out, want 2", len(got))
		}
		must(t, b.Close())
		wg.Wait()
	})
}

func TestManyRecordsShareASyncAndNoneIsAnsweredBeforeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		gate := &gateFS{FS: d.Process(), hold: make(chan struct{})}
		b, err := Open(t.Context(), gate, Config{SegmentBytes: 1 << 20, MaxBytes: 4 << 20, MinFree: -1})
		must(t, err)
		const n = 50
		var wg sync.WaitGroup
		for i := range uint64(n) {
			wg.Go(func() {
				m := mail{id: i, body: bytes.Repeat([]byte{byte(i)}, 100)}
				if got, err := b.Record(t.Context(), m.accepted(t), headers, m.body); err != nil || got != Accepted {
					t.Errorf("Record(%d) = %v, %v", i, got, err)
				}
				// What was accepted survives from this moment on.
				if keys := keysAfter(t, d, crashfs.LoseAll); !keys[m.accepted(t).Key()] {
					t.Errorf("record %d was answered before it was durable", i)
				}
			})
		}
		synctest.Wait()
		close(gate.hold)
		wg.Wait()
		// The first to come leads a commit of its own; all others share one.
		if b.own.commits != 2 {
			t.Errorf("%d records took %d commits, want 2", n, b.own.commits)
		}
		must(t, b.Close())
	})
}

// keysAfter is what the next start finds after a crash.
func keysAfter(t testing.TB, d *crashfs.Disk, policy crashfs.Policy) map[fencepost.DeliveryKey]bool {
	t.Helper()
	b, err := Open(context.WithoutCancel(t.Context()), d.After(policy).Process(), small)
	must(t, err)
	keys := map[fencepost.DeliveryKey]bool{}
	b.mu.Lock()
	for key := range b.index.byKey {
		keys[key] = true
	}
	b.mu.Unlock()
	must(t, b.Close())
	return keys
}

func TestARepeatWaitsForTheFirstCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := crashfs.New(crashfs.Options{}).Process()
		gate := &gateFS{FS: p, hold: make(chan struct{})}
		b, err := Open(t.Context(), gate, small)
		must(t, err)
		m := mail{id: 1, body: text("one")}
		outcomes := make(chan Outcome, 2)
		for range 2 {
			go func() {
				o, err := b.Record(t.Context(), m.accepted(t), headers, m.body)
				if err != nil {
					t.Error(err)
				}
				outcomes <- o
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Record(ctx, m.accepted(t), headers, m.body); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a repeat whose sender went away: %v, want its context's end", err)
		}
		if len(outcomes) != 0 {
			t.Fatal("answered before the first copy was on stable storage")
		}
		close(gate.hold)
		got := []Outcome{<-outcomes, <-outcomes}
		slices.Sort(got)
		if diff := cmp.Diff([]Outcome{Accepted, Replayed}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		must(t, b.Close())
	})
}

// gateFS holds back the syncs of segments.
type gateFS struct {
	durable.FS
	hold chan struct{}
}

func (g *gateFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasPrefix(name, logsDir) {
		return f, err
	}
	return gateFile{f, g}, nil
}

type gateFile struct {
	durable.File
	gate *gateFS
}

func (f gateFile) Sync() error {
	<-f.gate.hold
	return f.File.Sync()
}

func TestAnEntryMayBeLargerThanASegment(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	big := bytes.Repeat([]byte("big"), 20_000)
	record(t, b, mail{id: 1, body: text("before")}, Accepted)
	record(t, b, mail{id: 2, body: big}, Accepted)
	record(t, b, mail{id: 3, body: text("after")}, Accepted)
	again := open(t, d.After(crashfs.LoseAll).Process(), small)
	if diff := cmp.Diff([]string{"before", string(big), "after"}, drain(t, again)); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
	must(t, again.Close())
	must(t, b.Close())
}

func TestOneStuckEntryDoesNotPinTheLog(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	record(t, b, mail{id: 0, body: text("stuck")}, Accepted)
	stuck, _ := take(t, b)
	for i := uint64(1); i < 2000; i++ {
		m := mail{id: i, body: bytes.Repeat([]byte{'x'}, 1000)}
		record(t, b, m, Accepted)
		item, _ := take(t, b)
		must(t, b.Done(item.ID, ""))
		if i%10 == 0 {
			must(t, b.tidy(t.Context()))
		}
	}
	r, err := b.Read(t.Context(), stuck.ID)
	must(t, err)
	if string(r.Body) != "stuck" {
		t.Errorf("the stuck entry reads %q", r.Body)
	}
	after := open(t, d.After(crashfs.LoseAll).Process(), small)
	if got := drain(t, after); !slices.Contains(got, "stuck") {
		t.Errorf("the stuck entry is lost after a crash: %d others", len(got))
	}
	must(t, after.Close())
	must(t, b.Done(stuck.ID, ""))
	must(t, b.Close())
	last := open(t, d.Process(), small)
	if got := last.Stats().Entries; got != 0 {
		t.Errorf("%d entries came back after all were done", got)
	}
	must(t, last.Close())
}

func TestRunTidiesUpWhenItIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		b := open(t, d.Process(), small)
		ran := make(chan error, 1)
		go func() { ran <- b.Run(t.Context()) }()
		for i := range uint64(50) {
			record(t, b, mail{id: i, body: bytes.Repeat([]byte{'x'}, 1000)}, Accepted)
		}
		drain(t, b)
		before := b.Stats().Bytes
		time.Sleep(time.Second)
		synctest.Wait()
		if after := b.Stats().Bytes; after > minSegment || after >= before {
			t.Errorf("%d bytes are left of %d", after, before)
		}
		// The marks are durable, and so is the evidence of the last commit.
		if got := len(keysAfter(t, d, crashfs.LoseAll)); got != 0 {
			t.Errorf("%d done entries come back", got)
		}
		calls := d.Calls()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := d.Calls() - calls; n > 2 { // it looks for dead processes
			t.Errorf("%d calls while nothing happens", n)
		}
		must(t, b.Close())
		must(t, <-ran)
	})
}

func TestAFailedSyncStopsTheInboxForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		b := open(t, d.Process(), small)
		ran := make(chan error, 1)
		go func() { ran <- b.Run(t.Context()) }()
		record(t, b, mail{id: 1, body: text("1")}, Accepted)
		eio := errors.New("input/output error")
		d.Plan(func(c crashfs.Call) crashfs.Fault {
			if c.Op == crashfs.OpSync {
				return crashfs.Fault{Err: eio}
			}
			return crashfs.Fault{}
		})
		m := mail{id: 2, body: text("2")}
		if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, durable.ErrPoisoned) || !errors.Is(err, eio) {
			t.Fatalf("Record = %v, want ErrPoisoned", err)
		}
		d.Plan(nil)
		for range 2 {
			if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, durable.ErrPoisoned) {
				t.Errorf("Record afterwards = %v, want ErrPoisoned", err)
			}
		}
		if err := <-ran; !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("Run = %v, want ErrPoisoned", err)
		}
		if err := b.Health(); !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("Health = %v, want ErrPoisoned", err)
		}
		// What was recorded can still be read and worked on.
		if got := drain(t, b); !slices.Equal(got, []string{"1"}) {
			t.Errorf("handed out %q, want the first", got)
		}
		if err := b.Close(); !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("Close = %v, want ErrPoisoned", err)
		}
		if _, err := Open(t.Context(), d.Process(), small); !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("Open = %v, want ErrPoisoned", err)
		}
		after := open(t, d.After(crashfs.LoseAll).Process(), small)
		if got := drain(t, after); !slices.Equal(got, []string{"1"}) {
			t.Errorf("after a crash %q, want the acknowledged one", got)
		}
		must(t, after.Close())
	})
}
