package fileledger

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
)

// tabled is a disk with a ledger of one shard, all of whose rows are done and
// in the table.
func tabled(tb testing.TB, cfg Config, rows int) *crashfs.Disk {
	tb.Helper()
	disk := crashfs.New(crashfs.Options{})
	in, err := receiveIn(cfg, disk.Process(), testName)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := in.Begin(tb.Context(), ledger.Head{Fence: uint64(rows), Window: cfg.Window})
	if err != nil {
		tb.Fatal(err)
	}
	all := make([]ledger.Row, rows)
	for i := range all {
		fence, err := fencepost.ParseFence(uint64(i + 1))
		if err != nil {
			tb.Fatal(err)
		}
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		all[i] = ledger.Row{
			State: ledger.Done, Key: fencepost.DeliveryKey(sum), Binding: fencepost.Binding(sum), Evaluation: fencepost.EvaluationID(sum[:16]),
			Published: sum, Fence: fence, Since: time.Unix(1_790_000_000, 0).UTC(), Attempts: 1,
		}
	}
	sortByKey(all)
	move := ledger.Move{From: [16]byte{1}, To: to, Rows: rows, Digest: [32]byte{1}}
	if err := errors.Join(in.Put(tb.Context(), all), in.Prepare(tb.Context(), move), in.Arrive(tb.Context(), move), in.Close()); err != nil {
		tb.Fatal(err)
	}
	return disk
}

// TestOthersAreServedWhileASnapshotIsMade: a lease is renewed between two
// pieces of a large snapshot, and what the snapshot then says is what stood in
// the log where it began.
func TestOthersAreServedWhileASnapshotIsMade(t *testing.T) {
	t.Parallel()
	const rows = 5 * pieceBytes / doneRowSize
	p := newPlay(t)
	p.cfg.Capacity, p.cfg.MaxBytes = 2*rows, 1<<30
	disk := tabled(t, p.cfg, rows)
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	d := p.permanent(0)
	c, err := l.Claim(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	lease := c.(fencepost.Acquired).Lease
	if err := p.take(l, p.permanent(1), "result", "done"); err != nil {
		t.Fatal(err)
	}

	s := l.shards[0]
	var began, named atomic.Bool
	waits := make(chan struct{})
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		switch {
		case c.Op == crashfs.OpRename && strings.HasSuffix(c.Name, snapSuffix):
			named.Store(true)
		case c.Op == crashfs.OpWrite && strings.HasSuffix(c.Name, tempSuffix) && !began.Swap(true):
			close(waits)
			// Goes on when the renewal is in the queue.
			for len(s.queue) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		return crashfs.Fault{}
	})
	compacted := make(chan error, 1)
	go func() {
		compacted <- l.enqueue(t.Context(), 0, &op{after: (*shard).compact})
	}()
	<-waits
	r, err := l.Renew(t.Context(), d, lease)
	if _, ok := r.(fencepost.Renewed); !ok || err != nil {
		t.Errorf("renewal: %T, %v; want Renewed", r, err)
	}
	if named.Load() {
		t.Error("the renewal waited for the whole snapshot")
	}
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(2), "result", "done"); err != nil {
		t.Fatal(err)
	}
	until(t, "the snapshot has its name", named.Load)
	st, err := l.Stat(t.Context())
	if err != nil || st.Done != rows+2 || st.Leased != 1 {
		t.Errorf("stat: %+v, %v; want %d done and one leased", st, err, rows+2)
	}
	if h := l.Health(); h.Err() != nil || h.Maintenance != nil {
		t.Errorf("health: %+v", h)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := listShard(durable.Sub(disk.Process(), testName+"/"+shardDir(0)))
	if err != nil || len(list.snapshots) != 1 || list.newest() <= rows+1 || len(list.temps) > 1 {
		t.Errorf("files: %+v, %v; want the new snapshot alone", list, err)
	}
	report, err := verifyIn(t.Context(), durable.Sub(disk.Process(), testName))
	if err == nil {
		err = report.Err()
	}
	if err != nil || report.Shards[0].Done != rows+2 || report.Shards[0].Leased != 1 {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

// TestASnapshotInTheMakingIsLeftByClose: what was begun is removed, and not
// missed.
func TestASnapshotInTheMakingIsLeftByClose(t *testing.T) {
	t.Parallel()
	const rows = 5 * pieceBytes / doneRowSize
	p := newPlay(t)
	p.cfg.Capacity, p.cfg.MaxBytes = 2*rows, 1<<30
	disk := tabled(t, p.cfg, rows)
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(1), "result", "done"); err != nil {
		t.Fatal(err)
	}
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSync && strings.HasSuffix(c.Name, tempSuffix) {
			l.stop() // as Close does
		}
		return crashfs.Fault{}
	})
	if err := l.enqueue(t.Context(), 0, &op{after: (*shard).compact}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	disk.Plan(nil)
	list, err := listShard(durable.Sub(disk.Process(), testName+"/"+shardDir(0)))
	if err != nil || len(list.snapshots) != 1 || slices.ContainsFunc(list.temps, func(n string) bool { return strings.HasSuffix(n, tempSuffix) }) {
		t.Errorf("files: %+v, %v; want the old snapshot alone", list, err)
	}
}

