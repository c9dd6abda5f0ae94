package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/ledgertest"
	"github.com/fencepost/fencepost/runner"
)

// A moody ledger fails renewals by number.
type moody struct {
	fencepost.Ledger
	renewals int
	fail     func(n int) error
}

func (m *moody) Renew(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease) (fencepost.Renewal, error) {
	m.renewals++
	if err := m.fail(m.renewals); err != nil {
		return nil, err
	}
	return m.Ledger.Renew(ctx, d, l)
}

func newTenure(t *testing.T, fail func(n int) error) (*tenure, *moody) {
	t.Helper()
	memory := ledgertest.NewMemory(ledgertest.MemoryConfig{Now: time.Now})
	d := ledgertest.Deliver(t, ledgertest.Spec{ID: "d"})
	answer, err := memory.Claim(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	m := &moody{Ledger: memory, fail: fail}
	return &tenure{ledger: m, delivery: d, lease: answer.(fencepost.Acquired).Lease}, m
}

func TestALeaseIsRenewedWhileWorkLasts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tn, m := newTenure(t, func(int) error { return nil })
		err := tn.during(t.Context(), time.Now, func(ctx context.Context) error { return pause(ctx, 3*time.Minute) })
		if err != nil {
			t.Fatal(err)
		}
		if m.renewals != 36 && m.renewals != 37 {
			t.Errorf("%d renewals in three minutes, want one each 5s", m.renewals)
		}
		if _, err := tn.Renew(t.Context()); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

func TestWorkEndsAtTheFirstRenewalThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("ledger unreachable")
		tn, m := newTenure(t, func(n int) error {
			if n == 3 {
				return cause
			}
			return nil
		})
		start := time.Now()
		var seen error
		err := tn.during(t.Context(), time.Now, func(ctx context.Context) error {
			seen = pause(ctx, time.Hour)
			return nil // what it says itself does not count
		})
		if fencepost.ReasonOf(err) != fencepost.ReasonLost || !errors.Is(err, cause) || !errors.Is(seen, runner.ErrLost) {
			t.Errorf("error %v, seen %v", err, seen)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("after %v", took)
		}
		// The ledger would answer again, but what is lost stays lost.
		if _, err := tn.Renew(t.Context()); fencepost.ReasonOf(err) != fencepost.ReasonLost || m.renewals != 3 {
			t.Errorf("renewed again: %v, %d renewals", err, m.renewals)
		}
	})
}

func TestARenewalThatIsNotWaitedForProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tn, _ := newTenure(t, func(n int) error {
			if n == 1 {
				cancel()
				return context.Canceled
			}
			return nil
		})
		if _, err := tn.Renew(ctx); !errors.Is(err, runner.ErrLost) {
			t.Errorf("error %v", err)
		}
		if window, err := tn.Renew(t.Context()); err != nil || window != time.Minute {
			t.Errorf("window %v, %v", window, err)
		}
	})
}

func TestTheEndOfTheContextIsNotALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for cause, want := range map[error]fencepost.Reason{
			errDraining: fencepost.ReasonDraining, context.Canceled: fencepost.ReasonUnavailable,
		} {
			tn, _ := newTenure(t, func(int) error { return nil })
			ctx, cancel := context.WithCancelCause(t.Context())
			err := tn.during(ctx, time.Now, func(ctx context.Context) error {
				cancel(cause)
				return pause(ctx, time.Hour)
			})
			if got := fencepost.ReasonOf(err); got != want {
				t.Errorf("%v: reason %s, want %s", cause, got, want)
			}
		}
	})
}
