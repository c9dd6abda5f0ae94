package gate

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// A countedCheckout counts its removals.
type countedCheckout struct {
	Checkout
	removed int
}

func (c *countedCheckout) Remove() error {
	c.removed++
	return nil
}

// A countingFetcher makes checkouts, or fails.
type countingFetcher struct {
	mu   sync.Mutex
	made []*countedCheckout
	fail error
}

func (f *countingFetcher) Fetch(context.Context, gitfetch.Request) (Checkout, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	c := &countedCheckout{}
	f.made = append(f.made, c)
	return c, nil
}

func action(url string) gitfetch.Request {
	return gitfetch.Request{URL: url, Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}}
}

func mustGet(t *testing.T, k *keeper, url string, wantFresh bool) *sharedAction {
	t.Helper()
	c, fresh, err := k.get(t.Context(), "docs", action(url))
	if err != nil || fresh != wantFresh {
		t.Fatalf("get = fresh %t, %v, want %t", fresh, err, wantFresh)
	}
	return c
}

func mustRemove(t *testing.T, c *sharedAction) {
	t.Helper()
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
}

func TestAnActionIsFetchedOnceAndKept(t *testing.T) {
	t.Parallel()
	f := &countingFetcher{}
	k := newKeeper(f)
	mustRemove(t, mustGet(t, k, "a", true))
	mustRemove(t, mustGet(t, k, "a", false))
	other := mustGet(t, k, "b", true)
	mustRemove(t, other)
	if len(f.made) != 2 || f.made[0].removed != 0 {
		t.Errorf("%d fetches, the first removed %d times, want 2 and 0", len(f.made), f.made[0].removed)
	}
	if err := k.close(); err != nil {
		t.Fatal(err)
	}
	for i, c := range f.made {
		if c.removed != 1 {
			t.Errorf("checkout %d was removed %d times at the end, want once", i, c.removed)
		}
	}
}

func TestADroppedActionIsRemovedByItsLastUserAndFetchedAnew(t *testing.T) {
	t.Parallel()
	f := &countingFetcher{}
	k := newKeeper(f)
	one, two := mustGet(t, k, "a", true), mustGet(t, k, "a", false)
	one.drop()
	mustRemove(t, one)
	mustRemove(t, one)
	if f.made[0].removed != 0 {
		t.Fatal("removed under another user")
	}
	three := mustGet(t, k, "a", true)
	mustRemove(t, two)
	if f.made[0].removed != 1 {
		t.Errorf("the dropped checkout was removed %d times, want once", f.made[0].removed)
	}
	mustRemove(t, three)
	if f.made[1].removed != 0 {
		t.Error("the new one was not kept")
	}
}

func TestAFailedFetchIsNotKept(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	f := &countingFetcher{fail: boom}
	k := newKeeper(f)
	if _, _, err := k.get(t.Context(), "docs", action("a")); !errors.Is(err, boom) {
		t.Fatalf("get = %v, want boom", err)
	}
	f.fail = nil
	mustRemove(t, mustGet(t, k, "a", true))
}

func TestManyUsersFetchOnce(t *testing.T) {
	t.Parallel()
	f := &countingFetcher{}
	k := newKeeper(f)
	var users sync.WaitGroup
	for range 16 {
		users.Go(func() {
			c, _, err := k.get(t.Context(), "docs", action("a"))
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
	if len(f.made) != 1 {
		t.Errorf("%d fetches, want one", len(f.made))
	}
}

func TestGatesShareNoAction(t *testing.T) {
	t.Parallel()
	f := &countingFetcher{}
	k := newKeeper(f)
	mustRemove(t, mustGet(t, k, "a", true))
	// The other gate's own credential must be the one that is asked with.
	refused := errors.New("refused")
	f.fail = refused
	if _, _, err := k.get(t.Context(), "other", action("a")); !errors.Is(err, refused) {
		t.Errorf("another gate was given what its credential can't read: %v", err)
	}
	mustRemove(t, mustGet(t, k, "a", false))
}

func TestClosingTakesNoActionFromItsUser(t *testing.T) {
	t.Parallel()
	f := &countingFetcher{}
	k := newKeeper(f)
	one := mustGet(t, k, "a", true)
	if err := k.close(); err != nil {
		t.Fatal(err)
	}
	if f.made[0].removed != 0 {
		t.Error("removed under its user")
	}
	mustRemove(t, one)
	if f.made[0].removed != 1 {
		t.Errorf("removed %d times by its last user, want once", f.made[0].removed)
	}
}
