package app

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/strictjson"
	"github.com/fencepost/fencepost/runner"
)

// openGates makes lanes, pool, healer and both servers. It sends nothing.
func (a *App) openGates(ctx context.Context) error {
	a.lanes = map[gate.Name]lane{}
	lanes := &lanes{app: a}
	var gates []*gate.Gate
	var watched []gate.Watched
	for _, g := range a.Config.Gates {
		l, err := lanes.open(g)
		if err != nil {
			return fmt.Errorf("gates.%s: %w", g.Route, err)
		}
		name := gate.Name(g.Route)
		a.lanes[name] = l
		gates = append(gates, a.gate(g, l))
		w := gate.Watched{Gate: name, Watcher: l}
		w.Log, _ = l.(gate.DeliveryLog)
		watched = append(watched, w)
	}
	if err := a.openPool(gates); err != nil {
		return err
	}
	if err := a.openHealer(watched); err != nil {
		return err
	}
	if err := a.openIngress(ctx); err != nil {
		return err
	}
	a.openOps()
	return nil
}

func (a *App) jsonLimits() strictjson.Limits {
	j := a.Config.Ingress.JSON
	return strictjson.Limits{Depth: j.Depth, Values: j.Values, StringBytes: int(j.String)}
}

func (a *App) rule(g config.Gate) fencepost.RouteRule {
	rule := fencepost.RouteRule{
		Route: g.Route, TrustSet: g.Trust, SignedTime: fencepost.SignedTimeNone, Window: a.Config.Replay,
	}
	if g.Provider == config.GitLab {
		rule.SignedTime, rule.SignedAge = fencepost.SignedTimeRequired, g.MaxSignedAge
	}
	return rule
}

func (a *App) gate(g config.Gate, l gate.Lane) *gate.Gate {
	return &gate.Gate{
		Name: gate.Name(g.Route), Rule: a.rule(g), Trust: a.recordedOf(g), Lane: l,
		Provider: string(g.Provider), RepositoryID: fmt.Sprint(g.Repository.ID), Plan: a.plan(g),
	}
}

func (a *App) plan(g config.Gate) gate.Plan {
	plan := g.Plan
	action := gate.Source{URL: plan.Action.URL.String(), AllowHTTP: g.AllowHTTP, AllowPrivate: g.AllowPrivate}
	if c := plan.Action.Credential; c != (config.Credential{}) {
		action.Credential = func(context.Context) (string, fencepost.Secret, error) {
			token, err := c.Token.Resolve(a.LookupEnv)
			return c.Username, token, err
		}
	}
	return gate.Plan{
		Action: action, Commit: plan.Action.Commit, Program: plan.Program, SHA256: plan.SHA256,
		Limits: runLimits(plan.Limits), ExternalVerification: plan.ExternalVerification,
		Policy: policy(g.Content), Budgets: budgets(a.Config.Fetch),
	}
}

func runLimits(l config.PlanLimits) runner.Limits {
	return runner.Limits{
		Wall: l.Wall, CPU: l.CPU, Memory: int64(l.Memory), Processes: l.Processes,
		OpenFiles: l.OpenFiles, FileBytes: int64(l.FileSize),
		ScratchBytes: int64(l.Scratch), ScratchFiles: l.ScratchFiles, ProgramBytes: int64(l.ProgramSize),
	}
}

func policy(c config.Content) gitfetch.Policy {
	p := gitfetch.Policy{Symlinks: gitfetch.SymlinksRefuse, Gitlinks: gitfetch.GitlinksRefuse, Names: gitfetch.NamesPortable}
	switch c.Symlinks {
	case "as_data":
		p.Symlinks = gitfetch.SymlinksAsData
	case "inside":
		p.Symlinks = gitfetch.SymlinksInside
	}
	if c.Gitlinks == "skip" {
		p.Gitlinks = gitfetch.GitlinksSkip
	}
	if c.Names == "posix" {
		p.Names = gitfetch.NamesPOSIX
	}
	return p
}

func budgets(f config.Fetch) gitfetch.Budgets {
	return gitfetch.Budgets{
		Connect: f.Connect, Idle: f.Idle, Total: f.Total, Redirects: f.Redirects,
		WireBytes: int64(f.Wire), InflatedBytes: int64(f.Inflated), Objects: int64(f.Objects),
		DeltaDepth: int64(f.DeltaChain), FileBytes: int64(f.File), Paths: int64(f.Entries), Repeats: f.Repeats,
		MetadataBytes: int64(f.Metadata), MetadataLines: int64(f.MetadataLines),
		CommitBytes: int64(f.Commit), TreeBytes: int64(f.Tree), Links: f.Links,
		PathDepth: f.Depth, ComponentBytes: int(f.Component), PathBytes: int(f.Path), OutputBytes: int64(f.Output),
	}
}

// lookShare keeps all looks for a write of unknown outcome within the lease:
// their pauses double, four times at most.
const lookShare = 32

