package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/ledger"
)

// Pauses of upkeep.
const (
	checkEvery  = time.Second
	aliveEvery  = 10 * time.Second
	expireEvery = time.Hour
)

// gapWorthSaying is how long nothing may have run before a start says so.
const gapWorthSaying = time.Minute

// levels are read by metrics. They return from memory, so they may be asked
// before the stores are open.
func (a *App) levels() ops.Levels {
	return ops.Levels{
		Bodies: func() (used, budget int64) {
			if a.ingress == nil {
				return 0, 0
			}
			return a.ingress.Stats().BodyBytes, int64(a.Config.Ingress.BodyMemory)
		},
		Inbox: func() ops.InboxLevel {
			if a.spine.inbox == nil {
				return ops.InboxLevel{}
			}
			s := a.spine.inbox.Stats()
			level := ops.InboxLevel{
				Entries: int64(s.Entries), MaxEntries: int64(a.Config.Inbox.MaxEntries),
				Bytes: s.Bytes, MaxBytes: int64(a.Config.Inbox.MaxBytes),
			}
			if !s.Oldest.IsZero() {
				level.Oldest = a.Now().Sub(s.Oldest)
			}
			return level
		},
		Ledger:    a.ledgerLevel,
		FullIn:    a.ledgerFullIn,
		Artifacts: a.artifactLevel,
		Running:   a.runningLevel,
	}
}

// A gauge is a number that upkeep refreshes and metrics read.
type gauge struct{ first, second atomic.Int64 }

func (g *gauge) get() (int64, int64) { return g.first.Load(), g.second.Load() }

func (g *gauge) set(first, second int64) {
	g.first.Store(first)
	g.second.Store(second)
}

func (a *App) ledgerLevel() (rows, capacity int64) {
	rows, _ = a.ledgerRows.get()
	return rows, a.Config.Ledger.Capacity
}

func (a *App) artifactLevel() (count, bytes int64) { return a.artifactSize.get() }

func (a *App) runningLevel() int {
	if a.spine.inbox == nil {
		return 0
	}
	return a.spine.inbox.Stats().Leased
}

func (a *App) routeNames() []fencepost.RouteName {
	names := make([]fencepost.RouteName, 0, len(a.Config.Gates)+len(a.Config.Sources))
	for _, g := range a.Config.Gates {
		names = append(names, g.Route)
	}
	for _, s := range a.Config.Sources {
		names = append(names, s.Route)
	}
	return names
}

// checks are what /readyz asks.
func (a *App) checks() []ops.Check {
	checks := []ops.Check{
		{Name: "ledger", Probe: func(context.Context) error { return a.spine.ledger.Health().Err() }},
		{Name: "inbox", Probe: func(context.Context) error { return withReason("inbox", a.spine.inbox.Health()) }},
		{Name: "data_dir", Probe: func(context.Context) error { return withReason("data_dir", a.root.Check()) }},
		{Name: "draining", Probe: func(context.Context) error {
			if a.ingress.Stats().Draining {
				return &fencepost.Error{Op: "app.ready", Reason: fencepost.ReasonDraining}
			}
			return nil
		}},
	}
	if s := a.sourcing; s == nil && a.db != nil {
		checks = append(checks, ops.Check{Name: "database", Probe: func(ctx context.Context) error {
			_, err := a.db.Now(ctx)
			return errors.Join(a.db.Check(), err)
		}})
	} else if s != nil {
		checks = append(checks, ops.Check{Name: "database", Probe: func(ctx context.Context) error {
			_, err := s.state.OpenAlerts(ctx)
			return errors.Join(s.db.Check(), err)
		}})
	}
	return checks
}

// withReason names what is wrong with a store.
func withReason(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, durable.ErrPoisoned):
		return &fencepost.Error{Op: op, Reason: fencepost.ReasonPoisoned, Err: err}
	case errors.Is(err, frame.ErrCorrupt):
		return &fencepost.Error{Op: op, Reason: fencepost.ReasonCorrupt, Err: err}
	case errors.Is(err, durable.ErrNoSpace):
		return &fencepost.Error{Op: op, Reason: fencepost.ReasonFull, Err: err}
	}
	return err
}

