package gitea

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// Push changes a branch as [forgesim.Repository.Push] does and makes the push
// deliveries, those of a new branch behind a create.
func (r *Repository) Push(ctx context.Context, p forgesim.Push) (string, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	head, err := r.under.Push(ctx, p)
	if err != nil {
		return "", fmt.Errorf("gitea: %w", err)
	}
	return head, f.tell()
}

// DeleteBranch deletes a branch and makes a delete delivery: there is no push
// then.
func (r *Repository) DeleteBranch(ctx context.Context, branch string) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.under.DeleteBranch(ctx, branch); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	return f.tell()
}

// A pushed is what the inner forge tells of a push.
type pushed struct {
	Ref        string   `json:"ref"`
	Before     string   `json:"before"`
	After      string   `json:"after"`
	Created    bool     `json:"created"`
	Deleted    bool     `json:"deleted"`
	Commits    []change `json:"commits"`
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
	Sender account `json:"sender"`
}

// A change is one commit of a push.
type change struct {
	ID        string    `json:"id"`
	Message   string    `json:"message"`
	Timestamp time.Time `json:"timestamp"`
	Author    person    `json:"author"`
	Committer person    `json:"committer"`
	Added     []string  `json:"added"`
	Removed   []string  `json:"removed"`
	Modified  []string  `json:"modified"`
}

type person struct {
	Name     string `json:"name"`
	Email    string `json:"email"`
	Username string `json:"username"`
}

type account struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

// tell makes deliveries of what the inner forge tells. Called with mu held.
func (f *Forge) tell() error {
	for _, d := range f.under.TakeOutbox() {
		if d.Event != "push" {
			continue
		}
		var p pushed
		if err := json.Unmarshal(d.Body, &p); err != nil {
			return fmt.Errorf("gitea: what was pushed: %w", err)
		}
		i := slices.IndexFunc(f.repositories, func(r *Repository) bool { return r.under.ID() == p.Repository.ID })
		f.repositories[i].tellOf(p)
	}
	f.wake()
	return nil
}

// tellOf makes the deliveries of one push. Called with mu held.
func (r *Repository) tellOf(p pushed) {
	r.updated = r.forge.config.Now()
	branch, isBranch := strings.CutPrefix(p.Ref, "refs/heads/")
	kind := "branch"
	if !isBranch {
		branch, kind = strings.TrimPrefix(p.Ref, "refs/tags/"), "tag"
	}
	sender := r.forge.user(p.Sender)
	for _, h := range r.hooks {
		// A hook of the newer type has the full ref here.
		short := branch
		if h.config.Forgejo {
			short = p.Ref
		}
		if p.Created {
			h.queue("create", object{"sha": p.After, "ref": short, "ref_type": kind, "repository": r.render(), "sender": sender})
		}
		if p.Deleted {
			h.queue("delete", object{"ref": short, "ref_type": kind, "pusher_type": "user", "repository": r.render(), "sender": sender})
			continue
		}
		h.queue("push", r.pushPayload(p, sender))
	}
	if isBranch && !p.Deleted {
		r.follow(branch)
	}
}

// pushPayload is the body of a push. Called with mu held.
func (r *Repository) pushPayload(p pushed, sender object) object {
	shown := slices.Clone(p.Commits)
	slices.Reverse(shown)
	commits := []object{}
	for _, c := range shown[:min(len(shown), pushCommits)] {
		commits = append(commits, r.commit(c))
	}
	var head any
	if len(shown) > 0 {
		head = r.commit(shown[0])
	}
	web := r.forge.base + "/" + r.under.FullName()
	return object{
		"ref": p.Ref, "before": p.Before, "after": p.After, "compare_url": fmt.Sprintf("%s/compare/%s...%s", web, p.Before, p.After),
		"commits": commits, "total_commits": len(p.Commits), "head_commit": head,
		"repository": r.render(), "pusher": sender, "sender": sender,
	}
}

// commit is one of a push's. Called with mu held.
func (r *Repository) commit(c change) object {
	list := func(paths []string) []string { return append([]string{}, paths...) }
	show := func(p person) object { return object{"name": p.Name, "email": p.Email, "username": p.Username} }
	return object{
		"id": c.ID, "message": c.Message + "\n", "url": r.forge.base + "/" + r.under.FullName() + "/commit/" + c.ID,
		"author": show(c.Author), "committer": show(c.Committer), "verification": nil, "timestamp": c.Timestamp.UTC().Format(time.RFC3339),
		"added": list(c.Added), "removed": list(c.Removed), "modified": list(c.Modified),
	}
}