func (a *App) openPool(gates []*gate.Gate) (err error) {
	w := a.Config.Work
	a.pool, err = gate.New(gate.Config{
		Gates: gates, Queue: queue{a.spine.inbox}, Ledger: a.spine.ledger, Fetcher: gate.Fetching(a.fetch),
		Runner: a.throttle(),
		Store:  evidence{a.spine.artifacts}, Notes: a.spine.notebook, Standings: a.spine.notebook,
		Journal: a.journal, Alerts: alerts{a.alerts, a.Log}, Log: a.Log, Now: a.Now,
		Limits: gate.Limits{
			Workers: w.Workers, Ahead: a.spine.ahead, Lease: a.Config.Ledger.Lease, Attempts: w.Attempts, Starts: max(w.Starts, w.Attempts),
			MaxWorkAge: w.MaxAge, QueueAge: a.Config.Replay.MaxQueueAge, LookPause: min(time.Second, a.Config.Ledger.Lease/lookShare), Backoff: w.Backoff, MaxBackoff: w.MaxBackoff,
			PublishAttempts: a.Config.Provider.PublishAttempts, NotYetVisible: a.Config.Provider.NotYetVisible,
			Drain: max(w.Drain, 1),
		},
	})
	return err
}

func (a *App) openHealer(watched []gate.Watched) (err error) {
	h := a.Config.Healing
	a.healer, err = gate.NewHealer(gate.HealConfig{
		Gates: watched, Standings: a.spine.notebook, Alerts: alerts{a.alerts, a.Log}, Now: a.Now, Report: a.reportHealing,
		Limits: gate.HealLimits{Interval: h.Interval, Lookback: h.Lookback, Redeliveries: h.Redeliveries,
			Timeout: h.Timeout, Grace: h.Grace, Inspected: h.Inspected, Patience: h.Patience, Asks: h.Asks,
		},
	})
	return err
}

func (a *App) reportHealing(r gate.HealReport, err error) {
	name := string(r.Gate)
	if err != nil {
		a.Log.Warn("missed deliveries could not be looked for", "gate", name, "reason", string(fencepost.ReasonOf(err)))
		return
	}
	a.metrics.Missed(name, r.Unknown)
	a.metrics.Redelivered(name, r.Asked)
	if r.Unknown > 0 || r.Untaken > 0 {
		a.Log.Warn("the provider has deliveries that are unknown here", "gate", name,
			"open", r.Open, "unknown", r.Unknown, "untaken", r.Untaken, "asked_again", r.Asked, "missed", r.Missed)
	}
}

// An admission is the part of a lane that ingress asks.
type admission struct{ gate.Admitter }

// Admit implements [ingress.Admission].
func (a admission) Admit(h fencepost.Headers, body []byte) error {
	_, err := a.Admitter.Admit(h, body)
	return err
}

func (a *App) openIngress(ctx context.Context) error {
	routes := make([]ingress.Route, len(a.Config.Gates))
	sets := map[fencepost.RouteName]fencepost.TrustSetName{}
	for i, g := range a.Config.Gates {
		name := gate.Name(g.Route)
		sets[g.Route] = g.Trust
		routes[i] = ingress.Route{
			Rule: a.rule(g), Verifier: a.senderOf(g), Headers: headersOf(g.Provider),
			Admission: admission{a.lanes[name]},
			Recorder: &recorder{
				inbox: a.spine.inbox, ledger: a.spine.ledger, journal: a.journal, gate: name, wake: a.pool.Wake, now: a.Now,
			},
		}
		job, err := a.job(ctx, a.lanes[name])
		if err != nil {
			return err
		}
		routes[i].Job = job
	}
	if a.sourcing != nil {
		for _, r := range a.sourcing.routes {
			sets[r.config.Route] = r.config.Trust
			routes = append(routes, a.pushRoute(r))
		}
	}
	table, err := ingress.NewTable(ingress.Decoys{Hooks: a.decoy, Jobs: jobDecoy{a.jobWork}}, routes...)
	if err != nil {
		return err
	}
	c := a.Config.Ingress
	a.ingress, err = ingress.New(ingress.Options{
		Table: table, Now: a.Now, Log: a.Log, Observer: observer{metrics: a.metrics, sets: sets},
		Config: ingress.Config{
			MaxBody: int64(c.MaxBody), MaxHeaders: c.MaxHeaders, MaxHeaderBytes: int(c.MaxHeaderBytes),
			BodyMemory: int64(c.BodyMemory), BodyWait: max(c.BodyWait, 1), MaxConnections: c.MaxConnections,
			HeaderTimeout: c.HeaderTimeout, BodyTimeout: c.BodyTimeout, WriteTimeout: c.WriteTimeout,
			StallTimeout: min(c.StallTimeout, c.BodyTimeout), RecordTimeout: c.RecordTimeout,
			IdleTimeout: c.IdleTimeout, RetryAfter: c.RetryAfter, Drain: max(c.Drain, 1),
		},
	})
	return err
}

func (a *App) openOps() {
	var sources ops.Sources
	if a.sourcing != nil {
		sources = a
	}
	a.ops = ops.New(ops.Options{
		Sources: sources,
		Metrics: a.metrics, Health: ops.NewHealth(ops.HealthOptions{Now: a.Now}, a.checks()...),
		Deliveries: a, Gates: a, Alerts: a, Artifacts: evidence{a.spine.artifacts}, Figures: a,
		Build: a.Build, Now: a.Now, Log: a.Log,
	})
}
