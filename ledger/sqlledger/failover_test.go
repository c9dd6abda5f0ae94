package sqlledger

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger"
)

// TestAPrimaryThatIsLost: with a real synchronous standby, no answer rests on
// what the standby may lack, whatever happens to the session that waits for
// it; and when the primary is lost and the standby promoted, all that was
// answered is there, and no fence comes twice.
func TestAPrimaryThatIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes two servers, for some ten seconds")
	}
	t.Parallel()
	pg := pgtest.Server{Fast: true}
	t.Cleanup(func() { must0(t, pg.Stop()) })
	f := newFixture(t, Config{URL: pg.Database(t)})
	f.cfg.Parts, f.cfg.Lease = 1, MinLease
	l := f.ledger()
	standby := pg.Standby(t)
	finished, held := permanent(t, "finished"), permanent(t, "held")
	finish(t, l, finished)
	old := acquire(t, l, held)
	o, err := l.Stage(t.Context(), held, old, publication(t, "result"))
	staged := must[fencepost.Staged](t, o, err).Staged

	f.cfg.Wait = time.Second
	impatient := f.ledger()
	standby.Cut()
	// attempt runs op, whose commit waits for the standby until its session is
	// ended, or its wait alone.
	attempt := func(name string, only bool, op func() (any, error)) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if answer, err := op(); err == nil || !errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: answered %v, %v; the standby lacks it", name, answer, err)
			}
		}()
		standby.EndWaiting(t, only)
		<-done
	}
	unheard := permanent(t, "unheard")
	attempt("claim", false, func() (any, error) { return impatient.Claim(t.Context(), unheard) })
	attempt("claim, its wait canceled", true, func() (any, error) { return impatient.Claim(t.Context(), permanent(t, "canceled")) })
	attempt("complete", false, func() (any, error) { return impatient.Complete(t.Context(), held, staged) })
	var group sync.WaitGroup
	// It is visible here, done and staged alike, and still nobody's to build on.
	for name, op := range map[string]func() (any, error){
		"claim of what is done":    func() (any, error) { return impatient.Claim(t.Context(), held) },
		"complete what is done":    func() (any, error) { return impatient.Complete(t.Context(), held, staged) },
		"repeat of what is done":   func() (any, error) { return impatient.Repeat(t.Context(), held) },
		"look up what is not sure": func() (any, error) { _, _, err := impatient.Lookup(t.Context(), unheard.Key()); return nil, err },
	} {
		group.Go(func() {
			if answer, err := op(); err == nil {
				t.Errorf("%s: answered %v; the standby lacks it", name, answer)
			}
		})
	}
	group.Wait()

	// An operator lets the primary go on alone: what it answers now may be lost.
	standby.Detach(t)
	gone := permanent(t, "gone")
	lost := acquire(t, l, gone)
	f.closeAll()
	standby.Promote(t)
	f.cfg.URL, f.cfg.Wait = standby.URL(f.cfg.URL), time.Minute
	l = f.ledger()
	if c, err := l.Claim(t.Context(), finished); err != nil || c != (fencepost.Claim)(fencepost.Completed{}) {
		t.Errorf("what was completed: %T, %v", c, err)
	}
	row, _, err := l.Lookup(t.Context(), held.Key())
	if err != nil || row.State != ledger.Staged || !row.Publication.Equal(publication(t, "result")) {
		t.Errorf("what was staged is %v, %v", row.State, err)
	}
	if _, there, err := l.Lookup(t.Context(), unheard.Key()); err != nil || there {
		t.Errorf("what nobody was answered is there: %v, %v; nothing was tested", there, err)
	}
	n, err := l.Renew(t.Context(), gone, lost)
	must[fencepost.Lost](t, n, err)
	again := acquire(t, l, gone)
	if again.Fence().Uint64()>>40 != lost.Fence().Uint64()>>40+1 {
		t.Errorf("fence %v on the promoted standby, after %v on the primary that is lost", again.Fence(), lost.Fence())
	}
	o, err = l.Stage(t.Context(), gone, lost, publication(t, "late"))
	must[fencepost.Lost](t, o, err)
	c, err := l.Complete(t.Context(), held, staged)
	must[fencepost.Completed](t, c, err)
}
