package world

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
)

// Names in a [GitLabWorld].
const (
	// PolicyJob is the job that the policy adds to trains.
	PolicyJob = "fencepost"
	// Audience is whom its token is for.
	Audience = "https://fencepost.example.org"

	policies = "policies"
	jobFile  = "fencepost.gitlab-ci.yml"
)

// A GitLabConfig says what [NewGitLab] makes.
type GitLabConfig struct {
	// Binary is the fencepost executable that the controller and the jobs run
	// from; Program the check to gate with. Required.
	Binary, Program string
	// Dir is an empty directory for all that is made. Required.
	Dir string
	// Now is the clock. Required.
	Now func() time.Time
	// Files are the gated project's; Source is a local repository or directory
	// to take instead.
	Files  map[string]string
	Source string
	// Timings is the YAML of the source's timings, Handbook what it holds.
	Timings  string
	Handbook map[string]string
	// Database, where set, is the PostgreSQL URL of the controller's state.
	Database string
	// YAML is appended to the configuration, for further sections.
	YAML string
	// Args are appended to `fencepost serve`.
	Args []string
}

// A GitLabWorld is a simulated GitLab with its runner, a project behind a gate
// in a merge train, a project that a source follows, and a controller.
type GitLabWorld struct {
	GitLabConfig
	Forge                                 *gitlab.Forge
	Server                                *gitlab.Server
	Project, Checks, Policies, Followed   *gitlab.Project
	Hook                                  *gitlab.Hook
	Controller                            *Controller
	Runner                                *Runner
	HookURL, JobURL, OpsURL, SigningToken string
	ConfigFile                            string
	// Client is for requests of the caller's own.
	Client *http.Client
	// beside are further controllers over the same database.
	beside []*Controller
}

