package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
	rows "github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

// steppable is the program with one line changed: its one wall clock is read
// through testdata/clock. What is compiled from there is no part of the tree.
var steppable = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(fencepostBinary)
	command, err := filepath.Abs("../../cmd/fencepost")
	if err != nil {
		return "", err
	}
	reader, err := filepath.Abs("testdata/clock/stepped.go")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(command, "main.go"))
	if err != nil {
		return "", err
	}
	const system, moved = "clock.System().Now", "clock.NewWall(stepped, noFloor).Now"
	if n := strings.Count(string(text), system); n != 1 {
		return "", fmt.Errorf("main.go has %d times %q, want once", n, system)
	}
	changed := filepath.Join(dir, "main.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), system, moved, 1)), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(command, "main.go"):    changed,
		filepath.Join(command, "stepped.go"): reader,
	}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "fencepost-steppable")
	build := exec.Command("go", "build", "-overlay", list, "-o", out, "../../cmd/fencepost")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a fencepost whose clock steps: %w\n%s", err, said)
	}
	return out, nil
})

// A skew is by how much the wall clock of the processes that read it is wrong.
type skew struct {
	name    string
	seconds *int64
}

// newSkew makes one that is nothing. The processes end before the test does.
func newSkew(t *testing.T) *skew {
	t.Helper()
	s := &skew{name: filepath.Join(t.TempDir(), "skew")}
	f, err := os.OpenFile(s.name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(unsafe.Sizeof(*s.seconds))); err != nil {
		t.Fatal(err)
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(*s.seconds)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(page); err != nil {
			t.Error(err)
		}
	})
	s.seconds = (*int64)(unsafe.Pointer(&page[0]))
	return s
}

// set steps the clock, for every process at once.
func (s *skew) set(by time.Duration) { atomic.StoreInt64(s.seconds, int64(by/time.Second)) }

// env has a process read it.
func (s *skew) env() []string { return []string{"FENCEPOST_TEST_CLOCK=" + s.name} }

const (
	// step is how far a clock steps, and wrongFor how long it stays wrong at
	// most where the check takes no time.
	step, wrongFor = time.Hour, 1500 * time.Millisecond
	// steppedLease is short, and slowly as long as half of it, so that leases
	// are renewed while the clock is wrong.
	steppedLease, slowly = 8 * time.Second, 4 * time.Second
	// requestsOfTwo are about as many as two evaluations make.
	requestsOfTwo = 24
)

// A wrongClock is a run in which the clock of the first controller steps.
type wrongClock struct {
	*barrage
	skew  *skew
	rooms []*world.Controller
	// steps of the clock were made, and starts while it was wrong.
	steps, starts int
	began         time.Time
}

