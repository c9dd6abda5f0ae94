package fileledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

const packageDir = "ledger/fileledger"

// reachedElsewhere are functions that ask the disk for a change where no
// workload of this test gets, with the test that does.
var reachedElsewhere = map[string]string{
	"snapshot.go removeIfThere": "TestOneFailureAtEveryCall: after a snapshot that could not be written",
}

// A failing has a workload's first call at a site fail, and looks at what comes
// of it.
type failing func(*crashfs.First, crashfs.NamedFault)

// TestEveryCallSiteFails makes the first call at each place of this package
// that asks the disk for a change fail in a way in which such a call is known
// to, or in each if the test is exhaustive. A place that no workload reaches
// fails the test.
func TestEveryCallSiteFails(t *testing.T) {
	t.Parallel()
	all := crashfs.Reach{}
	pairs := 0
	for _, workload := range []func(*testing.T) (crashfs.Reach, failing){failingPlay, failingMove, failingDiscard, failingFollower, failingUpgrade, failingLarge} {
		reach, fail := workload(t)
		for _, site := range reach.Sites() {
			if _, known := all[site]; known {
				continue
			}
			all[site] = struct{}{}
			faults := site.Op.Faults()
			if !exhaustive {
				faults = faults[len(all)%len(faults):][:1]
			}
			for _, f := range faults {
				first := &crashfs.First{Site: site, Package: packageDir}
				fail(first, f)
				if first.Call.N == 0 {
					t.Errorf("%s at %v: no call was made there", f.Name, site)
				}
				pairs++
			}
		}
	}
	calls, err := all.Check(".", reachedElsewhere)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d sites in %d calls of the source, %d pairs of site and fault", len(all), calls, pairs)
}

// failingPlay is one life of a ledger.
func failingPlay(t *testing.T) (crashfs.Reach, failing) {
	reach := crashfs.Reach{}
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	disk.Plan(reach.Record(packageDir))
	if err := p.start(disk); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) { failAndGoOn(t, first.Fail(f.Fault)) }
}

// cutOff is a move that was cut off, and what it has left.
func cutOff(t *testing.T) (*moving, *crashfs.Disk) {
	t.Helper()
	m := newMoving(t)
	cut := m.disk.After(crashfs.KeepAll)
	cut.Plan(func(c crashfs.Call) crashfs.Fault {
		if s, ok := crashfs.CallSite(c, packageDir); ok && s.File == "incoming.go" && c.Op == crashfs.OpSync {
			return crashfs.Fault{Crash: crashfs.After}
		}
		return crashfs.Fault{}
	})
	if _, err := m.migrate(t, cut.Process()); err == nil {
		t.Fatal("the move was not cut off")
	}
	return m, cut.After(crashfs.KeepAll)
}

// failingMove is a move that follows one that was cut off.
func failingMove(t *testing.T) (crashfs.Reach, failing) {
	m, remains := cutOff(t)
	reach := crashfs.Reach{}
	probe := remains.After(crashfs.KeepAll)
	probe.Plan(reach.Record(packageDir))
	if _, err := m.migrate(t, probe.Process()); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) {
		disk := remains.After(crashfs.KeepAll)
		disk.Plan(first.Fail(f.Fault))
		_, err := m.migrate(t, disk.Process())
		what := fmt.Sprintf("a move, %s at %v: %v", f.Name, first.Site, err)
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		for _, name := range []string{testName, targetName, targetName + incomingSuffix} {
			if _, err := disk.Process().Stat(name); err != nil {
				continue
			}
			if err := durable.ClearPoison(durable.Sub(disk.Process(), name)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if src, err := inspect(durable.Sub(disk.Process(), testName)); err == nil {
			if _, err := disk.Process().Stat(targetName); err == nil {
				t.Fatalf("%s: both ends can be opened: %+v", what, src)
			}
		}
		if _, err := m.migrate(t, disk.Process()); err != nil {
			t.Fatalf("%s: the move said again: %v", what, err)
		}
		m.checkArrived(t, what, disk)
	}
}

// failingDiscard removes what a move that was cut off has left.
func failingDiscard(t *testing.T) (crashfs.Reach, failing) {
	m, remains := cutOff(t)
	discard := func(disk *crashfs.Disk) error {
		dst, err := receiveIn(m.targets, disk.Process(), targetName)
		if err != nil {
			return err
		}
		return errors.Join(dst.Discard(), dst.Close())
	}
	reach := crashfs.Reach{}
	probe := remains.After(crashfs.KeepAll)
	probe.Plan(reach.Record(packageDir))
	if err := discard(probe); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) {
		disk := remains.After(crashfs.KeepAll)
		disk.Plan(first.Fail(f.Fault))
		what := fmt.Sprintf("discard, %s at %v: %v", f.Name, first.Site, discard(disk))
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		if _, err := m.migrate(t, disk.Process()); err != nil {
			t.Fatalf("%s: the move said again: %v", what, err)
		}
		m.checkArrived(t, what, disk)
	}
}

