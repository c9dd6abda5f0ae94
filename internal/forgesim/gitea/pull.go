package gitea

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A Pull is one request of a [Repository].
type Pull struct {
	repo   *Repository
	under  *forgesim.PullRequest
	author account

	// Guarded by Forge.mu:
	from    *Repository
	branch  string
	title   string
	updated time.Time
	merged  string // the commit that it was merged as
	reviews []*Review
}

// OpenPull opens a request, which is a draft if its title says so, and makes
// the deliveries. A fork is made with [Repository.Fork].
func (r *Repository) OpenPull(ctx context.Context, o forgesim.OpenPull, from *Repository) (*Pull, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == nil {
		from = r
	}
	if o.Title == "" {
		o.Title = o.Head
	}
	o.From, o.Draft = from.under, unfinished(o.Title)
	under, err := r.under.OpenPullRequest(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("gitea: %w", err)
	}
	author := o.Actor
	if author == "" {
		author = forgesim.DefaultActor
	}
	p := &Pull{
		repo: r, under: under, author: f.account(author), from: from, branch: o.Head, title: o.Title, updated: f.config.Now(),
	}
	if err := f.tell(); err != nil {
		return nil, err
	}
	r.pulls = append(r.pulls, p)
	p.tell("opened", nil)
	return p, nil
}

// Fork makes a repository of another owner that requests can come from.
func (r *Repository) Fork(ctx context.Context, owner string) (*Repository, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	under, err := r.under.Fork(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("gitea: %w", err)
	}
	fork := &Repository{forge: f, under: under, made: f.config.Now(), updated: f.config.Now(), private: r.private}
	under.AddHook("", nil)
	f.under.TakeOutbox()
	if err := fork.openDoor(); err != nil {
		return nil, err
	}
	f.repositories = append(f.repositories, fork)
	return fork, nil
}

// unfinished reports whether a title makes a request a draft.
func unfinished(title string) bool {
	upper := strings.ToUpper(title)
	return strings.HasPrefix(upper, "WIP:") || strings.HasPrefix(upper, "[WIP]")
}

// Number returns the request's number.
func (p *Pull) Number() int { return p.under.Number() }

// Head returns the head commit.
func (p *Pull) Head() string { return p.under.Head() }

// Push makes a commit on the head branch.
func (p *Pull) Push(ctx context.Context, c forgesim.Change) (string, error) {
	return p.from.Push(ctx, forgesim.Push{Branch: p.branch, Change: c})
}

// Close closes the request, Reopen opens it again.
func (p *Pull) Close(ctx context.Context) error { return p.do(ctx, p.under.Close, "closed") }

// Reopen opens a closed request.
func (p *Pull) Reopen(ctx context.Context) error { return p.do(ctx, p.under.Reopen, "reopened") }

func (p *Pull) do(ctx context.Context, change func(context.Context) error, action string) error {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := change(ctx); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	p.tell(action, nil)
	return nil
}

// SetTitle edits the title, by which a request becomes a draft, or ready.
func (p *Pull) SetTitle(ctx context.Context, title string) error {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := p.under.SetTitle(ctx, title); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	before := p.title
	p.title = title
	p.tell("edited", object{"title": object{"from": before}})
	return nil
}

// SetBase changes the branch to merge into.
func (p *Pull) SetBase(ctx context.Context, branch string) error {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	before := p.under.Base()
	if err := p.under.SetBase(ctx, branch); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	p.tell("edited", object{"ref": object{"from": before}})
	return nil
}

// tell makes the deliveries of what happened. Called with mu held.
func (p *Pull) tell(action string, changes object) {
	p.updated = p.repo.forge.config.Now()
	sender := p.repo.forge.user(p.author)
	payload := object{
		"action": action, "number": p.under.Number(), "pull_request": p.render(), "requested_reviewer": nil,
		"repository": p.repo.render(), "sender": sender, "commit_id": "", "review": nil,
	}
	if changes != nil {
		payload["changes"] = changes
	}
	for _, h := range p.repo.hooks {
		h.queue("pull_request", payload)
	}
	p.repo.forge.wake()
}

