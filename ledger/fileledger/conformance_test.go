package fileledger

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// walks is how many each test of properties takes; -rapid.checks says others.
const walks = "25"

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	if is, code := asProcess(); is {
		os.Exit(code)
	}
	if err := flag.Set("rapid.checks", walks); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// testConfig is small, and leaves maintenance to the test.
func testConfig(clock *ledgertest.Clock) Config {
	cfg, err := Config{
		Shards: 2, Capacity: 64, SegmentBytes: MinSegment, MaxBytes: 64 << 20, Maintain: -1,
		Volatile: true, Now: clock.Now, Instant: clock.Instant,
	}.withDefaults()
	if err != nil {
		panic(err)
	}
	return cfg
}

// fixture is a ledger on some disk, opened by any number of processes.
type fixture struct {
	tb    testing.TB
	cfg   Config
	clock *ledgertest.Clock
	// process gives the file system as one more process sees it.
	process func() durable.FS
	// crash ends all processes at once; afterwards process sees what is left.
	crash func()
	open  []*Ledger
}

const testName = "ledger"

func (f *fixture) ledger() *Ledger {
	f.tb.Helper()
	l, err := openIn(f.tb.Context(), f.cfg, f.process(), testName)
	if err != nil {
		f.tb.Fatalf("open: %v", err)
	}
	f.open = append(f.open, l)
	return l
}

// closeAll closes what is open; after a crash that may fail.
func (f *fixture) closeAll() {
	for _, l := range f.open {
		if err := l.Close(); err != nil && f.crash == nil {
			f.tb.Errorf("close: %v", err)
		}
	}
	f.open = nil
}

// onDisk is a fixture on the real file system.
func onDisk(tb testing.TB) *fixture {
	clock := ledgertest.NewClock()
	dir := tb.TempDir()
	f := &fixture{tb: tb, clock: clock, cfg: testConfig(clock), process: func() durable.FS { return durable.OS(dir) }}
	tb.Cleanup(f.closeAll)
	return f
}

// onCrashFS is a fixture on the disk that crashes, losing what it may.
func onCrashFS(tb testing.TB) *fixture {
	clock := ledgertest.NewClock()
	disk := crashfs.New(crashfs.Options{})
	f := &fixture{tb: tb, clock: clock, cfg: testConfig(clock)}
	f.process = func() durable.FS { return disk.Process() }
	f.crash = func() {
		disk.Crash()
		f.closeAll()
		disk = disk.After(crashfs.LoseAll)
	}
	tb.Cleanup(f.closeAll)
	return f
}

func (f *fixture) harness() ledgertest.Harness {
	l := f.ledger()
	current := l
	reopen := func() fencepost.Ledger {
		if f.crash != nil {
			f.crash()
		} else {
			f.closeAll()
		}
		current = f.ledger()
		return current
	}
	return ledgertest.Harness{
		Ledger: l, Lease: f.cfg.Lease, Window: f.cfg.Window, Capacity: f.cfg.Capacity,
		Now: f.clock.Now, Elapse: f.clock.Elapse, Frozen: true, StepWall: f.clock.StepWall,
		Reopen:  reopen,
		Restart: func() fencepost.Ledger { f.clock.Restart(); return reopen() },
		Peer:    func() fencepost.Ledger { return f.ledger() },
		CleanUp: func(ctx ctx) error { return current.CleanUp(ctx) },
	}
}

func TestConformsOnDisk(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness { return onDisk(tb).harness() })
}

func TestConformsOnADiskThatCrashes(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness { return onCrashFS(tb).harness() })
}

// TestConformsWhileCompacting compacts the log after every operation.
func TestConformsWhileCompacting(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness {
		f := onCrashFS(tb)
		h := f.harness()
		h.Ledger = compacting{f.open[0]}
		reopen, restart, peer := h.Reopen, h.Restart, h.Peer
		h.Reopen = func() fencepost.Ledger { return compacting{reopen().(*Ledger)} }
		h.Restart = func() fencepost.Ledger { return compacting{restart().(*Ledger)} }
		h.Peer = func() fencepost.Ledger { return compacting{peer().(*Ledger)} }
		return h
	})
}

func TestOpenMakesTheRootOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	cfg := Config{Dir: dir, Shards: 1, Volatile: true, Maintain: -1}
	var uuid [16]byte
	for range 2 {
		l, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		st, err := l.Stat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if uuid != ([16]byte{}) && st.UUID != uuid {
			t.Errorf("uuid = %x, was %x", st.UUID, uuid)
		}
		uuid = st.UUID
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPropertiesOnDisk(t *testing.T) {
	t.Parallel()
	ledgertest.Properties(t, func(tb testing.TB) ledgertest.Harness { return onDisk(tb).harness() })
}

func TestPropertiesOnADiskThatCrashes(t *testing.T) {
	t.Parallel()
	ledgertest.Properties(t, func(tb testing.TB) ledgertest.Harness { return onCrashFS(tb).harness() })
}