// NewGitLab makes a world whose controller is not started yet. Close it.
func NewGitLab(ctx context.Context, config GitLabConfig) (_ *GitLabWorld, err error) {
	w := &GitLabWorld{GitLabConfig: config, Client: &http.Client{Timeout: 30 * time.Second}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	free, err := freeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	public, ops := free[0], free[1]
	w.HookURL, w.JobURL, w.OpsURL = "http://"+public+"/hooks/"+SourceName, "http://"+public+"/jobs/"+Gate, "http://"+ops
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	w.SigningToken = "whsec_" + base64.StdEncoding.EncodeToString(key)
	if w.Forge, err = gitlab.New(ctx, gitlab.Config{Dir: filepath.Join(w.Dir, "forge"), Now: w.Now}); err != nil {
		return nil, err
	}
	if w.Server, err = w.Forge.Start(ctx); err != nil {
		return nil, err
	}
	if w.Runner, err = newRunner(ctx, w.Binary, "http://"+public); err != nil {
		return nil, err
	}
	if err := w.makeProjects(ctx, public, ops); err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	w.Controller = &Controller{
		Log: filepath.Join(w.Dir, "serve.log"), HookURL: w.HookURL, binary: w.Binary, config: w.ConfigFile, args: w.Args,
		ready: w.OpsURL + "/readyz", client: w.Client, now: w.Now,
	}
	return w, nil
}

// Elsewhere is as [World.Elsewhere].
func (w *GitLabWorld) Elsewhere(ctx context.Context, database string) (*Controller, error) {
	c, err := w.Controller.elsewhere(ctx, len(w.beside)+2, database)
	if err != nil {
		return nil, err
	}
	w.beside = append(w.beside, c)
	return c, nil
}

// Close stops the jobs, the controllers and the forge. The directory stays.
func (w *GitLabWorld) Close() error {
	var errs []error
	if w.Forge != nil {
		errs = append(errs, w.Forge.Close())
	}
	if w.Runner != nil {
		errs = append(errs, w.Runner.close())
	}
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

// Served is where readers find the source's content.
func (w *GitLabWorld) Served() string { return filepath.Join(w.Dir, "served", SourceName) }

// State is as [World.State].
func (w *GitLabWorld) State(ctx context.Context) (sourcedb.State, []source.RunRow, error) {
	return sourceState(ctx, filepath.Join(w.Dir, "data"), w.Database, w.Now)
}

// Applied is as [World.Applied].
func (w *GitLabWorld) Applied(ctx context.Context, commit string) (bool, error) {
	return applied(ctx, commit, w.State)
}

// makeProjects makes the projects, the policy, the webhook and the controller's
// configuration.
func (w *GitLabWorld) makeProjects(ctx context.Context, public, ops string) error {
	checkout := filepath.Join(w.Dir, checks)
	sum, err := copyExecutable(w.Program, filepath.Join(checkout, Program))
	if err != nil {
		return err
	}
	if w.Checks, err = w.Forge.CreateProject(ctx, gitlab.Create{Namespace: Owner, Name: checks, Source: checkout, Public: true}); err != nil {
		return err
	}
	if err := os.RemoveAll(checkout); err != nil {
		return err
	}
	if err := w.makePolicy(ctx); err != nil {
		return err
	}
	if w.Project, err = w.Forge.CreateProject(ctx, gitlab.Create{Namespace: Owner + "/books", Name: Name, Files: w.Files, Source: w.Source}); err != nil {
		return err
	}
	w.Project.Protect(gitlab.ProtectedBranch{Name: "main", Merge: gitlab.Maintainer})
	w.Project.SetJobs(gitlab.JobSpec{
		Name: PolicyJob, Stage: ".pipeline-policy-pre", Policy: &gitlab.Policy{Project: w.Policies}, Audience: Audience,
	})
	w.Forge.OnJob(w.Runner.run)
	if w.Followed, err = w.Forge.CreateProject(ctx, gitlab.Create{Namespace: Owner + "/books", Name: SourceName, Files: w.Handbook}); err != nil {
		return err
	}
	if w.Hook, err = w.Followed.AddHook(gitlab.HookConfig{URL: w.HookURL, SigningToken: w.SigningToken}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(w.Served()), 0o755); err != nil {
		return err
	}
	return w.configure(public, ops, sum)
}

// makePolicy makes the policy project: a job, and a policy that pins the commit
// of it.
func (w *GitLabWorld) makePolicy(ctx context.Context) (err error) {
	job := fmt.Sprintf(`%s:
  stage: .pipeline-policy-pre
  rules:
    - if: $CI_MERGE_REQUEST_EVENT_TYPE == "merge_train"
  id_tokens:
    FENCEPOST_ID_TOKEN: {aud: %s}
  variables: {GIT_STRATEGY: none}
  allow_failure: false
  script:
    - fencepost gitlab-job --controller %[2]s/jobs/%s
`, PolicyJob, Audience, Gate)
	if w.Policies, err = w.Forge.CreateProject(ctx, gitlab.Create{Namespace: Owner, Name: policies, Files: map[string]string{jobFile: job}}); err != nil {
		return err
	}
	policy := fmt.Sprintf(`pipeline_execution_policy:
  - name: fencepost
    enabled: true
    pipeline_config_strategy: inject_policy
    content:
      include:
        - project: %s/%s
          file: %s
          ref: %s
    variables_override: {allowed: false}
`, Owner, policies, jobFile, w.Policies.Ref("refs/heads/main"))
	_, err = w.Policies.Push(ctx, forgesim.Push{Change: forgesim.Change{Files: map[string]string{gitlab.PolicyPath: policy}}})
	return err
}

var gitlabConfiguration = template.Must(template.New("gitlab").Parse(`version: 1
data_dir: data
{{if .World.Database}}database: "file:secrets/database"
{{end}}listen: {{.Listen}}
ops_listen: {{.Ops}}
trust:
  instance:
    - {id: {{.Anchor}}, jwk: "file:keys/gitlab.json"}
  webhooks:
    - {id: {{.Anchor}}, secret: "file:secrets/signing"}
gates:
  {{.Gate}}:
    provider: gitlab
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true   # the simulated forge is on loopback
    trust: instance
    audience: {{.Audience}}
    token: "file:secrets/gate"
    policy: {project: {{.World.Policies.ID}}, path: {{.World.Policies.Path}}, commits: ["{{.PolicyCommit}}"], job: {{.Job}}}
    repository: {id: {{.World.Project.ID}}, owner_id: {{.World.Project.NamespaceID}}, name: {{.World.Project.Path}}}
    base: refs/heads/main
    check: {{.Check}}
    plan:
      action: {url: "{{.World.Server.Git}}/{{.World.Checks.Path}}.git", commit: "{{.Commit}}"}
      program: {{.Program}}
      sha256: "{{.SHA256}}"
      wall: 1m
sources:
  {{.Source}}:
    id: {{.SourceID}}
    provider: gitlab
    api: {{.World.Server.API}}
    git: {{.World.Server.Git}}
    allow_http: true
    trust: webhooks
    repository: {id: {{.World.Followed.ID}}, owner_id: {{.World.Followed.NamespaceID}}, name: {{.World.Followed.Path}}}
    ref: refs/heads/main
    any_writer: true
    credential: {token: "file:secrets/source"}
    timings: {{.Timings}}
    sink: {kind: directory, path: {{.Served}}}
{{.World.YAML}}`))

func (w *GitLabWorld) configure(public, ops, sum string) error {
	var text bytes.Buffer
	if err := gitlabConfiguration.Execute(&text, map[string]any{
		"World": w, "Listen": public, "Ops": ops, "Gate": Gate, "Anchor": Anchor, "Audience": Audience, "Job": PolicyJob,
		"Check": CheckName, "Program": Program, "SHA256": sum, "Commit": w.Checks.Ref("refs/heads/main"),
		"PolicyCommit": w.Policies.Ref("refs/heads/main"), "Source": SourceName, "SourceID": SourceUUID, "Timings": cmp.Or(w.Timings, "{}"),
		"Served": w.Served(),
	}); err != nil {
		return err
	}
	key, err := json.Marshal(w.Forge.Keys()[0])
	if err != nil {
		return err
	}
	w.ConfigFile = filepath.Join(w.Dir, "fencepost.yaml")
	files := map[string]string{
		"fencepost.yaml":   text.String(),
		"keys/gitlab.json": string(key),
		"secrets/signing":  w.SigningToken,
		"secrets/gate":     w.Forge.NewToken("gatekeeper", gitlab.Maintainer, "read_api", "read_repository"),
		"secrets/source":   w.Forge.NewToken("reader", gitlab.Reporter, "read_api", "read_repository"),
	}
	if w.Database != "" {
		files["secrets/database"] = w.Database
	}
	for name, text := range files {
		file := filepath.Join(w.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Token is the ID token in a job's environment.
func Token(environment []string) string {
	for _, v := range environment {
		if token, ok := strings.CutPrefix(v, "FENCEPOST_ID_TOKEN="); ok {
			return token
		}
	}
	return ""
}