// TestTheTableIsReadOnceForTheGlance: when the ledger is opened, and again
// only where others have compacted away what this process had not seen; not
// after its own compactions, or a pass that failed, and not to verify.
func TestTheTableIsReadOnceForTheGlance(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	const rows = 4 * rowsPerBlock
	p.cfg.Capacity = 10 * rows
	disk := tabled(t, p.cfg, rows)
	var blocks atomic.Int64
	failing := atomic.Bool{}
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		switch {
		case c.Op == crashfs.OpRead && strings.HasSuffix(c.Name, snapSuffix) && c.Len == blockSize && c.Off >= snapHeaderSize:
			blocks.Add(1)
		case c.Op == crashfs.OpWrite && strings.HasSuffix(c.Name, segSuffix) && failing.Load():
			return crashfs.Fault{Err: errors.New("no writing today")}
		}
		return crashfs.Fault{}
	})
	read := func(what string, want int64) {
		t.Helper()
		if got := blocks.Swap(0); got != want {
			t.Errorf("%s: %d blocks were read, want %d", what, got, want)
		}
	}
	report, err := verifyIn(t.Context(), durable.Sub(disk.Process(), testName))
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	read("verify", 4)
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stranger := p.permanent(99).Key()
	sees := func() bool {
		if _, err := l.Stat(t.Context()); err != nil {
			t.Fatal(err)
		}
		return !l.MayKnow(stranger)
	}
	until(t, "the glance has read the table", sees)
	read("open", 4)
	if err := p.take(l, p.permanent(0), "result", "done"); err != nil {
		t.Fatal(err)
	}
	blocks.Store(0)
	if err := l.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	read("own compaction", 4)
	if !sees() {
		t.Error("blind after a compaction of its own")
	}
	failing.Store(true)
	if _, err := l.Claim(t.Context(), p.permanent(1)); err == nil {
		t.Fatal("a claim that can't be written was answered")
	}
	failing.Store(false)
	blocks.Store(0)
	if !sees() {
		t.Error("blind after a pass that failed")
	}
	read("a pass that failed", 0)

	peer, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const others = 12 // some segments full
	for n := range others {
		if err := p.take(peer, p.permanent(n+10), strings.Repeat(".", 3000), "done"); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Stat(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range others {
		if !l.MayKnow(p.permanent(n + 10).Key()) {
			t.Errorf("row %d of another process is denied", n)
		}
	}
	until(t, "the glance has read the new table", sees)
	for n := range others {
		if !l.MayKnow(p.permanent(n + 10).Key()) {
			t.Errorf("row %d of another process is denied in the end", n)
		}
	}
}

// failingLarge compacts a ledger whose snapshot is made in several pieces.
func failingLarge(t *testing.T) (crashfs.Reach, failing) {
	const rows = 3 * pieceBytes / doneRowSize / 2
	p := newPlay(t)
	p.cfg.Capacity, p.cfg.MaxBytes = 2*rows, 1<<30
	base := tabled(t, p.cfg, rows)
	compact := func(disk *crashfs.Disk) error {
		l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			return err
		}
		err = p.take(l, p.permanent(0), "result", "done")
		if err == nil {
			err = l.Compact(t.Context())
		}
		if err == nil {
			var st Stat
			if st, err = l.Stat(t.Context()); err == nil && st.Done != rows+1 {
				t.Errorf("%d rows, want %d", st.Done, rows+1)
			}
		}
		return errors.Join(err, l.Close())
	}
	reach := crashfs.Reach{}
	probe := base.After(crashfs.KeepAll)
	probe.Plan(reach.Record(packageDir))
	if err := compact(probe); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) {
		disk := base.After(crashfs.KeepAll)
		disk.Plan(first.Fail(f.Fault))
		what := fmt.Sprintf("a large snapshot, %s at %v: %v", f.Name, first.Site, compact(disk))
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		if err := durable.ClearPoison(durable.Sub(disk.Process(), testName)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := compact(disk); err != nil {
			t.Fatalf("%s: compacted again: %v", what, err)
		}
	}
}
