package ledgertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// MemoryConfig are the fixed parameters of a [Memory].
type MemoryConfig struct {
	// Lease is how long a lease lasts; zero means 60 s.
	Lease time.Duration
	// Window is the replay window; zero means
	// [fencepost.DefaultReplayWindow].
	Window fencepost.ReplayWindow
	// Capacity is the most rows; zero means 1,000,000.
	Capacity int
	// Now reads the wall clock; not nil.
	Now func() time.Time
	// Instant reads the clock that leases are timed by. Nil takes the time
	// since NewMemory by Now, for tests whose wall clock never jumps.
	Instant func() ledger.Instant
}

// A Memory is a [fencepost.Ledger] that keeps its rows in memory and forgets
// them with the process: everything of the contract but durability. It is
// safe for concurrent use.
type Memory struct {
	cfg MemoryConfig

	mu     sync.Mutex
	rows   map[fencepost.DeliveryKey]ledger.Row // guarded by mu
	fence  uint64                               // guarded by mu: the last one given
	closed time.Time                            // guarded by mu: see ledger.Moment

	running time.Duration  // guarded by mu: accumulated up to seen
	seen    ledger.Instant // guarded by mu

	hook hooks
}

// hooks is where the package's own tests break a Memory.
type hooks struct {
	decide    func(ledger.Row, ledger.Request, ledger.Moment, ledger.Fresh) (ledger.Row, ledger.Answer)
	check     func(ledger.Request, fencepost.ReplayWindow) error
	removable func(ledger.Row, time.Time, time.Duration) bool
	removed   func(m *Memory, r ledger.Row)
	noLock    bool
}

// NewMemory makes an empty ledger.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.Lease == 0 {
		cfg.Lease = time.Minute
	}
	if cfg.Window == (fencepost.ReplayWindow{}) {
		cfg.Window = fencepost.DefaultReplayWindow
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 1_000_000
	}
	if cfg.Instant == nil {
		start, now := cfg.Now(), cfg.Now
		cfg.Instant = func() ledger.Instant {
			return ledger.Instant{Boot: ledger.BootID{1}, At: now().Sub(start)}
		}
	}
	return &Memory{
		cfg: cfg, rows: map[fencepost.DeliveryKey]ledger.Row{}, seen: cfg.Instant(),
		hook: hooks{decide: ledger.Decide, check: ledger.Check, removable: ledger.Removable},
	}
}

// Claim implements [fencepost.Ledger].
func (m *Memory) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	a, err := m.do(ctx, ledger.ClaimRequest{Delivery: d})
	return a.Claim, err
}

// Renew implements [fencepost.Ledger].
func (m *Memory) Renew(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease) (fencepost.Renewal, error) {
	a, err := m.do(ctx, ledger.RenewRequest{Delivery: d, Lease: l})
	return a.Renewal, err
}

// Stage implements [fencepost.Ledger].
func (m *Memory) Stage(ctx context.Context, d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	a, err := m.do(ctx, ledger.StageRequest{Delivery: d, Lease: l, Publication: p})
	return a.Stage, err
}

// Complete implements [fencepost.Ledger].
func (m *Memory) Complete(ctx context.Context, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	a, err := m.do(ctx, ledger.CompleteRequest{Delivery: d, Staged: s})
	return a.Completion, err
}

// Lookup returns the row of key, and false if there is none.
func (m *Memory) Lookup(ctx context.Context, key fencepost.DeliveryKey) (ledger.Row, bool, error) {
	if err := context.Cause(ctx); err != nil {
		return ledger.Row{}, false, &fencepost.Error{Op: "ledger.lookup", Reason: fencepost.ReasonUnavailable, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok := m.rows[key]
	return row, ok, nil
}

func (m *Memory) do(ctx context.Context, req ledger.Request) (ledger.Answer, error) {
	if err := context.Cause(ctx); err != nil {
		return ledger.Answer{}, &fencepost.Error{Op: req.Op(), Reason: fencepost.ReasonUnavailable, Err: err}
	}
	if err := m.hook.check(req, m.cfg.Window); err != nil {
		return ledger.Answer{}, err
	}
	id, err := fencepost.NewEvaluationID(rand.Reader)
	if err != nil {
		return ledger.Answer{}, fmt.Errorf("%s: %w", req.Op(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	row, at := m.rows[req.On().Key()], m.moment()
	m.fence++
	fence, err := fencepost.ParseFence(m.fence)
	if err != nil {
		return ledger.Answer{}, err
	}
	if m.hook.noLock { // a store without isolation between read and write
		m.mu.Unlock()
		time.Sleep(time.Microsecond)
		m.mu.Lock()
	}
	next, answer := m.hook.decide(row, req, at, ledger.Fresh{Fence: fence, Evaluation: id})
	if !next.Equal(row) {
		m.rows[req.On().Key()] = next
	}
	return answer, nil
}

// moment is called with mu held.
func (m *Memory) moment() ledger.Moment {
	now := m.cfg.Instant()
	if now.Boot == m.seen.Boot {
		m.running += now.At - m.seen.At
	}
	m.seen = now
	return ledger.Moment{
		Wall: m.cfg.Now(), Now: now, Running: m.running, ClosedThrough: m.closed,
		Lease: m.cfg.Lease, NoRoom: len(m.rows) >= m.cfg.Capacity,
	}
}

// CleanUp removes the rows that may be removed.
func (m *Memory) CleanUp(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.moment()
	for key, row := range m.rows {
		if !m.hook.removable(row, at.Wall, at.Running) {
			continue
		}
		if end, _ := row.Lifetime.End(); end.After(m.closed) {
			m.closed = end
		}
		delete(m.rows, key)
		if m.hook.removed != nil {
			m.hook.removed(m, row)
		}
	}
	return nil
}
