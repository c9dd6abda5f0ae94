package world

import (
	"bytes"
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

	"github.com/fencepost/fencepost/internal/forgesim"
)

// Names in every world.
const (
	Owner     = "acme"
	Name      = "docs"
	CheckName = "fencepost/docs"
	Gate      = "docs"
	Anchor    = "trial"
	// Program is the check's path in its repository.
	Program = "bin/check"

	checks = "checks"
)

// A Config says what [New] makes.
type Config struct {
	// Binary is the fencepost executable that the controller runs from;
	// Program the check to gate with, an executable in the run contract.
	// Required.
	Binary, Program string
	// Dir is an empty directory for all that is made. Required.
	Dir string
	// Now is the clock. Required.
	Now func() time.Time
	// Repository says what is gated; its Owner and Name are set here.
	Repository forgesim.Import
	// Hostility is the forge's.
	Hostility forgesim.Hostility
	// Observer sees the forge's exchanges.
	Observer forgesim.Observer
	// MergePolls is the forge's; negative for a test merge at once.
	MergePolls int
	// RememberGit is the forge's: equal fetches are answered from memory.
	RememberGit bool
	// RateLimit is the forge's: requests an hour; default as at GitHub.
	RateLimit int
	// Manual leaves webhooks in the outbox until they are delivered by hand.
	Manual bool
	// Wall is the plan's wall limit; default 60 s.
	Wall time.Duration
	// SHA256 pins the program; default its true digest.
	SHA256 string
	// PrivateChecks keeps the check's repository private; the plan has a
	// credential for it.
	PrivateChecks bool
	// Source, where set, makes a source beside the gate.
	Source *SourceConfig
	// SinkOf, where set, gives the YAML of the source's sink in a world whose
	// forge is made: with the commit and digest of the check's program.
	SinkOf func(w *World, commit, digest string) string
	// Database, where set, is the PostgreSQL URL of the controller's state.
	Database string
	// YAML is appended to the configuration, for further sections.
	YAML string
	// Args are appended to `fencepost serve`.
	Args []string
}

// A World is a forge, a repository and a controller.
type World struct {
	Config
	Forge      *forgesim.Forge
	Server     *forgesim.Server
	Repository *forgesim.Repository
	Checks     *forgesim.Repository
	// Handbook is the source's repository, SourceHook its webhook, and
	// SourceURL where that goes; with [Config.Source].
	Handbook   *forgesim.Repository
	SourceHook *forgesim.Hook
	SourceURL  string
	Controller *Controller
	// sourceYAML and sourceToken are the source's section and credential.
	sourceYAML, sourceToken string
	// beside are further controllers, over the same data directory or the same
	// database.
	beside []*Controller
	// Secret signs webhooks. HookURL is where they go, OpsURL the root of the
	// operations listener.
	Secret, HookURL, OpsURL string
	// ChecksToken is the plan's credential, with [Config.PrivateChecks].
	ChecksToken string
	// ConfigFile is the controller's configuration.
	ConfigFile string
	// Client is for requests of the caller's own.
	Client *http.Client
}

// New makes a world whose controller is not started yet. Close it.
func New(ctx context.Context, config Config) (_ *World, err error) {
	w := &World{Config: config, Client: &http.Client{Timeout: 30 * time.Second}}
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
	if err := w.makeForge(ctx); err != nil {
		return nil, err
	}
	sum, err := w.makeChecks(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the check's repository: %w", err)
	}
	if w.SHA256 == "" {
		w.SHA256 = sum
	}
	in := w.Config.Repository
	in.Owner, in.Name = Owner, Name
	if w.Repository, err = w.Forge.ImportRepository(ctx, in); err != nil {
		return nil, fmt.Errorf("import the repository: %w", err)
	}
	installation, err := w.Forge.App().Install(w.Repository)
	if err != nil {
		return nil, err
	}
	w.Repository.AddRuleset(forgesim.RequireCheck(CheckName, w.Forge.App().ID()))
	if w.sourceYAML, w.sourceToken, err = w.makeSource(ctx); err != nil {
		return nil, fmt.Errorf("make the source: %w", err)
	}
	if err := w.configure(hook, ops, installation.ID()); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	w.Controller = &Controller{
		Log: filepath.Join(w.Dir, "serve.log"), HookURL: w.HookURL, binary: w.Binary, config: w.ConfigFile, args: w.Args,
		ready: w.OpsURL + "/readyz", client: w.Client, now: w.Now,
	}
	return w, nil
}

// Beside makes one more controller over the same data directory, with ports
// of its own, which is not started yet. [World.Close] stops it.
func (w *World) Beside(ctx context.Context) (*Controller, error) {
	return w.joins(w.Controller.another(ctx, len(w.beside)+2))
}

// Elsewhere makes one more controller as on another machine: with a data
// directory of its own, over the database of a URL. It is not started yet;
// [World.Close] stops it.
func (w *World) Elsewhere(ctx context.Context, database string) (*Controller, error) {
	return w.joins(w.Controller.elsewhere(ctx, len(w.beside)+2, database))
}

