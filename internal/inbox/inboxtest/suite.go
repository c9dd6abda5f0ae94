package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
)

// A Box is one process's view of an inbox.
type Box interface {
	Record(ctx context.Context, d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) (inbox.Outcome, error)
	Next(ctx context.Context) (inbox.Item, error)
	Read(ctx context.Context, id inbox.ItemID) (inbox.Recorded, error)
	Release(ctx context.Context, id inbox.ItemID) error
	Done(ctx context.Context, id inbox.ItemID) error
	Stats() inbox.Stats
	Health() error
}

// Bounds are what a case needs of an inbox; zero fields are the
// implementation's to choose.
type Bounds struct {
	Entries    int
	Body       int
	RetryAfter time.Duration
}

// A Harness is one fresh inbox and the levers that a case needs over it.
type Harness struct {
	// Open opens the inbox as one more process, which lives until the test
	// ends or it is killed. Its upkeep runs.
	Open func(t testing.TB) Box
	// Close ends a process in order, Kill as kill -9 does.
	Close, Kill func(t testing.TB, b Box)
	// Damage spoils every stored entry.
	Damage func(t testing.TB)
	// Takeover bounds how long the entries of a killed process wait.
	Takeover time.Duration
}

// soon bounds what needs no more than other goroutines.
const soon = 30 * time.Second

// Run runs the suite; fresh makes an inbox within bounds for each case.
func Run(t *testing.T, fresh func(t *testing.T, bounds Bounds) Harness) {
	for _, c := range []struct {
		name   string
		bounds Bounds
		do     func(t *testing.T, h Harness)
	}{
		{"what is recorded comes back as it was", Bounds{}, comesBack},
		{"repeats and conflicts", Bounds{}, repeats},
		{"a later replay end is recorded", Bounds{}, laterEnd},
		{"in order of receipt", Bounds{}, order},
		{"refusals", Bounds{Body: 1000}, refusals},
		{"full of entries", Bounds{Entries: 2, RetryAfter: 7 * time.Second}, full},
		{"next waits for news", Bounds{}, waits},
		{"each is handed out once", Bounds{}, once},
		{"one delivery from many senders is one entry", Bounds{}, together},
		{"what a process leaves is handed out again", Bounds{}, left},
		{"what a killed process had is handed out again", Bounds{}, killed},
		{"damage is told and never believed", Bounds{}, damage},
		{"closed", Bounds{}, closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.do(t, fresh(t, c.bounds))
		})
	}
}

func comesBack(t *testing.T, h Harness) {
	b := h.Open(t)
	m := mail{id: 1, body: `{"a":1}`, at: epoch.Add(time.Nanosecond), signed: epoch.Add(-time.Second)}
	d := m.accepted(t)
	record(t, b, m, inbox.Accepted)
	item, r := take(t, b)
	if item.Key != d.Key() || !item.Received.Equal(m.at) {
		t.Errorf("item %+v, want key %v received %v", item, d.Key(), m.at)
	}
	if id, err := inbox.ParseItemID(item.ID.String()); err != nil || id != item.ID {
		t.Errorf("ParseItemID(%q) = %v, %v", item.ID, id, err)
	}
	want := inbox.Recorded{
		Route: "docs", Received: m.at, Anchor: "2026-q4", Headers: headers, Body: []byte(m.body),
		Key: d.Key(), Binding: d.Binding(), Lifetime: d.Lifetime(),
	}
	if diff := cmp.Diff(want, r, cmp.AllowUnexported(fencepost.Headers{}, fencepost.ReplayLifetime{})); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	must(t, b.Done(t.Context(), item.ID))
	for what, err := range map[string]error{
		"second Done": b.Done(t.Context(), item.ID), "Release": b.Release(t.Context(), item.ID), "Read": readError(t, b, item.ID),
	} {
		if !errors.Is(err, inbox.ErrNotLeased) {
			t.Errorf("%s of a done item = %v, want ErrNotLeased", what, err)
		}
	}
	if err := b.Health(); err != nil {
		t.Errorf("Health = %v", err)
	}
}

func repeats(t *testing.T, h Harness) {
	b := h.Open(t)
	first := mail{id: 1, body: "one"}
	record(t, b, first, inbox.Accepted)
	record(t, b, first, inbox.Replayed)
	record(t, b, mail{id: 1, body: "other"}, inbox.Conflict)
	record(t, b, mail{id: 2, body: "one"}, inbox.Accepted)
	item, _ := take(t, b)
	record(t, b, first, inbox.Replayed) // handed out is not done
	record(t, b, mail{id: 1, body: "other"}, inbox.Conflict)
	must(t, b.Done(t.Context(), item.ID))
	record(t, b, first, inbox.Accepted) // what is done is the ledger's to know
	wantBodies(t, b, "one", "one")
}

