package sourcedb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

// TestServerRestartedUnderIt: what was stored is there, and the same store
// works on. The server is this test's own, and syncs.
func TestServerRestartedUnderIt(t *testing.T) {
	t.Parallel()
	var server pgtest.Server
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := finish(t, store.Options{URL: server.Database(t), Connections: 2}, nil)
	s, _ := w.open(t, sourcedb.Hooks{})
	enable(t, s, 1)
	start(t, s, 1)
	hold := source.Hold{Source: storetest.ID(1), Run: storetest.RunID(1), Token: storetest.Token(1), Fence: 1}
	if err := s.Holds(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	before := see(t, s, 1)

	interrupted := s.Change(t.Context(), storetest.ID(1), source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
		if snap.Source.Announcements == 0 {
			server.Restart(t)
		}
		row := snap.Source
		row.Announcements++
		return source.Change{Source: &row}, nil
	})
	if fencepost.ReasonOf(interrupted) != fencepost.ReasonUnavailable || !errors.Is(interrupted, store.ErrUnavailable) {
		t.Errorf("a change during the restart: %v, want unavailable", interrupted)
	}
	if after := see(t, s, 1); after.Source.Version != before.Source.Version || after.Open == nil || after.Open.ID != storetest.RunID(1) {
		t.Errorf("after the restart: %+v, open %v; want version %d and the run", after.Source, after.Open, before.Source.Version)
	}
	if _, err := s.Renew(t.Context(), hold, time.Minute); err != nil {
		t.Errorf("renew after the restart: %v", err)
	}
}
