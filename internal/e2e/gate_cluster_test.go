package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// machines are controllers over one PostgreSQL database, each with a data
// directory of its own, and no load balancer: senders go to one after the
// other.
type machines struct {
	*world.World
	all []*world.Controller
}

// newMachines makes n machines; each reaches the database by what reach makes
// of its URL. None is started.
func newMachines(t *testing.T, n int, config world.Config, database string, reach func(i int, database string) string) machines {
	t.Helper()
	config.Manual, config.Database = true, reach(0, database)
	m := machines{World: unstartedWorld(t, config)}
	m.all = []*world.Controller{m.Controller}
	for i := 1; i < n; i++ {
		c, err := m.Elsewhere(t.Context(), reach(i, database))
		if err != nil {
			t.Fatal(err)
		}
		m.all = append(m.all, c)
		t.Cleanup(func() {
			if t.Failed() {
				dumpLog(t, c.Log)
			}
		})
	}
	return m
}

func directly(_ int, database string) string { return database }

// startAll starts every machine that does not run.
func (m machines) startAll(t *testing.T) {
	t.Helper()
	for _, c := range m.all {
		if c.PID() != 0 {
			continue
		}
		if _, err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// sendAll sends every delivery, from several senders, to one machine after the
// other until one acknowledges it, and returns which were.
func (m machines) sendAll(t *testing.T, requests []signed, sent func(i int)) []bool {
	t.Helper()
	acknowledged := make([]bool, len(requests))
	next := make(chan int)
	var senders sync.WaitGroup
	for range 6 {
		senders.Go(func() {
			for i := range next {
				acknowledged[i] = m.send(t, i, requests[i])
			}
		})
	}
	for i := range requests {
		sent(i)
		next <- i
	}
	close(next)
	senders.Wait()
	return acknowledged
}

// send posts a delivery to one machine after the other.
func (m machines) send(t *testing.T, first int, s signed) bool {
	for try := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		ok, final := sendOnceTo(ctx, t, m.World, m.all[(first+try)%len(m.all)].HookURL, s.delivery)
		cancel()
		if ok || final {
			return ok
		}
		if !idle(t, 50*time.Millisecond) {
			return false
		}
	}
	return false
}

// idle waits, and reports whether the test still runs.
func idle(t *testing.T, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-t.Context().Done():
		return false
	}
}

// wantEach demands one Check Run for each delivery that was acknowledged, and
// never two of one.
func (m machines) wantEach(t *testing.T, requests []signed, acknowledged []bool) {
	t.Helper()
	taken := 0
	for i, r := range requests {
		if !acknowledged[i] {
			continue
		}
		taken++
		if _, err := world.Await(t.Context(), 10*time.Minute, func() (struct{}, bool, error) {
			return struct{}{}, len(m.Repository.CheckRuns(r.pr.Head())) > 0, nil
		}); err != nil {
			t.Errorf("request #%d was acknowledged and has no result: %v", r.pr.Number(), err)
		}
	}
	for _, r := range requests {
		if n := len(m.Repository.CheckRuns(r.pr.Head())); n > 1 {
			t.Errorf("request #%d has %d Check Runs", r.pr.Number(), n)
		}
	}
	if taken == 0 {
		t.Error("no delivery was acknowledged at all")
	}
	t.Logf("%d of %d acknowledged; %d create calls", taken, len(requests), m.Forge.Count(createRun))
}

// brisk is a configuration in which takeovers take seconds.
const brisk = "provider: {write_interval: 0s, timeout: 4s}\nledger: {lease: 8s}\nwork: {workers: 4, backoff: 1s, max_backoff: 2s}\nrunner: {concurrent: 2}\n"