func (w *World) joins(c *Controller, err error) (*Controller, error) {
	if err != nil {
		return nil, err
	}
	w.beside = append(w.beside, c)
	return c, nil
}

// Close stops the controller and the forge. The directory stays.
func (w *World) Close() error {
	var errs []error
	if w.Controller != nil {
		errs = append(errs, w.Controller.Stop())
	}
	for _, c := range w.beside {
		errs = append(errs, c.Stop())
	}
	if w.Server != nil {
		errs = append(errs, w.Server.Close())
	}
	w.Client.CloseIdleConnections()
	return errors.Join(errs...)
}

// DataDir is the controller's data directory.
func (w *World) DataDir() string { return filepath.Join(w.Dir, "data") }

func (w *World) makeForge(ctx context.Context) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	w.Secret = hex.EncodeToString(secret)
	var err error
	w.Forge, err = forgesim.New(ctx, forgesim.Config{
		Dir: filepath.Join(w.Dir, "forge"), Now: w.Now, Hostility: w.Hostility, Observer: w.Observer, MergePolls: w.MergePolls, RememberGit: w.RememberGit,
		RateLimit: w.RateLimit,
		App:       forgesim.AppConfig{HookURL: w.HookURL, HookSecret: []byte(w.Secret)},
	})
	if err != nil {
		return err
	}
	var options []forgesim.StartOption
	if w.Manual {
		options = append(options, forgesim.ManualDelivery())
	}
	w.Server, err = w.Forge.Start(ctx, options...)
	return err
}

// makeChecks makes the action repository and returns the program's digest.
func (w *World) makeChecks(ctx context.Context) (string, error) {
	source := filepath.Join(w.Dir, checks)
	sum, err := copyExecutable(w.Config.Program, filepath.Join(source, Program))
	if err != nil {
		return "", err
	}
	w.Checks, err = w.Forge.ImportRepository(ctx, forgesim.Import{Owner: Owner, Name: checks, Source: source, Public: !w.PrivateChecks})
	if err != nil {
		return "", err
	}
	if w.PrivateChecks {
		installation, err := w.Forge.App().Install(w.Checks)
		if err != nil {
			return "", err
		}
		w.ChecksToken = installation.Token(w.Checks)
	}
	return sum, os.RemoveAll(source)
}

var configuration = template.Must(template.New("fencepost.yaml").Parse(`version: 1
data_dir: data
{{if .World.Database}}database: "file:secrets/database"
{{end}}listen: {{.Listen}}
ops_listen: {{.Ops}}
trust:
  acme:
    - {id: {{.Anchor}}, secret: "file:secrets/webhook"}
gates:
  {{.Gate}}:
    provider: github
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true   # the simulated forge is on loopback
    trust: acme
    app: {id: {{.World.Forge.App.ID}}, installation: {{.Installation}}, key: "file:secrets/app.pem"}
    repository: {id: {{.World.Repository.ID}}, owner_id: {{.World.Repository.OwnerID}}, name: {{.World.Repository.FullName}}}
    base: refs/heads/{{.World.Repository.DefaultBranch}}
    check: {{.Check}}
    plan:
      action: {url: "{{.World.Server.Git}}/{{.World.Checks.FullName}}.git", commit: "{{.Commit}}"{{if .World.PrivateChecks}}, credential: {token: "file:secrets/checks"}{{end}}}
      program: {{.Program}}
      sha256: "{{.World.SHA256}}"
      wall: {{.Wall}}
{{.Source}}{{.World.YAML}}`))

func (w *World) configure(hook, ops string, installation int64) error {
	wall := w.Wall
	if wall == 0 {
		wall = time.Minute
	}
	var text bytes.Buffer
	err := configuration.Execute(&text, map[string]any{
		"World": w, "Listen": hook, "Ops": ops, "Installation": installation, "Wall": wall,
		"Source": w.sourceYAML, "Gate": Gate, "Anchor": Anchor, "Check": CheckName, "Program": Program,
		"Commit": w.Checks.Ref("refs/heads/" + w.Checks.DefaultBranch()),
	})
	if err != nil {
		return err
	}
	secrets := filepath.Join(w.Dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		return err
	}
	w.ConfigFile = filepath.Join(w.Dir, "fencepost.yaml")
	files := map[string][]byte{
		w.ConfigFile:                      text.Bytes(),
		filepath.Join(secrets, "webhook"): []byte(w.Secret),
		filepath.Join(secrets, "app.pem"): w.Forge.App().KeyPEM(),
	}
	if w.PrivateChecks {
		files[filepath.Join(secrets, "checks")] = []byte(w.ChecksToken)
	}
	if w.Database != "" {
		files[filepath.Join(secrets, "database")] = []byte(w.Database)
	}
	if w.Source != nil {
		files[filepath.Join(secrets, SourceName)] = []byte(w.sourceToken)
	}
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
