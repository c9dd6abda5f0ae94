package gitlab

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A namespace is a group or a user. Guarded by Forge.mu.
type namespace struct {
	id   int64
	path string
}

// A Project is one project of a [Forge].
type Project struct {
	forge *Forge
	under *forgesim.Repository
	id    int64
	door  string // the token by which Git data is read inside
	made  time.Time

	// Guarded by Forge.mu:
	namespace  *namespace
	name       string
	visibility string
	archived   bool
	gone       bool
	settings   Settings
	hide       []string
	protected  []ProtectedBranch
	jobs       []JobSpec
	hooks      []*Hook
	requests   []*MergeRequest
	pipelines  []*Pipeline
	cars       []*Car // all there ever were, oldest first
}

// Settings are those of a project that a merge train goes by.
type Settings struct {
	// MergeMethod is "merge", "rebase_merge" or "ff".
	MergeMethod string
	// SquashOption is "never", "always", "default_on" or "default_off".
	SquashOption           string
	OnlyIfPipelineSucceeds bool
	AllowSkippedPipeline   bool
	MergePipelines         bool
	MergeTrains            bool
	SkipTrainAllowed       bool
	// Enforcement is "allow_bypass", "enforce_for_all_users" or
	// "enforce_with_owner_override".
	Enforcement string
	// ForksRunInParent lets pipelines of forks run in this project.
	ForksRunInParent bool
	// ObjectFormat is what the project says that it is; its objects are SHA-1.
	ObjectFormat string
	// SubClaims compose the tokens' sub.
	SubClaims []string
}

// GateSettings are those that a gate needs: trains that nobody passes by.
func GateSettings() Settings {
	return Settings{
		MergeMethod: "merge", SquashOption: "never", OnlyIfPipelineSucceeds: true, MergePipelines: true, MergeTrains: true,
		Enforcement: "enforce_for_all_users", ForksRunInParent: true, ObjectFormat: "sha1",
		SubClaims: []string{"project_path", "ref_type", "ref"},
	}
}

// A Create says what [Forge.CreateProject] makes. Namespace and Name are
// required.
type Create struct {
	// Namespace may hold slashes: groups within groups.
	Namespace, Name string
	// ID and NamespaceID fix the immutable ids; zero: chosen.
	ID, NamespaceID int64
	// Files are the first commit's on branch main: path → content. Source is a
	// local repository or directory to take instead, whose branch becomes main.
	Files  map[string]string
	Source string
	// Public projects can be read without a token.
	Public bool
}

// CreateProject makes a project with [GateSettings]. It sends no webhook.
func (f *Forge) CreateProject(ctx context.Context, c Create) (*Project, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.ID == 0 {
		f.ids.project++
		c.ID = f.ids.project
	}
	f.ids.project = max(f.ids.project, c.ID)
	// Inside, a project has a name that never changes.
	under, err := f.under.ImportRepository(ctx, forgesim.Import{
		Owner: "project", Name: strconv.FormatInt(c.ID, 10), Files: c.Files, Source: c.Source,
	})
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	return f.add(c, under)
}

// add lists a project whose repository is there. Called with mu held.
func (f *Forge) add(c Create, under *forgesim.Repository) (*Project, error) {
	path := c.Namespace + "/" + c.Name
	if p, moved := f.find(path); p != nil && !moved {
		return nil, fmt.Errorf("gitlab: %w", forgesim.ErrExists)
	}
	// Nothing leads from a path that is taken again.
	delete(f.moved, strings.ToLower(path))
	p := &Project{
		forge: f, under: under, id: c.ID, made: f.config.Now(), namespace: f.group(c.Namespace, c.NamespaceID), name: c.Name,
		visibility: "private", settings: GateSettings(),
		protected: []ProtectedBranch{{Name: "main", Push: Maintainer, Merge: Maintainer}},
	}
	if c.Public {
		p.visibility = "public"
	}
	// What happens inside is told by the inner forge's own hook.
	under.AddHook("", nil)
	f.under.TakeOutbox()
	door, err := under.PersonalToken("gitlab", nil)
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	p.door = door
	f.projects = append(f.projects, p)
	return p, nil
}

