package fileledger

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

const targetName = "target"

// A moving is a ledger with rows of every kind on a disk, closed, and what a
// move of it is held to.
type moving struct {
	p        *play
	disk     *crashfs.Disk
	targets  Config
	rows     map[fencepost.DeliveryKey]ledger.Row // as they are told when still
	digest   [32]byte
	fence    uint64
	bounded  fencepost.AcceptedDelivery // done, and its row there
	removed  fencepost.AcceptedDelivery // done, and cleaned up
	leased   fencepost.AcceptedDelivery
	lease    fencepost.Lease
	staged   fencepost.AcceptedDelivery
	finished fencepost.AcceptedDelivery
}

func newMoving(tb testing.TB) *moving {
	tb.Helper()
	p, disk := newPlay(tb), crashfs.New(crashfs.Options{})
	p.cfg.Shards = 3
	m := &moving{p: p, disk: disk, targets: p.cfg, rows: map[fencepost.DeliveryKey]ledger.Row{}}
	m.targets.Shards, m.targets.Capacity = 2, 40
	l, err := openIn(tb.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		tb.Fatal(err)
	}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	m.removed = ledgertest.Deliver(tb, ledgertest.Spec{ID: "removed", Signed: p.clock.Now()})
	must(p.take(l, m.removed, "gone", "done"))
	p.clock.Elapse(p.cfg.Window.MaxSignedAge + p.cfg.Window.MaxQueueAge + time.Second)
	must(l.CleanUp(tb.Context()))
	m.bounded = ledgertest.Deliver(tb, ledgertest.Spec{ID: "bounded", Signed: p.clock.Now()})
	must(p.take(l, m.bounded, "bounded", "done"))
	m.finished, m.leased, m.staged = p.permanent(0), p.permanent(1), p.permanent(2)
	must(p.take(l, m.finished, "zero", "done"))
	must(l.Compact(tb.Context()))
	c, err := l.Claim(tb.Context(), m.leased)
	must(err)
	m.lease = c.(fencepost.Acquired).Lease
	must(p.take(l, m.staged, "two", "stage"))
	for n := 3; n < 9; n++ {
		must(p.take(l, p.permanent(n), "more", []string{"done", "claim", "stage"}[n%3]))
	}
	rows, head := l.Snapshot(tb.Context())
	d := &ledger.RowsDigest{}
	for r, err := range rows {
		must(err)
		must(d.Add(r))
		m.rows[r.Key] = r
	}
	h, err := head()
	must(err)
	m.digest, m.fence = d.Sum(), h.Fence
	must(l.Close())
	return m
}

