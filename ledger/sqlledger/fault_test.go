package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

type performer = func(context.Context, ledger.Request, change) (ledger.Answer, error)

// unknown is what a commit whose answer was lost ends in.
func unknown() error {
	return &fencepost.Error{Op: "test", Reason: fencepost.ReasonUnavailable, Err: &store.Fault{Class: store.ErrUnavailable, Unknown: true}}
}

// losing stores, and then loses the answer; instead of storing if stored is
// false. Then is done between the two.
func losing(perform performer, stored bool, then func()) performer {
	return func(ctx context.Context, req ledger.Request, own change) (ledger.Answer, error) {
		if stored {
			if _, err := perform(ctx, req, own); err != nil {
				return ledger.Answer{}, err
			}
		}
		then()
		return ledger.Answer{}, unknown()
	}
}

// aLostAnswerIsReadBack: what was stored is answered as if nothing had
// been lost, for every operation.
func aLostAnswerIsReadBack(t *testing.T, fresh maker) {
	f := fresh(t)
	l, d := f.ledger(), f.bounded("a")
	l.perform = losing(l.perform, true, func() {})
	lease := acquire(t, l, d)
	row, _, err := l.Lookup(t.Context(), d.Key())
	if err != nil || row.Fence != lease.Fence() || row.Evaluation != lease.Evaluation() {
		t.Fatalf("row of fence %v, evaluation %v, %v; want %v, %v", row.Fence, row.Evaluation, err, lease.Fence(), lease.Evaluation())
	}
	f.elapse(l.cfg.Lease / 2)
	n, err := l.Renew(t.Context(), d, lease)
	must[fencepost.Renewed](t, n, err)
	f.elapse(l.cfg.Lease + 1)
	second := acquire(t, l, d)
	if !lease.Fence().Before(second.Fence()) {
		t.Errorf("fence %v after %v", second.Fence(), lease.Fence())
	}
	o, err := l.Stage(t.Context(), d, second, publication(t, "result"))
	staged := must[fencepost.Staged](t, o, err)
	c, err := l.Complete(t.Context(), d, staged.Staged)
	must[fencepost.Completed](t, c, err)
	f.elapse(1000)
	if r, err := l.Repeat(t.Context(), f.bounded("a")); err != nil || r != ledger.RepeatKnown {
		t.Errorf("repeat: %v, %v", r, err)
	}
}

// aLostChangeIsUnknown: nothing was stored, and it might still be: no
// answer is given, whatever another process has made of the row meanwhile.
func aLostChangeIsUnknown(t *testing.T, fresh maker) {
	for name, c := range map[string]struct {
		stored bool
		then   func(t *testing.T, f *fixture, other *Ledger, d fencepost.AcceptedDelivery)
	}{
		"not stored": {false, func(*testing.T, *fixture, *Ledger, fencepost.AcceptedDelivery) {}},
		// The other's lease bears the very fence that ours would have had.
		"not stored, and another has claimed": {false, func(t *testing.T, _ *fixture, other *Ledger, d fencepost.AcceptedDelivery) {
			acquire(t, other, d)
		}},
		"stored, and another has taken over": {true, func(t *testing.T, f *fixture, other *Ledger, d fencepost.AcceptedDelivery) {
			f.elapse(other.cfg.Lease + 1)
			acquire(t, other, d)
		}},
		"stored, and another has finished": {true, func(t *testing.T, f *fixture, other *Ledger, d fencepost.AcceptedDelivery) {
			f.elapse(other.cfg.Lease + 1)
			finish(t, other, d)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			l, other, d := f.ledger(), f.ledger(), permanent(t, "a")
			perform := l.perform
			l.perform = losing(perform, c.stored, func() { c.then(t, f, other, d) })
			claim, err := l.Claim(t.Context(), d)
			if claim != nil || !errors.Is(err, store.ErrUnknownOutcome) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
				t.Fatalf("claim: %v, %v; want no answer, ErrUnknownOutcome", claim, err)
			}
			l.perform = perform
			f.elapse(l.cfg.Lease + 1)
			if claim, err = l.Claim(t.Context(), d); err != nil {
				t.Errorf("a later claim: %v, %v", claim, err)
			}
		})
	}
}

