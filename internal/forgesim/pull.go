package forgesim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A PullRequest is one request of a [Repository].
type PullRequest struct {
	forge   *Forge
	base    *Repository
	id      int64
	number  int
	author  *account
	created time.Time

	// Guarded by forge.mu:
	head       *Repository // also when deleted
	headBranch string
	headSHA    string
	baseBranch string
	baseSHA    string // the base's tip when the request last changed, not now
	title      string
	body       string
	state      string // "open" or "closed"
	draft      bool
	updated    time.Time
	closed     time.Time
	merged     time.Time
	mergedBy   *account
	mergeSHA   string // after merging
	test       testMerge
}

// An OpenPull says what [Repository.OpenPullRequest] opens.
type OpenPull struct {
	// Base is the branch to merge into; default the default branch.
	Base string
	// Head is the branch to merge. Required.
	Head string
	// From is the repository that Head is a branch of; default the base
	// repository.
	From *Repository
	// Change, where not empty, is pushed to Head first.
	Change Change
	// Title and Body are the request's text; Title's default is Head.
	Title, Body string
	// Draft opens it as a draft.
	Draft bool
	// Actor is the login of who opens it; default [DefaultActor].
	Actor string
}

// OpenPullRequest opens a request and sends pull_request opened (and push,
// where there is a Change).
func (r *Repository) OpenPullRequest(ctx context.Context, o OpenPull) (*PullRequest, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	setDefault(&o.Base, r.defaultBranch)
	setDefault(&o.Title, o.Head)
	if o.From == nil {
		o.From = r
	}
	if !o.Change.empty() {
		if _, err := o.From.push(ctx, Push{Branch: o.Head, Change: o.Change, Actor: o.Actor}); err != nil {
			return nil, err
		}
	}
	headSHA, baseSHA := o.From.refs["refs/heads/"+o.Head], r.refs["refs/heads/"+o.Base]
	if headSHA == "" || baseSHA == "" {
		return nil, fmt.Errorf("open pull request from %q to %q: %w", o.Head, o.Base, ErrNotFound)
	}
	now := f.now()
	pr := &PullRequest{
		forge: f, base: r, id: next(&f.ids.pull), number: len(r.pulls) + 1, author: f.actor(o.Actor), created: now,
		head: o.From, headBranch: o.Head, headSHA: headSHA, baseBranch: o.Base, baseSHA: baseSHA,
		title: o.Title, body: o.Body, state: "open", draft: o.Draft, updated: now,
	}
	if err := pr.publishHead(ctx); err != nil {
		return nil, fmt.Errorf("open pull request: %w", err)
	}
	r.pulls = append(r.pulls, pr)
	return pr, pr.emit(ctx, pr.author, "opened", nil)
}

// Number returns the request's number in its base repository.
func (p *PullRequest) Number() int { return p.number }

// ID returns the request's id.
func (p *PullRequest) ID() int64 { return p.id }

// Repository returns the base repository.
func (p *PullRequest) Repository() *Repository { return p.base }

// Head returns the head commit.
func (p *PullRequest) Head() string {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.headSHA
}

// Base returns the base branch's short name.
func (p *PullRequest) Base() string {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.baseBranch
}

// State returns "open", "closed" or "merged".
func (p *PullRequest) State() string {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	if !p.merged.IsZero() {
		return "merged"
	}
	return p.state
}

// Push makes a commit on the head branch; see [Repository.Push].
func (p *PullRequest) Push(ctx context.Context, c Change) (string, error) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.head.push(ctx, Push{Branch: p.headBranch, Change: c, Actor: p.author.login})
}