// follow tells the requests of a branch that it moved. Called with mu held.
func (r *Repository) follow(branch string) {
	for _, base := range r.forge.repositories {
		for _, p := range base.pulls {
			if p.from == r && p.branch == branch && p.under.State() == "open" {
				for _, review := range p.reviews {
					review.settled = false
				}
				p.tell("synchronized", nil)
			}
		}
	}
}

// render is the request, the same in answers and payloads. Called with mu held.
func (p *Pull) render() object {
	f := p.repo.forge
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	base := p.under.Base()
	var merged, mergedAt any
	if p.merged != "" {
		merged, mergedAt = p.merged, stamp(p.updated)
	}
	state := p.under.State()
	if state != "open" {
		state = "closed"
	}
	var head any
	headID := int64(-1)
	if !p.from.gone {
		head, headID = p.from.render(), p.from.under.ID()
	}
	return object{
		"id": p.under.ID(), "number": p.under.Number(), "user": f.user(p.author), "title": p.title, "body": "", "state": state,
		"draft": unfinished(p.title), "is_locked": false, "mergeable": false, "merged": p.merged != "", "merged_at": mergedAt,
		"merge_commit_sha": merged, "merge_base": p.repo.Ref("refs/heads/" + base), "allow_maintainer_edit": false,
		"updated_at": stamp(p.updated), "created_at": stamp(p.updated),
		"html_url": f.base + "/" + p.repo.FullName() + "/pulls/" + strconv.Itoa(p.under.Number()),
		"base": object{
			"label": base, "ref": base, "sha": p.repo.Ref("refs/heads/" + base), "repo_id": p.repo.under.ID(), "repo": p.repo.render(),
		},
		"head": object{"label": p.branch, "ref": p.branch, "sha": p.under.Head(), "repo_id": headID, "repo": head},
	}
}

// pull finds a request. Called with mu held.
func (r *Repository) pull(number string) *Pull {
	for _, p := range r.pulls {
		if strconv.Itoa(p.under.Number()) == number {
			return p
		}
	}
	return nil
}

// onPull serves what is about one request.
func onPull(serve func(w http.ResponseWriter, r *http.Request, p *Pull, by *token)) func(http.ResponseWriter, *http.Request, *Repository) {
	return func(w http.ResponseWriter, r *http.Request, repo *Repository) {
		f := repo.forge
		f.mu.Lock()
		p := repo.pull(r.PathValue("number"))
		by, _ := f.identify(r)
		f.mu.Unlock()
		if p == nil {
			f.failure(w, http.StatusNotFound, "The target couldn't be found.")
			return
		}
		serve(w, r, p, by)
	}
}

func getPull(w http.ResponseWriter, _ *http.Request, p *Pull, _ *token) {
	p.repo.forge.mu.Lock()
	shown := p.render()
	p.repo.forge.mu.Unlock()
	reply(w, http.StatusOK, shown)
}

func listPulls(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	f.mu.Lock()
	all := []object{}
	for _, p := range repo.pulls {
		if state := r.URL.Query().Get("state"); state == "" || state == "all" || (state == "open") == (p.under.State() == "open") {
			all = append(all, p.render())
		}
	}
	f.mu.Unlock()
	slices.Reverse(all)
	page(w, r, all)
}

// page answers with a page of a list. contracts/gitea.md §4
func page(w http.ResponseWriter, r *http.Request, all []object) {
	number := func(name string, least, most, otherwise int) int {
		n, err := strconv.Atoi(r.URL.Query().Get(name))
		if err != nil || n < least {
			return otherwise
		}
		return min(n, most)
	}
	limit, at := number("limit", 1, 50, 30), number("page", 1, 1<<20, 1)
	w.Header().Set("X-Total-Count", strconv.Itoa(len(all)))
	reply(w, http.StatusOK, all[min(len(all), (at-1)*limit):min(len(all), at*limit)])
}
