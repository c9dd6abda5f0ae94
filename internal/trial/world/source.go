package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

// SourceName is the source's key, and the name of its repository.
const SourceName = "handbook"

// SourceUUID is its id.
const SourceUUID = "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11"

// A SourceConfig says what source a world has beside its gate.
type SourceConfig struct {
	// Repository says what it holds; its Owner and Name are set here.
	Repository forgesim.Import
	// Timings is the YAML of the source's timings.
	Timings string
	// YAML is appended to the source's section, each line by four spaces.
	YAML string
	// Sink replaces the sink's YAML; default a directory at [World.Served].
	Sink string
}

// Served is where readers find the source's content.
func (w *World) Served() string { return filepath.Join(w.Dir, "served", SourceName) }

var sourceSection = template.Must(template.New("source").Parse(`sources:
  {{.Name}}:
    id: {{.ID}}
    provider: github
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true
    trust: acme
    repository: {id: {{.World.Handbook.ID}}, owner_id: {{.World.Handbook.OwnerID}}, name: {{.World.Handbook.FullName}}}
    ref: refs/heads/{{.World.Handbook.DefaultBranch}}
    any_writer: true
    credential: {token: "file:secrets/handbook"}
    timings: {{.Timings}}
    sink: {{.Sink}}
{{.YAML}}`))

// makeSource makes the source's repository with its webhook, and returns the
// configuration's section and the credential.
func (w *World) makeSource(ctx context.Context) (section, token string, err error) {
	if w.Source == nil {
		return "", "", nil
	}
	in := w.Source.Repository
	in.Owner, in.Name = Owner, SourceName
	if w.Handbook, err = w.Forge.ImportRepository(ctx, in); err != nil {
		return "", "", fmt.Errorf("import the source's repository: %w", err)
	}
	if token, err = w.Handbook.PersonalToken("reader", nil); err != nil {
		return "", "", err
	}
	w.SourceURL = strings.TrimSuffix(w.HookURL, Gate) + SourceName
	w.SourceHook = w.Handbook.AddHook(w.SourceURL, []byte(w.Secret))
	if err := os.MkdirAll(filepath.Dir(w.Served()), 0o755); err != nil {
		return "", "", err
	}
	sink := w.Source.Sink
	if sink == "" {
		sink = fmt.Sprintf("{kind: directory, path: %q}", w.Served())
	}
	if w.SinkOf != nil {
		sink = w.SinkOf(w, w.Checks.Ref("refs/heads/"+w.Checks.DefaultBranch()), w.SHA256)
	}
	timings := w.Source.Timings
	if timings == "" {
		timings = "{}"
	}
	var text strings.Builder
	err = sourceSection.Execute(&text, map[string]any{
		"World": w, "Name": SourceName, "ID": SourceUUID, "Timings": timings, "Sink": sink, "YAML": w.Source.YAML,
	})
	return text.String(), token, err
}

// State is what the controller knows of the source, with the runs that it
// made, the newest first.
func (w *World) State(ctx context.Context) (s sourcedb.State, runs []source.RunRow, err error) {
	return sourceState(ctx, w.DataDir(), w.Database, w.Now)
}

func sourceState(ctx context.Context, data, database string, now func() time.Time) (s sourcedb.State, runs []source.RunRow, err error) {
	o := store.Options{URL: database, Now: now, Existing: true}
	if database == "" {
		o.Path = filepath.Join(data, "state.db")
	}
	db, err := store.Open(ctx, o)
	if err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows := sourcedb.New(db, nil, sourcedb.Hooks{})
	all, err := rows.Sources(ctx, SourceName)
	if err != nil {
		return s, nil, err
	}
	if len(all.Sources) != 1 {
		return s, nil, fmt.Errorf("%d sources of the key %s: %w", len(all.Sources), SourceName, ErrAwaited)
	}
	s = all.Sources[0]
	runs, err = rows.Runs(ctx, sourcedb.RunFilter{Source: s.ID}, sourcedb.MaxListed)
	return s, runs, err
}

// Applied reports whether the source's sink has a commit, and nothing is open.
func (w *World) Applied(ctx context.Context, commit string) (bool, error) {
	return applied(ctx, commit, w.State)
}

func applied(ctx context.Context, commit string, state func(context.Context) (sourcedb.State, []source.RunRow, error)) (bool, error) {
	id, err := fencepost.ParseCommitID(commit)
	if err != nil {
		return false, err
	}
	s, _, err := state(ctx)
	return err == nil && s.Applied == id && s.Run == nil, err
}
