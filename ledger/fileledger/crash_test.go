package fileledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// play is a scripted workload on one ledger, over crashes of its disk. What
// is done with permanent deliveries is recorded and checked as a whole; the
// bounded one is followed by hand, through clean-up.
type play struct {
	tb      testing.TB
	cfg     Config
	clock   *ledgertest.Clock
	history ledgertest.History

	bounded    fencepost.AcceptedDelivery
	doneAcked  bool // bounded was answered Completed
	cleaning   bool // clean-up was asked to remove it
	cleanAcked bool
}

func newPlay(tb testing.TB) *play {
	clock := ledgertest.NewClock()
	cfg := testConfig(clock)
	// One shard makes the order of calls the same each time; small segments
	// bring rotation.
	cfg.Shards, cfg.SegmentBytes = 1, 16<<10
	return &play{tb: tb, cfg: cfg, clock: clock}
}

func (p *play) permanent(n int) fencepost.AcceptedDelivery {
	return ledgertest.Deliver(p.tb, ledgertest.Spec{ID: fmt.Sprint("d", n)})
}

// large fills a quarter of a segment.
func (p *play) large(text string) fencepost.Publication {
	pub, err := fencepost.NewPublication([]byte(text + strings.Repeat(".", 3000)))
	if err != nil {
		p.tb.Fatal(err)
	}
	return pub
}

// take claims d and takes it on to where it is told to stop.
func (p *play) take(l fencepost.Ledger, d fencepost.AcceptedDelivery, text string, upTo string) error {
	ctx := p.tb.Context()
	c, err := l.Claim(ctx, d)
	if err != nil || upTo == "claim" {
		return err
	}
	var staged fencepost.StagedPublication
	switch c := c.(type) {
	case fencepost.Acquired:
		if _, err := l.Renew(ctx, d, c.Lease); err != nil {
			return err
		}
		o, err := l.Stage(ctx, d, c.Lease, p.large(text))
		if err != nil {
			return err
		}
		s, ok := o.(fencepost.Staged)
		if !ok {
			return fmt.Errorf("stage answered %T", o)
		}
		staged = s.Staged
	case fencepost.Publish:
		staged = c.Staged
	default:
		return nil
	}
	if upTo == "stage" {
		return nil
	}
	_, err = l.Complete(ctx, d, staged)
	return err
}

