package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// A desk is a recorder over a real inbox and a real ledger.
type desk struct {
	*recorder
	inbox  *inbox.Inbox
	ledger *fileledger.Ledger
	woken  int
}

func newDesk(t *testing.T, entries int) *desk {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"inbox", "receipts"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in, err := inbox.Open(t.Context(), durable.OS(filepath.Join(dir, "inbox")), inbox.Config{MaxEntries: entries, NotDurable: true})
	if err != nil {
		t.Fatal(err)
	}
	led, err := fileledger.Open(t.Context(), fileledger.Config{Dir: filepath.Join(dir, "ledger"), Shards: 1, Maintain: -1, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	receipts, err := receipt.Open(t.Context(), durable.OS(filepath.Join(dir, "receipts")), receipt.Limits{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, closer := range []func() error{in.Close, led.Close, receipts.Close} {
			if err := closer(); err != nil {
				t.Error(err)
			}
		}
	})
	d := &desk{inbox: in, ledger: led}
	d.recorder = &recorder{
		inbox: in, ledger: led, gate: "docs", now: time.Now,
		journal: &journal{
			receipts: receipts, log: slog.New(slog.DiscardHandler),
			metrics: ops.NewMetrics(ops.MetricsOptions{Now: time.Now}),
		},
		wake: func(fencepost.DeliveryKey) bool {
			d.woken++
			return true
		},
	}
	return d
}

// take takes the inbox's next entry out of it, as done or refused work is.
func (d *desk) take(t *testing.T) {
	t.Helper()
	item, err := d.inbox.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.inbox.Done(item.ID, fencepost.ReasonNone); err != nil {
		t.Fatal(err)
	}
}

// claim begins the work in the ledger.
func (d *desk) claim(t *testing.T, of fencepost.AcceptedDelivery) fencepost.Lease {
	t.Helper()
	answer, err := d.ledger.Claim(t.Context(), of)
	acquired, ok := answer.(fencepost.Acquired)
	if err != nil || !ok {
		t.Fatalf("Claim = %#v, %v; want it acquired", answer, err)
	}
	return acquired.Lease
}

// finish brings the work to its end in the ledger.
func (d *desk) finish(t *testing.T, of fencepost.AcceptedDelivery, lease fencepost.Lease) {
	t.Helper()
	p, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
	if err != nil {
		t.Fatal(err)
	}
	stage, err := d.ledger.Stage(t.Context(), of, lease, p)
	staged, ok := stage.(fencepost.Staged)
	if err != nil || !ok {
		t.Fatalf("Stage = %#v, %v; want it staged", stage, err)
	}
	if done, err := d.ledger.Complete(t.Context(), of, staged.Staged); err != nil || done != (fencepost.Completed{}) {
		t.Fatalf("Complete = %#v, %v; want it completed", done, err)
	}
}

// What a delivery is answered depends on ledger and inbox together. None that
// is answered well is in neither, unless it is done (invariant 3; DESIGN §8: a
// repeat of undone work is never dropped as a duplicate).
func TestWhatADeliveryIsAnswered(t *testing.T) {
	t.Parallel()
	one := ledgertest.Spec{ID: "one", Body: "body"}
	other := ledgertest.Spec{ID: "one", Body: "another body"}
	two := ledgertest.Spec{ID: "two", Body: "body"}
	record := func(t *testing.T, d *desk, s ledgertest.Spec) {
		t.Helper()
		if _, err := d.Record(t.Context(), ledgertest.Deliver(t, s), fencepost.Headers{}, []byte(s.Body)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		before func(t *testing.T, d *desk)
		then   ledgertest.Spec
		want   ingress.Recording
		reason fencepost.Reason
		// entries and woken are what there is in the inbox, and how often the
		// pool was woken, after it.
		entries, woken int
	}{
		"new": {
			before: func(*testing.T, *desk) {}, then: one,
			want: ingress.Accepted, entries: 1,
		},
		"a repeat of what waits": {
			before: func(t *testing.T, d *desk) { record(t, d, one) }, then: one,
			want: ingress.Replayed, entries: 1, woken: 1,
		},
		"a repeat of what is under way": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				d.claim(t, ledgertest.Deliver(t, one))
			},
			then: one, want: ingress.Replayed, entries: 1, woken: 1,
		},
		"a repeat of what is done": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				key := ledgertest.Deliver(t, one)
				d.finish(t, key, d.claim(t, key))
				d.take(t)
			},
			then: one, want: ingress.Replayed, entries: 0, woken: 1,
		},
		"a repeat of what was refused in mid-flow is recorded again": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				d.claim(t, ledgertest.Deliver(t, one))
				d.take(t)
			},
			then: one, want: ingress.Replayed, entries: 1, woken: 1,
		},
		"a repeat of what was refused before its claim is new": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				d.take(t)
			},
			then: one, want: ingress.Accepted, entries: 1,
		},
		"other content under a key that waits": {
			before: func(t *testing.T, d *desk) { record(t, d, one) }, then: other,
			want: ingress.Conflict, entries: 1,
		},
		"other content under a key that is done": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				key := ledgertest.Deliver(t, one)
				d.finish(t, key, d.claim(t, key))
				d.take(t)
			},
			then: other, want: ingress.Conflict, entries: 0,
		},
		"no room": {
			before: func(t *testing.T, d *desk) { record(t, d, two) }, then: one,
			reason: fencepost.ReasonFull, entries: 1,
		},
		"no room, and a repeat that needs none": {
			before: func(t *testing.T, d *desk) { record(t, d, one) }, then: one,
			want: ingress.Replayed, entries: 1, woken: 1,
		},
		"no room for undone work that was refused": {
			before: func(t *testing.T, d *desk) {
				record(t, d, one)
				d.claim(t, ledgertest.Deliver(t, one))
				d.take(t)
				record(t, d, two)
			},
			then: one, reason: fencepost.ReasonFull, entries: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// One entry is all that there is room for.
			d := newDesk(t, 1)
			tc.before(t, d)
			got, err := d.Record(t.Context(), ledgertest.Deliver(t, tc.then), fencepost.Headers{}, []byte(tc.then.Body))
			if got != tc.want || (err == nil) != (tc.reason == "") || err != nil && fencepost.ReasonOf(err) != tc.reason {
				t.Errorf("recorded as %d, %v; want %d, reason %q", got, err, tc.want, tc.reason)
			}
			if diff := cmp.Diff([]int{tc.entries, tc.woken}, []int{d.inbox.Stats().Entries, d.woken}); diff != "" {
				t.Errorf("entries, woken (-want +got):\n%s", diff)
			}
		})
	}
}
