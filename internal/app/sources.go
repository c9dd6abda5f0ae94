package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
	"github.com/fencepost/fencepost/internal/source/push"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

// stateFile is the SQLite database of one machine, in the data directory.
const stateFile = "state.db"

// sourcing is what sources need; nil in an App without any.
type sourcing struct {
	db    *store.DB
	state *sourcedb.Store
	queue *jobs.Queue
	conns *gitfetch.Transport
	// decoders read the pushes of all sources.
	decoders *push.Decoders

	all    map[fencepost.SourceID]*source.Source
	routes []sourceRoute

	intake     source.Intake
	worker     *source.Worker
	reconciler *source.Reconciler
	watchdog   *source.Watchdog
}

// StateOptions say where a configuration keeps the state of its sources. The
// secret, where there is one, is in the options.
func StateOptions(c *config.Config, env config.Lookup, now func() time.Time) (store.Options, error) {
	if !c.Database.IsPostgres() {
		return store.Options{Path: filepath.Join(c.DataDir, stateFile), Now: now}, nil
	}
	url, err := c.Database.URL(env)
	if err != nil {
		return store.Options{}, fmt.Errorf("database: %w", err)
	}
	defer url.Zero()
	return store.Options{URL: string(url.Reveal()), Now: now}, nil
}

// openSources opens the state of sources, judges their freshness before
// anything else, and brings their policies into force.
func (a *App) openSources(ctx context.Context) error {
	if known, err := a.knowsSources(); err != nil || !known {
		return err
	}
	s := &sourcing{all: map[fencepost.SourceID]*source.Source{}, decoders: push.NewDecoders(a.jsonLimits())}
	if err := a.openState(ctx, s); err != nil {
		return err
	}
	a.sourcing = s
	for i := range a.Config.Sources {
		c := &a.Config.Sources[i]
		src, err := a.source(s, *c)
		if err != nil {
			return fmt.Errorf("sources.%s: %w", c.Route, err)
		}
		s.all[src.ID] = src
		route, err := a.sourceRoute(s, c, src)
		if err != nil {
			return fmt.Errorf("sources.%s: %w", c.Route, err)
		}
		s.routes = append(s.routes, route)
	}
	var owner source.Owner
	if _, err := io.ReadFull(rand.Reader, owner[:]); err != nil {
		return fmt.Errorf("draw owner: %w", err)
	}
	s.intake = source.Intake{Store: s.state, Random: rand.Reader}
	s.worker = &source.Worker{
		Store: s.state, Sources: s.all, Owner: owner, Random: rand.Reader, Now: a.Now, Log: a.Log, Meter: a.metrics,
	}
	s.reconciler = &source.Reconciler{
		Store: s.state, Sources: s.all, Random: rand.Reader, Now: a.Now, Log: a.Log,
		Parallel: a.Config.SourceWork.Observations, Batch: a.Config.SourceWork.Batch,
	}
	s.watchdog = &source.Watchdog{
		Store: s.state, Sources: s.all, Random: rand.Reader, Beat: a.sourcesWatched,
		OnError: func(err error) {
			a.Log.Error("sources could not be watched", "reason", string(fencepost.ReasonOf(err)))
		},
	}
	// The time in which nobody watched counts.
	if err := s.watchdog.Freshness(ctx); err != nil {
		return fmt.Errorf("judge freshness: %w", err)
	}
	a.mirrorAlerts(ctx)
	// Before the policies are in force: processes that have those of before go
	// on with them if this start is refused.
	if err := a.probeSinks(ctx); err != nil {
		return err
	}
	policies := make([]source.Policy, 0, len(s.all))
	for _, c := range a.Config.Sources {
		policies = append(policies, s.all[c.ID].Policy)
	}
	if err := s.intake.Register(ctx, policies); err != nil {
		return err
	}
	if len(policies) == 0 {
		// What was open of the last ones has ended, and nothing more can come.
		a.mirrorAlerts(ctx)
		a.sourcing = nil
	}
	return nil
}

