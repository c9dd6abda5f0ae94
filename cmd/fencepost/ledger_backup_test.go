package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// bring takes a new delivery to a state, and returns the fence it had.
func bring(tb testing.TB, l fencepost.Ledger, d fencepost.AcceptedDelivery, to ledger.State) (uint64, error) {
	c, err := l.Claim(tb.Context(), d)
	if err != nil {
		return 0, err
	}
	a, ok := c.(fencepost.Acquired)
	if !ok {
		return 0, fmt.Errorf("claim of %s answered %T, want Acquired", d.ID(), c)
	}
	fence := a.Lease.Fence().Uint64()
	if to == ledger.Leased {
		return fence, nil
	}
	text, err := fencepost.NewPublication([]byte("of " + d.ID()))
	if err != nil {
		return fence, err
	}
	o, err := l.Stage(tb.Context(), d, a.Lease, text)
	if err != nil || to == ledger.Staged {
		return fence, err
	}
	s, ok := o.(fencepost.Staged)
	if !ok {
		return fence, fmt.Errorf("stage of %s answered %T, want Staged", d.ID(), o)
	}
	_, err = l.Complete(tb.Context(), d, s.Staged)
	return fence, err
}

// A filled ledger has rows of every kind.
type filled struct {
	leased, staged, done, bounded fencepost.AcceptedDelivery
	fence                         uint64
}

