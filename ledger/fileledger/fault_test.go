package fileledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestOneFailureAtEveryCall fails each call of the play once, with and
// without its effect, and goes on with the same process: an error means
// unknown, and nothing that was answered is lost or done twice. A sync that
// failed stops the root for good.
func TestOneFailureAtEveryCall(t *testing.T) {
	t.Parallel()
	calls := playCalls(t)
	for _, fault := range []struct {
		name string
		f    crashfs.Fault
	}{
		{"EIO", crashfs.Fault{Err: syscall.EIO}},
		{"EIO but done", crashfs.Fault{Err: syscall.EIO, Done: true}},
		{"ENOSPC in the middle", crashfs.Fault{Err: &durable.NoSpaceError{Op: "test"}, Keep: 300}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= calls; n += 5*stride() - 4 {
				failAndGoOn(t, func(c crashfs.Call) crashfs.Fault {
					if c.N != n {
						return crashfs.Fault{}
					}
					return fault.f
				})
			}
		})
	}
}

// failAndGoOn plays under a plan that fails one call.
func failAndGoOn(t *testing.T, plan crashfs.Plan) {
	t.Helper()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	var hit crashfs.Call
	var fault crashfs.Fault
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		f := plan(c)
		if f != (crashfs.Fault{}) {
			hit, fault = c, f
		}
		return f
	})
	process := disk.Process()
	l, err := openIn(t.Context(), p.cfg, process, testName)
	if err == nil {
		err = p.act(l)
		if err != nil {
			// Once more: what failed was one call.
			err = p.act(l)
		}
	}
	what := fmt.Sprintf("%v at call %d, a %s of %s", fault.Err, hit.N, hit.Op, hit.Name)
	poisoned := errors.Is(err, durable.ErrPoisoned)
	if final := failsForGood(hit); l != nil && final != poisoned {
		t.Fatalf("%s: poisoned = %v, want %v: %v", what, poisoned, final, err)
	}
	if l != nil {
		if err := l.Health().Err(); !poisoned && err != nil {
			t.Fatalf("%s: health: %v", what, err)
		}
		if err := l.Close(); err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, durable.ErrNoSpace) {
			t.Fatalf("%s: close: %v", what, err)
		}
	}
	if poisoned {
		checkPoisoned(t, what, p, disk)
		// What was lost is lost from the disk alone: the machine restarts.
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		p.clock.Restart()
		if err := durable.ClearPoison(durable.Sub(disk.Process(), testName)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	process.Kill()
	p.afterwards(what, disk.Process())
}

// failsForGood: a failed sync is final, and so is not being able to look
// whether another process's has failed.
func failsForGood(c crashfs.Call) bool {
	return c.Op == crashfs.OpRead && strings.HasSuffix(c.Name, durable.HealthName) ||
		c.Op == crashfs.OpSync || c.Op == crashfs.OpSyncDir || c.Op == crashfs.OpVolume
}

// checkPoisoned: no other process may write either.
func checkPoisoned(t *testing.T, what string, p *play, disk *crashfs.Disk) {
	t.Helper()
	_, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Fatalf("%s: another process opens it: %v, want reason %q", what, err, fencepost.ReasonPoisoned)
	}
}

// TestAFailedSyncStopsEveryProcess: also those that had the ledger open.
func TestAFailedSyncStopsEveryProcess(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	var ledgers []*Ledger
	for range 2 {
		l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := p.take(l, p.permanent(len(ledgers)), "result", "done"); err != nil {
			t.Fatal(err)
		}
		ledgers = append(ledgers, l)
	}
	failing := true
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSync && failing {
			failing = false
			return crashfs.Fault{Err: syscall.EIO}
		}
		return crashfs.Fault{}
	})
	_, err := ledgers[0].Claim(t.Context(), p.permanent(2))
	if fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Fatalf("claim whose sync failed: %v, want reason %q", err, fencepost.ReasonPoisoned)
	}
	for i, l := range ledgers {
		for n := range 3 {
			c, err := l.Claim(t.Context(), p.permanent(n))
			if i == 1 && n < 2 && err == nil {
				continue // known to be durable before the failure
			}
			if fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
				t.Errorf("process %d, delivery %d: %T, %v; want reason %q", i, n, c, err, fencepost.ReasonPoisoned)
			}
		}
	}
	if h := ledgers[0].Health(); h.OK() || h.Poisoned == nil {
		t.Errorf("health = %+v, want poisoned", h)
	}
}

