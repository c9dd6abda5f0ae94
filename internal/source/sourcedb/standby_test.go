package sourcedb_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

// A push that comes again is answered when the synchronous standby has the one
// that it repeats, whatever became of the session that waited for that.
func TestARepeatIsToldWhenTheStandbyHasIt(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes two servers, for some ten seconds")
	}
	t.Parallel()
	server := pgtest.Server{Fast: true}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := finish(t, store.Options{URL: server.Database(t), Connections: 2}, nil)
	s, _ := w.open(t, sourcedb.Hooks{})
	enable(t, s, 1)
	// While a run is under way a repeat changes nothing, but for the row's lock.
	start(t, s, 1)
	standby := server.Standby(t)
	intake := source.Intake{Store: s, Random: rand.Reader}
	push := func(within time.Duration) (source.PushAnswer, error) {
		ctx, stop := context.WithTimeout(t.Context(), within)
		defer stop()
		return intake.Push(ctx, storetest.Policy(1), storetest.Delivery(2, 1, storetest.Commit(2)))
	}
	standby.Cut()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got, err := push(2 * time.Second); err == nil {
			t.Errorf("answered %v; the standby lacks it", got)
		}
	}()
	standby.EndWaiting(t, false)
	<-done
	if got, err := push(time.Second); err == nil {
		t.Errorf("sent again: answered %v; the standby lacks it", got)
	}
	standby.Reconnect()
	if got, err := push(time.Minute); err != nil || got != source.PushReplayed {
		t.Errorf("sent again when the standby is back: %v, %v; want replayed", got, err)
	}
}