func laterEnd(t *testing.T, h Harness) {
	b := h.Open(t)
	at := func(minute int) mail {
		when := epoch.Add(time.Duration(minute) * time.Minute)
		return mail{id: 1, body: "one", at: when, signed: when}
	}
	record(t, b, at(0), inbox.Accepted)
	record(t, b, at(1), inbox.Replayed)
	record(t, b, at(0), inbox.Replayed) // ends earlier: nothing new
	item, r := take(t, b)
	if want := at(1).accepted(t).Lifetime(); r.Lifetime != want || !item.Received.Equal(at(1).at) {
		t.Errorf("the lifetime is %v, want %v", r.Lifetime, want)
	}
	// One that is handed out stays so, and the repeat comes after it.
	record(t, b, at(2), inbox.Replayed)
	must(t, b.Done(t.Context(), item.ID))
	item, r = take(t, b)
	if want := at(2).accepted(t).Lifetime(); r.Lifetime != want {
		t.Errorf("next is %v, want the repeat", r.Lifetime)
	}
	must(t, b.Done(t.Context(), item.ID))
	record(t, b, at(2), inbox.Accepted)
}

func order(t *testing.T, h Harness) {
	b := h.Open(t)
	for _, i := range []int{3, 1, 2, 5, 4} {
		record(t, b, mail{id: uint64(i), body: fmt.Sprint(i), at: epoch.Add(time.Duration(i) * time.Second)}, inbox.Accepted)
	}
	item, _ := take(t, b)
	must(t, b.Release(t.Context(), item.ID))
	if err := b.Release(t.Context(), item.ID); !errors.Is(err, inbox.ErrNotLeased) {
		t.Errorf("second Release = %v, want ErrNotLeased", err)
	}
	wantBodies(t, b, "1", "2", "3", "4", "5")
}

func refusals(t *testing.T, h Harness) {
	b := h.Open(t)
	m := mail{id: 1, body: "one"}
	if _, err := b.Record(t.Context(), fencepost.AcceptedDelivery{}, headers, nil); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("zero delivery: %v, want ErrZeroValue", err)
	}
	long := mail{id: 2, body: string(make([]byte, 1001))}
	if _, err := b.Record(t.Context(), long.accepted(t), headers, []byte(long.body)); !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("long body: %v, want ErrTooLarge", err)
	}
	many := fencepost.NewHeaders(make([]fencepost.Header, 5000))
	if _, err := b.Record(t.Context(), m.accepted(t), many, []byte(m.body)); !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("many headers: %v, want ErrTooLarge", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone away")
	cancel(cause)
	if _, err := b.Record(gone, m.accepted(t), headers, []byte(m.body)); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
	if _, err := b.Next(gone); !errors.Is(err, cause) {
		t.Errorf("Next cancelled: %v, want the cause", err)
	}
	record(t, b, m, inbox.Accepted)
	wantBodies(t, b, "one")
}

func full(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	for i := range uint64(2) {
		record(t, a, mail{id: i, body: "x"}, inbox.Accepted)
	}
	third := mail{id: 3, body: "x"}
	_, err := a.Record(t.Context(), third.accepted(t), headers, []byte(third.body))
	fault, ok := errors.AsType[*inbox.FullError](err)
	if !ok || fault.Bound != inbox.BoundEntries || fault.RetryAfter != 7*time.Second || !errors.Is(err, inbox.ErrFull) {
		t.Fatalf("Record = %v, want full of entries, retry after 7s", err)
	}
	record(t, a, mail{id: 1, body: "x"}, inbox.Replayed)
	item, _ := take(t, a)
	must(t, a.Done(t.Context(), item.ID))
	record(t, a, third, inbox.Accepted)
	must(t, errors.Join(a.Health(), b.Health()))
}

