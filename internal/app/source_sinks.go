package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sink"
	"github.com/fencepost/fencepost/runner/check"
)

// sourceSink is where a source's content goes.
func (a *App) sourceSink(c config.Source) (source.Sink, error) {
	content := sink.Content{
		Include: c.Sink.Include, Exclude: c.Sink.Exclude, Require: c.Sink.Require, Mount: c.Sink.Mount,
	}
	dataDir, err := filepath.Abs(a.Config.DataDir)
	if err != nil {
		return nil, err
	}
	switch c.Sink.Kind {
	case config.SinkDirectory:
		return a.directorySink(c, content, dataDir)
	case config.SinkRows:
		return a.rowsSink(c, content, dataDir)
	case config.SinkProgram:
		return a.programSink(c, content, dataDir)
	}
	return nil, fmt.Errorf("sink %q: %w", c.Sink.Kind, config.ErrInvalid)
}

func (a *App) directorySink(c config.Source, content sink.Content, dataDir string) (source.Sink, error) {
	s := c.Sink.Directory
	d, err := sink.NewDirectory(sink.DirectoryOptions{
		Source: c.ID, Path: s.Path, DataDir: dataDir, Content: content, Keep: s.Keep, Grace: orNegative(s.Grace),
		Most: s.Most, Reserve: int64(s.Reserve), DirMode: s.Mode, Now: a.Now,
	})
	if err != nil {
		return nil, err
	}
	a.opened(d.Close)
	return d, nil
}

func (a *App) rowsSink(c config.Source, content sink.Content, dataDir string) (source.Sink, error) {
	s := c.Sink.Rows
	o := sink.RowsOptions{
		Source: c.ID, DataDir: dataDir, Table: s.Table, Content: content, MaxRow: int64(s.MaxRow), Text: s.Text,
		Workspace: a.fetch, Wait: min(c.Timings.Sink, sink.DefaultDBWait), Now: a.Now,
	}
	if s.Database.IsPostgres() {
		o.URL = func(context.Context) (fencepost.Secret, error) { return s.Database.URL(a.LookupEnv) }
	} else {
		o.Path = s.Database.File()
	}
	rows, err := sink.NewRows(o)
	if err != nil {
		return nil, err
	}
	a.opened(rows.Close)
	return rows, nil
}

// sinkState is where sinks keep what they can't keep at their place, below the
// data directory, by the source's id.
const sinkState = "sinks"

func (a *App) programSink(c config.Source, content sink.Content, dataDir string) (source.Sink, error) {
	plan := c.Sink.Program
	digest, err := check.ParseDigest(fmt.Sprintf("%x", plan.SHA256))
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(a.root, sinkState); err != nil {
		return nil, fmt.Errorf("make state of sinks: %w", err)
	}
	p, err := sink.NewProgram(sink.ProgramOptions{
		Source: c.ID, StateDir: filepath.Join(dataDir, sinkState, c.ID.String()), Content: content, Workspace: a.fetch,
		Repository: check.Repository{Provider: string(c.Provider), ID: strconv.FormatInt(c.Repository.ID, 10), Name: c.Repository.FullName()},
		Ref:        c.Ref, Action: a.sinkAction(c), ActionCommit: plan.Action.Commit, Program: plan.Program, SHA256: digest,
		Limits: runLimits(plan.Limits), Runner: a.throttle(), Reports: evidence{a.spine.artifacts},
	})
	if err != nil {
		return nil, err
	}
	a.opened(p.Close)
	return p, nil
}

// sinkAction fetches the program's repository at its pinned commit, for each
// run anew.
func (a *App) sinkAction(c config.Source) func(context.Context) (sink.Action, error) {
	action := c.Sink.Program.Action
	r := gitfetch.Request{
		URL: action.URL.String(), Commit: action.Commit, AllowHTTP: c.AllowHTTP, AllowPrivate: c.AllowPrivate,
		Policy:  gitfetch.Policy{Symlinks: gitfetch.SymlinksAsData, Gitlinks: gitfetch.GitlinksSkip},
		Budgets: sourceBudgets(c), Now: a.Now,
	}
	if cred := action.Credential; cred != (config.Credential{}) {
		r.Credential = func(context.Context) (string, fencepost.Secret, error) {
			secret, err := cred.Token.Resolve(a.LookupEnv)
			return cred.Username, secret, err
		}
	}
	return func(ctx context.Context) (sink.Action, error) {
		checkout, err := a.fetch.Fetch(ctx, r)
		if err != nil {
			return sink.Action{}, fmt.Errorf("fetch action: %w", err)
		}
		return sink.Action{Checkout: checkout, Release: checkout.Remove}, nil
	}
}