// ForcePush makes a commit on top of the base branch's tip and sets the head
// branch to it.
func (p *PullRequest) ForcePush(ctx context.Context, c Change) (string, error) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	tip := p.base.refs["refs/heads/"+p.baseBranch]
	if p.head != p.base {
		if err := p.head.fetchFrom(ctx, p.base.dir, 0, "refs/heads/"+p.baseBranch); err != nil {
			return "", fmt.Errorf("force push: %w", err)
		}
	}
	return p.head.push(ctx, Push{Branch: p.headBranch, Change: c, Onto: tip, Actor: p.author.login})
}

// Close closes the request and sends closed.
func (p *PullRequest) Close(ctx context.Context) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.setState(ctx, p.author, "closed", "closed")
}

// Reopen opens a closed request again and sends reopened.
func (p *PullRequest) Reopen(ctx context.Context) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	if !p.merged.IsZero() {
		return fmt.Errorf("reopen pull request %d: merged: %w", p.number, ErrState)
	}
	return p.setState(ctx, p.author, "open", "reopened")
}

// SetDraft makes the request a draft, or ready for review, and sends
// converted_to_draft or ready_for_review.
func (p *PullRequest) SetDraft(ctx context.Context, draft bool) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	if p.draft == draft || p.state != "open" {
		return fmt.Errorf("set draft of pull request %d: %w", p.number, ErrState)
	}
	p.draft, p.updated = draft, p.forge.now()
	if draft {
		return p.emit(ctx, p.author, "converted_to_draft", nil)
	}
	return p.emit(ctx, p.author, "ready_for_review", nil)
}

// SetTitle edits the title and sends edited.
func (p *PullRequest) SetTitle(ctx context.Context, title string) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	before := p.title
	p.title, p.updated = title, p.forge.now()
	return p.emit(ctx, p.author, "edited", object{"changes": object{"title": object{"from": before}}})
}

// SetBase changes the base branch and sends edited.
func (p *PullRequest) SetBase(ctx context.Context, branch string) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	tip := p.base.refs["refs/heads/"+branch]
	if tip == "" {
		return fmt.Errorf("set base of pull request %d to %q: %w", p.number, branch, ErrNotFound)
	}
	changes := object{"base": object{"ref": object{"from": p.baseBranch}, "sha": object{"from": p.baseSHA}}}
	p.baseBranch, p.baseSHA, p.updated = branch, tip, p.forge.now()
	return p.emit(ctx, p.author, "edited", object{"changes": changes})
}

// setState is called with mu held.
func (p *PullRequest) setState(ctx context.Context, actor *account, state, action string) error {
	if p.state == state {
		return fmt.Errorf("pull request %d is %s: %w", p.number, state, ErrState)
	}
	p.state, p.updated, p.closed = state, p.forge.now(), time.Time{}
	if state == "closed" {
		p.closed = p.updated
	}
	return p.emit(ctx, actor, action, nil)
}

// moveHead is called with mu held.
func (p *PullRequest) moveHead(ctx context.Context, actor *account, after string) error {
	before := p.headSHA
	p.headSHA, p.updated = after, p.forge.now()
	p.baseSHA = p.base.refs["refs/heads/"+p.baseBranch]
	if err := p.publishHead(ctx); err != nil {
		return err
	}
	return p.emit(ctx, actor, "synchronize", object{"before": before, "after": after})
}

// publishHead brings the head into the base repository at refs/pull/N/head.
// Called with mu held.
func (p *PullRequest) publishHead(ctx context.Context) error {
	ref := p.ref("head")
	if p.head == p.base {
		return p.base.setRef(ctx, ref, p.headSHA)
	}
	if err := p.base.fetchFrom(ctx, p.head.dir, 0, "+"+p.headSHA+":"+ref); err != nil {
		return err
	}
	p.base.refs[ref] = p.headSHA
	return nil
}

func (p *PullRequest) ref(kind string) string {
	return fmt.Sprintf("refs/pull/%d/%s", p.number, kind)
}

// A testMerge is what the forge knows of the merge of head into base. Guarded
// by Forge.mu.
type testMerge struct {
	head, base string // what it was made for
	polls      int    // answers that still say null
	known      bool   // the job has ended for head and base
	mergeable  bool
	sha        string // the newest merge that was made, perhaps of older commits
}