func newWrongClock(t *testing.T, database string) *wrongClock {
	t.Helper()
	program, err := steppable()
	if err != nil {
		t.Fatal(err)
	}
	points := fromEnv(t, "FENCEPOST_CLOCK_POINTS", 2)
	c := &wrongClock{began: time.Now(), skew: newSkew(t), barrage: &barrage{t: t, deliveries: 4 * points, results: map[string]chan struct{}{}}}
	config := c.config("provider: {write_interval: 0s, timeout: 4s}\nledger: {lease: " + steppedLease.String() + "}\nwork: {workers: 2, backoff: 200ms, max_backoff: 1s}\nrunner: {concurrent: 2}\n")
	config.Binary, config.Database = program, database
	c.world = unstartedWorld(t, config)
	c.rooms = []*world.Controller{c.world.Controller}
	if database != "" {
		other, err := c.world.Elsewhere(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		c.rooms = append(c.rooms, other)
		t.Cleanup(func() {
			if t.Failed() {
				dumpLog(t, other.Log)
			}
		})
	}
	c.world.Controller.Env = c.skew.env() // the other one's clock is right
	for _, r := range c.rooms {
		r.Within = barragePatience
		if _, err := r.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run steps the clock at one request of the provider's after the other, forward
// and back, and sets it right again; meanwhile two requests are delivered.
func (c *wrongClock) run() {
	points := c.deliveries / 4
	for n := range points {
		for i, by := range []time.Duration{step, -step} {
			c.at(2*n+i, n*requestsOfTwo/points, by)
			if c.t.Failed() {
				return
			}
		}
	}
}

// at is turn n: the clock steps by so much at a request of two evaluations.
func (c *wrongClock) at(n, request int, by time.Duration) {
	stepped := make(chan struct{})
	do := func(context.Context) error {
		c.skew.set(by)
		close(stepped)
		return nil
	}
	var effect forgesim.Effect = forgesim.Before{Do: do}
	if request%2 == 1 {
		effect = forgesim.After{Do: do}
	}
	c.world.Forge.Inject(forgesim.Fault{Skip: request, Effect: effect})
	what, wrong := "pass", wrongFor
	if n/2%3 == 1 {
		what, wrong = "slow "+slowly.String(), slowly
	}
	// One is under way when the clock steps; the other one is, too, or comes in
	// while it is wrong, by a process that has never seen the right time.
	var both [2]signed
	var done [2]<-chan struct{}
	for i := range both {
		both[i], done[i] = c.open(2*n+i, what)
	}
	c.deliver(both[0], c.rooms)
	late := n%4 >= 2
	if !late {
		c.deliver(both[1], c.rooms)
	}
	all := make(chan struct{})
	go func() { // ends with the deliveries, or the test
		defer close(all)
		for _, d := range done {
			select {
			case <-d:
			case <-c.t.Context().Done():
			}
		}
	}()
	select {
	case <-stepped:
	case <-done[0]:
		// Fewer requests than that.
		c.world.Forge.Calm()
		c.skew.set(by)
	}
	c.steps++
	// A sender repeats what it has sent, while the clock is wrong and after.
	c.deliver(both[0], c.rooms[:1])
	if late {
		c.renew(c.world.Controller)
		c.deliver(both[1], c.rooms[:1])
	}
	select {
	case <-all:
	case <-time.After(wrong):
	}
	c.skew.set(0)
	c.steps++
	c.deliver(both[0], c.rooms[:1])
	c.deliver(both[1], c.rooms[:1])
	select {
	case <-all:
	case <-time.After(endWithin):
		c.t.Errorf("at request %d, stepped by %v: no end within %v of the clock's being right again", request, by, endWithin)
	}
}

// renew starts a controller anew, whose clock was wrong all of its life.
func (c *wrongClock) renew(one *world.Controller) {
	if err := one.Stop(); err != nil {
		c.t.Error(err)
	}
	if err := c.restart(context.Background(), one); err != nil {
		c.t.Fatal(err)
	}
	c.starts++
}

// end stops all and judges.
func (c *wrongClock) end(booksAfter func() books) {
	c.t.Helper()
	if err := c.idle(); err != nil {
		c.t.Error(err)
	}
	for _, r := range c.rooms {
		if err := r.Stop(); err != nil {
			c.t.Error(err)
		}
	}
	b := booksAfter()
	b.askew = true
	verdict := audit(c.seen, c.told, b)
	for _, text := range verdict.broken {
		c.t.Error(text)
	}
	// What shows that the clock was wrong at all.
	ahead, behind := 0, 0
	eachNote(c.t, filepath.Join(c.world.DataDir(), "receipts"), func(l leasing) {
		switch {
		case l.At.After(time.Now().Add(step / 2)):
			ahead++
		case l.At.Before(c.began.Add(-step / 2)):
			behind++
		}
	})
	if ahead == 0 || behind == 0 {
		c.t.Errorf("%d notes are dated an hour ahead, %d an hour behind: want both", ahead, behind)
	}
	replayed := 0
	for _, a := range c.told {
		if a.Outcome == "replayed" {
			replayed++
		}
	}
	c.t.Logf("%d deliveries, %d steps of an hour, %d starts with a wrong clock, %d notes dated ahead and %d behind, %d answered replayed: %s",
		c.deliveries, c.steps, c.starts, ahead, behind, replayed, verdict)
}

// Invariants 3 to 7 and 18, for real: the wall clock of a controller steps by
// an hour, forward and back, at one request of an evaluation after the other;
// it is set right again, which is a step as well.
func TestStepsOfAControllersClock(t *testing.T) {
	t.Parallel()
	c := newWrongClock(t, "")
	c.run()
	c.end(func() books { return booksOf(t, c.world.DataDir()) })
}

// The same of one of two machines over one database.
func TestStepsOfOneMachinesClock(t *testing.T) {
	t.Parallel()
	database := postgres.Database(t)
	c := newWrongClock(t, database)
	c.run()
	c.end(func() books {
		b := books{leasings: leasingsOf(t, filepath.Join(c.world.DataDir(), "receipts"))}
		for id, more := range leasingsOf(t, filepath.Join(c.world.DataDir()+"-2", "receipts")) {
			b.leasings[id] = append(b.leasings[id], more...)
		}
		b.rows, b.verified = sharedRowsOf(t, database)
		return b
	})
}

// sharedRowsOf is [rowsOf] of a ledger in PostgreSQL.
func sharedRowsOf(t *testing.T, database string) (map[fencepost.DeliveryID]rows.Row, error) {
	t.Helper()
	report, err := sqlledger.Verify(t.Context(), sqlledger.Config{URL: database})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlledger.Open(t.Context(), sqlledger.Config{URL: database, Lease: steppedLease, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	found := collect(t, l.Rows(t.Context()))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return found, report.Err()
}
