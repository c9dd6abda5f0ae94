package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

func must0(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// count is how many rows there are, which must be what the parts count.
func (f *fixture) count(l *Ledger) (n int) {
	f.tb.Helper()
	must0(f.tb, l.db.Read(f.tb.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select count(*) from ledger_rows", nil, &n)
		return err
	}))
	if st, err := l.Stat(f.tb.Context()); err != nil || st.Rows() != n {
		f.tb.Errorf("%v, %v; there are %d rows", st, err, n)
	}
	return n
}

func (f *fixture) life() time.Duration {
	w := fencepost.DefaultReplayWindow
	return w.MaxSignedAge + w.MaxQueueAge
}

// fill takes n bounded deliveries to done, or one step less, in one
// transaction.
func (f *fixture) fill(l *Ledger, n int, done bool) {
	f.tb.Helper()
	var all []fencepost.AcceptedDelivery
	for i := range n {
		all = append(all, f.bounded(fmt.Sprint(done, i)))
	}
	must0(f.tb, l.db.Write(f.tb.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		for _, d := range all {
			step := func(req ledger.Request) ledger.Answer {
				own, err := l.newChange()
				must0(f.tb, err)
				a, err := l.step(ctx, tx, req, own)
				must0(f.tb, err)
				return a
			}
			lease := must[fencepost.Acquired](f.tb, step(ledger.ClaimRequest{Delivery: d}).Claim, nil).Lease
			s := must[fencepost.Staged](f.tb, step(ledger.StageRequest{Delivery: d, Lease: lease, Publication: publication(f.tb, "x")}).Stage, nil)
			if done {
				step(ledger.CompleteRequest{Delivery: d, Staged: s.Staged})
			}
		}
		return nil
	}))
}

// cleanUpTakesWhatMayGo: more than one page of a part, and nothing else;
// a row that does not verify stays and is named.
func cleanUpTakesWhatMayGo(t *testing.T, fresh maker) {
	f := fresh(t)
	f.cfg.Parts = 1
	l := f.ledger()
	l.page = 4
	f.fill(l, 2*l.page+1, true)
	f.fill(l, 3, false)
	finish(t, l, permanent(t, "for ever"))
	must0(t, l.CleanUp(t.Context()))
	if n := f.count(l); n != 2*l.page+5 {
		t.Errorf("%d rows before any end", n)
	}
	before, err := l.Stat(t.Context())
	must0(t, err)
	f.exec(l, "update ledger_rows set body = substr(body, 1, 90) where key = (select min(key) from ledger_rows where state = 3 and replay_end <> 0)")
	f.elapse(f.life() + time.Second)
	if err := l.CleanUp(t.Context()); !errors.Is(err, ErrCorrupt) || fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
		t.Errorf("clean-up: %v, want ErrCorrupt", err)
	}
	if n := f.count(l); n != 5 {
		t.Errorf("%d rows are left, want 3 staged, one for ever, one damaged", n)
	}
	if after, err := l.Stat(t.Context()); err != nil || after.Fence < before.Fence {
		t.Errorf("fence %d after %d, %v", after.Fence, before.Fence, err)
	}
}

// aServersClockThatJumps: a row outlives a jump of the server's clock
// ahead, as no process has seen that time pass; and what was removed is never
// new again when the clock goes back.
func aServersClockThatJumps(t *testing.T, fresh maker) {
	f := fresh(t)
	l, d := f.ledger(), f.bounded("a")
	finish(t, l, d)
	f.step(f.life() + time.Hour)
	must0(t, l.CleanUp(t.Context()))
	c, err := l.Claim(t.Context(), d)
	must[fencepost.Completed](t, c, err)
	if n := f.count(l); n != 1 {
		t.Fatalf("%d rows, want the one", n)
	}
	f.elapse(f.life() + time.Second)
	must0(t, l.CleanUp(t.Context()))
	if n := f.count(l); n != 0 {
		t.Fatalf("%d rows, want none", n)
	}
	f.step(-2*f.life() - 2*time.Hour)
	c, err = l.Claim(t.Context(), d)
	must[fencepost.Expired](t, c, err)
}

// runningTimeIsCountedOnce, however many processes look.
func runningTimeIsCountedOnce(t *testing.T, fresh maker) {
	f := fresh(t)
	processes := []*Ledger{f.ledger(), f.ledger()}
	for i := range 6 {
		f.elapse(time.Minute)
		must0(t, processes[i%2].CleanUp(t.Context()))
	}
	var most, least int64
	must0(t, processes[0].db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select max(running_ns), min(running_ns) from ledger_parts", nil, &most, &least)
		return err
	}))
	if time.Duration(most) != 6*time.Minute || least != most {
		t.Errorf("%v and %v of running time, want 6m", time.Duration(most), time.Duration(least))
	}
}

func anAbandonedLeaseNeedsNoWaiting(t *testing.T, fresh maker) {
	f := fresh(t)
	l, other, d := f.ledger(), f.ledger(), permanent(t, "a")
	old := acquire(t, l, d)
	l.Abandon(old)
	c, err := other.Claim(t.Context(), d)
	must[fencepost.Busy](t, c, err)
	next := acquire(t, l, d)
	if !old.Fence().Before(next.Fence()) {
		t.Errorf("fence %v after %v", next.Fence(), old.Fence())
	}
	c, err = l.Claim(t.Context(), d)
	must[fencepost.Busy](t, c, err)
}

// TestRunningTimeAcrossARestart: the boot-time clock starts anew, and what it
// says then is not compared with what it said before.
func TestRunningTimeAcrossARestart(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	l := f.ledger()
	f.elapse(time.Minute)
	must0(t, l.CleanUp(t.Context()))
	f.closeAll()
	f.clock.Restart()
	f.elapse(2 * time.Hour)
	l = f.ledger()
	f.elapse(time.Minute)
	must0(t, l.CleanUp(t.Context()))
	var running int64
	must0(t, l.db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select max(running_ns) from ledger_parts", nil, &running)
		return err
	}))
	if time.Duration(running) != 2*time.Minute {
		t.Errorf("%v of running time, want 2m", time.Duration(running))
	}
}

// aClientsClockDoesNotMatter: the server's alone times leases and judges
// replay ends.
func aClientsClockDoesNotMatter(t *testing.T, fresh maker) {
	f := fresh(t)
	l := f.ledger()
	d, unclaimed := f.bounded("a"), f.bounded("b")
	acquire(t, l, d)
	f.clock.Elapse(365 * 24 * time.Hour)
	c, err := l.Claim(t.Context(), d)
	must[fencepost.Busy](t, c, err)
	acquire(t, l, unclaimed)
}