// knowsSources reports whether there are sources, or may have been: then what
// is open of them is to be ended.
func (a *App) knowsSources() (bool, error) {
	if len(a.Config.Sources) > 0 || a.Config.Database.IsPostgres() {
		return true, nil
	}
	switch _, err := os.Stat(filepath.Join(a.Config.DataDir, stateFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("data_dir: %w", err)
	}
	return true, nil
}

// openState opens database and queue.
func (a *App) openState(ctx context.Context, s *sourcing) error {
	o, err := StateOptions(a.Config, a.LookupEnv, a.Now)
	if err != nil {
		return err
	}
	if s.db = a.db; s.db == nil {
		if s.db, err = store.Open(ctx, o); err != nil {
			return fmt.Errorf("database: %w", err)
		}
		a.opened(s.db.Close)
	}
	c := jobs.Config{
		DB: s.db.Writer(), Dialect: jobs.SQLite, Now: a.Now, Log: a.Log, Workers: a.Config.SourceWork.Workers,
		Timeout: longestRun(a.Config.Sources) + time.Minute, Drain: a.Config.SourceWork.Drain,
	}
	if s.db.Kind() == store.Postgres {
		c.Dialect = jobs.PostgreSQL
		if c.Listen, err = listener(ctx, o.URL); err != nil {
			return err
		}
		a.opened(func() error { c.Listen.Close(); return nil })
	}
	if err := jobs.Migrate(ctx, c); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if s.queue, err = jobs.New(c); err != nil {
		return err
	}
	s.state = sourcedb.New(s.db, s.queue, sourcedb.Hooks{
		Job: func(source.JobRow) { s.queue.Wake() }, Alert: a.sourceAlert,
	})
	s.conns = gitfetch.NewTransport(gitfetch.TransportOptions{})
	a.opened(func() error { s.conns.Close(); return nil })
	return nil
}

// listener is the connection by which a queue hears of the jobs of other
// processes.
func listener(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		// Its text would show the URL.
		return nil, fmt.Errorf("database: its URL can't be read: %w", config.ErrInvalid)
	}
	c.MinConns, c.MaxConns = 0, 1
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("database: %w", store.Sanitize(err))
	}
	return pool, nil
}

// longestRun is the longest that one attempt may take.
func longestRun(sources []config.Source) (longest time.Duration) {
	for _, c := range sources {
		t := c.Timings
		longest = max(longest, 3*t.Observe+t.Checkout+t.Sink)
	}
	return longest
}

// probesAtOnce is how many sinks are looked at at a time: each look may sync.
const probesAtOnce = 16

// probeSinks refuses a start with a sink that can't work, with the mend.
func (a *App) probeSinks(ctx context.Context) error {
	errs := make([]error, len(a.Config.Sources))
	var group errgroup.Group
	group.SetLimit(probesAtOnce)
	for i, c := range a.Config.Sources {
		if !c.Enabled {
			continue
		}
		group.Go(func() error {
			if err := a.sourcing.all[c.ID].Sink.Probe(ctx); err != nil {
				errs[i] = fmt.Errorf("sources.%s.sink: %w", c.Route, err)
			}
			return nil
		})
	}
	return errors.Join(append(errs, group.Wait())...)
}

// source is a configured source with what carries it out.
func (a *App) source(s *sourcing, c config.Source) (*source.Source, error) {
	remote, err := a.sourceRemote(s, c)
	if err != nil {
		return nil, err
	}
	sink, err := a.sourceSink(c)
	if err != nil {
		return nil, err
	}
	return &source.Source{Policy: sourcePolicy(c), Remote: remote, Sink: sink}, nil
}

func sourcePolicy(c config.Source) source.Policy {
	p := source.Policy{
		ID: c.ID, Key: c.Route, Revision: c.Digest, Contracts: c.Contracts, Enabled: c.Enabled,
		Lineage: fencepost.NewEncoder("fencepost.source-lineage/v1").
			Text(string(c.Provider)).Text(c.API.String()).Int(c.Repository.ID).Text(c.Ref).Sum(),
		AcceptUnannounced: c.AcceptUnannounced, AcceptForced: c.AcceptForced, Timings: c.Timings,
	}
	if !c.Alerts.RunFailed {
		p.Muted = append(p.Muted, source.AlertRunFailed)
	}
	if !c.Alerts.RunPartial {
		p.Muted = append(p.Muted, source.AlertRunPartial)
	}
	return p
}

