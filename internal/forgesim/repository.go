package forgesim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Errors of changes to repositories and pull requests.
var (
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrNotFound: no such branch, commit, repository or request.
	ErrNotFound = errors.New("not found")
	// ErrState: the request or repository is in a state that excludes this.
	ErrState = errors.New("not possible in this state")
)

// A Repository is one repository of a [Forge].
type Repository struct {
	forge   *Forge
	id      int64
	dir     string // the bare repository
	created time.Time
	parent  *Repository // of a fork; nil otherwise

	// Guarded by forge.mu:
	owner         *account
	name          string
	public        bool
	archived      bool
	deleted       bool
	defaultBranch string
	pushed        time.Time
	refs          map[string]string // full ref name → object id, as git has it
	pulls         []*PullRequest    // pulls[n-1] has number n
	suites        []*checkSuite
	runs          []*checkRun
	statuses      []*status
	rulesets      []*ruleset
	protections   map[string]Protection   // by branch
	commits       map[string]commitObject // read before
	hidden        int                     // lists of runs that still leave out the newest
	hooks         []*Hook
}

// An Import says what [Forge.ImportRepository] makes.
type Import struct {
	// Owner and Name of the repository. Required.
	Owner, Name string
	// ID and OwnerID fix the immutable ids; zero: chosen. OwnerID counts only
	// when the owner is new.
	ID, OwnerID int64
	// Source is a local directory: a Git repository, whose HEAD becomes the
	// default branch, or any other directory, whose files become one commit.
	// Empty: Files become one commit.
	Source string
	// Depth, where positive, imports only so many commits of Source's history.
	Depth int
	// Files are the first commit's where Source is empty: path → content.
	Files map[string]string
	// DefaultBranch is the branch's short name; default "main".
	DefaultBranch string
	// Public repositories can be read without a token.
	Public bool
	// User makes the owner, where it is new, a user rather than an
	// organization.
	User bool
}

// ImportRepository makes a repository. It sends no webhook.
func (f *Forge) ImportRepository(ctx context.Context, in Import) (*Repository, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	setDefault(&in.DefaultBranch, "main")
	kind := "Organization"
	if in.User {
		kind = "User"
	}
	r, err := f.newRepository(ctx, in.Owner, kind, in.Name, in.ID, in.OwnerID, nil)
	if err != nil {
		return nil, err
	}
	r.public = in.Public
	r.defaultBranch = in.DefaultBranch
	if err := r.fill(ctx, in); err != nil {
		return nil, fmt.Errorf("import %s: %w", r.fullName(), err)
	}
	if _, err := f.git.run(ctx, gitCall{dir: r.dir, args: []string{"symbolic-ref", "HEAD", "refs/heads/" + r.defaultBranch}}); err != nil {
		return nil, fmt.Errorf("import %s: %w", r.fullName(), err)
	}
	if err := r.loadRefs(ctx); err != nil {
		return nil, fmt.Errorf("import %s: %w", r.fullName(), err)
	}
	f.repositories = append(f.repositories, r)
	return r, nil
}

// newRepository makes an empty bare repository that the forge does not list
// yet. Called with mu held.
func (f *Forge) newRepository(ctx context.Context, owner, kind, name string, id, ownerID int64, parent *Repository) (*Repository, error) {
	if owner == "" || name == "" {
		return nil, fmt.Errorf("%w: a repository needs an owner and a name", ErrConfig)
	}
	if f.named(owner, name) != nil {
		return nil, fmt.Errorf("repository %s/%s: %w", owner, name, ErrExists)
	}
	if id == 0 {
		id = next(&f.ids.repository)
	}
	if f.repository(id) != nil {
		return nil, fmt.Errorf("repository id %d: %w", id, ErrExists)
	}
	r := &Repository{
		forge:         f,
		id:            id,
		dir:           filepath.Join(f.config.Dir, fmt.Sprintf("%d.git", id)),
		created:       f.now(),
		pushed:        f.now(),
		parent:        parent,
		owner:         f.account(owner, kind, ownerID),
		name:          name,
		defaultBranch: "main",
		refs:          map[string]string{},
		protections:   map[string]Protection{},
		commits:       map[string]commitObject{},
	}
	if err := f.git.initBare(ctx, r.dir); err != nil {
		return nil, fmt.Errorf("repository %s: %w", r.fullName(), err)
	}
	return r, nil
}

// ID returns the immutable id.
func (r *Repository) ID() int64 { return r.id }

// GitDir returns the bare repository's directory. Refs are changed through the
// forge alone; objects may be added freely.
func (r *Repository) GitDir() string { return r.dir }

// OwnerID returns the id of the present owner.
func (r *Repository) OwnerID() int64 {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.owner.id
}

// FullName returns the present owner/name.
func (r *Repository) FullName() string {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.fullName()
}

// DefaultBranch returns the short name of the default branch.
func (r *Repository) DefaultBranch() string { return r.defaultBranch }

// Ref returns the object id of a full ref name, "refs/heads/main" or
// "refs/pull/1/merge", and "" where there is none.
func (r *Repository) Ref(name string) string {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.refs[name]
}

// PullRequest returns the request of a number, or nil.
func (r *Repository) PullRequest(number int) *PullRequest {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.pull(number)
}

// PullRequests returns all requests, by number.
func (r *Repository) PullRequests() []*PullRequest {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return slices.Clone(r.pulls)
}

// Refs returns every ref by its full name.
func (r *Repository) Refs() map[string]string {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return maps.Clone(r.refs)
}

// Rename gives the repository another name. The old one redirects until
// another repository takes it.
func (r *Repository) Rename(name string) error {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.move(r.owner, name)
}

// Transfer gives the repository to another account, out of reach of the
// installations on the old one. The old name redirects.
func (r *Repository) Transfer(owner string) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	before := r.owner
	if err := r.move(f.account(owner, "Organization", 0), r.name); err != nil {
		return err
	}
	for _, i := range f.installations {
		if i.account == before {
			delete(i.repositories, r.id)
		}
	}
	return nil
}

// SetPublic lets everybody read the repository, or no longer.
func (r *Repository) SetPublic(public bool) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.public = public
}

// Delete removes the repository: 404 everywhere, and null where pull requests
// into others come from it.
func (r *Repository) Delete() {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.deleted = true
	maps.DeleteFunc(r.forge.moved, func(_ string, id int64) bool { return id == r.id })
}

// move is called with mu held.
func (r *Repository) move(owner *account, name string) error {
	if other := r.forge.named(owner.login, name); other != nil && other != r {
		return fmt.Errorf("move %s to %s/%s: %w", r.fullName(), owner.login, name, ErrExists)
	}
	r.forge.moved[strings.ToLower(r.fullName())] = r.id
	r.owner, r.name = owner, name
	delete(r.forge.moved, strings.ToLower(r.fullName()))
	return nil
}

// fullName is called with mu held.
func (r *Repository) fullName() string { return r.owner.login + "/" + r.name }

// pull is called with mu held.
func (r *Repository) pull(number int) *PullRequest {
	if number < 1 || number > len(r.pulls) {
		return nil
	}
	return r.pulls[number-1]
}

// named finds a repository by its present name. Called with mu held.
func (f *Forge) named(owner, name string) *Repository {
	for _, r := range f.repositories {
		if !r.deleted && strings.EqualFold(r.owner.login, owner) && strings.EqualFold(r.name, name) {
			return r
		}
	}
	return nil
}

// repository finds a repository by id, also a deleted one. Called with mu held.
func (f *Forge) repository(id int64) *Repository {
	for _, r := range f.repositories {
		if r.id == id {
			return r
		}
	}
	return nil
}
