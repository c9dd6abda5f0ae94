package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/jobkeys"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/runner"
)

// Options are what the process around gives.
type Options struct {
	// Config is the validated configuration. Required.
	Config *config.Config
	// LookupEnv finds environment variables, for secret references. Required.
	LookupEnv config.Lookup
	// Now is the wall clock, which never steps back. Required.
	Now func() time.Time
	// Log takes what people should know. Required.
	Log *slog.Logger
	// Entry is what [runner.Init] returned in main. Required.
	Entry runner.Entry
	// Build says what program this is.
	Build ops.Build
}

// An App is the opened controller. Open makes it, Run runs it once, Close
// frees what it holds.
type App struct {
	Options
	trust map[fencepost.TrustSetName]*trust
	// work is what a refusal costs, on every route; decoy refuses the rest.
	work  *toil
	decoy decoy
	// jobTrust are the sets of public keys, jobWork what a refusal costs below
	// /jobs/, and finders look for keys that are pinned and not known.
	jobTrust map[fencepost.TrustSetName]*jobkeys.Set
	jobWork  *toil
	finders  []*jobkeys.Finder

	root *durable.Root
	// db is what several machines share; nil for one machine.
	db       *store.DB
	spine    spine
	receipts *receipt.Journal
	alerts   *alert.Book
	fetch    *gitfetch.Workspace
	runner   *runner.Runner

	metrics *ops.Metrics
	journal *journal
	lanes   map[gate.Name]lane
	pool    *gate.Pool
	healer  *gate.Healer
	ingress *ingress.Server
	ops     *ops.Server

	// room has a token for each program that runs.
	room chan struct{}
	// sourcing is nil where no source is configured.
	sourcing      *sourcing
	githubSources clients[*github.Client]
	giteaSources  clients[*gitea.Client]
	gitlabSources clients[*gitlab.Client]

	listener, opsListener net.Listener
	// recent is what the operations page showed last.
	recent digest
	// Refreshed by upkeep, read by metrics.
	ledgerRows, artifactSize gauge
	// closers are what Close closes, the last opened first.
	closers []func() error
}

// Open opens the data directory and everything in it, and both listeners. On
// an error nothing stays open. Errors of configuration match
// [config.ErrInvalid]; see also [ErrNotOurs], [ErrVersion], [ErrExposed] and
// the errors of the packages below.
func Open(ctx context.Context, o Options) (_ *App, err error) {
	a := &App{Options: o, trust: map[fencepost.TrustSetName]*trust{},
		room: make(chan struct{}, max(1, o.Config.Runner.Concurrent)),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	for _, step := range []func(context.Context) error{
		a.openTrust, a.openJobTrust, a.openDatabase, a.openStores, a.openJobKeys, a.openWorkspaces, a.openSources, a.openGates, a.openListeners,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Close frees everything. What is recorded and not done is taken up by the
// next start.
func (a *App) Close() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i]())
	}
	a.closers = nil
	for _, t := range a.trust {
		t.exchange(nil)
	}
	return errors.Join(errs...)
}

func (a *App) openTrust(context.Context) error {
	rings, err := keyrings(a.Config, a.LookupEnv)
	if err != nil {
		return err
	}
	a.work = newToil(mostAnchors(a.Config, false))
	a.decoy = decoy{a.work}
	for name, ring := range rings {
		a.trust[name] = &trust{work: a.work, keys: ring}
	}
	return nil
}

// opened keeps what must be closed again.
func (a *App) opened(closer func() error) { a.closers = append(a.closers, closer) }

func (a *App) openStores(ctx context.Context) error {
	dir := a.Config.DataDir
	if err := prepare(dir, a.Log); err != nil {
		return err
	}
	if _, err := durable.CheckVolume(durable.OS(dir), dir, false); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	root, err := durable.OpenRoot(durable.OS(dir))
	if err != nil {
		return fmt.Errorf("open data_dir: %w", err)
	}
	a.root = root
	a.opened(root.Close)
	for _, open := range []func(context.Context) error{
		a.openReceipts, a.openAlerts, a.openSpine,
	} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) sub(name string) durable.FS { return durable.Sub(a.root, name) }

func (a *App) openReceipts(ctx context.Context) (err error) {
	a.receipts, err = receipt.Open(ctx, a.sub("receipts"), receipt.Limits{
		TotalBytes: int64(a.Config.Receipts.MaxTotal), TTL: a.Config.Receipts.Keep,
	}, a.Now)
	if err != nil {
		return err
	}
	a.opened(a.receipts.Close)
	a.metrics = ops.NewMetrics(ops.MetricsOptions{
		Build: a.Build, Levels: a.levels(), Routes: a.routeNames(), Now: a.Now,
	})
	a.journal = &journal{receipts: a.receipts, metrics: a.metrics, log: a.Log}
	return nil
}

// maxProcesses is how many controllers may share one data directory.
const maxProcesses = 64