// runSources works jobs and periodic tasks until ctx ends.
func (a *App) runSources(ctx context.Context) error {
	s := a.sourcing
	err := s.queue.Run(ctx, map[string]jobs.Worker{source.HandlerRun: s.worker}, []jobs.Periodic{
		{Name: "sources.reconcile", Every: a.tickEvery(), Timeout: time.Minute, Run: s.reconciler.Tick},
		{Name: "sources.prune", Every: time.Hour, Timeout: time.Minute, Run: s.prune},
	})
	s.worker.Wait()
	return err
}

// Bounds of the pause between two looks for sources that are due.
const (
	minTick = time.Second
	maxTick = 10 * time.Second
)

// tickEvery is that pause: a twelfth of the shortest reconcile time.
func (a *App) tickEvery() time.Duration {
	every := maxTick
	for _, c := range a.Config.Sources {
		every = min(every, c.Timings.Reconcile/12)
	}
	return max(minTick, every.Truncate(time.Second))
}

func (s *sourcing) prune(ctx context.Context) error {
	for {
		pruned, err := s.state.Prune(ctx, sourcedb.Retention{})
		if err != nil || !pruned.More(sourcedb.DefaultRetention) {
			return err
		}
	}
}

// sourceAlert is told of each alert that a change of this process raised or
// resolved.
func (a *App) sourceAlert(al sourcedb.Alert) {
	change := a.alerts.Resolve
	if al.Open() {
		change = a.alerts.Raise
	}
	if err := change(alert.Code(al.Code), alert.SourceSubject(al.AlertRow.Source)); err != nil {
		a.Log.Error("an alert could not be kept", "code", string(al.Code), "reason", string(fencepost.ReasonOf(err)))
	}
}

// sourcesWatched follows each round of the watchdog: the heartbeat, the ages,
// the depth of the queue, and the alerts that other processes raised or
// resolved.
func (a *App) sourcesWatched(ctx context.Context) {
	a.metrics.SourcesWatched()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a.mirrorAlerts(ctx)
	a.measureSources(ctx)
}

// mirrorAlerts makes this process's book hold the alerts of the sources that
// the database has open, whoever raised them.
func (a *App) mirrorAlerts(ctx context.Context) {
	// The book first: what is raised between the two is in the database then,
	// and not taken for over.
	book := a.alerts.Alerts()
	seen, err := a.sourcing.state.Sources(ctx, "")
	if err != nil {
		a.Log.Error("alerts of sources could not be read", "reason", string(fencepost.ReasonOf(err)))
		return
	}
	is := map[sourcedb.Alert]bool{}
	for _, s := range seen.Sources {
		for _, al := range s.Alerts {
			is[sourcedb.Alert{AlertRow: al.AlertRow}] = true
		}
	}
	have := map[sourcedb.Alert]bool{}
	for _, al := range book {
		key, ok := alert.SourceOf(al.Subject)
		if !ok || al.Status != alert.Open {
			continue
		}
		row := sourcedb.Alert{AlertRow: source.AlertRow{Code: source.AlertCode(al.Code), Source: key}}
		have[row] = true
		if !is[row] {
			row.Until = a.Now()
			a.sourceAlert(row)
		}
	}
	for row := range is {
		if !have[row] {
			a.sourceAlert(row)
		}
	}
}

// measureSources sets the metrics of ages and of the queue.
func (a *App) measureSources(ctx context.Context) {
	s := a.sourcing
	seen, err := s.state.Sources(ctx, "")
	if err == nil {
		for _, row := range seen.Sources {
			if !row.Enabled {
				continue
			}
			var unmet time.Duration
			if !row.UnmetSince.IsZero() {
				unmet = seen.Now.Sub(row.UnmetSince)
			}
			a.metrics.SourceAge(string(row.Key), unmet, row.ObservedAt)
		}
	}
	depth, err2 := s.queue.Depth(ctx)
	if err2 == nil {
		a.metrics.JobsWaiting(int64(depth.Waiting), depth.Oldest)
	}
	if err := errors.Join(err, err2); err != nil {
		a.Log.Error("sources could not be measured", "reason", string(fencepost.ReasonOf(err)))
	}
}
