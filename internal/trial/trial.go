package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// resultWithin bounds an evaluation, restarts included.
const resultWithin = 60 * time.Second

// A Config says what to try. All fields but Repo are required.
type Config struct {
	// Binary is the fencepost executable that the controller runs from.
	Binary string
	// Program is the check to gate with, an executable in the run contract.
	Program string
	// Forge is what is simulated; zero is [ForgeGitHub].
	Forge Forge
	// Repo is a local repository or directory to gate; empty: a small one is
	// made.
	Repo string
	// Dir is an empty directory for all that is made.
	Dir string
	// Now is the clock.
	Now func() time.Time
	// Report is told each step as it ends.
	Report func(Step)
}

// A Forge is what a trial simulates.
type Forge string

// The forges.
const (
	ForgeGitHub  Forge = "github"
	ForgeGitea   Forge = "gitea"
	ForgeForgejo Forge = "forgejo"
	ForgeGitLab  Forge = "gitlab"
)

// A Step is one part of the story.
type Step struct {
	// Name is one word: forge, serve, gate, replay, forged, push, block, crash,
	// train, source, burst, missed, outage.
	Name string `json:"step"`
	// OK is false for the step that failed, the last one.
	OK bool `json:"ok"`
	// At is when the step began, since the trial's start; Took how long it
	// took. Nanoseconds.
	At   time.Duration `json:"at_ns"`
	Took time.Duration `json:"took_ns"`
	// Lines say what happened, the first in short.
	Lines []string `json:"lines"`
}

// A Summary counts what a whole trial did.
type Summary struct {
	OK bool `json:"ok"`
	// Forge is what was simulated, where that was not GitHub.
	Forge Forge `json:"forge,omitempty"`
	// Deliveries were accepted, Replays recognised, ForgedRefused refused.
	Deliveries    int `json:"deliveries"`
	Replays       int `json:"replays"`
	ForgedRefused int `json:"forged_refused"`
	// Runs are executions of the check, where they were counted; CheckRuns are
	// the results that the forge shows: Check Runs, reviews with a status, or
	// jobs that were told one.
	Runs      int `json:"runs"`
	CheckRuns int `json:"check_runs"`
	// SourceRuns are runs of the source that ended complete.
	SourceRuns int `json:"source_runs"`
	// Kills are how often the controller was killed.
	Kills int `json:"kills"`
	// BytesFetched is what the Git server sent.
	BytesFetched int64 `json:"bytes_fetched"`
	// Took is the whole time, in nanoseconds.
	Took time.Duration `json:"took_ns"`
	// Kept is where everything was kept, if it was.
	Kept string `json:"kept,omitempty"`
}

// ErrStory is matched by the error of a step that did not end as it must.
var ErrStory = errors.New("the trial did not go as it must")

// A trial is one run of the story.
type trial struct {
	*world.World
	config  Config
	start   time.Time
	summary Summary
}

// Run tells the whole story and returns its counts. Its error matches
// [ErrStory] when a step ended otherwise than it must.
func Run(ctx context.Context, config Config) (_ Summary, err error) {
	switch config.Forge {
	case ForgeGitea, ForgeForgejo:
		return runGitea(ctx, config)
	case ForgeGitLab:
		return runGitLab(ctx, config)
	}
	t := &trial{config: config, start: config.Now()}
	defer func() {
		if t.World != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := tell(ctx, config, t.start, []chapter{
		{"forge", t.startForge},
		{"serve", t.startController},
		{"gate", t.gate},
		{"replay", t.replay},
		{"forged", t.forged},
		{"block", t.block},
		{"crash", t.crash},
		{"source", t.source},
		{"burst", t.burst},
		{"missed", t.missed},
		{"outage", t.outage},
	}); err != nil {
		return t.summary, err
	}
	return t.summary, t.count(ctx)
}

// A chapter is a step of the story to be told.
type chapter struct {
	name string
	do   func(context.Context) ([]string, error)
}

// tell tells the chapters in order, up to the first that does not end as it
// must.
func tell(ctx context.Context, config Config, start time.Time, story []chapter) error {
	for _, step := range story {
		began := config.Now()
		lines, err := step.do(ctx)
		if err != nil {
			lines = append(lines, err.Error())
		}
		config.Report(Step{
			Name: step.name, OK: err == nil, At: began.Sub(start), Took: config.Now().Sub(began), Lines: lines,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// startForge makes the simulated world.
func (t *trial) startForge(ctx context.Context) ([]string, error) {
	w, err := world.New(ctx, world.Config{
		Binary: t.config.Binary, Program: t.config.Program, Dir: t.config.Dir, Now: t.config.Now,
		Repository: t.contents(), Source: sourceConfig(),
	})
	if err != nil {
		return nil, err
	}
	t.World = w
	main := w.Repository.DefaultBranch()
	return []string{
		fmt.Sprintf("a simulated GitHub at %s, with a real Git server", w.Server.URL),
		fmt.Sprintf("%s, %s at %s; the branch rule requires %s from App %d",
			w.Repository.FullName(), main, short(w.Repository.Ref("refs/heads/"+main)), world.CheckName, w.Forge.App().ID()),
	}, nil
}

// contents says what repository is gated.
func (t *trial) contents() forgesim.Import {
	if t.config.Repo != "" {
		return forgesim.Import{Source: t.config.Repo, Depth: 1}
	}
	return forgesim.Import{Files: smallRepository()}
}

// smallRepository is what is gated where the reader names nothing.
func smallRepository() map[string]string {
	return map[string]string{
		"README.md":     "# Handbook\n\nStart with [the guide](docs/guide.md#first-steps).\n",
		"docs/guide.md": "# Guide\n\n## First steps\n\nThen read [the rules](rules.md), or go [back](../README.md).\n",
		"docs/rules.md": "# Rules\n\n1. Be kind.\n2. Link only to [what exists](guide.md).\n",
	}
}

func (t *trial) startController(ctx context.Context) ([]string, error) {
	took, err := t.Controller.Start(ctx)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("fencepost serve, process %d, ready after %s", t.Controller.PID(), round(took))}, nil
}
