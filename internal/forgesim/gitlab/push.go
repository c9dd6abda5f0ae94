package gitlab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

const (
	// pushCommits is how many commits a push shows.
	pushCommits = 20
	// pushedRefs is how many refs one push may change to be told of.
	pushedRefs = 3
	zeroID     = "0000000000000000000000000000000000000000"
)

// Push changes a branch as [forgesim.Repository.Push] does, tells of it, moves
// the requests from that branch, and rebuilds the train of that branch.
func (p *Project) Push(ctx context.Context, push forgesim.Push) (string, error) {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.push(ctx, push)
}

// push is called with mu held.
func (p *Project) push(ctx context.Context, push forgesim.Push) (string, error) {
	head, err := p.under.Push(ctx, push)
	if err != nil {
		return "", fmt.Errorf("gitlab: %w", err)
	}
	return head, p.forge.tell(ctx)
}

// PushTogether changes branches by one push. Nobody is told of more than three.
// contracts/gitlab.md §3
func (p *Project) PushTogether(ctx context.Context, pushes ...forgesim.Push) error {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.outbox)
	for _, push := range pushes {
		if _, err := p.push(ctx, push); err != nil {
			return err
		}
	}
	if len(pushes) > pushedRefs {
		kept := slices.DeleteFunc(f.outbox[before:], func(d *Delivery) bool { return d.Event == pushHook })
		f.outbox = f.outbox[:before+len(kept)]
	}
	return nil
}

// DeleteBranch deletes a branch. The push that tells of it ends in no commit.
func (p *Project) DeleteBranch(ctx context.Context, branch string) error {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := p.under.DeleteBranch(ctx, branch); err != nil {
		return fmt.Errorf("gitlab: %w", err)
	}
	return f.tell(ctx)
}

// A pushed is what the inner forge tells of a push.
type pushed struct {
	Ref        string   `json:"ref"`
	Before     string   `json:"before"`
	After      string   `json:"after"`
	Commits    []change `json:"commits"`
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
	Sender struct {
		Login string `json:"login"`
	} `json:"sender"`
}

// A change is one commit of a push.
type change struct {
	ID        string    `json:"id"`
	Message   string    `json:"message"`
	Timestamp time.Time `json:"timestamp"`
	Author    struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"author"`
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
	Modified []string `json:"modified"`
}

// tell makes deliveries of what the inner forge tells, and does what follows
// from it. Called with mu held.
func (f *Forge) tell(ctx context.Context) error {
	for _, d := range f.under.TakeOutbox() {
		if d.Event != "push" {
			continue
		}
		var push pushed
		if err := json.Unmarshal(d.Body, &push); err != nil {
			return fmt.Errorf("gitlab: what was pushed: %w", err)
		}
		i := slices.IndexFunc(f.projects, func(p *Project) bool { return p.under.ID() == push.Repository.ID })
		p := f.projects[i]
		for _, h := range p.hooks {
			if strings.HasPrefix(push.Ref, "refs/heads/") {
				h.queue(pushHook, p.pushPayload(push))
			}
		}
		if branch, ok := strings.CutPrefix(push.Ref, "refs/heads/"); ok {
			if err := p.follow(ctx, branch, push); err != nil {
				return err
			}
		}
	}
	f.wake()
	return nil
}

// pushPayload is the body of a push. Called with mu held.
func (p *Project) pushPayload(push pushed) object {
	commits := []object{}
	for _, c := range push.Commits[max(0, len(push.Commits)-pushCommits):] {
		title, _, _ := strings.Cut(c.Message, "\n")
		commits = append(commits, object{
			"id": c.ID, "message": c.Message + "\n", "title": title, "timestamp": c.Timestamp.Format("2006-01-02T15:04:05-07:00"),
			"url": p.web() + "/-/commit/" + c.ID, "author": object{"name": c.Author.Name, "email": c.Author.Email},
			"added": list(c.Added), "modified": list(c.Modified), "removed": list(c.Removed),
		})
	}
	var checkout any = push.After
	if push.After == zeroID {
		checkout = nil
	}
	branch := strings.TrimPrefix(push.Ref, "refs/heads/")
	who := p.forge.account(push.Sender.Login)
	return object{
		"object_kind": "push", "event_name": "push", "before": push.Before, "after": push.After, "ref": push.Ref,
		"ref_protected": p.protects(branch), "checkout_sha": checkout, "message": nil,
		"user_id": who.ID, "user_username": who.Login, "user_name": who.Login, "user_email": "", "user_avatar": nil,
		"project_id": p.id, "project": p.hookProject(), "commits": commits, "total_commits_count": len(push.Commits),
		"push_options": object{},
		"repository": object{
			"name": p.name, "url": "git@gitlab.invalid:" + p.path() + ".git", "description": "", "homepage": p.web(),
			"git_http_url": p.web() + ".git", "git_ssh_url": "git@gitlab.invalid:" + p.path() + ".git", "visibility_level": p.visibilityLevel(),
		},
	}
}

// hookProject is the project as webhooks show it: without any id of its
// namespace. Called with mu held.
func (p *Project) hookProject() object {
	ssh := "git@gitlab.invalid:" + p.path() + ".git"
	return object{
		"id": p.id, "name": p.name, "description": "", "web_url": p.web(), "avatar_url": nil,
		"git_ssh_url": ssh, "git_http_url": p.web() + ".git",
		"namespace": "The " + p.namespace.path, "visibility_level": p.visibilityLevel(), "path_with_namespace": p.path(),
		"default_branch": p.under.DefaultBranch(), "ci_config_path": nil,
		"homepage": p.web(), "url": ssh, "ssh_url": ssh, "http_url": p.web() + ".git",
	}
}

func (p *Project) visibilityLevel() int {
	return map[string]int{"private": 0, "internal": 10, "public": 20}[p.visibility]
}

// list is never null in JSON.
func list(of []string) []string { return append([]string{}, of...) }
