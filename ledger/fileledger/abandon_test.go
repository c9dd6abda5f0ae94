package fileledger_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func TestAbandonedLeaseIsTakenOverAtOnceByThisProcessAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/ledger"
	open := func() *fileledger.Ledger {
		l, err := fileledger.Open(t.Context(), fileledger.Config{Dir: dir, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l
	}
	own, other := open(), open()
	d := ledgertest.Deliver(t, ledgertest.Spec{Body: "abandoned"})
	first := acquire(t, own, d)
	if c, err := own.Claim(t.Context(), d); err != nil || !isBusy(c) {
		t.Fatalf("Claim of a held delivery = %#v, %v, want Busy", c, err)
	}
	own.Abandon(first)
	if c, err := other.Claim(t.Context(), d); err != nil || !isBusy(c) {
		t.Fatalf("Claim by another process = %#v, %v, want Busy: it can't know", c, err)
	}
	second := acquire(t, own, d)
	if !first.Fence().Before(second.Fence()) || first.Evaluation() != second.Evaluation() {
		t.Errorf("taken over with fence %v and %v after %v and %v, want a higher fence of the same evaluation",
			second.Fence(), second.Evaluation(), first.Fence(), first.Evaluation())
	}
	if r, err := own.Renew(t.Context(), d, first); err != nil || r != (fencepost.Lost{}) {
		t.Errorf("Renew of the abandoned lease = %#v, %v, want Lost", r, err)
	}
	if c, err := own.Claim(t.Context(), d); err != nil || !isBusy(c) {
		t.Errorf("Claim after the takeover = %#v, %v, want Busy: only the first lease was abandoned", c, err)
	}
}

func acquire(t *testing.T, l fencepost.Ledger, d fencepost.AcceptedDelivery) fencepost.Lease {
	t.Helper()
	c, err := l.Claim(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := c.(fencepost.Acquired)
	if !ok {
		t.Fatalf("Claim = %#v, want Acquired", c)
	}
	return a.Lease
}

func isBusy(c fencepost.Claim) bool { _, ok := c.(fencepost.Busy); return ok }
