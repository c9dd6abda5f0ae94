package world

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
)

// Accounts of a [GiteaWorld].
const (
	Reviewer = "gatekeeper"
	Auditor  = "auditor"
	// follower is who reads the source's repository.
	follower = "reader"
)

// A GiteaConfig says what [NewGitea] makes.
type GiteaConfig struct {
	// Binary is the fencepost executable that the controller runs from;
	// Program the check to gate with. Required.
	Binary, Program string
	// Dir is an empty directory for all that is made. Required.
	Dir string
	// Now is the clock. Required.
	Now func() time.Time
	// Forgejo makes the forge one.
	Forgejo bool
	// Files are the gated repository's; Source is a local repository or
	// directory to take instead.
	Files  map[string]string
	Source string
	// Handbook is what a source's repository holds; nil: there is no source.
	// Timings is the YAML of its timings.
	Handbook map[string]string
	Timings  string
	// Args are appended to `fencepost serve`.
	Args []string
}

// A GiteaWorld is a simulated Gitea or Forgejo, a repository behind a gate, one
// that a source follows, and a controller.
type GiteaWorld struct {
	GiteaConfig
	Forge      *gitea.Forge
	Server     *gitea.Server
	Repository *gitea.Repository
	Checks     *gitea.Repository
	Controller *Controller
	// Followed is the source's repository, SourceHook its webhook, and
	// SourceURL where that goes; with [GiteaConfig.Handbook].
	Followed   *gitea.Repository
	SourceHook *gitea.Hook
	SourceURL  string
	// Secret signs webhooks. HookURL is where they go, OpsURL the root of the
	// operations listener.
	Secret, HookURL, OpsURL string
	ConfigFile              string
	// Client is for requests of the caller's own.
	Client *http.Client
}