// Invariants 3, 5 and 7 on several machines (DESIGN §12): deliveries come in at
// all of them while one after the other is killed. Each one that was answered
// accepted or replayed ends in its one result.
func TestThreeGatesOverOneDatabaseUnderKill(t *testing.T) {
	t.Parallel()
	deliveries, kills := fromEnv(t, "FENCEPOST_SOAK_DELIVERIES", 24), fromEnv(t, "FENCEPOST_SOAK_KILLS", 3)
	m := newMachines(t, 3, world.Config{RateLimit: 100 * deliveries, YAML: brisk}, postgres.Database(t), directly)
	m.startAll(t)
	requests := openMany(t, m.World, deliveries)
	acknowledged := m.sendAll(t, requests, func(i int) {
		if due := (i + 1) * (kills + 1) / len(requests); due > i*(kills+1)/len(requests) && due <= kills {
			c := m.all[rand.IntN(len(m.all))]
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
	m.wantEach(t, requests, acknowledged)
}

// mortal is a server that a test kills; TestMain stops it.
var mortal pgtest.Server

// Invariants 3 and 8 while the database dies: it is killed with -9 in the
// middle of the work, and restarted later on. What was acknowledged is
// published once; what could not be acknowledged was not.
func TestGatesOutliveTheirDatabase(t *testing.T) {
	t.Parallel()
	m := newMachines(t, 3, world.Config{RateLimit: 10_000, YAML: brisk}, mortal.Database(t), directly)
	m.startAll(t)
	requests := openMany(t, m.World, 18)
	acknowledged := m.sendAll(t, requests, func(i int) {
		switch i {
		case 6:
			mortal.Kill(t, func() {
				for n := range m.all {
					if ok := m.tryOne(t, n, requests[17]); ok {
						t.Errorf("machine %d acknowledged a delivery without a database", n)
					}
				}
			})
		case 12:
			mortal.Restart(t)
		}
	})
	m.wantEach(t, requests, acknowledged)
	for i, c := range m.all {
		if c.PID() == 0 {
			t.Errorf("machine %d is gone", i)
		}
	}
}

// tryOne posts a delivery to one machine, and reports whether it was
// acknowledged.
func (m machines) tryOne(t *testing.T, i int, s signed) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	ok, _ := sendOnceTo(ctx, t, m.World, m.all[i].HookURL, s.delivery)
	return ok
}

// accept sends a delivery to one machine, which must accept it.
func (m machines) accept(t *testing.T, i int, s signed) fencepost.DeliveryID {
	t.Helper()
	a := give(t, m.World, m.all[i], s.delivery)
	if a.Outcome != "accepted" {
		t.Fatalf("machine %d answered %s, want accepted", i, a)
	}
	return a.Delivery
}

// kindsAt are the events of a delivery that one machine wrote down.
func (m machines) kindsAt(t *testing.T, i int, id fencepost.DeliveryID) []receipt.Kind {
	t.Helper()
	dir := m.DataDir()
	if i > 0 {
		dir += "-" + string(rune('1'+i))
	}
	r, _, err := receipt.Show(t.Context(), durable.OS(filepath.Join(dir, "receipts")), id)
	if err != nil && !errors.Is(err, receipt.ErrNotFound) {
		t.Fatal(err)
	}
	var kinds []receipt.Kind
	for _, e := range r.Events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (m machines) awaitKind(t *testing.T, i int, id fencepost.DeliveryID, kind receipt.Kind) {
	t.Helper()
	await(t, string(kind)+" at machine "+string(rune('0'+i)), func() bool { return slices.Contains(m.kindsAt(t, i, id), kind) })
}

// Invariants 5 and 8: a machine that is cut off from the database in the
// middle of an evaluation publishes nothing; another one takes the delivery
// over, and the one that comes back late neither publishes nor disturbs.
func TestAGateThatIsCutOffPublishesNothing(t *testing.T) {
	t.Parallel()
	cutOffGate(t, func(database string) (line, string) { return newCable(t, database) })
}

// A line is a way to a database that can be cut.
type line interface {
	sever()
	mend()
}

// cutOffGate cuts a machine off from the database that it shares with another
// one while it evaluates.
func cutOffGate(t *testing.T, lay func(database string) (line, string)) {
	t.Helper()
	var way line
	m := newMachines(t, 2, world.Config{YAML: brisk}, postgres.Database(t), func(i int, database string) string {
		if i == 0 {
			way, database = lay(database)
		}
		return database
	})
	if _, err := m.all[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := held(t, m.World, "slow 3s")
	id := m.accept(t, 0, s)
	m.awaitKind(t, 0, id, receipt.Fetched)
	way.sever()
	await(t, "the owner's word that it lost the lease", func() bool {
		text, err := os.ReadFile(m.all[0].Log)
		return err == nil && strings.Contains(string(text), `"reason":"lost"`)
	})
	if !idle(t, 2*time.Second) || len(m.Repository.CheckRuns(s.pr.Head())) != 0 {
		t.Fatal("a machine without a database published")
	}
	if _, err := m.all[1].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.awaitKind(t, 1, id, receipt.Ended)
	wantRun(t, m.World, s.pr.Head(), "success")
	way.mend()
	// It works again, and is done with the other delivery.
	next := held(t, m.World, "pass again")
	sent := func() bool { return m.tryOne(t, 0, next) }
	await(t, "the machine's return", sent)
	awaitRuns(t, m.World, next.pr.Head(), 1)
	wantRun(t, m.World, s.pr.Head(), "success")
	if kinds := m.kindsAt(t, 0, id); slices.Contains(kinds, receipt.Staged) || slices.Contains(kinds, receipt.Published) {
		t.Errorf("the machine that was cut off went on: %v", kinds)
	}
}

// Invariant 5: a process that is stopped for longer than its lease and then
// goes on stages and completes nothing of what it had.
func TestAGateThatIsPausedStagesNothing(t *testing.T) {
	t.Parallel()
	m := newMachines(t, 2, world.Config{YAML: brisk}, postgres.Database(t), directly)
	if _, err := m.all[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := held(t, m.World, "slow 2s")
	id := m.accept(t, 0, s)
	m.awaitKind(t, 0, id, receipt.Fetched)
	if err := m.all[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := m.all[0].Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(resume)
	if _, err := m.all[1].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.awaitKind(t, 1, id, receipt.Ended)
	wantRun(t, m.World, s.pr.Head(), "success")
	resume()
	next := held(t, m.World, "pass again")
	await(t, "the machine's return", func() bool { return m.tryOne(t, 0, next) })
	awaitRuns(t, m.World, next.pr.Head(), 1)
	if !idle(t, 2*time.Second) {
		t.Fatal("the test is over")
	}
	wantRun(t, m.World, s.pr.Head(), "success")
	if kinds := m.kindsAt(t, 0, id); slices.Contains(kinds, receipt.Staged) || slices.Contains(kinds, receipt.Published) {
		t.Errorf("the machine that was paused went on: %v", kinds)
	}
}
