package fileledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func of(tb testing.TB, set fencepost.TrustSetName, n int) fencepost.AcceptedDelivery {
	return ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint(set, n), TrustSet: set})
}

// sets is a ledger with done rows of the sets "old" and "new", some of them in
// the table of done rows.
func sets(tb testing.TB) (*play, *crashfs.Disk) {
	tb.Helper()
	p, disk := newPlay(tb), crashfs.New(crashfs.Options{})
	p.cfg.Shards = 2
	l, err := openIn(tb.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		tb.Fatal(err)
	}
	for n := range 8 {
		for _, set := range []fencepost.TrustSetName{"old", "new"} {
			if err := p.take(l, of(tb, set, n), "result", "done"); err != nil {
				tb.Fatal(err)
			}
		}
		if n == 4 {
			if err := l.Compact(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
	}
	bounded := ledgertest.Deliver(tb, ledgertest.Spec{ID: "bounded", TrustSet: "old", Signed: p.clock.Now()})
	if err := p.take(l, bounded, "result", "done"); err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return p, disk
}

// checkSets holds a ledger to what it must hold after a retirement, or before.
func checkSets(tb testing.TB, what string, l *Ledger, retired bool) {
	tb.Helper()
	for n := range 8 {
		want := fencepost.Claim(fencepost.Completed{})
		if c, err := l.Claim(tb.Context(), of(tb, "new", n)); err != nil || c != want {
			tb.Fatalf("%s: new %d is answered %T, %v; want Completed", what, n, c, err)
		}
		if retired {
			want = fencepost.Expired{}
		}
		if c, err := l.Claim(tb.Context(), of(tb, "old", n)); err != nil || c != want {
			tb.Fatalf("%s: old %d is answered %T, %v; want %T", what, n, c, err, want)
		}
	}
	seen := map[ledger.TrustMark]int{}
	for r, err := range l.Rows(tb.Context()) {
		if err != nil {
			tb.Fatalf("%s: %v", what, err)
		}
		seen[r.Trust]++
	}
	want := map[bool]int{false: 9, true: 1}[retired] // the bounded one stays
	if seen[ledger.MarkOf("old")] != want || seen[ledger.MarkOf("new")] != 8 {
		tb.Fatalf("%s: rows %v, want %d old and 8 new", what, seen, want)
	}
	st, err := l.Stat(tb.Context())
	if err != nil || st.Rows() != want+8 {
		tb.Fatalf("%s: stat says %d rows, %v; want %d", what, st.Rows(), err, want+8)
	}
}

func TestRetireForgetsTheRowsOfOneSet(t *testing.T) {
	t.Parallel()
	p, disk := sets(t)
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	checkSets(t, "before", l, false)
	mark := ledger.MarkOf("old")
	trust, err := l.Trust(t.Context())
	if err != nil || trust[mark] != (ledger.TrustRows{Retirable: 8, Other: 1}) || trust[ledger.MarkOf("new")] != (ledger.TrustRows{Retirable: 8}) {
		t.Fatalf("trust = %+v, %v", trust, err)
	}
	if err := p.take(peer, of(t, "old", 99), "open", "stage"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retire(t.Context(), mark); !errors.Is(err, ledger.ErrHeld) || n != 0 {
		t.Fatalf("retire with work under way: %d, %v; want ErrHeld", n, err)
	}
	p.clock.Elapse(p.cfg.Lease + 1)
	if err := p.take(peer, of(t, "old", 99), "", "done"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retire(t.Context(), mark); err != nil || n != 9 {
		t.Fatalf("retire: %d, %v; want 9", n, err)
	}
	if n, err := l.Retire(t.Context(), mark); err != nil || n != 0 {
		t.Fatalf("again: %d, %v; want 0", n, err)
	}
	// Also in the process that has the ledger open beside.
	for what, l := range map[string]*Ledger{"after": l, "beside": peer} {
		checkSets(t, what, l, true)
	}
	if err := l.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkSets(t, "compacted", l, true)
	checkSets(t, "beside a compaction", peer, true)
	if err := errors.Join(l.Close(), peer.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = openIn(t.Context(), p.cfg, disk.Process(), testName); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	checkSets(t, "opened again", l, true)
	if marks, err := l.Retired(t.Context()); err != nil || len(marks) != 1 || marks[0] != mark {
		t.Errorf("retired = %v, %v; want %v", marks, err, mark)
	}
}

// TestRetireIsCrashSafeAtEveryCall: after a crash each shard has all rows of
// the set or none, none of another set is gone, and saying it again ends it.
func TestRetireIsCrashSafeAtEveryCall(t *testing.T) {
	t.Parallel()
	p, first := sets(t)
	mark := ledger.MarkOf("old")
	retire := func(disk *crashfs.Disk) error {
		l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			return err
		}
		_, err = l.Retire(t.Context(), mark)
		if err == nil {
			err = l.Compact(t.Context())
		}
		return errors.Join(err, l.Close())
	}
	probe := first.After(crashfs.KeepAll)
	if err := retire(probe); err != nil {
		t.Fatal(err)
	}
	calls := probe.Calls()
	step := stride()
	for n := 1; n <= calls; n += step {
		disk := first.After(crashfs.KeepAll)
		disk.Plan(crashfs.CrashAt(n, []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After}[n%3], 300))
		// The loops of two shards take turns by chance: the call may not come.
		if err := retire(disk); err == nil && !disk.Crashed() {
			disk.Crash()
		}
		for i, policy := range leftovers(disk.Unsynced(), n) {
			what := fmt.Sprintf("crash at call %d, policy %d", n, i)
			after := disk.After(policy)
			l, err := openIn(t.Context(), p.cfg, after.Process(), testName)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			gone := map[int]map[bool]bool{}
			for k := range 8 {
				if c, err := l.Claim(t.Context(), of(t, "new", k)); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
					t.Fatalf("%s: new %d is answered %T, %v", what, k, c, err)
				}
				d := of(t, "old", k)
				c, err := l.Claim(t.Context(), d)
				_, expired := c.(fencepost.Expired)
				if _, done := c.(fencepost.Completed); err != nil || !expired && !done {
					t.Fatalf("%s: old %d is answered %T, %v; it may never be new", what, k, c, err)
				}
				shard := l.owner(d.Key())
				if gone[shard] == nil {
					gone[shard] = map[bool]bool{}
				}
				gone[shard][expired] = true
			}
			for shard, both := range gone {
				if len(both) > 1 {
					t.Fatalf("%s: shard %d has retired a part of them", what, shard)
				}
			}
			if _, err := l.Retire(t.Context(), mark); err != nil {
				t.Fatalf("%s: said again: %v", what, err)
			}
			checkSets(t, what+", said again", l, true)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestVerifyKnowsThatRetiredRowsAreHidden: what one set signed may come again
// under another one with the same secret. It is a new row, beside the retired
// one of the same key that stays in the table until the next compaction.
func TestVerifyKnowsThatRetiredRowsAreHidden(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(set fencepost.TrustSetName) fencepost.AcceptedDelivery {
		return ledgertest.Deliver(t, ledgertest.Spec{ID: "the same", TrustSet: set})
	}
	if err := p.take(l, signed("old"), "result", "done"); err != nil {
		t.Fatal(err)
	}
	if err := l.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retire(t.Context(), ledger.MarkOf("old")); err != nil || n != 1 {
		t.Fatalf("retire: %d, %v; want 1", n, err)
	}
	verify := func(when string) {
		t.Helper()
		report, err := verifyIn(t.Context(), durable.Sub(disk.Process(), testName))
		if err == nil {
			err = report.Err()
		}
		if err != nil || report.Shards[0].Done != 1 {
			t.Errorf("%s: verify: %v, and %+v; want one done row", when, err, report.Shards)
		}
		rows := 0
		for r, err := range l.Rows(t.Context()) {
			if err != nil || r.Trust != ledger.MarkOf("new") {
				t.Errorf("%s: row %+v, %v", when, r, err)
			}
			rows++
		}
		if rows != 1 {
			t.Errorf("%s: %d rows, want 1", when, rows)
		}
	}
	if err := p.take(l, signed("new"), "result", "done"); err != nil {
		t.Fatal(err)
	}
	verify("beside the retired row")
	if err := l.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	verify("after a compaction")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWhatDoesNotFitTheTableStaysInMemory: numbers that are larger than a done
// row's fields lose nothing.
func TestWhatDoesNotFitTheTableStaysInMemory(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	d := p.permanent(0)
	const tries = 300 // more attempts than a byte counts
	for range tries {
		if err := p.take(l, d, "", "claim"); err != nil {
			t.Fatal(err)
		}
		p.clock.Elapse(p.cfg.Lease + 1)
	}
	if err := p.take(l, d, "result", "done"); err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(1), "result", "done"); err != nil {
		t.Fatal(err)
	}
	want, _, err := l.Lookup(t.Context(), d.Key())
	if err != nil || want.Attempts != tries+1 {
		t.Fatalf("%d attempts, %v; want %d", want.Attempts, err, tries+1)
	}
	if err := errors.Join(l.Compact(t.Context()), l.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = openIn(t.Context(), p.cfg, disk.Process(), testName); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got, ok, err := l.Lookup(t.Context(), d.Key()); err != nil || !ok || !got.Equal(want) {
		t.Errorf("after a snapshot it is %+v, %v; want %+v", got, err, want)
	}
	if st, err := l.Stat(t.Context()); err != nil || st.Done != 2 {
		t.Errorf("stat: %d done, %v; want 2", st.Done, err)
	}
}
