package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/ops"
)

func (m Main) serveCommand() *cobra.Command {
	var file string
	var debug bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run",
		Long: `Take webhooks, run checks and publish results until SIGTERM or interrupt; then
stop taking new work, finish what is under way within the drain times, and end.
What is not finished is recorded and taken up by the next start.

SIGHUP reads the configuration again and takes over its keys without dropping a
request: new keys are trusted, missing ones revoked. Any other change needs a
restart.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.serve(cmd.Context(), file, debug) },
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&debug, "debug", false, "log every request and every step")
	return cmd
}

func (m Main) serve(ctx context.Context, file string, verbose bool) (err error) {
	c, err := config.Load(file, m.LookupEnv)
	if err != nil {
		return err
	}
	log := m.logger(verbose)
	for _, w := range c.Warnings {
		// The file is a path of the host, which no log holds.
		log.Warn("configuration: " + strings.TrimPrefix(w, c.File+":"))
	}
	b := thisBuild()
	a, err := app.Open(ctx, app.Options{
		Config: c, LookupEnv: m.LookupEnv, Now: m.Now, Log: log, Entry: m.Entry,
		Build: ops.Build{Version: b.Version, Revision: b.Revision, Go: b.Go},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	// Reading a large configuration takes many times the memory that serving
	// does.
	debug.FreeOSMemory()
	running, stop := context.WithCancel(ctx)
	reloading := make(chan struct{})
	go func() {
		defer close(reloading)
		m.reloadOnHangup(running, a, file, log)
	}()
	err = a.Run(ctx)
	stop()
	<-reloading
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// reloadOnHangup takes over keys at each SIGHUP until ctx ends.
func (m Main) reloadOnHangup(ctx context.Context, a *app.App, file string, log *slog.Logger) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		next, err := config.Load(file, m.LookupEnv)
		if err == nil {
			err = a.Reload(ctx, next)
		}
		logReload(ctx, log, err)
	}
}

// logReload tells how a reload ended. What a configuration's own errors say is
// for whoever runs `fencepost check`, not for a log: they name secrets' paths
// (invariant 16). Where they stand is enough to find them.
func logReload(ctx context.Context, log *slog.Logger, err error) {
	const kept = "keys were not reloaded, the old ones stay"
	faults := faultsIn(err)
	switch {
	case err == nil:
		log.InfoContext(ctx, "keys were reloaded")
	case errors.Is(err, app.ErrRestart):
		log.ErrorContext(ctx, kept+": a restart is needed", "error", oneLine(err))
	case len(faults) > 0:
		for _, f := range faults {
			log.ErrorContext(ctx, kept+": the configuration is not usable; `fencepost check` says why",
				"line", f.Line, "column", f.Column, "field", f.Path)
		}
	default:
		log.ErrorContext(ctx, kept, "reason", string(fencepost.ReasonOf(err)))
	}
}

// faultsIn finds each fault that err joins.
func faultsIn(err error) []*config.Fault {
	switch e := err.(type) {
	case *config.Fault:
		return []*config.Fault{e}
	case interface{ Unwrap() error }:
		return faultsIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*config.Fault
		for _, one := range e.Unwrap() {
			all = append(all, faultsIn(one)...)
		}
		return all
	}
	return nil
}

// logger writes text for a person at a terminal, and JSON for everything
// else.
func (m Main) logger(debug bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if debug {
		o.Level = slog.LevelDebug
	}
	if m.Terminal {
		return slog.New(slog.NewTextHandler(m.Err, o))
	}
	return slog.New(slog.NewJSONHandler(m.Err, o))
}