// openAlerts opens the first book of alerts that no other process has open.
func (a *App) openAlerts(context.Context) error {
	l := a.Config.Alerts.AlertLimits
	for i := range maxProcesses {
		dir := fmt.Sprintf("alerts/%02d", i)
		if err := durable.MkdirAll(a.root, dir); err != nil {
			return fmt.Errorf("open alerts: %w", err)
		}
		book, err := alert.OpenBook(alert.Options{
			FS: a.sub(dir), Now: a.Now, Log: a.Log, Meter: a.metrics,
			Limits: alert.Limits{MaxOpen: l.MaxOpen, Keep: l.Keep},
		})
		if errors.Is(err, alert.ErrInUse) {
			continue
		}
		if err != nil {
			return err
		}
		a.alerts = book
		a.opened(book.Close)
		return nil
	}
	return fmt.Errorf("open alerts: %d processes share data_dir already: %w", maxProcesses, alert.ErrInUse)
}

// LedgerConfig is what the ledger of a configuration is opened with.
func LedgerConfig(c *config.Config, now func() time.Time) fileledger.Config {
	return fileledger.Config{
		Dir: Ledger(c.DataDir), Lease: c.Ledger.Lease, Capacity: int(c.Ledger.Capacity), Window: c.Replay, Now: now,
	}
}

// inboxDamaged is told of bytes that were promised and do not verify.
func (a *App) inboxDamaged(d *frame.CorruptError) {
	a.Log.Error("the inbox is damaged", "reason", string(fencepost.ReasonCorrupt), "file", d.File, "offset", d.Offset)
	a.standing(alert.LedgerCorrupt, true)
}

// openWorkspaces sweeps what dead processes left, and says so.
func (a *App) openWorkspaces(ctx context.Context) (err error) {
	if a.fetch, err = gitfetch.OpenWorkspace(filepath.Join(a.Config.DataDir, "fetch")); err != nil {
		return fmt.Errorf("open fetch workspace: %w", err)
	}
	a.opened(a.fetch.Close)
	_, leftovers := a.fetch.Swept()
	c := a.Config.Runner
	mode, err := runner.ParseMode(c.Sandbox)
	if err != nil {
		return err
	}
	dirs := make([]string, len(c.SystemDirs))
	for i, d := range c.SystemDirs {
		dirs[i] = string(d)
	}
	scratch, err := filepath.Abs(filepath.Join(a.Config.DataDir, "run"))
	if err != nil {
		return err
	}
	a.runner, err = runner.Open(ctx, runner.Config{
		Entry: a.Entry, Scratch: scratch, Sandbox: mode, SystemDirs: dirs, Now: a.Now,
	})
	if err != nil {
		return err
	}
	a.opened(a.runner.Close)
	swept := a.runner.Swept()
	if swept.Runs > 0 {
		a.Log.Info("cleared what an earlier process left", "runs", swept.Runs, "processes", swept.Killed)
	}
	if err := errors.Join(leftovers, swept.Err); err != nil {
		return a.alerts.Raise(alert.CleanupFailed, "start")
	}
	// What an earlier process could not remove, whichever part of it that was,
	// is gone now.
	return a.alerts.Settle(alert.CleanupFailed)
}

func (a *App) openListeners(ctx context.Context) (err error) {
	var listening net.ListenConfig
	if a.opsListener, err = listening.Listen(ctx, "tcp", a.Config.OpsListen); err != nil {
		return fmt.Errorf("listen on ops_listen: %w", err)
	}
	a.opened(func() error { return ignoreClosed(a.opsListener.Close()) })
	if a.listener, err = listening.Listen(ctx, "tcp", a.Config.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.opened(func() error { return ignoreClosed(a.listener.Close()) })
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run serves until ctx ends, and then stops in order: first requests, then
// evaluations, each within its drain time, then what they write to. It
// returns nil, or the first error of a part without which nothing goes on.
func (a *App) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	behind, stopBehind := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBehind()

	var front, back sync.WaitGroup
	errs := make(chan error, 16+len(a.finders))
	run := func(wg *sync.WaitGroup, ctx context.Context, name string, part func(context.Context) error) {
		wg.Go(func() {
			err := part(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				// The first one to fail stops the rest.
				stop(err)
			}
			errs <- err
		})
	}
	run(&back, behind, "inbox", a.spine.inbox.Run)
	if a.spine.clean != nil {
		run(&back, behind, "ledger", a.spine.clean)
	}
	run(&back, behind, "alerts", a.alerts.Run)
	run(&back, behind, "upkeep", a.upkeep)
	run(&back, behind, "operations listener", func(ctx context.Context) error { return a.ops.Run(ctx, a.opsListener) })
	if url := a.Config.Alerts.Alertmanager; url != nil {
		run(&back, behind, "alertmanager", a.alertmanager(url).Run)
	}
	run(&front, ctx, "gates", a.pool.Run)
	run(&front, ctx, "healing", a.healer.Run)
	for _, f := range a.finders {
		run(&front, ctx, "keys", f.Run)
	}
	if a.sourcing != nil {
		run(&front, ctx, "sources", a.runSources)
		run(&front, ctx, "watchdog", a.sourcing.watchdog.Run)
	}
	run(&front, ctx, "listener", func(ctx context.Context) error { return a.ingress.Run(ctx, a.listener) })
	a.Log.Info("serving", "listen", a.listener.Addr().String(), "ops_listen", a.opsListener.Addr().String(),
		"gates", len(a.Config.Gates), "sources", len(a.Config.Sources))

	<-ctx.Done()
	a.Log.Info("stopping")
	front.Wait()
	stopBehind()
	back.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}