// act plays the script until a call fails.
func (p *play) act(l *Ledger) error {
	ctx := p.tb.Context()
	rec := p.history.Client(0, l)
	if !p.bounded.Valid() {
		p.bounded = ledgertest.Deliver(p.tb, ledgertest.Spec{ID: "b", Signed: p.clock.Now()})
	}
	pass := func() error { p.clock.Elapse(p.cfg.Lease + time.Second); return nil }
	for _, step := range []func() error{
		func() error { return p.take(rec, p.permanent(0), "zero", "done") },
		func() error { return p.take(rec, p.permanent(1), "one", "claim") },
		func() error {
			if err := p.take(l, p.bounded, "bounded", "done"); err != nil {
				return err
			}
			c, err := l.Claim(ctx, p.bounded) // Busy, where a call had failed
			p.doneAcked = p.doneAcked || c == fencepost.Claim(fencepost.Completed{})
			return err
		},
		pass,
		func() error { return p.take(rec, p.permanent(1), "one again", "stage") },
		func() error { return p.take(rec, p.permanent(2), "two", "done") },
		func() error { return l.Compact(ctx) },
		func() error { return p.take(rec, p.permanent(3), "three", "stage") },
		pass,
		func() error { return p.take(rec, p.permanent(3), "", "claim") },
		func() error { return p.take(rec, p.permanent(4), "four", "done") },
		func() error { return p.take(rec, p.permanent(5), "five", "done") },
		func() error {
			p.clock.Elapse(p.cfg.Window.MaxSignedAge + p.cfg.Window.MaxQueueAge)
			p.cleaning = true
			if err := l.CleanUp(ctx); err != nil {
				return err
			}
			p.cleanAcked = true
			return nil
		},
		func() error { return p.take(rec, p.permanent(6), "six", "claim") },
		func() error { return p.burst(l, playDeliveries) },
		func() error { return l.Compact(ctx) },
		func() error { return p.take(rec, p.permanent(6), "", "claim") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Deliveries are numbered: those that the script names, then the bursts'.
const (
	playDeliveries = 8
	burstSize      = 6
	allDeliveries  = playDeliveries + 2*burstSize
)

// burst takes deliveries to their end side by side, each step of all in one
// batch, so that one batch spans segments.
func (p *play) burst(l *Ledger, first int) error {
	staged := make([]fencepost.StageOutcome, burstSize)
	leases := make([]fencepost.Lease, burstSize)
	client := func(i int, l fencepost.Ledger) fencepost.Ledger { return p.history.Client(i+1, l) }
	ctx := p.tb.Context()
	for _, step := range []func(i int, l fencepost.Ledger) error{
		func(i int, l fencepost.Ledger) error {
			c, err := client(i, l).Claim(ctx, p.permanent(first+i))
			if a, ok := c.(fencepost.Acquired); ok {
				leases[i] = a.Lease
			}
			return err
		},
		func(i int, l fencepost.Ledger) (err error) {
			if leases[i].Valid() {
				staged[i], err = client(i, l).Stage(ctx, p.permanent(first+i), leases[i], p.large(fmt.Sprint("burst ", i)))
			}
			return err
		},
		func(i int, l fencepost.Ledger) error {
			s, ok := staged[i].(fencepost.Staged)
			if !ok {
				return nil
			}
			_, err := client(i, l).Complete(ctx, p.permanent(first+i), s.Staged)
			return err
		},
	} {
		if err := together(l, burstSize, step); err != nil {
			return err
		}
	}
	return nil
}

// together has f(0) to f(n-1) wait at the only shard until all do, so that
// one pass serves them, in this order.
func together(l *Ledger, n int, f func(i int, l fencepost.Ledger) error) error {
	hold, held := make(chan struct{}), make(chan struct{})
	s := l.shards[0]
	stop := &op{done: make(chan struct{}), do: func(context.Context, *shard) error {
		close(held)
		<-hold
		return nil
	}}
	s.queue <- stop
	select {
	case <-held:
	case <-stop.done: // refused before it ran
		return stop.err
	}
	var all []error
	queued, ended := make(chan struct{}), make(chan error, n)
	for i := range n {
		go func() { ended <- f(i, announced{l, queued}) }()
		select {
		case <-queued:
		case err := <-ended: // it had nothing to ask
			all = append(all, err)
		}
	}
	close(hold)
	for len(all) < n {
		all = append(all, <-ended)
	}
	return errors.Join(all...)
}

// announced says when an operation waits at its shard.
type announced struct {
	*Ledger
	queued chan<- struct{}
}

func (a announced) ask(req ledger.Request) (ledger.Answer, error) {
	o := &op{req: req, done: make(chan struct{})}
	a.shards[a.owner(req.On().Key())].queue <- o
	a.queued <- struct{}{}
	<-o.done
	return o.answer, o.err
}

func (a announced) Claim(_ ctx, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	answer, err := a.ask(ledger.ClaimRequest{Delivery: d})
	return answer.Claim, err
}

func (a announced) Stage(_ ctx, d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	answer, err := a.ask(ledger.StageRequest{Delivery: d, Lease: l, Publication: p})
	return answer.Stage, err
}

func (a announced) Complete(_ ctx, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	answer, err := a.ask(ledger.CompleteRequest{Delivery: d, Staged: s})
	return answer.Completion, err
}

// afterwards opens what is left and takes everything to its end, which shows
// whether anything that was answered is gone (invariants 3 to 10).
func (p *play) afterwards(what string, fsys durable.FS) {
	p.tb.Helper()
	fail := func(err error) { p.tb.Helper(); p.tb.Fatalf("%s: %v", what, err) }
	if _, err := fsys.Stat(testName); err == nil {
		report, err := verifyIn(p.tb.Context(), durable.Sub(fsys, testName))
		if err == nil {
			err = report.Err()
		}
		if err != nil {
			fail(err)
		}
	}
	l, err := openIn(p.tb.Context(), p.cfg, fsys, testName)
	if err != nil {
		fail(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			fail(err)
		}
	}()
	rec := p.history.Client(0, l)
	for n := range allDeliveries {
		for range 2 { // to its end, and once more
			if err := p.take(rec, p.permanent(n), "recovered", "done"); err != nil {
				fail(err)
			}
		}
	}
	p.clock.StepWall(-24 * time.Hour) // what was closed stays closed
	p.checkBounded(what, l)
	p.clock.StepWall(24 * time.Hour)
	if p.bounded.Valid() {
		if err := p.take(l, p.bounded, "bounded", "done"); err != nil {
			fail(err)
		}
	}
	if err := l.Compact(p.tb.Context()); err != nil {
		fail(err)
	}
	if st, err := l.Stat(p.tb.Context()); err != nil || st.Leased+st.Staged > 0 || st.Done < allDeliveries {
		p.tb.Fatalf("%s: after all: %v, %v", what, st, err)
	}
	p.history.Check(p.tb, true)
	if p.tb.Failed() {
		p.tb.Fatalf("%s", what)
	}
}

// checkBounded: a row that was answered done is Completed until it is cleaned
// up, and Expired from then on; never new.
func (p *play) checkBounded(what string, l *Ledger) {
	p.tb.Helper()
	if !p.doneAcked {
		return
	}
	c, err := l.Claim(p.tb.Context(), p.bounded)
	if err != nil {
		p.tb.Fatalf("%s: %v", what, err)
	}
	_, completed := c.(fencepost.Completed)
	_, expired := c.(fencepost.Expired)
	if completed && !p.cleanAcked || expired && p.cleaning {
		return
	}
	p.tb.Fatalf("%s: the bounded delivery is answered %T (clean-up asked for %v, done %v)", what, c, p.cleaning, p.cleanAcked)
}

// start opens the ledger on a disk and plays on it. The error is that of the
// call which failed.
func (p *play) start(disk *crashfs.Disk) error {
	l, err := openIn(p.tb.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		return err
	}
	err = p.act(l)
	_ = l.Close() // a dead process closes nothing
	return err
}

// playCalls learns the number of calls.
func playCalls(tb testing.TB) int {
	p, disk := newPlay(tb), crashfs.New(crashfs.Options{})
	if err := p.start(disk); err != nil {
		tb.Fatal(err)
	}
	calls := disk.Calls()
	p.afterwards("no fault", disk.Process())
	return calls
}

// TestCrashAtEveryCall crashes the machine before, inside and after each call
// of the play, lets the disk forget in several ways, and goes on.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	calls := playCalls(t)
	if calls < 200 {
		t.Fatalf("the play makes %d calls: too few to be worth much", calls)
	}
	t.Logf("%d calls, of which each %d. is tried", calls, stride())
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			states := 0
			for n := 1 + part*stride(); n <= calls; n += parts * stride() {
				for _, at := range crashMoments(n) {
					states += crashAndRecover(t, n, at)
				}
			}
			t.Logf("%d crash states", states)
		})
	}
}

