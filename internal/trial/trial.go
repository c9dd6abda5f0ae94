package trial

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// Names of the simulated world.
const (
	owner     = "acme"
	docs      = "docs"
	checks    = "checks"
	checkName = "fencepost/docs"
	gateName  = "docs"
	program   = "bin/check"
)

// Bounds of a trial.
const (
	// readyWithin bounds a start of the controller.
	readyWithin = 20 * time.Second
	// resultWithin bounds an evaluation, restarts included.
	resultWithin = 60 * time.Second
	// pollEvery is the pause between two looks at the forge.
	pollEvery = 10 * time.Millisecond
)

// A Config says what to try. All fields but Repo and Keep are required.
type Config struct {
	// Binary is the fencepost executable that the controller runs from.
	Binary string
	// Program is the check to gate with, an executable in the run contract.
	Program string
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

// A Step is one part of the story.
type Step struct {
	// Name is one word: forge, serve, gate, replay, forged, block, crash.
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
	// Deliveries were accepted, Replays recognised, ForgedRefused refused.
	Deliveries    int `json:"deliveries"`
	Replays       int `json:"replays"`
	ForgedRefused int `json:"forged_refused"`
	// Runs are executions of the check, CheckRuns what the forge shows.
	Runs      int `json:"runs"`
	CheckRuns int `json:"check_runs"`
	// Kills are how often the controller was killed.
	Kills int `json:"kills"`
	// BytesFetched is what the Git server sent.
	BytesFetched int64 `json:"bytes_fetched"`
	// Took is the whole time, in nanoseconds.
	Took time.Duration `json:"took_ns"`
	// Dir is where everything was kept, with --keep.
	Dir string `json:"kept,omitempty"`
}

// ErrStory is matched by the error of a step that did not end as it must.
var ErrStory = errors.New("the trial did not go as it must")

// A trial is one run of the story.
type trial struct {
	Config
	start      time.Time
	forge      *forgesim.Forge
	server     *forgesim.Server
	repository *forgesim.Repository
	controller *controller
	client     *http.Client
	secret     string
	summary    Summary
}

// Run tells the whole story and returns its counts. Its error matches
// [ErrStory] when a step ended otherwise than it must.
func Run(ctx context.Context, config Config) (_ Summary, err error) {
	t := &trial{Config: config, start: config.Now(), client: &http.Client{Timeout: 10 * time.Second}}
	defer func() { err = errors.Join(err, t.close()) }()
	for _, step := range []struct {
		name string
		do   func(context.Context) ([]string, error)
	}{
		{"forge", t.startForge},
		{"serve", t.startController},
		{"gate", t.gate},
		{"replay", t.replay},
		{"forged", t.forged},
		{"block", t.block},
		{"crash", t.crash},
	} {
		began := t.Now()
		lines, err := step.do(ctx)
		if err != nil {
			lines = append(lines, err.Error())
		}
		t.Report(Step{
			Name: step.name, OK: err == nil, At: began.Sub(t.start), Took: t.Now().Sub(began), Lines: lines,
		})
		if err != nil {
			return t.summary, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if err := t.count(ctx); err != nil {
		return t.summary, err
	}
	return t.summary, nil
}

func (t *trial) close() error {
	var errs []error
	if t.controller != nil {
		errs = append(errs, t.controller.stop())
	}
	if t.server != nil {
		errs = append(errs, t.server.Close())
	}
	t.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// startForge makes the simulated world.
func (t *trial) startForge(ctx context.Context) ([]string, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	t.secret = hex.EncodeToString(secret)
	hook, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	t.forge, err = forgesim.New(ctx, forgesim.Config{
		Dir: filepath.Join(t.Dir, "forge"), Now: t.Now,
		App: forgesim.AppConfig{HookURL: "http://" + hook + "/hooks/" + gateName, HookSecret: []byte(t.secret)},
	})
	if err != nil {
		return nil, err
	}
	if t.server, err = t.forge.Start(ctx); err != nil {
		return nil, err
	}
	action, err := t.makeAction(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the check's repository: %w", err)
	}
	if t.repository, err = t.forge.ImportRepository(ctx, t.contents()); err != nil {
		return nil, fmt.Errorf("import the repository: %w", err)
	}
	app := t.forge.App()
	installation, err := app.Install(t.repository)
	if err != nil {
		return nil, err
	}
	t.repository.AddRuleset(forgesim.RequireCheck(checkName, app.ID()))
	t.controller, err = newController(t, settings{
		Listen: hook, Ops: ops, Installation: installation.ID(), Action: action,
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("a simulated GitHub at %s, with a real Git server", t.server.URL),
		fmt.Sprintf("%s, main at %s; the branch rule requires %s from App %d",
			t.repository.FullName(), short(t.repository.Ref("refs/heads/main")), checkName, app.ID()),
	}, nil
}

// contents says what repository is gated.
func (t *trial) contents() forgesim.Import {
	in := forgesim.Import{Owner: owner, Name: docs}
	if t.Repo != "" {
		in.Source, in.Depth = t.Repo, 1
		return in
	}
	in.Files = map[string]string{
		"README.md":        "# Handbook\n\nStart with [the guide](docs/guide.md#first-steps).\n",
		"docs/guide.md":    "# Guide\n\n## First steps\n\nThen read [the rules](rules.md), or go [back](../README.md).\n",
		"docs/rules.md":    "# Rules\n\n1. Be kind.\n2. Link only to [what exists](guide.md).\n",
		"docs/diagram.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>\n",
	}
	return in
}

// An action is the check's repository as the configuration pins it.
type action struct{ Commit, SHA256, URL string }

func (t *trial) makeAction(ctx context.Context) (action, error) {
	source := filepath.Join(t.Dir, "check")
	sum, err := copyExecutable(t.Program, filepath.Join(source, program))
	if err != nil {
		return action{}, err
	}
	r, err := t.forge.ImportRepository(ctx, forgesim.Import{Owner: owner, Name: checks, Source: source, Public: true})
	if err != nil {
		return action{}, err
	}
	return action{
		Commit: r.Ref("refs/heads/" + r.DefaultBranch()), SHA256: sum,
		URL: t.server.Git + "/" + r.FullName() + ".git",
	}, os.RemoveAll(source)
}

func (t *trial) startController(ctx context.Context) ([]string, error) {
	took, err := t.controller.start(ctx)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("fencepost serve, process %d, ready after %s", t.controller.pid(), round(took)),
	}, nil
}