// migrate moves it on a disk as one process sees it.
func (m *moving) migrate(tb testing.TB, fsys durable.FS) (move ledger.Move, err error) {
	src, err := holdIn(tb.Context(), durable.Sub(fsys, testName))
	if err != nil {
		return ledger.Move{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := receiveIn(m.targets, fsys, targetName)
	if err != nil {
		return ledger.Move{}, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	return ledger.Migrate(tb.Context(), src, dst)
}

// checkMoved holds the target to what the source was.
func (m *moving) checkMoved(tb testing.TB, fsys durable.FS) {
	tb.Helper()
	l, err := openIn(tb.Context(), m.targets, fsys, targetName)
	if err != nil {
		tb.Fatalf("open the target: %v", err)
	}
	defer l.Close()
	seen := 0
	for r, err := range l.Rows(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		if want, ok := m.rows[r.Key]; !ok || !r.Equal(want) {
			tb.Fatalf("row %s is %+v, want %+v", r.Key, r, want)
		}
		seen++
	}
	if seen != len(m.rows) {
		tb.Fatalf("%d rows arrived, want %d", seen, len(m.rows))
	}
	for _, d := range []fencepost.AcceptedDelivery{m.finished, m.bounded} {
		if c, err := l.Claim(tb.Context(), d); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
			tb.Fatalf("what was done is answered %T, %v", c, err)
		}
	}
	if c, err := l.Claim(tb.Context(), m.removed); err != nil || c != fencepost.Claim(fencepost.Expired{}) {
		tb.Fatalf("what was cleaned up is answered %T, %v; want Expired", c, err)
	}
	m.p.clock.Elapse(m.p.cfg.Lease + time.Second)
	c, err := l.Claim(tb.Context(), m.leased)
	got, ok := c.(fencepost.Acquired)
	if err != nil || !ok || got.Lease.Evaluation() != m.lease.Evaluation() || got.Lease.Fence().Uint64() <= m.fence || !got.Reclaimed {
		tb.Fatalf("what was leased is answered %+v, %v; want its evaluation under a fence above %d", c, err, m.fence)
	}
	if r, err := l.Renew(tb.Context(), m.leased, m.lease); err != nil || r != fencepost.Renewal(fencepost.Lost{}) {
		tb.Fatalf("the old lease is answered %T, %v; want Lost", r, err)
	}
	c, err = l.Claim(tb.Context(), m.staged)
	if p, ok := c.(fencepost.Publish); err != nil || !ok || !bytes.Contains(p.Staged.Publication().Bytes(), []byte("two")) || p.Lease.Fence().Uint64() <= m.fence {
		tb.Fatalf("what was staged is answered %+v, %v; want it to publish under a fence above %d", c, err, m.fence)
	}
}

func TestAMoveCarriesEverything(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	fsys := m.disk.Process()
	move, err := m.migrate(t, fsys)
	if err != nil {
		t.Fatal(err)
	}
	if move.Digest != m.digest || move.Rows != len(m.rows) || move.From == move.To {
		t.Fatalf("move = %v, want %d rows with digest %x", move, len(m.rows), m.digest)
	}
	if _, err := openIn(t.Context(), m.p.cfg, m.disk.Process(), testName); !errors.Is(err, ledger.ErrMoved) {
		t.Fatalf("open what was moved: %v, want ErrMoved", err)
	}
	m.checkMoved(t, m.disk.Process())
	// Said again, it says the same and changes nothing.
	if again, err := m.migrate(t, m.disk.Process()); err != nil || again != move {
		t.Fatalf("again: %v, %v; want the same move", again, err)
	}
}

func TestAMoveNeedsBothEndsForItself(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	l, err := openIn(t.Context(), m.p.cfg, m.disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.migrate(t, m.disk.Process()); !errors.Is(err, ledger.ErrInUse) {
		t.Fatalf("move of an open ledger: %v, want ErrInUse", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	src, err := holdIn(t.Context(), durable.Sub(m.disk.Process(), testName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openIn(t.Context(), m.p.cfg, m.disk.Process(), testName); !errors.Is(err, ledger.ErrInUse) {
		t.Errorf("open of a held ledger: %v, want ErrInUse", err)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := openIn(t.Context(), m.targets, m.disk.Process(), targetName)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.migrate(t, m.disk.Process()); !errors.Is(err, ledger.ErrNotEmpty) {
		t.Errorf("move onto another ledger: %v, want ErrNotEmpty", err)
	}
	if l, err := openIn(t.Context(), m.p.cfg, m.disk.Process(), testName); err != nil {
		t.Errorf("the source after all that: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestAMoveNeedsTheSameWindowAndRoom(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.targets.Window.MaxQueueAge += time.Hour
	if _, err := m.migrate(t, m.disk.Process()); !errors.Is(err, ErrParameters) {
		t.Errorf("another window: %v, want ErrParameters", err)
	}
	m.targets.Window = m.p.cfg.Window
	m.targets.Capacity = len(m.rows) - 1
	if _, err := m.migrate(t, m.disk.Process()); !errors.Is(err, ErrConfig) {
		t.Errorf("too small a capacity: %v, want ErrConfig", err)
	}
	if l, err := openIn(t.Context(), m.p.cfg, m.disk.Process(), testName); err != nil {
		t.Errorf("the source after that: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestAMoveIsCrashSafeAtEveryCall: until the source is marked it is the one
// that counts and the target can't be opened; from then on it is refused, and
// saying the move again ends it.
func TestAMoveIsCrashSafeAtEveryCall(t *testing.T) {
	t.Parallel()
	first := newMoving(t)
	probe := first.disk.After(crashfs.KeepAll)
	before := probe.Calls()
	if _, err := first.migrate(t, probe.Process()); err != nil {
		t.Fatal(err)
	}
	calls := probe.Calls() - before
	if calls < 40 {
		t.Fatalf("%d calls: too few to be a move", calls)
	}
	t.Logf("%d calls", calls)
	left, here := 0, 0
	moments := []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After}
	for n := 1; n <= calls; n++ {
		some := moments
		if last := calls - 15; !exhaustive && n < last {
			// All kinds of calls are met in a sample; the end is looked at whole.
			if n%3 > 0 {
				continue
			}
			some = moments[n/3%3:][:1]
		}
		for _, when := range some {
			disk := first.disk.After(crashfs.KeepAll)
			disk.Plan(crashfs.CrashAt(disk.Calls()+n, when, 300))
			_, err := first.migrate(t, disk.Process())
			if err == nil {
				t.Fatalf("crash at call %d: the move ended well", n)
			}
			for i, policy := range leftovers(disk.Unsynced(), n) {
				what := fmt.Sprintf("crash at call %d (%v), policy %d", n, when, i)
				if first.afterCrash(t, what, disk.After(policy)) {
					left++
				} else {
					here++
				}
			}
		}
	}
	if left == 0 || here == 0 {
		t.Fatalf("%d times the source had left, %d times not: both must be seen", left, here)
	}
	t.Logf("%d times the source had left, %d times not", left, here)
}

// afterCrash reports whether the source had left, and ends the move.
func (m *moving) afterCrash(t *testing.T, what string, disk *crashfs.Disk) (left bool) {
	t.Helper()
	copied := *m
	copied.p = newPlay(t)
	copied.p.clock = m.p.clock
	src, err := inspect(durable.Sub(disk.Process(), testName))
	left = errors.Is(err, ledger.ErrMoved)
	if err != nil && !left {
		t.Fatalf("%s: source %+v: %v", what, src, err)
	}
	_, arrived := disk.Process().Stat(targetName)
	if !left {
		if arrived == nil {
			t.Fatalf("%s: both ends can be opened", what)
		}
		l, err := openIn(t.Context(), m.p.cfg, disk.Process(), testName)
		if err != nil {
			t.Fatalf("%s: the source can't be opened: %v", what, err)
		}
		rows := 0
		for r, err := range l.Rows(t.Context()) {
			if want, ok := m.rows[r.Key]; err != nil || !ok || r.Fence != want.Fence || r.State != want.State {
				t.Fatalf("%s: the source's row %s: %v", what, r.Key, err)
			}
			rows++
		}
		if err := l.Close(); err != nil || rows != len(m.rows) {
			t.Fatalf("%s: the source has %d rows, want %d; %v", what, rows, len(m.rows), err)
		}
	} else if arrived != nil {
		// Not here yet: nobody may take its place.
		if _, err := openIn(t.Context(), m.targets, disk.Process(), targetName); !errors.Is(err, ledger.ErrIncoming) {
			t.Fatalf("%s: the target before it has arrived: %v, want ErrIncoming", what, err)
		}
	}
	if _, err := m.migrate(t, disk.Process()); err != nil {
		t.Fatalf("%s: the move said again: %v", what, err)
	}
	m.checkArrived(t, what, disk)
	return left
}

// checkArrived counts what arrived; [moving.checkMoved] looks closer, once.
func (m *moving) checkArrived(t *testing.T, what string, disk *crashfs.Disk) {
	t.Helper()
	if _, err := inspect(durable.Sub(disk.Process(), testName)); !errors.Is(err, ledger.ErrMoved) {
		t.Fatalf("%s: in the end the source is %v, want ErrMoved", what, err)
	}
	h, err := holdIn(t.Context(), durable.Sub(disk.Process(), targetName))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	d, err := ledger.Digest(h.Rows(t.Context()))
	if err := errors.Join(err, h.Close()); err != nil || d.Sum() != m.digest {
		t.Fatalf("%s: %d rows arrived, with another digest; %v", what, d.Rows(), err)
	}
}