// refreshTestMerge is what the pulls call sets off: the first answers after head
// or base moved say that it is not known yet, and after the last of these the
// merge is due. Nothing else refreshes refs/pull/N/merge. Called with mu held.
func (p *PullRequest) refreshTestMerge(ctx context.Context) (due bool, err error) {
	if p.state != "open" {
		return false, nil
	}
	f, t := p.forge, &p.test
	base := p.base.refs["refs/heads/"+p.baseBranch]
	if t.head != p.headSHA || t.base != base {
		t.head, t.base, t.known = p.headSHA, base, false
		t.polls = f.config.MergePolls + f.mood.upTo(f.mood.MergePolls)
	}
	if t.known {
		return false, nil
	}
	if t.polls == 0 {
		return false, p.makeTestMerge(ctx)
	}
	t.polls--
	return t.polls == 0, nil
}

// makeTestMerge merges head into base as GitHub's job does. Called with mu
// held.
func (p *PullRequest) makeTestMerge(ctx context.Context) (err error) {
	t := &p.test
	t.known, t.mergeable = true, false
	if t.base == "" {
		return nil
	}
	// It is a job of the forge's own: a client that goes away does not end it,
	// and least of all makes a conflict of it.
	ctx = context.WithoutCancel(ctx)
	defer func() { t.known = err == nil }()
	tree, err := p.base.mergeTree(ctx, t.base, t.head)
	if errors.Is(err, ErrConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("test merge of pull request %d: %w", p.number, err)
	}
	message := fmt.Sprintf("Merge %s into %s", t.head, t.base)
	sha, err := p.base.commitTree(ctx, tree, message, t.base, t.head)
	if err != nil {
		return fmt.Errorf("test merge of pull request %d: %w", p.number, err)
	}
	if err := p.base.setRef(ctx, p.ref("merge"), sha); err != nil {
		return fmt.Errorf("test merge of pull request %d: %w", p.number, err)
	}
	t.sha, t.mergeable = sha, true
	return nil
}

// PrepareTestMerge makes the test merge of head and base now, where it is not
// there yet, so that no request has to wait for it, and returns its commit; ""
// for a conflict. GitHub has made it when somebody looked at the request before.
func (p *PullRequest) PrepareTestMerge(ctx context.Context) (string, error) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	if p.state != "open" {
		return "", fmt.Errorf("test merge of pull request %d, which is closed: %w", p.number, ErrConfig)
	}
	t := &p.test
	if base := p.base.refs["refs/heads/"+p.baseBranch]; !t.known || t.head != p.headSHA || t.base != base {
		t.head, t.base, t.polls = p.headSHA, base, 0
		if err := p.makeTestMerge(ctx); err != nil {
			return "", err
		}
	}
	if !t.mergeable {
		return "", nil
	}
	return t.sha, nil
}

// ErrConflict is matched by the error of [Repository.Merge] for commits that
// don't merge.
var ErrConflict = errors.New("merge conflict")

// mergeTree returns the tree of merging head into base. Called with mu held.
func (r *Repository) mergeTree(ctx context.Context, base, head string) (string, error) {
	args := []string{"merge-tree", "--write-tree", "--allow-unrelated-histories", "--no-messages", base, head}
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: args})
	if exitedWith(err, 1) {
		return "", ErrConflict
	}
	if err != nil {
		return "", err
	}
	tree, _, _ := strings.Cut(out, "\n")
	return tree, nil
}

// commitTree makes a commit that no ref names. Called with mu held.
func (r *Repository) commitTree(ctx context.Context, tree, message string, parents ...string) (string, error) {
	args := []string{"commit-tree", tree, "-m", message}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	return r.forge.git.run(ctx, gitCall{dir: r.dir, args: args})
}