// upkeep keeps the sign of life, the levels and the standing alerts fresh. It
// returns nil when ctx has ended, and the [durable.PoisonedError] when a sync
// has failed: nothing that is written after it could be relied on.
func (a *App) upkeep(ctx context.Context) error {
	if err := a.failed(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var projecting sync.WaitGroup
	projecting.Go(func() { a.project(ctx) })
	defer projecting.Wait()
	defer stop()
	a.sayGap(ctx)
	a.refresh(ctx)
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if err := a.failed(); err != nil {
				return err
			}
		case <-alive.C:
			a.refresh(ctx)
		case <-expire.C:
			if err := a.spine.artifacts.Expire(ctx); err != nil {
				a.Log.Warn("old evidence could not be removed", "reason", string(fencepost.ReasonOf(err)))
			}
			if err := a.spine.results.Expire(ctx); err != nil {
				a.Log.Warn("old results could not be removed", "reason", string(fencepost.ReasonOf(err)))
			}
		}
	}
}

// failed is why nothing may be written any more, or nil. The alert is in the
// log and in the metric even where it can't be kept.
func (a *App) failed() error {
	err := a.root.Check()
	if err == nil {
		err = a.spine.ledger.Health().Poisoned
	}
	if err == nil && a.sourcing != nil {
		// The queue writes there too, and must not go on.
		err = a.sourcing.db.Check()
	}
	if err != nil {
		a.standing(alert.LedgerCorrupt, true)
	}
	return err
}

const aliveName = "alive"

// sayGap names the time in which nothing ran: what the provider sent then is
// looked for by healing, which begins at once.
func (a *App) sayGap(ctx context.Context) {
	text, err := durable.ReadFile(a.root, aliveName, 64)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	last, bad := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		a.Log.WarnContext(ctx, "when the controller last ran is not known; missed deliveries are being looked for")
		return
	}
	if gap := a.Now().Sub(last); gap > gapWorthSaying {
		a.Log.WarnContext(ctx, "the controller was away; missed deliveries are being looked for", "duration_ms", gap.Milliseconds())
	}
}

// refresh writes the sign of life and renews levels and standing alerts.
func (a *App) refresh(ctx context.Context) {
	// A sign of life that is lost costs nothing, so it is not synced.
	if err := a.writeAlive(); err != nil {
		a.Log.WarnContext(ctx, "the sign of life could not be written", "reason", string(fencepost.ReasonOf(err)))
	}
	rows, full, err := a.spine.rows(ctx)
	if ctx.Err() != nil {
		return
	}
	a.standing(alert.LedgerCorrupt, a.corrupt(err))
	if err != nil && a.db != nil {
		// What was known stands until the database answers again.
		a.Log.WarnContext(ctx, "the ledger could not be counted", "reason", string(fencepost.ReasonOf(err)))
		return
	}
	a.ledgerRows.set(int64(rows), 0)
	full = full || ledger.NearFull(rows, int(a.Config.Ledger.Capacity), a.spine.rate.perDay(), a.Config.Alerts.LedgerFullWithin)
	a.standing(alert.LedgerCapacity, full || a.spine.inbox.Stats().Entries >= max(1, a.Config.Inbox.MaxEntries*9/10))
	if count, bytes, err := a.spine.artifacts.Usage(ctx); err == nil {
		a.artifactSize.set(count, bytes)
	}
}