func waits(t *testing.T, h Harness) {
	b := h.Open(t)
	got := make(chan inbox.Item, 3)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			item, err := b.Next(ctx)
			if err == nil {
				got <- item
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	record(t, b, mail{id: 1, body: "1"}, inbox.Accepted)
	record(t, b, mail{id: 2, body: "2"}, inbox.Accepted)
	for range 2 {
		select {
		case <-got:
		case <-time.After(soon):
			t.Error("nothing was handed out to one who waits")
		}
	}
	stop()
	wg.Wait()
	if len(got) > 0 {
		t.Error("more was handed out than was recorded")
	}
}

// once has several processes record, and several work, at the same time.
func once(t *testing.T, h Harness) {
	const processes, each = 3, 20
	var boxes []Box
	for range processes {
		boxes = append(boxes, h.Open(t))
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*soon)
	defer stop()
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for p, b := range boxes {
		wg.Go(func() {
			for i := range each {
				record(t, b, mail{id: uint64(p*each + i), body: fmt.Sprintf("%d %d", p, i)}, inbox.Accepted)
			}
		})
		wg.Go(func() {
			for {
				item, err := b.Next(ctx)
				if err != nil {
					return
				}
				r, err := b.Read(t.Context(), item.ID)
				if err == nil {
					err = b.Done(t.Context(), item.ID)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[string(r.Body)]++
				if len(seen) == processes*each {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != processes*each {
		t.Errorf("%d of %d entries were handed out", len(seen), processes*each)
	}
	for body, n := range seen {
		if n != 1 {
			t.Errorf("%q was handed out %d times", body, n)
		}
	}
}

func together(t *testing.T, h Harness) {
	b := h.Open(t)
	const senders = 8
	outcomes := make([]inbox.Outcome, senders)
	var wg sync.WaitGroup
	m := mail{id: 1, body: "one"}
	d := m.accepted(t)
	for i := range senders {
		wg.Go(func() {
			var err error
			if outcomes[i], err = b.Record(t.Context(), d, headers, []byte(m.body)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(outcomes)
	if outcomes[0] != inbox.Accepted || outcomes[1] != inbox.Replayed || outcomes[senders-1] != inbox.Replayed {
		t.Errorf("answers %v, want one accepted", outcomes)
	}
	wantBodies(t, b, "one")
}

func left(t *testing.T, h Harness) {
	a := h.Open(t)
	for i := range uint64(3) {
		record(t, a, mail{id: i, body: fmt.Sprint(i)}, inbox.Accepted)
	}
	item, _ := take(t, a)
	take(t, a)
	must(t, a.Done(t.Context(), item.ID))
	h.Close(t, a)
	wantBodies(t, h.Open(t), "1", "2")
}

func killed(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	for i := range uint64(3) {
		record(t, a, mail{id: i, body: fmt.Sprint(i)}, inbox.Accepted)
	}
	take(t, a)
	h.Kill(t, a)
	ctx, stop := context.WithTimeout(t.Context(), h.Takeover+soon)
	defer stop()
	var bodies []string
	for range 3 {
		item, err := b.Next(ctx)
		must(t, err)
		r, err := b.Read(t.Context(), item.ID)
		must(t, err)
		bodies = append(bodies, string(r.Body))
		must(t, b.Done(t.Context(), item.ID))
	}
	slices.Sort(bodies)
	if diff := cmp.Diff([]string{"0", "1", "2"}, bodies); diff != "" {
		t.Errorf("handed out (-want +got):\n%s", diff)
	}
}

func damage(t *testing.T, h Harness) {
	b := h.Open(t)
	record(t, b, mail{id: 1, body: "one of many bytes, in the middle of which there is one more"}, inbox.Accepted)
	h.Damage(t)
	item, err := b.Next(t.Context())
	must(t, err)
	if err := readError(t, b, item.ID); !errors.Is(err, inbox.ErrCorrupt) {
		t.Errorf("Read = %v, want ErrCorrupt", err)
	}
	if err := b.Health(); !errors.Is(err, inbox.ErrCorrupt) {
		t.Errorf("Health = %v, want ErrCorrupt", err)
	}
	must(t, b.Done(t.Context(), item.ID))
	record(t, b, mail{id: 2, body: "two"}, inbox.Accepted)
	wantBodies(t, b, "two")
}

func closed(t *testing.T, h Harness) {
	b := h.Open(t)
	waited := make(chan error, 1)
	go func() {
		_, err := b.Next(context.WithoutCancel(t.Context()))
		waited <- err
	}()
	h.Close(t, b)
	m := mail{id: 1, body: "one"}
	_, err := b.Record(t.Context(), m.accepted(t), headers, []byte(m.body))
	_, next := b.Next(t.Context())
	for what, err := range map[string]error{"Record": err, "Next": next, "Next that waited": <-waited} {
		if !errors.Is(err, inbox.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
}