// Fork makes a project of another namespace that requests can come from.
func (p *Project) Fork(ctx context.Context, namespace string) (*Project, error) {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids.project++
	under, err := p.under.Fork(ctx, "project-"+strconv.FormatInt(f.ids.project, 10))
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	return f.add(Create{Namespace: namespace, Name: p.name, ID: f.ids.project, Public: p.visibility == "public"}, under)
}

// group is the namespace of a path, made when it is first named. Called with mu
// held.
func (f *Forge) group(path string, id int64) *namespace {
	key := strings.ToLower(path)
	if n := f.namespaces[key]; n != nil {
		return n
	}
	if id == 0 {
		f.ids.namespace++
		id = f.ids.namespace
	}
	f.ids.namespace = max(f.ids.namespace, id)
	n := &namespace{id: id, path: path}
	f.namespaces[key] = n
	return n
}

// ID returns the immutable id.
func (p *Project) ID() int64 { return p.id }

// NamespaceID returns the id of the present namespace.
func (p *Project) NamespaceID() int64 {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.namespace.id
}

// Path returns the present path with its namespace.
func (p *Project) Path() string {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.path()
}

// path is called with mu held.
func (p *Project) path() string { return p.namespace.path + "/" + p.name }

// Ref returns the object id of a full ref name, "refs/heads/main" or
// "refs/merge-requests/1/train", and "" where there is none.
func (p *Project) Ref(name string) string { return p.under.Ref(name) }

// GitDir returns the bare repository's directory.
func (p *Project) GitDir() string { return p.under.GitDir() }

// FreezeRefs is [forgesim.Repository.FreezeRefs].
func (p *Project) FreezeRefs() *forgesim.InjectedFault { return p.under.FreezeRefs() }

// Set changes the settings.
func (p *Project) Set(change func(*Settings)) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	change(&p.settings)
}

// Hide leaves fields out of what the API says of the project, as it does where
// the token's user is not senior enough.
func (p *Project) Hide(fields ...string) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.hide = slices.Clone(fields)
}

// SetVisibility makes the project "public", "internal" or "private".
func (p *Project) SetVisibility(v string) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.visibility = v
}

// SetArchived archives the project, or no longer.
func (p *Project) SetArchived(archived bool) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.archived = archived
}

// Rename gives the project another name. The old path redirects until another
// project takes it.
func (p *Project) Rename(name string) error {
	return p.move(func() { p.name = name })
}

// Transfer gives the project to another namespace. The old path redirects.
func (p *Project) Transfer(namespace string) error {
	return p.move(func() { p.namespace = p.forge.group(namespace, 0) })
}

func (p *Project) move(do func()) error {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	old, name, space := p.path(), p.name, p.namespace
	do()
	for _, other := range f.projects {
		if other != p && !other.gone && strings.EqualFold(other.path(), p.path()) {
			p.name, p.namespace = name, space
			return fmt.Errorf("gitlab: move: %w", forgesim.ErrExists)
		}
	}
	f.moved[strings.ToLower(old)] = p
	return nil
}

// Delete removes the project: 404 everywhere.
func (p *Project) Delete() {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.gone = true
	p.under.Delete()
}

// find finds a project by a present or an old path. Called with mu held.
func (f *Forge) find(path string) (p *Project, moved bool) {
	for _, p := range f.projects {
		if !p.gone && strings.EqualFold(p.path(), path) {
			return p, false
		}
	}
	if p := f.moved[strings.ToLower(path)]; p != nil && !p.gone {
		return p, true
	}
	return nil, false
}

// byID finds a project by its id. Called with mu held.
func (f *Forge) byID(id int64) *Project {
	for _, p := range f.projects {
		if !p.gone && p.id == id {
			return p
		}
	}
	return nil
}

// web is the project's page. Called with mu held.
func (p *Project) web() string { return p.forge.base + "/" + p.path() }