// TestAFullDiskRefusesNewWorkAndFinishesKnown: what is claimed ends in the
// reserve; new rows are Full; with room again all goes on by itself.
func TestAFullDiskRefusesNewWorkAndFinishesKnown(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	p.cfg.Capacity = 10_000
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	leases := map[int]fencepost.Lease{}
	claim := func(n int) fencepost.Claim {
		t.Helper()
		c, err := l.Claim(t.Context(), p.permanent(n))
		if err != nil {
			t.Fatalf("claim %d: %v", n, err)
		}
		if a, ok := c.(fencepost.Acquired); ok {
			leases[n] = a.Lease
		}
		return c
	}
	claim(0)
	disk.SetCapacity(disk.Used())
	n := 1
	for ; n < 1000; n++ {
		if _, full := claim(n).(fencepost.Full); full {
			break
		}
	}
	if len(leases) < 2 || n == 1000 {
		t.Fatalf("%d leases before Full, want some and an end", len(leases))
	}
	st, err := l.Stat(t.Context())
	if err != nil || st.Full != 1 {
		t.Fatalf("stat: %d shards are full, %v; want 1", st.Full, err)
	}
	// A few ends fit the segment in reserve.
	for n := range 3 {
		s, err := l.Stage(t.Context(), p.permanent(n), leases[n], p.large("result"))
		if err != nil {
			t.Fatalf("stage %d on a full disk: %v", n, err)
		}
		if _, err := l.Complete(t.Context(), p.permanent(n), s.(fencepost.Staged).Staged); err != nil {
			t.Fatalf("complete %d on a full disk: %v", n, err)
		}
	}
	// Until that is full as well: an error, nothing lost.
	var failed error
	for n := 3; n < len(leases) && failed == nil; n++ {
		_, failed = l.Stage(t.Context(), p.permanent(n), leases[n], p.large("result"))
	}
	if !errors.Is(failed, durable.ErrNoSpace) || fencepost.ReasonOf(failed) != fencepost.ReasonUnavailable {
		t.Fatalf("stage without any room: %v, want ErrNoSpace, reason %q", failed, fencepost.ReasonUnavailable)
	}
	disk.SetCapacity(0)
	p.clock.Elapse(2 * spareRetry)
	if c, ok := claim(n).(fencepost.Acquired); !ok {
		t.Fatalf("with room again: %T, want Acquired", c)
	}
	if err := l.Health().Err(); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, ok := claim(n).(fencepost.Completed); !ok {
			t.Errorf("delivery %d is not done any more", n)
		}
	}
}

// TestTheByteBoundKeepsRoomToStage: rows are refused before what is leased
// could not be staged any more.
func TestTheByteBoundKeepsRoomToStage(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.cfg.Shards, f.cfg.Capacity, f.cfg.MaxBytes = 1, 1000, minBytesPerShard
	l, p := f.ledger(), &play{tb: t, cfg: f.cfg, clock: f.clock}
	largest, err := fencepost.NewPublication(make([]byte, fencepost.MaxPublicationBytes))
	if err != nil {
		t.Fatal(err)
	}
	var leases []fencepost.Lease
	for {
		c, err := l.Claim(t.Context(), p.permanent(len(leases)))
		if err != nil {
			t.Fatal(err)
		}
		a, ok := c.(fencepost.Acquired)
		if !ok {
			break
		}
		leases = append(leases, a.Lease)
	}
	if want := minBytesPerShard * admitPercent / 100 / reserve; len(leases) != want {
		t.Fatalf("%d rows admitted, want %d", len(leases), want)
	}
	for n, lease := range leases {
		if _, err := l.Stage(t.Context(), p.permanent(n), lease, largest); err != nil {
			t.Fatalf("stage %d of %d: %v", n, len(leases), err)
		}
	}
	if st, err := l.Stat(t.Context()); err != nil || st.Bytes > st.MaxBytes*admitPercent/100 {
		t.Errorf("%d bytes of %d, %v", st.Bytes, st.MaxBytes, err)
	}
}