// TestAfterAFailedSyncNothingIsReadBack: what can be read then may be lost.
func TestAfterAFailedSyncNothingIsReadBack(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	l := f.ledger()
	perform := l.perform
	l.perform = func(ctx context.Context, req ledger.Request, own change) (ledger.Answer, error) {
		_, err := perform(ctx, req, own)
		must0(t, err)
		return ledger.Answer{}, l.db.Write(ctx, "test", func(context.Context, *store.Tx) error {
			return &store.Fault{Class: store.ErrPoisoned, Unknown: true}
		})
	}
	_, err := l.Claim(t.Context(), permanent(t, "a"))
	if !errors.Is(err, store.ErrPoisoned) || fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Errorf("claim: %v, want poisoned", err)
	}
	if h := l.Health(); h.OK() || fencepost.ReasonOf(h.Err()) != fencepost.ReasonPoisoned {
		t.Errorf("health: %v, want poisoned", h.Err())
	}
	l.perform = perform
	if _, err := l.Claim(t.Context(), permanent(t, "b")); fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Errorf("a later claim: %v, want poisoned", err)
	}
}

// TestServerRestartedUnderIt: clients of two processes go on while the server
// is restarted; what they were answered is linearizable.
func TestServerRestartedUnderIt(t *testing.T) {
	t.Parallel()
	pg := pgtest.Server{Fast: true}
	t.Cleanup(func() { must0(t, pg.Stop()) })
	f := newServer(t, &pg).fixture(t)
	processes := []*Ledger{f.ledger(), f.ledger()}
	var (
		history   ledgertest.History
		group     sync.WaitGroup
		ready     sync.WaitGroup
		restarted = make(chan struct{})
	)
	const clients = 6
	ready.Add(clients)
	for i := range clients {
		group.Go(func() {
			l := history.Client(i, processes[i%2])
			for round := 0; round < 16; round++ {
				if round == 4 {
					ready.Done()
				}
				if err := work(t, l, permanent(t, fmt.Sprint((round+i)%8))); err != nil {
					if fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
						t.Errorf("client %d: %v", i, err)
					}
					<-restarted
				}
			}
		})
	}
	ready.Wait()
	pg.Restart(t)
	close(restarted)
	group.Wait()
	history.Check(t, false)
	l, d := processes[0], permanent(t, "after")
	c, err := again(f, func() (fencepost.Claim, error) { return l.Claim(t.Context(), d) })
	lease := must[fencepost.Acquired](t, c, err).Lease
	o, err := again(f, func() (fencepost.StageOutcome, error) {
		return l.Stage(t.Context(), d, lease, publication(t, "result"))
	})
	staged := must[fencepost.Staged](t, o, err).Staged
	n, err := again(f, func() (fencepost.Completion, error) { return l.Complete(t.Context(), d, staged) })
	must[fencepost.Completed](t, n, err)
}

// again does op once more for each connection that may have to be found dead.
func again[T any](f *fixture, op func() (T, error)) (answer T, err error) {
	for range f.cfg.Connections + 1 {
		if answer, err = op(); err == nil {
			break
		}
	}
	return answer, err
}

// work takes d as far as it gets.
func work(t *testing.T, l fencepost.Ledger, d fencepost.AcceptedDelivery) error {
	c, err := l.Claim(t.Context(), d)
	a, ok := c.(fencepost.Acquired)
	if err != nil || !ok {
		return err
	}
	if _, err := l.Renew(t.Context(), d, a.Lease); err != nil {
		return err
	}
	o, err := l.Stage(t.Context(), d, a.Lease, publication(t, "result"))
	s, ok := o.(fencepost.Staged)
	if err != nil || !ok {
		return err
	}
	_, err = l.Complete(t.Context(), d, s.Staged)
	return err
}

// aDamagedRowIsNotBelieved: it is named and changed by nothing; others
// are served.
func aDamagedRowIsNotBelieved(t *testing.T, fresh maker) {
	for name, damage := range map[string]string{
		"cut":           "update ledger_rows set body = substr(body, 1, 90) where key = ?",
		"other fence":   "update ledger_rows set fence = fence + 1 where key = ?",
		"fence undrawn": "update ledger_parts set last_fence = 0 where (select count(*) from ledger_rows where key = ?) = 1",
		"other state":   "update ledger_rows set state = 1 where key = ?",
		"other id":      "update ledger_rows set evaluation = 'evl_a' where key = ?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			l, d := f.ledger(), f.bounded("a")
			finish(t, l, d)
			f.exec(l, damage, d.Key().Hex())
			_, err := l.Claim(t.Context(), d)
			if !errors.Is(err, ErrCorrupt) || fencepost.ReasonOf(err) != fencepost.ReasonCorrupt || !strings.Contains(err.Error(), d.Key().String()) {
				t.Errorf("claim: %v, want ErrCorrupt that names %s", err, d.Key())
			}
			if _, _, err := l.Lookup(t.Context(), d.Key()); !errors.Is(err, ErrCorrupt) {
				t.Errorf("lookup: %v, want ErrCorrupt", err)
			}
			acquire(t, l, permanent(t, "another"))
		})
	}
}
