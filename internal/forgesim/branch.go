package forgesim

import (
	"context"
	"fmt"
	"strings"
)

// DefaultActor is the login of whoever changes something where nothing else is
// said.
const DefaultActor = "author"

// A Push is one change of a branch. Either Change or To says to what.
type Push struct {
	// Branch is the short name; default the default branch. A branch that is
	// not there is made from the default branch.
	Branch string
	// Change makes a commit on top of the branch.
	Change Change
	// To, where set, is the commit that the branch is set to instead.
	To string
	// Onto, where set, makes the commit of Change on top of this commit instead
	// of the branch's: a forced push.
	Onto string
	// Actor is the login of who pushed; default [DefaultActor].
	Actor string
}

// Push changes a branch, moves the head of the open requests from it, and
// sends push and synchronize. It returns the branch's new commit.
func (r *Repository) Push(ctx context.Context, p Push) (string, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	return r.push(ctx, p)
}

// push is called with mu held.
func (r *Repository) push(ctx context.Context, p Push) (string, error) {
	if r.deleted || r.archived {
		return "", fmt.Errorf("push to %s: %w", r.fullName(), ErrState)
	}
	setDefault(&p.Branch, r.defaultBranch)
	ref := "refs/heads/" + p.Branch
	before := r.refs[ref]
	after, err := r.advance(ctx, ref, p)
	if err != nil {
		return "", fmt.Errorf("push to %s of %s: %w", p.Branch, r.fullName(), err)
	}
	if before == after {
		return after, nil
	}
	r.pushed = r.forge.now()
	actor := r.forge.actor(p.Actor)
	change := refChange{ref: ref, before: before, after: after}
	if before != "" && (p.To != "" || p.Onto != "") {
		contained, err := r.contains(ctx, after, before)
		if err != nil {
			return "", fmt.Errorf("push to %s of %s: %w", p.Branch, r.fullName(), err)
		}
		change.forced = !contained
	}
	if err := r.emitPush(ctx, actor, change); err != nil {
		return "", err
	}
	return after, r.followHeads(ctx, actor, p.Branch, after)
}

// advance moves a ref as p says.
func (r *Repository) advance(ctx context.Context, ref string, p Push) (string, error) {
	if p.To != "" {
		if _, err := r.readCommit(ctx, p.To); err != nil {
			return "", err
		}
		return p.To, r.setRef(ctx, ref, p.To)
	}
	parent := p.Onto
	for _, candidate := range []string{r.refs[ref], r.refs["refs/heads/"+r.defaultBranch]} {
		if parent == "" {
			parent = candidate
		}
	}
	if parent == "" {
		return "", fmt.Errorf("nothing to build on: %w", ErrNotFound)
	}
	return r.commit(ctx, ref, parent, p.Change)
}

// DeleteBranch deletes a branch, sends push, and closes the open requests from
// it.
func (r *Repository) DeleteBranch(ctx context.Context, branch string) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	ref := "refs/heads/" + branch
	before := r.refs[ref]
	if before == "" {
		return fmt.Errorf("delete branch %s: %w", branch, ErrNotFound)
	}
	if err := r.setRef(ctx, ref, ""); err != nil {
		return fmt.Errorf("delete branch %s: %w", branch, err)
	}
	actor := f.actor("")
	if err := r.emitPush(ctx, actor, refChange{ref: ref, before: before}); err != nil {
		return err
	}
	for _, pr := range f.openFrom(r, branch) {
		if err := pr.setState(ctx, actor, "closed", "closed"); err != nil {
			return err
		}
	}
	return nil
}

// followHeads moves the head of every open request from a branch.
func (r *Repository) followHeads(ctx context.Context, actor *account, branch, after string) error {
	for _, pr := range r.forge.openFrom(r, branch) {
		if err := pr.moveHead(ctx, actor, after); err != nil {
			return fmt.Errorf("pull request %d of %s: %w", pr.number, pr.base.fullName(), err)
		}
	}
	return nil
}

// openFrom lists the open requests whose head is a branch of r. Called with mu
// held.
func (f *Forge) openFrom(r *Repository, branch string) []*PullRequest {
	var found []*PullRequest
	for _, base := range f.repositories {
		for _, pr := range base.pulls {
			if pr.state == "open" && pr.head == r && pr.headBranch == branch {
				found = append(found, pr)
			}
		}
	}
	return found
}

// actor is called with mu held.
func (f *Forge) actor(login string) *account {
	setDefault(&login, DefaultActor)
	return f.account(login, "User", 0)
}

// Fork makes a fork with all branches, below another account (made as a user
// where it is new).
func (r *Repository) Fork(ctx context.Context, owner string) (*Repository, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	fork, err := f.newRepository(ctx, owner, "User", r.name, 0, 0, r)
	if err != nil {
		return nil, fmt.Errorf("fork %s: %w", r.fullName(), err)
	}
	fork.defaultBranch, fork.public = r.defaultBranch, r.public
	if err := fork.fetchFrom(ctx, r.dir, 0, "+refs/heads/*:refs/heads/*"); err != nil {
		return nil, fmt.Errorf("fork %s: %w", r.fullName(), err)
	}
	if err := fork.loadRefs(ctx); err != nil {
		return nil, fmt.Errorf("fork %s: %w", r.fullName(), err)
	}
	f.repositories = append(f.repositories, fork)
	return fork, nil
}

// resolve finds the commit that a REST {ref} means: a full object id, a
// branch, a tag, or a ref without its "refs/". Empty: none. Called with mu
// held.
func (r *Repository) resolve(ctx context.Context, ref string) string {
	if isObjectID(ref) {
		if _, err := r.readCommit(ctx, ref); err == nil {
			return ref
		}
		return ""
	}
	for _, prefix := range []string{"refs/heads/", "refs/tags/", "refs/"} {
		if id := r.refs[prefix+strings.TrimPrefix(ref, "refs/")]; id != "" {
			return id
		}
	}
	return ""
}