// maintainersAlone are fields that the API shows to maintainers.
// contracts/gitlab.md §8
var maintainersAlone = []string{
	"merge_trains_skip_train_allowed", "merge_train_enforcement", "ci_id_token_sub_claim_components", "ci_config_path",
	"ci_allow_fork_pipelines_to_run_in_parent_project",
}

// render is the project as the API shows it to a level. Called with mu held.
func (p *Project) render(level Level) object {
	f, s := p.forge, p.settings
	spaceName := p.namespace.path[strings.LastIndexByte(p.namespace.path, '/')+1:]
	o := object{
		"id": p.id, "description": nil, "name": p.name, "path": p.name, "path_with_namespace": p.path(),
		"name_with_namespace": strings.ReplaceAll(p.path(), "/", " / "), "default_branch": p.under.DefaultBranch(),
		"created_at": stamp(p.made), "web_url": p.web(), "http_url_to_repo": p.web() + ".git",
		"ssh_url_to_repo": "git@gitlab.invalid:" + p.path() + ".git",
		"namespace": object{
			"id": p.namespace.id, "name": spaceName, "path": spaceName, "kind": "group", "full_path": p.namespace.path,
			"parent_id": nil, "web_url": f.base + "/groups/" + p.namespace.path,
		},
		"visibility": p.visibility, "archived": p.archived, "empty_repo": false,
		"merge_method": s.MergeMethod, "squash_option": s.SquashOption,
		"only_allow_merge_if_pipeline_succeeds": s.OnlyIfPipelineSucceeds, "allow_merge_on_skipped_pipeline": s.AllowSkippedPipeline,
		"merge_pipelines_enabled": s.MergePipelines, "merge_trains_enabled": s.MergeTrains,
		"merge_trains_skip_train_allowed": s.SkipTrainAllowed, "ci_config_path": "",
		"ci_id_token_sub_claim_components": s.SubClaims, "repository_object_format": s.ObjectFormat,
		"ci_allow_fork_pipelines_to_run_in_parent_project": s.ForksRunInParent,
	}
	if !f.config.Version.before(19, 3) {
		o["merge_train_enforcement"] = s.Enforcement
	}
	if level < Maintainer {
		maps.DeleteFunc(o, func(name string, _ any) bool { return slices.Contains(maintainersAlone, name) })
	}
	maps.DeleteFunc(o, func(name string, _ any) bool { return slices.Contains(p.hide, name) })
	return o
}

// A ProtectedBranch is a branch or wildcard with who may push and merge; zero
// is no one.
type ProtectedBranch struct {
	Name        string
	Push, Merge Level
	ForcePush   bool
	CodeOwners  bool
}

// Protect sets the protected branches.
func (p *Project) Protect(branches ...ProtectedBranch) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.protected = slices.Clone(branches)
}

// protects reports whether a branch is protected. Called with mu held.
func (p *Project) protects(branch string) bool {
	return slices.ContainsFunc(p.protected, func(b ProtectedBranch) bool {
		before, after, wild := strings.Cut(b.Name, "*")
		return b.Name == branch || wild && strings.HasPrefix(branch, before) && strings.HasSuffix(branch, after)
	})
}

// render is the protection as the API shows it.
func (b ProtectedBranch) render(at int) object {
	names := map[Level]string{0: "No one", Developer: "Developers + Maintainers", Maintainer: "Maintainers", Owner: "Owners"}
	access := func(n int, level Level) []object {
		return []object{{
			"id": at*10 + n, "access_level": level, "access_level_description": names[level],
			"user_id": nil, "group_id": nil, "deploy_key_id": nil,
		}}
	}
	return object{
		"id": at, "name": b.Name, "push_access_levels": access(1, b.Push), "merge_access_levels": access(2, b.Merge),
		"unprotect_access_levels": []object{}, "allow_force_push": b.ForcePush, "code_owner_approval_required": b.CodeOwners,
	}
}

// escape writes a path as one segment of a URL, as the API wants it.
func escape(path string) string { return url.PathEscape(path) }
