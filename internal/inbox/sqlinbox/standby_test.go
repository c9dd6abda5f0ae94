package sqlinbox

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/inbox/inboxtest"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

// Invariant 3 on several machines: a sender is told that its delivery is
// recorded when the synchronous standby has it, whatever happens to the session
// that waited for that; so what was told outlives the primary.
func TestWhatWasToldOutlivesThePrimary(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes two servers, for some ten seconds")
	}
	t.Parallel()
	pg := pgtest.Server{Fast: true}
	t.Cleanup(func() { must(t, pg.Stop()) })
	url := pg.Database(t)
	b := openBox(t, url, Config{})
	standby := pg.Standby(t)
	record := func(within time.Duration, id uint64) (inbox.Outcome, error) {
		ctx, stop := context.WithTimeout(t.Context(), within)
		defer stop()
		return b.Record(ctx, delivery(t, id), inboxtest.Headers(), []byte("one"))
	}
	if got, err := record(time.Minute, 1); err != nil || got != inbox.Accepted {
		t.Fatalf("record: %v, %v; want accepted", got, err)
	}
	standby.Cut()
	for id, only := range map[uint64]bool{2: false, 3: true} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if got, err := record(2*time.Second, id); err == nil {
				t.Errorf("delivery %d, its wait canceled %v: %v; the standby lacks it", id, only, got)
			}
		}()
		standby.EndWaiting(t, only)
		<-done
		if got, err := record(time.Second, id); err == nil {
			t.Errorf("delivery %d sent again: %v; the standby lacks it", id, got)
		}
	}
	// Its sender goes on until it is told.
	standby.Reconnect()
	if got, err := record(time.Minute, 3); err != nil || got != inbox.Replayed {
		t.Errorf("sent again when the standby is back: %v, %v; want replayed", got, err)
	}
	standby.Promote(t)
	after := openBox(t, standby.URL(url), Config{})
	told := map[fencepost.DeliveryKey]bool{}
	for range 3 {
		told[after.next(t).Key] = true
	}
	for id := range uint64(3) {
		if !told[delivery(t, id+1).Key()] {
			t.Errorf("delivery %d was told to be recorded, and is gone with the primary", id+1)
		}
	}
}