// NewGitea makes a world whose controller is not started yet. Close it.
func NewGitea(ctx context.Context, config GiteaConfig) (_ *GiteaWorld, err error) {
	w := &GiteaWorld{GiteaConfig: config, Client: &http.Client{Timeout: 30 * time.Second}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	free, err := freeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	hook, ops := free[0], free[1]
	w.HookURL, w.OpsURL = "http://"+hook+"/hooks/"+Gate, "http://"+ops
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	w.Secret = hex.EncodeToString(secret)
	if w.Forge, err = gitea.New(ctx, gitea.Config{Dir: filepath.Join(w.Dir, "forge"), Now: w.Now, Forgejo: w.Forgejo}); err != nil {
		return nil, err
	}
	if w.Server, err = w.Forge.Start(ctx); err != nil {
		return nil, err
	}
	if err := w.configure(ctx, hook, ops); err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	w.Controller = &Controller{
		Log: filepath.Join(w.Dir, "serve.log"), HookURL: w.HookURL, binary: w.Binary, config: w.ConfigFile, args: w.Args,
		ready: w.OpsURL + "/readyz", client: w.Client, now: w.Now,
	}
	return w, nil
}

// Close stops the controller and the forge. The directory stays.
func (w *GiteaWorld) Close() error {
	var errs []error
	if w.Controller != nil {
		errs = append(errs, w.Controller.Stop())
	}
	if w.Server != nil {
		errs = append(errs, w.Server.Close())
	}
	w.Client.CloseIdleConnections()
	return errors.Join(errs...)
}

// Kind is the provider's name in configuration.
func (w *GiteaWorld) Kind() string {
	if w.Forgejo {
		return "forgejo"
	}
	return "gitea"
}

var giteaConfiguration = template.Must(template.New("gitea").Parse(`version: 1
data_dir: data
listen: {{.Listen}}
ops_listen: {{.Ops}}
trust:
  acme:
    - {id: {{.Anchor}}, secret: "file:secrets/webhook"}
gates:
  {{.Gate}}:
    provider: {{.World.Kind}}
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true   # the simulated forge is on loopback
    trust: acme
    reviewer: {id: {{.ReviewerID}}, login: {{.Reviewer}}, token: "file:secrets/reviewer"}
    rule_token: "file:secrets/rules"
    repository: {id: {{.World.Repository.ID}}, owner_id: {{.World.Repository.OwnerID}}, name: {{.World.Repository.FullName}}}
    base: refs/heads/main
    check: {{.Check}}
    plan:
      action: {url: "{{.World.Server.Git}}/{{.World.Checks.FullName}}.git", commit: "{{.Commit}}"}
      program: {{.Program}}
      sha256: "{{.SHA256}}"
      wall: 1m
{{if .World.Followed}}sources:
  {{.Source}}:
    id: {{.SourceID}}
    provider: {{.World.Kind}}
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true
    trust: acme
    repository: {id: {{.World.Followed.ID}}, owner_id: {{.World.Followed.OwnerID}}, name: {{.World.Followed.FullName}}}
    ref: refs/heads/main
    any_writer: true
    credential: {token: "file:secrets/reader"}
    timings: {{.Timings}}
    sink: {kind: directory, path: {{.Served}}}
{{end}}`))

// Served is where readers find the source's content.
func (w *GiteaWorld) Served() string { return filepath.Join(w.Dir, "served", SourceName) }

// State is as [World.State].
func (w *GiteaWorld) State(ctx context.Context) (sourcedb.State, []source.RunRow, error) {
	return sourceState(ctx, filepath.Join(w.Dir, "data"), "", w.Now)
}

// Applied is as [World.Applied].
func (w *GiteaWorld) Applied(ctx context.Context, commit string) (bool, error) {
	return applied(ctx, commit, w.State)
}

// follow makes the source's repository with its webhook.
func (w *GiteaWorld) follow(ctx context.Context) (err error) {
	if w.Handbook == nil {
		return nil
	}
	if w.Followed, err = w.Forge.CreateRepository(ctx, gitea.Create{Owner: Owner, Name: SourceName, Files: w.Handbook}); err != nil {
		return err
	}
	w.Followed.Grant(follower, gitea.Reader)
	w.SourceURL = rootOf(w.HookURL) + "/hooks/" + SourceName
	w.SourceHook = w.Followed.AddHook(gitea.HookConfig{URL: w.SourceURL, Secret: []byte(w.Secret), Forgejo: w.Forgejo})
	return os.MkdirAll(filepath.Dir(w.Served()), 0o755)
}

// configure makes the repositories, their rule, accounts and webhook, and the
// controller's configuration.
func (w *GiteaWorld) configure(ctx context.Context, hook, ops string) error {
	checkout := filepath.Join(w.Dir, checks)
	sum, err := copyExecutable(w.Program, filepath.Join(checkout, Program))
	if err != nil {
		return err
	}
	if w.Checks, err = w.Forge.CreateRepository(ctx, gitea.Create{Owner: Owner, Name: checks, Source: checkout, Public: true}); err != nil {
		return err
	}
	if err := os.RemoveAll(checkout); err != nil {
		return err
	}
	if w.Repository, err = w.Forge.CreateRepository(ctx, gitea.Create{Owner: Owner, Name: Name, Files: w.Files, Source: w.Source}); err != nil {
		return err
	}
	reviewer := w.Repository.Grant(Reviewer, gitea.Writer)
	w.Repository.Grant(Auditor, gitea.Admin)
	w.Repository.Protect(gitea.GateRule("main", Reviewer, CheckName))
	w.Repository.AddHook(gitea.HookConfig{
		URL: w.HookURL, Secret: []byte(w.Secret), Forgejo: w.Forgejo,
		Events: []string{"pull_request", "pull_request_approved", "pull_request_rejected"},
	})
	if err := w.follow(ctx); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := giteaConfiguration.Execute(&text, map[string]any{
		"World": w, "Listen": hook, "Ops": ops, "Gate": Gate, "Anchor": Anchor, "Check": CheckName, "Program": Program,
		"SHA256": sum, "Commit": w.Checks.Ref("refs/heads/main"), "Reviewer": Reviewer, "ReviewerID": reviewer,
		"Source": SourceName, "SourceID": SourceUUID, "Timings": cmp.Or(w.Timings, "{}"), "Served": w.Served(),
	}); err != nil {
		return err
	}
	secrets := filepath.Join(w.Dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		return err
	}
	w.ConfigFile = filepath.Join(w.Dir, "fencepost.yaml")
	for name, text := range map[string]string{
		w.ConfigFile:                       text.String(),
		filepath.Join(secrets, "webhook"):  w.Secret,
		filepath.Join(secrets, "reviewer"): w.Forge.NewToken(Reviewer, "write:repository"),
		filepath.Join(secrets, "reader"):   w.Forge.NewToken(follower, "read:repository"),
		filepath.Join(secrets, "rules"):    w.Forge.NewToken(Auditor, "read:repository"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
