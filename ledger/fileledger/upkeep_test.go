package fileledger

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// TestAnIdleLogShowsDamageToItsLastRow: without the head, which no crash need
// spare, nothing but the frame that ends an idle log says that the last row
// was synced.
func TestAnIdleLogShowsDamageToItsLastRow(t *testing.T) {
	t.Parallel()
	for _, idle := range []bool{false, true} {
		p, disk := newPlay(t), crashfs.New(crashfs.Options{})
		l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.take(l, p.permanent(0), "result", "claim"); err != nil {
			t.Fatal(err)
		}
		last := l.shards[0].log.pos.Offset
		if idle {
			for range 3 {
				if err := l.CleanUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if grown := l.shards[0].log.pos.Offset - last; grown != 72 {
				t.Errorf("an idle log grew by %d bytes, want one frame of 72", grown)
			}
		}
		disk.Crash() // takes the head with it
		_ = l.Close()
		p.clock.Restart()
		disk = disk.After(crashfs.LoseAll)
		fsys := disk.Process()
		writeAt(t, fsys, testName+"/shard-00/000000000001.seg", []byte{0xff}, last-1)
		if l, err = openIn(t.Context(), p.cfg, fsys, testName); err != nil {
			t.Fatal(err)
		}
		_, err = l.Claim(t.Context(), p.permanent(0))
		if got := errors.Is(err, ErrCorrupt); got != idle {
			t.Errorf("idle %v: %v, corrupt = %v", idle, err, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunningTimeCountsOverRestarts: a row is cleaned up though the machine
// is started anew every day, and no work comes.
func TestRunningTimeCountsOverRestarts(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.cfg.Shards = 1
	l := f.ledger()
	d := ledgertest.Deliver(t, ledgertest.Spec{ID: "b", Signed: f.clock.Now()})
	if err := (&play{tb: t, cfg: f.cfg, clock: f.clock}).take(l, d, "result", "done"); err != nil {
		t.Fatal(err)
	}
	days := 0
	for ; days < 10; days++ {
		f.crash()
		f.clock.Restart()
		l = f.ledger()
		for range 20 {
			f.clock.Elapse(time.Hour)
			if err := l.CleanUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, known, err := l.Lookup(t.Context(), d.Key()); err != nil {
			t.Fatal(err)
		} else if !known {
			break
		}
	}
	if days == 0 || days > 2 {
		t.Errorf("cleaned up after %d days of 20 hours, want a life of %v to take 1 or 2", days, f.cfg.Window.MaxSignedAge+f.cfg.Window.MaxQueueAge)
	}
}

// TestManyOpenAtOnceAndOneMakesTheRoot: processes that start together agree
// on one ledger.
func TestManyOpenAtOnceAndOneMakesTheRoot(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	ledgers, errs := make([]*Ledger, 6), make([]error, 6)
	var wait sync.WaitGroup
	for i := range ledgers {
		fsys := f.process()
		wait.Go(func() { ledgers[i], errs[i] = openIn(t.Context(), f.cfg, fsys, testName) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, l := range ledgers {
		f.open = append(f.open, l)
		if l.super != ledgers[0].super {
			t.Errorf("two roots: %x and %x", l.super.uuid, ledgers[0].super.uuid)
		}
	}
}

func TestSlotsRunOut(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.ledger()
	for range maxSlots - 1 {
		s, err := takeSlot(f.open[0].root)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
	}
	if _, err := openIn(t.Context(), f.cfg, f.process(), testName); !errors.Is(err, ErrNoSlot) {
		t.Fatalf("one process too many: %v, want ErrNoSlot", err)
	}
}

// TestMaintenanceRunsByItself: rows go, logs shrink, and health says what
// went wrong until it goes well again.
func TestMaintenanceRunsByItself(t *testing.T) {
	t.Parallel()
	clock := ledgertest.NewClock()
	disk := crashfs.New(crashfs.Options{})
	cfg := testConfig(clock)
	cfg.Shards, cfg.Maintain = 1, time.Millisecond
	l, err := openIn(t.Context(), cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := ledgertest.Deliver(t, ledgertest.Spec{ID: "b", Signed: clock.Now()})
	if err := (&play{tb: t, cfg: cfg, clock: clock}).take(l, d, "result", "done"); err != nil {
		t.Fatal(err)
	}
	clock.Elapse(cfg.Window.MaxSignedAge + cfg.Window.MaxQueueAge + time.Second)
	until(t, "the row is gone", func() bool {
		_, known, err := l.Lookup(t.Context(), d.Key())
		return err == nil && !known
	})
	reading := errors.New("no reading today")
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpStat {
			return crashfs.Fault{Err: reading}
		}
		return crashfs.Fault{}
	})
	until(t, "health names the failure", func() bool { return errors.Is(l.Health().Maintenance, reading) })
	disk.Plan(nil)
	until(t, "health is well again", func() bool { return l.Health().Maintenance == nil })
	if c, err := l.Claim(t.Context(), d); err != nil || c != fencepost.Claim(fencepost.Expired{}) {
		t.Errorf("afterwards: %T, %v; want Expired", c, err)
	}
}

// TestAShardThatKeepsFailingIsNotWell: what fails once is tried again; what
// fails again is shown, with the mend, until it goes well, also if nobody
// asks anything meanwhile.
func TestAShardThatKeepsFailingIsNotWell(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"operations", "itself"} {
		t.Run("by "+by, func(t *testing.T) {
			t.Parallel()
			disk := crashfs.New(crashfs.Options{})
			cfg := testConfig(ledgertest.NewClock())
			cfg.Shards = 2
			if by == "itself" {
				cfg.Maintain = time.Hour
			}
			l, err := openIn(t.Context(), cfg, disk.Process(), testName)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ask := func() {
				if by == "operations" {
					_, _ = l.Stat(t.Context())
				}
			}
			if _, err := l.Stat(t.Context()); err != nil {
				t.Fatal(err)
			}
			disk.Plan(func(c crashfs.Call) crashfs.Fault {
				if c.Op == crashfs.OpRead && strings.Contains(c.Name, "shard-01/") {
					return crashfs.Fault{Err: &fs.PathError{Op: "read", Path: c.Name, Err: fs.ErrPermission}}
				}
				return crashfs.Fault{}
			})
			if _, err := l.Stat(t.Context()); !errors.Is(err, ErrPermission) {
				t.Errorf("stat: %v, want ErrPermission", err)
			}
			if err := l.Health().Err(); by == "operations" && err != nil {
				t.Errorf("health after one failure: %v", err)
			}
			until(t, "health says so", func() bool { ask(); return l.Health().Err() != nil })
			h := l.Health()
			if h.OK() || len(h.Failing) != 1 || !errors.Is(h.Failing[1], ErrPermission) || fencepost.ReasonOf(h.Err()) != fencepost.ReasonUnavailable ||
				!strings.Contains(h.Err().Error(), "shard-01") || !strings.Contains(h.Err().Error(), "0700") {
				t.Errorf("health = %+v, want shard 1 without permission, unavailable, and the mend", h)
			}
			disk.Plan(nil)
			until(t, "it is well again", func() bool { ask(); return l.Health().Err() == nil })
		})
	}
}

// TestReadingDoesNotHideThatWritingFails: a shard that answers questions and
// refuses every change is not well.
func TestReadingDoesNotHideThatWritingFails(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpWrite && strings.HasSuffix(c.Name, segSuffix) {
			return crashfs.Fault{Err: errors.New("no writing today")}
		}
		return crashfs.Fault{}
	})
	for n := range 2 {
		if _, err := l.Claim(t.Context(), p.permanent(n)); err == nil {
			t.Fatal("a claim that can't be written was answered")
		}
		if _, err := l.Stat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if h := l.Health(); h.Failing[0] == nil || !strings.Contains(h.Err().Error(), "no writing today") {
		t.Errorf("health = %+v, want shard 0 failing", h)
	}
	disk.Plan(nil)
	if _, err := l.Claim(t.Context(), p.permanent(2)); err != nil {
		t.Fatal(err)
	}
	if err := l.Health().Err(); err != nil {
		t.Errorf("health after a change: %v", err)
	}
}

// until waits for what happens by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("it never came to this: %s", what)
		}
	}
}
