package world

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/store"
)

// A FieldConfig says what [NewField] makes.
type FieldConfig struct {
	// Binary is the fencepost executable that controllers run from. Required.
	Binary string
	// Dir is an empty directory for all that is made. Required.
	Dir string
	// Now is the clock. Required.
	Now func() time.Time
	// Hostility is the forge's.
	Hostility forgesim.Hostility
	// Manual leaves webhooks in the outbox until they are delivered by hand.
	Manual bool
	// Repositories are the forge's by name, all of [Owner].
	Repositories map[string]forgesim.Import
	// Sources are those of every controller.
	Sources []FieldSource
	// Timings is the YAML of every source's timings.
	Timings string
	// Databases holds a PostgreSQL URL for each controller; without any there
	// is one controller, on SQLite.
	Databases []string
	// YAML is appended to every configuration.
	YAML string
	// Args are appended to `fencepost serve`.
	Args []string
	// Attr is that of the controllers' processes; nil for the caller's.
	Attr *syscall.SysProcAttr
}

// A FieldSource is one source of a [Field].
type FieldSource struct {
	// Key is its key. Required.
	Key string
	// Repository is the name of one of [FieldConfig.Repositories]. Required.
	Repository string
	// Branch is the short name; default main. A branch that is not there is
	// made.
	Branch string
	// Writers is the YAML that says whose pushes are taken; default any
	// writer's.
	Writers string
	// Sink is the YAML of the sink; default a directory at [Field.Served].
	Sink string
	// YAML is appended to the source's section, each line by four spaces.
	YAML string
}

// A Field is a forge with many repositories, and one or more controllers that
// keep sources of them, and no gate.
type Field struct {
	FieldConfig
	Forge        *forgesim.Forge
	Server       *forgesim.Server
	Repositories map[string]*forgesim.Repository
	// Hooks are the sources' webhooks by key, which go to the first
	// controller.
	Hooks       map[string]*forgesim.Hook
	Controllers []*Controller
	// Secret signs webhooks, Tokens read the repositories of their names.
	Secret string
	Tokens map[string]string
	Client *http.Client

	places []place
}

// A place is where one controller is.
type place struct{ config, data, hooks, ops string }