// TestATornTailIsSealedNotTruncated: an unfinished frame, longer than what
// follows, stays where it is.
func TestATornTailIsSealedNotTruncated(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	first := disk.Process()
	l, err := openIn(t.Context(), p.cfg, first, testName)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(0), "result", "claim"); err != nil {
		t.Fatal(err)
	}
	// The process dies in the middle of writing the next frame.
	dying := false
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if dying || c.Op == crashfs.OpWrite && c.Len > 100 {
			dying = true
			return crashfs.Fault{Err: syscall.EIO, Keep: 100}
		}
		return crashfs.Fault{}
	})
	if err := p.take(l, p.permanent(1), "result", "claim"); err == nil {
		t.Fatal("the write of a dying process succeeded")
	}
	disk.Plan(nil)
	first.Kill()
	_ = l.Close()

	fsys := disk.Process()
	report, err := verifyIn(t.Context(), durable.Sub(fsys, testName))
	if err != nil || report.Err() != nil {
		t.Fatalf("verify: %v, %v", err, report.Err())
	}
	const torn = "shard-00/000000000001.seg at offset 4320"
	if got := report.Shards[0].Torn; got != torn {
		t.Fatalf("verify says torn at %q, want %q", got, torn)
	}
	before := readFile(t, fsys, testName+"/shard-00/000000000001.seg")
	second, err := openIn(t.Context(), p.cfg, fsys, testName)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for n := range 3 {
		if err := p.take(second, p.permanent(n), "result", "done"); err != nil {
			t.Fatal(err)
		}
	}
	if after := readFile(t, fsys, testName+"/shard-00/000000000001.seg"); !slices.Equal(before, after) {
		t.Error("the torn segment was written to")
	}
	if report, err = verifyIn(t.Context(), durable.Sub(fsys, testName)); err != nil || report.Err() != nil || report.Shards[0].Torn != "" || report.Shards[0].Segments != 2 {
		t.Errorf("after sealing: %+v, %v", report, err)
	}
}

// TestAStaleHeadPromisesNothing: what the head says of the tail may be of an
// earlier life of the machine, from before frames were lost.
func TestAStaleHeadPromisesNothing(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(0), "result", "claim"); err != nil {
		t.Fatal(err)
	}
	stale := mark{1, 12_000}
	if err := l.shards[0].log.head.write(tailRecordAt, stale, 0); err != nil {
		t.Fatal(err)
	}
	disk.Crash()
	_ = l.Close()
	p.clock.Restart()
	disk = disk.After(crashfs.KeepAll)
	if l, err = openIn(t.Context(), p.cfg, disk.Process(), testName); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := p.take(l, p.permanent(n), "result", "done"); err != nil {
			t.Fatal(err)
		}
	}
	disk.Crash()
	_ = l.Close()
	p.clock.Restart()
	disk = disk.After(crashfs.LoseAll)
	if l, err = openIn(t.Context(), p.cfg, disk.Process(), testName); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for n := range 3 {
		if c, err := l.Claim(t.Context(), p.permanent(n)); err != nil || c != (fencepost.Completed{}) {
			t.Errorf("delivery %d after a crash: %T, %v; want Completed", n, c, err)
		}
	}
}

func readFile(tb testing.TB, fsys durable.FS, name string) []byte {
	tb.Helper()
	b, err := durable.ReadFile(fsys, name, 1<<26)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func writeAt(tb testing.TB, fsys durable.FS, name string, b []byte, off int64) {
	tb.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		tb.Fatal(err)
	}
}
