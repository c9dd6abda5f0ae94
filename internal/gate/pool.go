package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// A Config is everything that a [Pool] works with. Only Log and Chance may be nil.
type Config struct {
	Gates     []*Gate
	Queue     Queue
	Ledger    fencepost.Ledger
	Fetcher   Fetcher
	Runner    Runner
	Store     Store
	Notes     Notes
	Standings Standings
	Journal   Journal
	Alerts    Alerts
	Log       *slog.Logger
	Now       func() time.Time
	// Chance draws a duration below n, for what is spread by chance; nil is
	// [rand.N].
	Chance func(n time.Duration) time.Duration
	Limits Limits
}

// A Pool works recorded deliveries off: it is where evaluations happen. Its
// methods are safe for concurrent use.
type Pool struct {
	Config
	gates    map[fencepost.RouteName]*Gate
	schedule *schedule
	actions  *keeper
	stalls   *stalls
}

// New makes a pool. It does nothing before Run. Its error matches
// [fencepost.ErrZeroValue] or [fencepost.ErrMalformed].
func New(c Config) (*Pool, error) {
	if c.Queue == nil || c.Ledger == nil || c.Fetcher == nil || c.Runner == nil || c.Store == nil ||
		c.Notes == nil || c.Standings == nil || c.Journal == nil || c.Alerts == nil || c.Now == nil {
		return nil, fmt.Errorf("gate pool: a part is missing: %w", fencepost.ErrZeroValue)
	}
	if err := c.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("gate pool: %w", err)
	}
	c.Limits = c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Chance == nil {
		c.Chance = rand.N[time.Duration]
	}
	p := &Pool{
		Config: c, gates: map[fencepost.RouteName]*Gate{}, schedule: newSchedule(c.Now, c.Limits.Ahead),
		actions: newKeeper(c.Fetcher), stalls: newStalls(c.Alerts),
	}
	for _, g := range c.Gates {
		if err := g.validate(); err != nil {
			return nil, err
		}
		if p.gates[g.Rule.Route] != nil {
			return nil, fmt.Errorf("two gates on route %s: %w", g.Rule.Route, fencepost.ErrMalformed)
		}
		p.gates[g.Rule.Route] = g
	}
	return p, nil
}

// Wake tries a delivery that waits for its next attempt now: a repeat of it
// came, so somebody misses its result. It reports whether it waited here.
func (p *Pool) Wake(d fencepost.DeliveryKey) bool { return p.schedule.wake(d) }

// Run works until ctx ends; then it takes nothing up any more, gives what is
// under way the drain time to end, cancels the rest, and returns when all of it
// has ended. A cancelled evaluation leaves its lease to lapse and its delivery
// recorded, so that another worker or the next start goes on with it. It
// returns nil, or the error for which the queue gave no more.
func (p *Pool) Run(ctx context.Context) error {
	ctx, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var feeding, working sync.WaitGroup
	var failed error
	feeding.Go(func() {
		if failed = p.feed(ctx); failed != nil {
			halt(failed)
		}
	})
	for range p.Limits.Workers {
		working.Go(func() { p.serve(ctx, work) })
	}
	<-ctx.Done()
	drained := time.AfterFunc(p.Limits.Drain, func() { cut(errDraining) })
	defer drained.Stop()
	working.Wait()
	feeding.Wait()
	if d, ok := p.Fetcher.(Disconnector); ok {
		d.Disconnect()
	}
	if err := p.actions.close(); err != nil {
		p.Alerts.Raise(Alert{Code: AlertCleanupFailed, Subject: "actions", Reason: fencepost.ReasonUnavailable})
	}
	return failed
}

// feed moves tickets from the queue to the schedule.
func (p *Pool) feed(ctx context.Context) error {
	for {
		if err := p.schedule.room(ctx, p.Limits.Waiting+p.Limits.Workers); err != nil {
			return nil // ctx has ended
		}
		t, err := p.Queue.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take up deliveries: %w", err)
		}
		p.schedule.add(&task{ticket: t})
	}
}

// serve is one worker.
func (p *Pool) serve(ctx, work context.Context) {
	for {
		t, err := p.schedule.next(ctx)
		if err != nil {
			return
		}
		p.handle(work, t)
	}
}

// log is for what no event tells. Only reasons and our own names go in: the
// text of an error may come from a library. DESIGN §10
func (p *Pool) log(ctx context.Context, text string, d fencepost.DeliveryID, err error) {
	attrs := []any{"delivery", string(d), "reason", string(fencepost.ReasonOf(err))}
	if e, ok := errors.AsType[*fencepost.Error](err); ok {
		attrs = append(attrs, "op", e.Op)
	}
	p.Log.WarnContext(ctx, text, attrs...)
}