// exhaustive asks for every crash moment and every way to forget, instead of
// some of each: minutes instead of seconds.
var exhaustive = os.Getenv("FENCEPOST_EXHAUSTIVE") != ""

// stride is how many calls lie between those that are tried.
func stride() int {
	if exhaustive {
		return 1
	}
	return 3
}

type moment struct {
	when crashfs.When
	keep int
}

// crashMoments are those that are tried at call n.
func crashMoments(n int) []moment {
	all := []moment{{crashfs.Inside, 1}, {crashfs.Inside, 300}, {crashfs.Inside, 513}, {crashfs.After, 0}, {crashfs.Before, 0}}
	if exhaustive {
		return all
	}
	return []moment{all[n%len(all)]}
}

// crashAndRecover crashes at call n and looks at what may be left of it.
func crashAndRecover(t *testing.T, n int, at moment) (states int) {
	t.Helper()
	for k := 0; ; k++ {
		p, disk := newPlay(t), crashfs.New(crashfs.Options{})
		disk.Plan(crashfs.CrashAt(n, at.when, at.keep))
		if err := p.start(disk); err == nil || !disk.Crashed() {
			return states // the play ended first
		} else if !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("crash at call %d: %v, want one that matches ErrCrashed", n, err)
		}
		policies := leftovers(disk.Unsynced(), n)
		if k == len(policies) {
			return states
		}
		p.clock.Restart()
		what := fmt.Sprintf("crash at call %d, moment %v, policy %d of %d", n, at, k, len(policies))
		disk = disk.After(policies[k])
		if (n+k)%2 == 0 {
			disk = p.again(disk, n, &what)
		}
		p.afterwards(what, disk.Process())
		states++
	}
}

// again goes on after a crash for a while, and crashes once more: what the
// first life of the machine has left must not fool the second.
func (p *play) again(disk *crashfs.Disk, n int, what *string) *crashfs.Disk {
	m := 1 + (n*37)%160
	*what += fmt.Sprintf(", then at call %d", m)
	disk.Plan(crashfs.CrashAt(m, crashfs.Before, 0))
	l, err := openIn(p.tb.Context(), p.cfg, disk.Process(), testName)
	if err == nil {
		err = p.take(p.history.Client(0, l), p.permanent(0), "again", "done")
		if err == nil {
			err = p.burst(l, playDeliveries+burstSize)
		}
		_ = l.Close()
	}
	if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
		p.tb.Fatalf("%s: %v", *what, err)
	}
	if !disk.Crashed() {
		disk.Crash()
	}
	p.clock.Restart()
	return disk.After(crashfs.LoseAll)
}

// leftovers are ways in which a disk forgets.
func leftovers(unsynced, seed int) []crashfs.Policy {
	all := []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll}
	if unsynced > 1 {
		all = append(all, crashfs.LoseOne(seed%unsynced), crashfs.KeepOne(seed%unsynced), crashfs.Random(uint64(seed)))
	}
	if exhaustive {
		return all
	}
	return []crashfs.Policy{all[0], all[1+seed%(len(all)-1)]}
}