// failingUpgrade opens a root that an older program made.
func failingUpgrade(t *testing.T) (crashfs.Reach, failing) {
	s := store(t)
	old := s.disk.After(crashfs.KeepAll)
	format := readFile(t, old.Process(), testName+"/"+formatName)
	format[8] = 1
	putCRC(format)
	if err := durable.WriteFile(old.Process(), testName+"/"+formatName, format); err != nil {
		t.Fatal(err)
	}
	open := func(disk *crashfs.Disk) error {
		l, err := openIn(t.Context(), s.p.cfg, disk.Process(), testName)
		if err != nil {
			return err
		}
		for key, want := range s.rows {
			if got, ok, err := l.Lookup(t.Context(), key); err != nil || !ok || !got.Equal(want) {
				return errors.Join(fmt.Errorf("row %s: %v, %w", key, ok, err), l.Close())
			}
		}
		return l.Close()
	}
	reach := crashfs.Reach{}
	probe := old.After(crashfs.KeepAll)
	probe.Plan(reach.Record(packageDir))
	if err := open(probe); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) {
		disk := old.After(crashfs.KeepAll)
		disk.Plan(first.Fail(f.Fault))
		what := fmt.Sprintf("an older root, %s at %v: %v", f.Name, first.Site, open(disk))
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		if err := durable.ClearPoison(durable.Sub(disk.Process(), testName)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := open(disk); err != nil {
			t.Fatalf("%s: opened again: %v", what, err)
		}
	}
}

// failingFollower is a process that goes on where another one has written.
func failingFollower(t *testing.T) (crashfs.Reach, failing) {
	life := func(disk *crashfs.Disk) (*play, error) {
		p := newPlay(t)
		follower, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		// It has the log before the other goes on to a further segment.
		if _, _, err := follower.Lookup(t.Context(), p.permanent(0).Key()); err != nil {
			return p, err
		}
		for n := range playDeliveries {
			if err := p.take(p.history.Client(0, l), p.permanent(n), "first", "done"); err != nil {
				return p, err
			}
		}
		var claims []fencepost.Claim
		for n := range playDeliveries {
			c, err := p.history.Client(1, follower).Claim(t.Context(), p.permanent(n))
			if err != nil {
				return p, err
			}
			claims = append(claims, c)
		}
		for n, c := range claims {
			if c != fencepost.Claim(fencepost.Completed{}) {
				t.Fatalf("delivery %d is answered %T", n, c)
			}
		}
		return p, nil
	}
	reach := crashfs.Reach{}
	disk := crashfs.New(crashfs.Options{})
	disk.Plan(reach.Record(packageDir))
	if _, err := life(disk); err != nil {
		t.Fatal(err)
	}
	return reach, func(first *crashfs.First, f crashfs.NamedFault) {
		disk := crashfs.New(crashfs.Options{})
		disk.Plan(first.Fail(f.Fault))
		p, err := life(disk)
		what := fmt.Sprintf("a follower, %s at %v: %v", f.Name, first.Site, err)
		disk.Crash()
		disk = disk.After(crashfs.LoseAll)
		p.clock.Restart()
		if err := durable.ClearPoison(durable.Sub(disk.Process(), testName)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p.afterwards(what, disk.Process())
	}
}
