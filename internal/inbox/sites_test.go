package inbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

const packageDir = "internal/inbox"

// reachedElsewhere are functions that ask the disk for a change where no
// workload of this test gets, with the test that does.
var reachedElsewhere = map[string]string{
	"upkeep.go remove":  "TestADamagedSegmentIsSetAsideOnceItsEntriesAreSafe: damage is set aside",
	"journal.go rotate": "TestAFullDiskRefusesKeepsAndRecovers: after a segment that could not be made",
}

// TestEveryCallSiteFails makes the first call at each place of this package
// that asks the disk for a change fail in each way in which such a call is
// known to: nothing that was acknowledged is lost. A place that no workload
// reaches fails the test.
func TestEveryCallSiteFails(t *testing.T) {
	t.Parallel()
	all := crashfs.Reach{}
	pairs := 0
	for _, life := range []func(w *witness, d *crashfs.Disk) error{
		func(w *witness, d *crashfs.Disk) error { return script(w, d.Process()) },
		afterAKill,
	} {
		reach := crashfs.Reach{}
		d := crashfs.New(crashfs.Options{})
		d.Plan(reach.Record(packageDir))
		must(t, life(newWitness(t, d), d))
		for _, site := range reach.Sites() {
			if _, known := all[site]; known {
				continue
			}
			all[site] = struct{}{}
			for _, f := range site.Op.Faults() {
				pairs++
				failOnce(t, life, site, f)
			}
		}
	}
	calls, err := all.Check(".", reachedElsewhere)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d sites in %d calls of the source, %d pairs of site and fault", len(all), calls, pairs)
}

// afterAKill goes on with what a process that was killed has left: a segment
// that it was making, and a log.
func afterAKill(w *witness, d *crashfs.Disk) error {
	first := d.Process()
	b, err := Open(context.WithoutCancel(w.t.Context()), first, small)
	if err != nil {
		return err
	}
	err = w.record(b, mail{id: 1, body: text("of a process that is killed")})
	first.Kill()
	_ = b.Close()
	if err != nil {
		return err
	}
	second := d.Process()
	f, err := second.OpenFile(logsDir+"/000-unfinished"+durable.TempSuffix, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if b, err = Open(context.WithoutCancel(w.t.Context()), second, small); err != nil {
		return err
	}
	return errors.Join(w.record(b, mail{id: 2, body: text("of the next")}), w.finish(b), w.tidy(b), b.Close())
}

func failOnce(t *testing.T, life func(*witness, *crashfs.Disk) error, site crashfs.Site, f crashfs.NamedFault) {
	t.Helper()
	for i, policy := range []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll} {
		d := crashfs.New(crashfs.Options{})
		first := &crashfs.First{Site: site, Package: packageDir}
		d.Plan(first.Fail(f.Fault))
		w := newWitness(t, d)
		err := life(w, d)
		what := fmt.Sprintf("%s at %v: %v; policy %d", f.Name, site, err, i)
		d.Plan(nil)
		if first.Call.N == 0 {
			t.Fatalf("%s: no call was made there", what)
		}
		d.Crash()
		after := d.After(policy)
		if err := errors.Join(durable.ClearPoison(after.Process()), w.check(after)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}
