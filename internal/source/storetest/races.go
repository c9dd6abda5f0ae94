package storetest

import (
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
)

var raceCases = []testCase{
	{"race/no change is lost", raceChanges},
	{"race/five copies of a push are one run", racePushes},
	{"race/one of many takes the lock", raceLock},
	{"race/a renewal and an end at once are one order or the other", raceRenew},
}

// together runs n functions at once.
func together(n int, f func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	group.Wait()
}

func raceChanges(t *testing.T, fresh func(testing.TB) Harness) {
	const workers, each = 8, 10
	w := enter(t, fresh, 1)
	stores := []source.Store{w.store, w.Open(t)}
	before := w.see(t, 1, source.Lookup{}).Source
	together(workers, func(i int) {
		for range each {
			if err := stores[i%2].Change(t.Context(), ID(1), source.Lookup{}, func(s source.Snapshot) (source.Change, error) {
				row := s.Source
				row.Announcements++
				return source.Change{Source: &row}, nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
	after := w.see(t, 1, source.Lookup{}).Source
	if n := after.Announcements - before.Announcements; n != workers*each || after.Version-before.Version != n {
		t.Errorf("%d of %d changes are there, in %d versions", n, workers*each, after.Version-before.Version)
	}
}

func racePushes(t *testing.T, fresh func(testing.TB) Harness) {
	const copies = 5
	w := enter(t, fresh, 1)
	stores := []source.Store{w.store, w.Open(t)}
	answers := make([]source.PushAnswer, copies)
	together(copies, func(i int) {
		in := source.Intake{Store: stores[i%2], Random: rand.Reader}
		var err error
		if answers[i], err = in.Push(t.Context(), Policy(1), Delivery(1, 1, Commit(1))); err != nil {
			t.Error(err)
		}
	})
	count := map[source.PushAnswer]int{}
	for _, a := range answers {
		count[a]++
	}
	if count[source.PushAccepted] != 1 || count[source.PushReplayed] != copies-1 {
		t.Errorf("answers %v, want one accepted and the others replayed", answers)
	}
	if s := w.see(t, 1, source.Lookup{}); s.Open == nil || s.Source.Announcements != 1 {
		t.Errorf("open %v, %d announcements; want one of each", s.Open, s.Source.Announcements)
	}
}

func raceLock(t *testing.T, fresh func(testing.TB) Harness) {
	const workers = 8
	w := enter(t, fresh, 1)
	in := source.Intake{Store: w.store, Random: rand.Reader}
	if _, err := in.Push(t.Context(), Policy(1), Delivery(1, 1, Commit(1))); err != nil {
		t.Fatal(err)
	}
	run := w.see(t, 1, source.Lookup{}).Open.ID
	stores := []source.Store{w.store, w.Open(t)}
	holds := make([]source.Hold, workers)
	together(workers, func(i int) {
		begin := source.Begin{Run: run, Owner: source.Owner(Token(i + 1)), Token: Token(i + 1)}
		if err := stores[i%2].Change(t.Context(), ID(1), source.Lookup{Run: run}, func(s source.Snapshot) (source.Change, error) {
			c, b := source.OnBegin(s, Policy(1), begin)
			holds[i] = source.Hold{}
			if began, ok := b.(source.Began); ok {
				holds[i] = began.Hold
			}
			return c, nil
		}); err != nil {
			t.Error(err)
		}
	})
	var held []source.Hold
	for _, h := range holds {
		if h.Token.IsZero() {
			continue
		}
		held = append(held, h)
		if err := w.store.Holds(t.Context(), h); err != nil {
			t.Errorf("who took the lock: %v", err)
		}
	}
	if len(held) != 1 {
		t.Errorf("%d took the lock, want one", len(held))
	}
}

func raceRenew(t *testing.T, fresh func(testing.TB) Harness) {
	w := enter(t, fresh, 1)
	other := w.Open(t)
	for n := 1; n <= 10; n++ {
		h := w.begin(t, 1, n, time.Minute)
		var renewed error
		together(2, func(i int) {
			if i == 0 {
				_, renewed = other.Renew(t.Context(), h, 2*time.Minute)
				return
			}
			if err := w.store.Change(t.Context(), ID(1), source.Lookup{}, func(s source.Snapshot) (source.Change, error) {
				return source.OnEnd(s, Policy(1), h, source.Ending{Status: source.Complete, Head: Commit(n), Tree: Tree(n)})
			}); err != nil {
				t.Errorf("end: %v", err)
			}
		})
		if s := w.see(t, 1, source.Lookup{}); !s.Lock.Free() || s.Open != nil {
			t.Errorf("round %d (renewal: %v): lock %+v, open %v; want neither", n, renewed, s.Lock, s.Open)
		}
	}
}
