package fileledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func TestAGlanceNeverDeniesWhatThisProcessKnows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/ledger"
	open := func() *fileledger.Ledger {
		l, err := fileledger.Open(t.Context(), fileledger.Config{Dir: dir, Capacity: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	deliveries := make([]fencepost.AcceptedDelivery, 300)
	for i := range deliveries {
		deliveries[i] = ledgertest.Deliver(t, ledgertest.Spec{ID: fmt.Sprint(i), Body: "x"})
		if i%3 == 0 {
			finish(t, l, deliveries[i])
		} else {
			acquire(t, l, deliveries[i])
		}
	}
	check := func(when string) {
		t.Helper()
		// The table is read aside; until then every answer is yes.
		stranger := ledgertest.Deliver(t, ledgertest.Spec{ID: "a stranger"}).Key()
		for l.MayKnow(stranger) {
			touch(t, l)
			time.Sleep(time.Millisecond)
		}
		for i, d := range deliveries {
			if !l.MayKnow(d.Key()) {
				t.Fatalf("%s: delivery %d is denied", when, i)
			}
		}
		unknown := 0
		for i := range 1000 {
			if !l.MayKnow(ledgertest.Deliver(t, ledgertest.Spec{ID: fmt.Sprint("new", i)}).Key()) {
				unknown++
			}
		}
		if unknown < 900 {
			t.Errorf("%s: only %d of 1000 unknown keys are told apart", when, unknown)
		}
	}
	touch(t, l)
	check("written")
	if err := l.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	touch(t, l)
	check("compacted")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	touch(t, l)
	check("opened again")
}

func TestAGlanceThatIsTooOldSaysYes(t *testing.T) {
	t.Parallel()
	clock := ledgertest.NewClock()
	l, err := fileledger.Open(t.Context(), fileledger.Config{
		Dir: t.TempDir() + "/ledger", Now: clock.Now, Instant: clock.Instant, Maintain: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	key := ledgertest.Deliver(t, ledgertest.Spec{ID: "unknown"}).Key()
	touch(t, l)
	if l.MayKnow(key) {
		t.Error("an unknown key was taken for known right after a look")
	}
	clock.Elapse(2 * time.Second)
	if !l.MayKnow(key) {
		t.Error("a look of two seconds ago was believed: another process may have written since")
	}
}

// A Stat whose context ends leaves nothing behind that a shard's loop and its
// caller both use; the race detector looks on.
func TestAStatThatIsGivenUpSharesNothing(t *testing.T) {
	t.Parallel()
	l, err := fileledger.Open(t.Context(), fileledger.Config{Dir: t.TempDir() + "/ledger"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		st, err := l.Stat(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if st.Rows() != 0 {
			t.Fatalf("%d rows in an empty ledger", st.Rows())
		}
	}
}

// touch has every shard look at its log.
func touch(t *testing.T, l *fileledger.Ledger) {
	t.Helper()
	if _, err := l.Stat(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func finish(t *testing.T, l *fileledger.Ledger, d fencepost.AcceptedDelivery) {
	t.Helper()
	p, err := fencepost.NewPublication([]byte("result"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := l.Stage(t.Context(), d, acquire(t, l, d), p)
	if err != nil {
		t.Fatal(err)
	}
	staged, ok := o.(fencepost.Staged)
	if !ok {
		t.Fatalf("Stage = %#v", o)
	}
	if c, err := l.Complete(t.Context(), d, staged.Staged); err != nil || c != (fencepost.Completed{}) {
		t.Fatalf("Complete = %#v, %v", c, err)
	}
}
