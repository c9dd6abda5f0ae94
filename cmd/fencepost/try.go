package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/trial"
)

type tryFlags struct {
	forge, repo, program string
	json, keep           bool
}

func (m Main) tryCommand() *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "try",
		Short: "Watch the whole system at work on this machine",
		Long: `Run the whole system on this machine and watch it: a simulated GitHub with a
real Git server, a real controller, a real check.

A signed pull request is recorded, claimed, fetched, run in a sandbox and
published as one Check Run; then it is replayed, forged, blocked, and the
controller is killed in the middle. Then a source follows its branch: through a
push, a burst, a lost webhook and an outage. Everything is on loopback and in
one temporary directory, which is removed in the end.

With --forge gitea or --forge forgejo the gate is one of theirs: an approval by
a dedicated reviewer and a commit status, and no source. With --forge gitlab it
is the job of a policy in a merge train, run by the real ` + "`fencepost gitlab-job`" + `,
with a source of a GitLab project beside it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.try(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.forge, "forge", string(trial.ForgeGitHub), "what to simulate: github, gitlab, gitea or forgejo")
	cmd.Flags().StringVar(&f.repo, "repo", "", "gate this local repository instead of a made-up one; it is only read")
	cmd.Flags().StringVar(&f.program, "program", "", "gate with this check, a program in the run contract (default: doclinks beside this executable)")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "leave everything in place and say where")
	jsonFlag(cmd, &f.json)
	return cmd
}

func (m Main) try(ctx context.Context, f tryFlags) (err error) {
	forge := trial.Forge(f.forge)
	if !slices.Contains([]trial.Forge{trial.ForgeGitHub, trial.ForgeGitLab, trial.ForgeGitea, trial.ForgeForgejo}, forge) {
		return usagef("--forge must be github, gitlab, gitea or forgejo, is %q", f.forge)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this executable: %w", err)
	}
	if f.program == "" {
		f.program = filepath.Join(filepath.Dir(binary), "doclinks")
	}
	if _, err := os.Stat(f.program); errors.Is(err, fs.ErrNotExist) {
		return usagef("no check at %s; build it with `go build -o %[1]s ./examples/checks/doclinks`, or name one with --program", f.program)
	}
	dir, err := os.MkdirTemp("", "fencepost-try-")
	if err != nil {
		return fmt.Errorf("make a directory for the trial: %w", err)
	}
	if !f.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	summary, err := trial.Run(ctx, trial.Config{
		Binary: binary, Program: f.program, Forge: forge, Repo: f.repo, Dir: dir, Now: m.Now,
		Report: func(s trial.Step) { m.tellStep(s, f.json) },
	})
	if f.keep {
		summary.Kept = dir
	}
	if err != nil && !f.keep {
		err = fmt.Errorf("%w; run it again with --keep to look at what is left", err)
	}
	if f.json {
		return errors.Join(err, printJSON(m.Out, summary))
	}
	m.tellSummary(summary)
	return err
}

func (m Main) tellStep(s trial.Step, asJSON bool) {
	if asJSON {
		// The summary's own print reports a closed output.
		_ = printJSON(m.Out, s)
		return
	}
	for i, line := range s.Lines {
		at, name := strings.Repeat(" ", 6), ""
		if i == 0 {
			at, name = fmt.Sprintf("%5.2fs", s.At.Seconds()), s.Name
		}
		fmt.Fprintf(m.Out, "%s  %-7s %s\n", at, name, line)
	}
}

func (m Main) tellSummary(s trial.Summary) {
	if s.OK && s.Forge == trial.ForgeGitLab {
		fmt.Fprintf(m.Out, "\n%d jobs, %d results, each told to one job; %d replays recognised, %d forgery refused, %d kills survived; %d syncs of a source; %s\n",
			s.Deliveries, s.CheckRuns, s.Replays, s.ForgedRefused, s.Kills, s.SourceRuns, s.Took.Round(10*time.Millisecond))
	} else if s.OK && s.Forge != "" {
		fmt.Fprintf(m.Out, "\n%d deliveries, %d results, each one review and one status; %d replay recognised, %d forgery refused, %d kills survived; %s\n",
			s.Deliveries, s.CheckRuns, s.Replays, s.ForgedRefused, s.Kills, s.Took.Round(10*time.Millisecond))
	} else if s.OK {
		fmt.Fprintf(m.Out, "\n%d deliveries, %d runs, %d Check Runs; %d replay recognised, %d forgery refused, %d kills survived; %d syncs of a source; %d bytes fetched; %s\n",
			s.Deliveries, s.Runs, s.CheckRuns, s.Replays, s.ForgedRefused, s.Kills, s.SourceRuns, s.BytesFetched, s.Took.Round(10*time.Millisecond))
	}
	if s.Kept != "" {
		fmt.Fprintf(m.Out, "kept in %s: fencepost.yaml, serve.log, data/; look with `deliveries`, `sources` or `runs`, such as `fencepost sources list --config %[1]s/fencepost.yaml`\n", s.Kept)
	}
}