func fillLedger(tb testing.TB, l *fileledger.Ledger, now time.Time, window fencepost.ReplayWindow) filled {
	tb.Helper()
	permanent := func(id string) fencepost.AcceptedDelivery {
		return ledgertest.Deliver(tb, ledgertest.Spec{ID: id})
	}
	f := filled{
		leased: permanent("leased"), staged: permanent("staged"), done: permanent("done"),
		bounded: ledgertest.Deliver(tb, ledgertest.Spec{ID: "bounded", Signed: now, Window: window}),
	}
	put := func(d fencepost.AcceptedDelivery, to ledger.State) {
		fence, err := bring(tb, l, d, to)
		if err != nil {
			tb.Fatal(err)
		}
		f.fence = max(f.fence, fence)
	}
	for n := range 12 {
		put(permanent(fmt.Sprint("early", n)), ledger.Done)
	}
	put(f.done, ledger.Done)
	// Those of before are in the table of done rows, those of after are not.
	if err := l.Compact(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	put(f.bounded, ledger.Done)
	put(f.leased, ledger.Leased)
	put(f.staged, ledger.Staged)
	put(permanent("late"), ledger.Done)
	return f
}

// still reads all rows, and their digest in hexadecimal.
func still(tb testing.TB, l *fileledger.Ledger) (map[fencepost.DeliveryKey]ledger.Row, string) {
	tb.Helper()
	all, d := map[fencepost.DeliveryKey]ledger.Row{}, &ledger.RowsDigest{}
	rows, _ := l.Snapshot(tb.Context())
	for r, err := range rows {
		if err := errors.Join(err, d.Add(r)); err != nil {
			tb.Fatal(err)
		}
		all[r.Key] = r
	}
	return all, fmt.Sprintf("%x", d.Sum())
}

func openLedger(tb testing.TB, c fileledger.Config) *fileledger.Ledger {
	tb.Helper()
	l, err := fileledger.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// A writer takes deliveries from claim to done, one after the other, until it
// is told to stop.
type writer struct {
	mutex sync.Mutex
	done  []fencepost.DeliveryKey
	fence uint64
	err   error

	stop, ended chan struct{}
}

// most bounds what a writer writes.
const most = 3000

func startWriter(tb testing.TB, l fencepost.Ledger, all []fencepost.AcceptedDelivery) *writer {
	w := &writer{stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for _, d := range all {
			select {
			case <-w.stop:
				return
			default:
			}
			fence, err := bring(tb, l, d, ledger.Done)
			w.mutex.Lock()
			w.done, w.fence, w.err = append(w.done, d.Key()), max(w.fence, fence), err
			w.mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

// soFar is what was answered until now.
func (w *writer) soFar() (done []fencepost.DeliveryKey, err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.done[:len(w.done):len(w.done)], w.err
}

// moved is what --json says of a copy.
type moved struct {
	Rows   int    `json:"rows"`
	Digest string `json:"digest"`
	Above  uint64 `json:"fences_above"`
}

func readMoved(tb testing.TB, out *strings.Builder) (m moved) {
	tb.Helper()
	if err := json.Unmarshal([]byte(out.String()), &m); err != nil {
		tb.Fatalf("%v in %q", err, out)
	}
	out.Reset()
	return m
}

func TestABackupUnderWritesComesBackWhole(t *testing.T) {
	t.Parallel()
	clock, dir, out := ledgertest.NewClock(), t.TempDir(), &strings.Builder{}
	m := Main{Out: out, Now: clock.Now}
	at := func(name string) place {
		return place{kind: "files", text: name, file: fileledger.Config{
			Dir: filepath.Join(dir, name), Lease: time.Minute, Capacity: 2 * most, Shards: 3, Maintain: -1, Volatile: true, Now: clock.Now, Instant: clock.Instant,
		}}
	}
	from := at("ledger")
	l := openLedger(t, from.file)
	f := fillLedger(t, l, clock.Now(), fencepost.DefaultReplayWindow)
	want, _ := still(t, l)
	later := make([]fencepost.AcceptedDelivery, most)
	for n := range later {
		later[n] = ledgertest.Deliver(t, ledgertest.Spec{ID: fmt.Sprint("later", n)})
	}
	w := startWriter(t, openLedger(t, from.file), later)

	// Each copy is of a ledger that is written to; the one that is looked at is
	// one that was written to while it was made.
	var copied moved
	var before []fencepost.DeliveryKey
	var copyDir string
	const tries = 20
	for n := 0; ; n++ {
		if n == tries {
			t.Fatalf("nothing was written during any of %d copies", tries)
		}
		var err error
		if before, err = w.soFar(); err != nil {
			t.Fatal(err)
		}
		copyDir = filepath.Join(dir, fmt.Sprint("copy", n))
		if err := m.ledgerBackup(t.Context(), from, copyDir, true); err != nil {
			t.Fatal(err)
		}
		copied = readMoved(t, out)
		if after, err := w.soFar(); err != nil {
			t.Fatal(err)
		} else if len(before) > 0 && len(after) > len(before) {
			break
		}
	}
	close(w.stop)
	<-w.ended
	if w.err != nil {
		t.Fatal(w.err)
	}
	highest := max(f.fence, w.fence)
	end, _ := still(t, l)

	// By then every lease has ended.
	pass := func() { clock.Elapse(from.file.Lease + time.Second) }
	pass()
	restore := func(name string) (*fileledger.Ledger, moved) {
		t.Helper()
		to := at(name)
		if err := m.ledgerRestore(t.Context(), copyDir, to, true); err != nil {
			t.Fatal(err)
		}
		return openLedger(t, to.file), readMoved(t, out)
	}
	back, restored := restore("back")
	got, digest := still(t, back)
	if len(got) != copied.Rows || digest != copied.Digest || restored.Digest != copied.Digest || restored.Rows != copied.Rows {
		t.Fatalf("%d rows with digest %s are back, restored %+v, want what was copied: %+v", len(got), digest, restored, copied)
	}
	for key, row := range want {
		if !got[key].Equal(row) {
			t.Errorf("row %s is %+v, want %+v", key, got[key], row)
		}
	}
	for _, key := range before {
		if !got[key].Equal(end[key]) {
			t.Errorf("row %s, which was done before the copy began, is %+v, want %+v", key, got[key], end[key])
		}
	}
	for key, row := range got {
		final, ok := end[key]
		if !ok || row.Evaluation != final.Evaluation || row.Fence != final.Fence || row.State == ledger.Done && !row.Equal(final) {
			t.Errorf("row %s is %+v, and in the original %+v", key, row, final)
		}
	}
	pass()
	highest = checkBack(t, back, f, highest)

	// The same copy once more: above the first one that came back from it. And
	// a copy of that one soon after, twice.
	second, _ := restore("second")
	pass()
	highest = checkBack(t, second, f, highest)
	copyDir = filepath.Join(dir, "soon")
	if err := m.ledgerBackup(t.Context(), at("second"), copyDir, true); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	for _, name := range []string{"third", "fourth"} {
		l, _ := restore(name)
		pass()
		c, err := l.Claim(t.Context(), ledgertest.Deliver(t, ledgertest.Spec{ID: "newest"}))
		if a, ok := c.(fencepost.Acquired); err != nil || !ok || a.Lease.Fence().Uint64() <= highest {
			t.Fatalf("the %s ledger answers %+v, %v; want a fence above %d", name, c, err, highest)
		} else {
			highest = a.Lease.Fence().Uint64()
		}
	}

	if _, _, err := (place{kind: "files", text: "copy", file: fileledger.Config{Dir: copyDir}}).hold(t.Context()); !errors.Is(err, fileledger.ErrCopy) {
		t.Errorf("a move of a copy: %v, want ErrCopy", err)
	}
}

// checkBack claims what a ledger has that came back, and new deliveries; each
// fence must be above highest. It returns the highest of them.
func checkBack(tb testing.TB, l *fileledger.Ledger, f filled, highest uint64) uint64 {
	tb.Helper()
	top := uint64(0)
	above := func(what string, lease fencepost.Lease) {
		tb.Helper()
		if got := lease.Fence().Uint64(); got <= highest {
			tb.Errorf("%s has fence %d, but %d was handed out before", what, got, highest)
		} else {
			top = max(top, got)
		}
	}
	for _, d := range []fencepost.AcceptedDelivery{f.done, f.bounded} {
		if c, err := l.Claim(tb.Context(), d); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
			tb.Errorf("%s is answered %T, %v; want Completed", d.ID(), c, err)
		}
	}
	switch c, err := l.Claim(tb.Context(), f.leased); c := c.(type) {
	case fencepost.Acquired:
		above("what was leased", c.Lease)
	default:
		tb.Errorf("what was leased is answered %T, %v; want Acquired", c, err)
	}
	switch c, err := l.Claim(tb.Context(), f.staged); c := c.(type) {
	case fencepost.Publish:
		above("what was staged", c.Lease)
		if text := string(c.Staged.Publication().Bytes()); text != "of "+string(f.staged.ID()) {
			tb.Errorf("what was staged is %q", text)
		}
	default:
		tb.Errorf("what was staged is answered %T, %v; want Publish", c, err)
	}
	for n := range 20 {
		d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint("new", n)})
		switch c, err := l.Claim(tb.Context(), d); c := c.(type) {
		case fencepost.Acquired:
			above("a new delivery", c.Lease)
		default:
			tb.Errorf("a new delivery is answered %T, %v; want Acquired", c, err)
		}
	}
	return top
}

// A busy ledger is written to between a copy's look at its head and at its
// rows.
type busy struct {
	*fileledger.Ledger
	meanwhile func()
}

func (b busy) Snapshot(ctx context.Context) (iter.Seq2[ledger.Row, error], func() (ledger.Head, error)) {
	rows, head := b.Ledger.Snapshot(ctx)
	return func(yield func(ledger.Row, error) bool) {
		b.meanwhile()
		rows(yield)
	}, head
}

// TestACopyHasRoomForWhatComesMeanwhile: rows that came after the copy was
// begun are in it, and it knows of their fences.
func TestACopyHasRoomForWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	clock, dir := ledgertest.NewClock(), t.TempDir()
	cfg := fileledger.Config{
		Dir: filepath.Join(dir, "ledger"), Shards: 3, Maintain: -1, Volatile: true, Now: clock.Now, Instant: clock.Instant,
	}
	l := openLedger(t, cfg)
	var fence uint64
	b := busy{l, func() {
		for n := range 20 {
			got, err := bring(t, l, ledgertest.Deliver(t, ledgertest.Spec{ID: fmt.Sprint("meanwhile", n)}), ledger.Leased)
			if err != nil {
				t.Fatal(err)
			}
			fence = max(fence, got)
		}
	}}
	cfg.Dir = filepath.Join(dir, "copy")
	dst, err := fileledger.ReceiveCopy(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	move, err := copyLive(t.Context(), b, dst)
	if err == nil {
		err = dst.Arrive(t.Context(), move)
	}
	if err := errors.Join(err, dst.Close()); err != nil {
		t.Fatal(err)
	}
	src, err := fileledger.Hold(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := src.Head(t.Context())
	if err := errors.Join(err, src.Close()); err != nil || move.Rows != 20 || h.Fence != fence {
		t.Errorf("the copy has %d rows and knows of fence %d, %v; want 20 and %d", move.Rows, h.Fence, err, fence)
	}
}