func (a *App) writeAlive() (err error) {
	f, err := a.root.OpenFile(aliveName, os.O_WRONLY|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Always the same length, so that nothing of an older one stays behind.
	_, err = f.WriteAt([]byte(a.Now().UTC().Format(time.RFC3339)+"\n"), 0)
	return err
}

// standing raises or resolves an alert about the whole controller.
func (a *App) standing(code alert.Code, on bool) {
	change := a.alerts.Resolve
	if on {
		change = a.alerts.Raise
	}
	if err := change(code, "controller"); err != nil {
		a.Log.Error("an alert could not be kept", "code", string(code), "reason", string(fencepost.ReasonOf(err)))
	}
}

func (a *App) alertmanager(to *url.URL) *alert.Alertmanager {
	l := a.Config.Alerts.AlertLimits
	return alert.NewAlertmanager(a.alerts, alert.AlertmanagerOptions{
		URL: to, Timeout: l.Timeout, Attempts: l.Attempts, Repeat: l.Repeat, Now: a.Now, Log: a.Log,
	})
}

// keepRecent is how long an answer about deliveries stands for further askers.
const keepRecent = time.Second

// A digest is the newest deliveries as they were a moment ago, so that many
// askers cost as much as one. Its zero value is ready.
type digest struct {
	mu sync.Mutex
	// Guarded by mu, which is held while the journal is read:
	rows  []ops.DeliveryRow
	limit int
	at    time.Time
}

// RecentDeliveries implements [ops.Deliveries].
func (a *App) RecentDeliveries(ctx context.Context, limit int) ([]ops.DeliveryRow, error) {
	d := &a.recent
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || d.limit != limit || a.Now().Sub(d.at) >= keepRecent {
		rows, err := a.readRecent(ctx, limit)
		if err != nil {
			return nil, err
		}
		d.rows, d.limit, d.at = rows, limit, a.Now()
	}
	return slices.Clone(d.rows), nil
}

func (a *App) readRecent(ctx context.Context, limit int) ([]ops.DeliveryRow, error) {
	list, _, err := receipt.List(ctx, a.sub("receipts"), receipt.Filter{Limit: limit})
	if err != nil {
		return nil, err
	}
	rows := make([]ops.DeliveryRow, len(list))
	for i, s := range list {
		rows[i] = ops.DeliveryRow{
			ID: s.Delivery, Gate: s.Gate, Subject: s.Subject, State: string(s.State), Reason: s.Reason,
			Conclusion: s.Conclusion, Received: s.Received, Last: s.Last, Claims: s.Claims, Replays: s.Replays,
			Evidence: s.Evidence,
		}
	}
	return rows, nil
}

// GateRows implements [ops.Gates].
func (a *App) GateRows(context.Context) ([]ops.GateRow, error) {
	rows := make([]ops.GateRow, len(a.Config.Gates))
	for i, g := range a.Config.Gates {
		rows[i] = ops.GateRow{
			Name: string(g.Route), Provider: string(g.Provider), Repository: g.Repository.FullName(),
			Base: g.Base, Check: g.Check, Policy: hex.EncodeToString(g.Digest[:]),
		}
	}
	return rows, nil
}

// AlertRows implements [ops.Alerts].
func (a *App) AlertRows() []ops.AlertRow {
	all := a.alerts.Alerts()
	rows := make([]ops.AlertRow, len(all))
	for i, al := range all {
		rows[i] = ops.AlertRow{
			Code: string(al.Code), Subject: string(al.Subject), Meaning: al.Code.Meaning(), Open: al.Status != alert.Resolved,
			Since: al.Since, Age: al.Age(a.Now()), Count: al.Count,
		}
	}
	return rows
}

// sizeText is a size in the largest unit that it has one of, for people.
func sizeText(bytes int64) string {
	const step = 1 << 10
	if bytes < step {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	size, unit := float64(bytes)/step, 0
	for units := len("KMGTP"); size >= step && unit < units-1; unit++ {
		size /= step
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGTP"[unit])
}

// Figures implements [ops.Figures].
func (a *App) Figures(context.Context) []ops.Figure {
	in := a.spine.inbox.Stats()
	rows, capacity := a.ledgerLevel()
	count, bytes := a.artifactLevel()
	return []ops.Figure{
		{Name: "recorded, not done", Value: strconv.Itoa(in.Entries), Bound: strconv.Itoa(a.Config.Inbox.MaxEntries)},
		{Name: "ledger rows", Value: strconv.FormatInt(rows, 10), Bound: strconv.FormatInt(capacity, 10)},
		{Name: "artifacts", Value: strconv.FormatInt(count, 10), Bound: strconv.Itoa(a.Config.Artifacts.MaxCount)},
		{Name: "size of artifacts", Value: sizeText(bytes), Bound: sizeText(int64(a.Config.Artifacts.MaxTotal))},
	}
}
