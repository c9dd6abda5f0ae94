package simulation

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A process is one life of a controller. Of one slot, one lives at a time.
type process struct {
	sim        *Sim
	slot, life int
	disk       *crashfs.Process
	now        func() time.Time

	gone         bool          // guarded by the scheduler's mu
	stoppedUntil time.Duration // owned by the simulation

	stop  context.CancelFunc // tells it to end
	ended chan struct{}

	// Set when it is up.
	up     bool // guarded by the simulation's mu
	ledger book
	inbox  *inbox.Inbox
	pool   *gate.Pool

	working map[int64]int // guarded by the simulation's mu: what it works on, by request
}

const (
	lease      = 10 * time.Second
	ledgerDir  = "ledger"
	inboxDir   = "inbox"
	maxBacklog = 1000
)

func ledgerConfig() fileledger.Config {
	return fileledger.Config{
		Dir: ledgerDir, Lease: lease, Capacity: maxBacklog, Shards: 1, SegmentBytes: fileledger.MinSegment,
		Maintain: -1, MaxBytes: 16 << 20,
	}
}

func inboxConfig() inbox.Config {
	return inbox.Config{
		MaxEntries: maxBacklog, MaxBytes: 1 << 20, MaxBody: 1 << 10, SegmentBytes: 16 << 10, MinFree: -1,
		AdoptEvery: 7*time.Second + 13*time.Microsecond, Settle: 100*time.Millisecond + 17*time.Microsecond, Gather: -1,
	}
}

// take takes the token for the process.
func (p *process) take(ctx context.Context, c call) (order, error) {
	return p.sim.sched.wait(ctx, p, c, -1)
}

// step takes the token for a call about a delivery.
func (p *process) step(ctx context.Context, op string, d fencepost.DeliveryKey) error {
	_, err := p.take(ctx, call{slot: p.slot, delivery: p.sim.numberOf(d), op: op})
	if op == "note" {
		p.sim.works(p, d)
	}
	return err
}

// sleep lets time pass for a call, unless ctx or the process ends.
func (p *process) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.disk.Done():
	}
	if p.isGone() {
		return errGone
	}
	return nil
}

func (p *process) isGone() bool {
	p.sim.sched.mu.Lock()
	defer p.sim.sched.mu.Unlock()
	return p.gone
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.disk.Kill()
	p.sim.sched.bury(p)
	p.stop()
}

// launch starts a process.
func (s *Sim) launch(slot int) *process {
	ctx, stop := context.WithCancel(context.Background())
	p := &process{
		sim: s, slot: slot, life: s.lives[slot], disk: s.disk.Process(), stop: stop, ended: make(chan struct{}),
		now: clock.NewWall(s.wall, time.Time{}).Now, working: map[int64]int{},
	}
	s.lives[slot]++
	s.place(slot, p)
	s.all = append(s.all, p)
	if s.record {
		s.note(event{kind: evLife, slot: slot, delivery: -1, text: "starts"})
	}
	go func() {
		defer close(p.ended)
		err := p.run(ctx)
		if s.record && !p.isGone() {
			s.note(event{kind: evLife, slot: slot, delivery: -1, text: "ends: " + textOfError(err)})
		}
	}()
	return p
}

func textOfError(err error) string {
	if err == nil {
		return "as it was told"
	}
	return err.Error()
}

// closers close in the opposite order.
type closers []func() error

func (c closers) close() error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		errs = append(errs, c[i]())
	}
	return errors.Join(errs...)
}

// run is the life of a process, as package app leads it.
func (p *process) run(ctx context.Context) (err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close()) }()
	fsys := diskFS{p, p.disk}
	root, err := durable.OpenRoot(fsys)
	if err != nil {
		return err
	}
	open = append(open, root.Close)
	cfg := ledgerConfig()
	cfg.Now, cfg.Instant, cfg.Random = p.now, p.sim.instant, &randomness{seed: p.sim.seed ^ uint64(p.slot)<<32 ^ uint64(p.life)<<40}
	opened, err := fileledger.OpenOn(ctx, fsys, cfg)
	if err != nil {
		return err
	}
	open = append(open, opened.Close)
	p.ledger = book{p, opened}
	if p.inbox, err = inbox.Open(ctx, durable.Sub(fsys, inboxDir), inboxConfig()); err != nil {
		return err
	}
	open = append(open, p.inbox.Close)
	paper, err := notebook.Open(durable.Sub(root, "notebook"), notebook.Limits{}, p.now)
	if err != nil {
		return err
	}
	open = append(open, paper.Close)
	store, err := artifact.Open(ctx, durable.Sub(root, "artifacts"), artifact.Limits{}, p.now)
	if err != nil {
		return err
	}
	open = append(open, store.Close)
	if p.pool, err = gate.New(p.poolConfig(paper, store)); err != nil {
		return err
	}
	p.sim.setUp(p)
	return p.serve(ctx)
}

// serve runs the loops of the process until it is told to end, or one fails.
func (p *process) serve(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wait sync.WaitGroup
	var errs [2]error
	for i, run := range []func(context.Context) error{p.inbox.Run, p.pool.Run} {
		wait.Go(func() {
			if errs[i] = run(ctx); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	wait.Wait()
	return errors.Join(errs[:]...)
}

func (p *process) poolConfig(paper *notebook.Notebook, store *artifact.Store) gate.Config {
	g := &gate.Gate{
		Name: "docs", Rule: rule, Trust: trust{}, Lane: &lane{p: p, first: map[gate.Subject]gate.Snapshot{}},
		Provider: "github", RepositoryID: "1",
		Plan: gate.Plan{
			Action: gate.Source{URL: "https://forge.invalid/acme/checks.git"}, Commit: actionCommit.ID,
			Program: "bin/check", SHA256: check.Digest{1}, Limits: runner.Limits{Wall: time.Minute},
		},
	}
	return gate.Config{
		Gates: []*gate.Gate{g}, Queue: queue{p, p.inbox}, Ledger: p.ledger, Fetcher: fetcher{p}, Runner: program{p},
		Store: evidence{p, store}, Notes: notes{p, paper}, Standings: standings{p, paper}, Journal: journal{p},
		Alerts: silence{}, Now: p.now, Chance: p.chance,
		Limits: gate.Limits{
			Workers: 2, Lease: lease, Attempts: 4, Backoff: 2 * time.Second, MaxBackoff: 20 * time.Second,
			LookPause: 500 * time.Millisecond, Drain: 3 * time.Second,
		},
	}
}

// chance is spread by the seed and the time, in no order that matters.
func (p *process) chance(n time.Duration) time.Duration {
	return time.Duration(mix(p.sim.seed, uint64(p.slot), uint64(p.sim.now()), uint64(n)) % uint64(n))
}

// mix spreads numbers (the finalizer of SplitMix64, Steele and others).
func mix(numbers ...uint64) uint64 {
	h := uint64(0)
	for _, n := range numbers {
		h ^= n
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// A randomness is a stream of one process's own.
type randomness struct{ seed, n uint64 }

var _ io.Reader = (*randomness)(nil)

// Read implements [io.Reader].
func (r *randomness) Read(b []byte) (int, error) {
	for i := range b {
		r.n++
		b[i] = byte(mix(r.seed, r.n))
	}
	return len(b), nil
}

// instant is the clock that leases are timed by.
func (s *Sim) instant() ledger.Instant {
	s.clocks.Lock()
	defer s.clocks.Unlock()
	i := ledger.Instant{At: s.bootTime()}
	i.Boot[0] = byte(s.boots + 1)
	return i
}