// NewField makes a field whose controllers are not started yet. Close it.
func NewField(ctx context.Context, config FieldConfig) (_ *Field, err error) {
	f := &Field{
		FieldConfig: config, Client: &http.Client{Timeout: 30 * time.Second},
		Repositories: map[string]*forgesim.Repository{}, Hooks: map[string]*forgesim.Hook{}, Tokens: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	f.Secret = hex.EncodeToString(secret)
	if err := f.settle(ctx); err != nil {
		return nil, err
	}
	if err := f.makeForge(ctx); err != nil {
		return nil, fmt.Errorf("make the forge: %w", err)
	}
	if err := f.makeSecrets(); err != nil {
		return nil, fmt.Errorf("write secrets: %w", err)
	}
	for i := range f.places {
		if err := f.configure(i); err != nil {
			return nil, fmt.Errorf("write configuration: %w", err)
		}
	}
	return f, nil
}

// settle gives every controller its place.
func (f *Field) settle(ctx context.Context) error {
	n := max(1, len(f.Databases))
	free, err := freeAddresses(ctx, 2*n)
	if err != nil {
		return err
	}
	for i := range n {
		hook, ops := free[2*i], free[2*i+1]
		p := place{
			config: filepath.Join(f.Dir, fmt.Sprintf("fencepost-%d.yaml", i+1)),
			data:   fmt.Sprintf("data-%d", i+1), hooks: "http://" + hook + "/hooks/", ops: "http://" + ops,
		}
		f.places = append(f.places, p)
		f.Controllers = append(f.Controllers, &Controller{
			Log: filepath.Join(f.Dir, fmt.Sprintf("serve-%d.log", i+1)), HookURL: p.hooks, binary: f.Binary, config: p.config,
			args: f.Args, attr: f.Attr, ready: p.ops + "/readyz", client: f.Client, now: f.Now,
		})
	}
	return nil
}

func (f *Field) makeForge(ctx context.Context) (err error) {
	f.Forge, err = forgesim.New(ctx, forgesim.Config{
		Dir: filepath.Join(f.Dir, "forge"), Now: f.Now, Hostility: f.Hostility, RateLimit: 100_000_000,
	})
	if err != nil {
		return err
	}
	for name, in := range f.FieldConfig.Repositories {
		in.Owner, in.Name = Owner, name
		r, err := f.Forge.ImportRepository(ctx, in)
		if err != nil {
			return err
		}
		f.Repositories[name] = r
		if f.Tokens[name], err = r.PersonalToken("reader", nil); err != nil {
			return err
		}
	}
	for _, s := range f.Sources {
		r := f.Repositories[s.Repository]
		if b := s.branch(); r.Ref("refs/heads/"+b) == "" {
			if _, err := r.Push(ctx, forgesim.Push{Branch: b, To: r.Ref("refs/heads/" + r.DefaultBranch())}); err != nil {
				return err
			}
		}
		f.Hooks[s.Key] = r.AddHook(f.HookURL(0, s.Key), []byte(f.Secret))
	}
	f.Forge.TakeOutbox() // pings
	var options []forgesim.StartOption
	if f.Manual {
		options = append(options, forgesim.ManualDelivery())
	}
	f.Server, err = f.Forge.Start(ctx, options...)
	return err
}

func (s FieldSource) branch() string {
	if s.Branch == "" {
		return "main"
	}
	return s.Branch
}

func (f *Field) makeSecrets() error {
	secrets := filepath.Join(f.Dir, "secrets")
	if err := errors.Join(os.Mkdir(secrets, 0o700), os.Mkdir(filepath.Join(f.Dir, "served"), 0o755)); err != nil {
		return err
	}
	files := map[string]string{"webhook": f.Secret}
	for name, token := range f.Tokens {
		files["read-"+name] = token
	}
	for i, url := range f.Databases {
		files[fmt.Sprintf("database-%d", i+1)] = url
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

var fieldConfiguration = template.Must(template.New("field").Parse(`version: 1
data_dir: {{.Data}}
{{with .Database}}database: "file:secrets/{{.}}"
{{end}}listen: {{.Listen}}
ops_listen: {{.Ops}}
trust:
  acme:
    - {id: {{.Anchor}}, secret: "file:secrets/webhook"}
sources:
{{range .Sources}}  {{.Source.Key}}:
    id: {{.ID}}
    provider: github
    api: {{$.Field.Server.API}}
    git: {{$.Field.Server.Git}}
    allow_http: true   # the simulated forge is on loopback
    trust: acme
    repository: {id: {{.Repository.ID}}, owner_id: {{.Repository.OwnerID}}, name: {{.Repository.FullName}}}
    ref: {{.Ref}}
    {{.Writers}}
    credential: {token: "file:secrets/read-{{.Source.Repository}}"}
    timings: {{$.Timings}}
    sink: {{.Sink}}
{{.Source.YAML}}{{end}}{{.Field.YAML}}`))

// configure writes one controller's configuration.
func (f *Field) configure(i int) error {
	type section struct {
		Source                 FieldSource
		ID, Ref, Writers, Sink string
		Repository             *forgesim.Repository
	}
	var sections []section
	for _, s := range f.Sources {
		c := section{
			Source: s, ID: f.SourceID(s.Key).String(), Ref: "refs/heads/" + s.branch(), Writers: s.Writers, Sink: s.Sink,
			Repository: f.Repositories[s.Repository],
		}
		if c.Writers == "" {
			c.Writers = "any_writer: true"
		}
		if c.Sink == "" {
			c.Sink = fmt.Sprintf("{kind: directory, path: %q}", f.Served(s.Key))
		}
		sections = append(sections, c)
	}
	timings, database, p := f.Timings, "", f.places[i]
	if timings == "" {
		timings = "{}"
	}
	if len(f.Databases) > 0 {
		database = fmt.Sprintf("database-%d", i+1)
	}
	var text strings.Builder
	err := fieldConfiguration.Execute(&text, map[string]any{
		"Field": f, "Data": p.data, "Database": database, "Anchor": Anchor, "Timings": timings, "Sources": sections,
		"Listen": strings.TrimSuffix(strings.TrimPrefix(p.hooks, "http://"), "/hooks/"), "Ops": strings.TrimPrefix(p.ops, "http://"),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(p.config, []byte(text.String()), 0o600)
}

// SourceID is the id of the source of a key; zero if there is none.
func (f *Field) SourceID(key string) (id fencepost.SourceID) {
	for i, s := range f.Sources {
		if s.Key == key {
			copy(id[:], "fencepost-source")
			id[6], id[8] = 0x40|id[6]&0x0f, 0x80|id[8]&0x3f
			id[14], id[15] = byte(i>>8), byte(i)
		}
	}
	return id
}

// Served is where readers find the content of the source of a key.
func (f *Field) Served(key string) string { return filepath.Join(f.Dir, "served", key) }

// HookURL is where a controller takes the webhooks of the source of a key.
func (f *Field) HookURL(i int, key string) string { return f.places[i].hooks + key }

// OpsURL is the root of a controller's operations listener.
func (f *Field) OpsURL(i int) string { return f.places[i].ops }

// ConfigFile is a controller's configuration.
func (f *Field) ConfigFile(i int) string { return f.places[i].config }

// DataDir is a controller's data directory.
func (f *Field) DataDir(i int) string { return filepath.Join(f.Dir, f.places[i].data) }

// Database opens the state that the controllers keep, to look at it. Close it.
func (f *Field) Database(ctx context.Context) (*store.DB, error) {
	o := store.Options{Path: filepath.Join(f.DataDir(0), "state.db"), Now: f.Now, Existing: true}
	if len(f.Databases) > 0 {
		o.Path, o.URL = "", f.Databases[0]
	}
	return store.Open(ctx, o)
}

// Close stops the controllers and the forge. The directory stays.
func (f *Field) Close() error {
	var errs []error
	for _, c := range f.Controllers {
		errs = append(errs, c.Stop())
	}
	if f.Server != nil {
		errs = append(errs, f.Server.Close())
	}
	f.Client.CloseIdleConnections()
	return errors.Join(errs...)
}
