package gitlab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A MergeRequest is one request of a [Project].
type MergeRequest struct {
	project *Project
	id      int64
	iid     int64
	author  string
	made    time.Time

	// Guarded by Forge.mu:
	from    *Project
	source  string
	target  string
	title   string
	draft   bool
	state   string // opened, closed, merged
	head    string
	updated time.Time
	merged  string // the merge commit
	mergeAt time.Time
	squash  bool
	diff    diffRefs
	unready int // reads for which diff_refs are not there yet
	// ref is the commit of refs/merge-requests/N/merge; "" for a conflict.
	ref        string
	refHead    string
	refTarget  string
	headPipe   *Pipeline
	conflicted bool
}

type diffRefs struct{ base, head, start string }

// An Open says what [Project.OpenRequest] opens. Source is required.
type Open struct {
	// Source is the branch to merge, From the project that it is of; default
	// this one. Target defaults to the default branch.
	Source, Target string
	From           *Project
	// Change, where it has files, is pushed to Source first.
	Change forgesim.Change
	// Title defaults to Source; it makes a draft where it begins with "Draft:".
	Title string
	Actor string
}

// OpenRequest opens a merge request, tells of it, and makes its pipeline.
func (p *Project) OpenRequest(ctx context.Context, o Open) (*MergeRequest, error) {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.From == nil {
		o.From = p
	}
	if o.Target == "" {
		o.Target = p.under.DefaultBranch()
	}
	if o.Title == "" {
		o.Title = o.Source
	}
	if len(o.Change.Files) > 0 || len(o.Change.Delete) > 0 {
		if _, err := o.From.push(ctx, forgesim.Push{Branch: o.Source, Change: o.Change, Actor: o.Actor}); err != nil {
			return nil, err
		}
	}
	head := o.From.under.Ref("refs/heads/" + o.Source)
	if head == "" || p.under.Ref("refs/heads/"+o.Target) == "" {
		return nil, fmt.Errorf("gitlab: open a request: %w", forgesim.ErrNotFound)
	}
	f.ids.request++
	now := f.config.Now()
	m := &MergeRequest{
		project: p, id: f.ids.request, iid: int64(len(p.requests) + 1), author: f.account(o.Actor).Login, made: now, updated: now,
		from: o.From, source: o.Source, target: o.Target, title: o.Title, draft: strings.HasPrefix(o.Title, "Draft:"),
		state: "opened", unready: f.lag,
	}
	p.requests = append(p.requests, m)
	if err := m.setHead(ctx, head); err != nil {
		return nil, err
	}
	m.tell("open", "")
	return m, m.run(ctx, o.Actor)
}

// IID returns the request's number in its project.
func (m *MergeRequest) IID() int64 { return m.iid }

// Head returns the head commit.
func (m *MergeRequest) Head() string {
	m.project.forge.mu.Lock()
	defer m.project.forge.mu.Unlock()
	return m.head
}

// State returns "opened", "closed" or "merged".
func (m *MergeRequest) State() string {
	m.project.forge.mu.Lock()
	defer m.project.forge.mu.Unlock()
	return m.state
}

// MergeCommit returns the commit that it was merged as, "" before.
func (m *MergeRequest) MergeCommit() string {
	m.project.forge.mu.Lock()
	defer m.project.forge.mu.Unlock()
	return m.merged
}

// HeadPipeline returns the newest pipeline of the head, or nil.
func (m *MergeRequest) HeadPipeline() *Pipeline {
	m.project.forge.mu.Lock()
	defer m.project.forge.mu.Unlock()
	return m.headPipe
}

// Push makes a commit on the source branch.
func (m *MergeRequest) Push(ctx context.Context, c forgesim.Change) (string, error) {
	return m.from.Push(ctx, forgesim.Push{Branch: m.source, Change: c})
}

// SetSquash asks for the commits to be squashed, or no longer.
func (m *MergeRequest) SetSquash(squash bool) {
	m.project.forge.mu.Lock()
	defer m.project.forge.mu.Unlock()
	m.squash = squash
}

// Close closes the request, which takes it out of its train.
func (m *MergeRequest) Close(ctx context.Context) error {
	return m.change(ctx, "opened", "closed", "close")
}

// Reopen opens a closed request.
func (m *MergeRequest) Reopen(ctx context.Context) error {
	return m.change(ctx, "closed", "opened", "reopen")
}

func (m *MergeRequest) change(ctx context.Context, from, to, action string) error {
	f := m.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.state != from {
		return fmt.Errorf("gitlab: %s: the request is %s: %w", action, m.state, forgesim.ErrState)
	}
	m.state, m.updated = to, f.config.Now()
	m.tell(action, "")
	if err := m.project.drop(ctx, m.car(), "the request was closed"); err != nil {
		return err
	}
	return m.project.refreshTrain(ctx, m.target)
}

// SetTarget changes the branch to merge into, which takes the request out of
// its train.
func (m *MergeRequest) SetTarget(ctx context.Context, branch string) error {
	f := m.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	before := m.target
	if err := m.project.drop(ctx, m.car(), "another target"); err != nil {
		return err
	}
	m.target, m.updated = branch, f.config.Now()
	m.tell("update", "")
	if err := m.project.refreshTrain(ctx, before); err != nil {
		return err
	}
	return m.setHead(ctx, m.head)
}

// setHead takes a new head over into the project. Called with mu held.
func (m *MergeRequest) setHead(ctx context.Context, head string) error {
	p := m.project
	m.head = head
	if err := p.under.Take(ctx, m.from.under, head, m.refName("head")); err != nil {
		return fmt.Errorf("gitlab: %w", err)
	}
	tip := p.under.Ref("refs/heads/" + m.target)
	base, err := p.under.MergeBase(ctx, tip, head)
	if err != nil && !errors.Is(err, forgesim.ErrNotFound) {
		return fmt.Errorf("gitlab: %w", err)
	}
	m.diff = diffRefs{base: base, head: head, start: tip}
	return nil
}

// refName is the name of one of the request's refs in the target project.
func (m *MergeRequest) refName(kind string) string {
	return fmt.Sprintf("refs/merge-requests/%d/%s", m.iid, kind)
}

// message is that of the request's merge commits. Called with mu held.
func (m *MergeRequest) message() string {
	return fmt.Sprintf("Merge branch '%s' into '%s'\n\n%s\n\nSee merge request %s!%d", m.source, m.target, m.title, m.project.path(), m.iid)
}

// makeMergeRef merges the head into the target of now. Called with mu held.
func (m *MergeRequest) makeMergeRef(ctx context.Context) error {
	p := m.project
	tip := p.under.Ref("refs/heads/" + m.target)
	if m.refHead == m.head && m.refTarget == tip {
		return nil
	}
	commit, err := p.under.Merge(ctx, tip, m.head, m.message())
	if err != nil && !errors.Is(err, forgesim.ErrConflict) {
		return fmt.Errorf("gitlab: %w", err)
	}
	m.conflicted = err != nil
	m.ref, m.refHead, m.refTarget = commit, m.head, tip
	if m.conflicted {
		return nil
	}
	return p.under.SetRef(ctx, m.refName("merge"), commit)
}

// run makes the request's pipeline: of the merged result, and of the head where
// that conflicts, or where the project makes no merged results. One of a fork
// runs in the fork. Called with mu held.
func (m *MergeRequest) run(ctx context.Context, actor string) error {
	p := m.project
	if err := m.makeMergeRef(ctx); err != nil {
		return err
	}
	kind, where, commit, ref := MergedResult, p, m.ref, m.refName("merge")
	if m.conflicted || !p.settings.MergePipelines || m.from != p {
		kind, commit, ref = Detached, m.head, m.refName("head")
	}
	if m.from != p {
		where = m.from
	}
	pipe, err := where.newPipeline(m, kind, ref, commit, actor)
	m.headPipe = pipe
	return err
}

// follow moves the requests of a branch after a push, and the train of the
// branch. Called with mu held.
func (p *Project) follow(ctx context.Context, branch string, push pushed) error {
	for _, target := range p.forge.projects {
		for _, m := range target.requests {
			if m.from != p || m.source != branch || m.state != "opened" || push.After == zeroID {
				continue
			}
			old := m.head
			if err := m.setHead(ctx, push.After); err != nil {
				return err
			}
			m.updated = p.forge.config.Now()
			m.tell("update", old)
			if err := target.drop(ctx, m.car(), "the source branch moved"); err != nil {
				return err
			}
			if err := target.refreshTrain(ctx, m.target); err != nil {
				return err
			}
			if err := m.run(ctx, push.Sender.Login); err != nil {
				return err
			}
		}
	}
	return p.refreshTrain(ctx, branch)
}

// tell makes the deliveries of what happened. Called with mu held.
func (m *MergeRequest) tell(action, oldrev string) {
	p := m.project
	f := p.forge
	attributes := object{
		"id": m.id, "iid": m.iid, "title": m.title, "description": "", "action": action, "state": m.state,
		"source_branch": m.source, "target_branch": m.target, "source_project_id": m.from.id, "target_project_id": p.id,
		"author_id": f.account(m.author).ID, "assignee_ids": []int64{}, "reviewer_ids": []int64{},
		"last_commit": object{
			"id": m.head, "message": "Change\n", "title": "Change", "timestamp": f.config.Now().Format("2006-01-02T15:04:05-07:00"),
			"url": m.from.web() + "/-/commit/" + m.head, "author": object{"name": "Fencepost Forge", "email": "forge@forge.invalid"},
		},
		"merge_status": "unchecked", "detailed_merge_status": m.mergeStatus(), "merge_commit_sha": null(m.merged),
		"draft": m.draft, "work_in_progress": m.draft, "source": m.from.hookProject(), "target": p.hookProject(),
		// The other form of time that webhooks have.
		"created_at": m.made.UTC().Format("2006-01-02 15:04:05 UTC"), "updated_at": m.updated.UTC().Format("2006-01-02 15:04:05 UTC"),
		"url": m.web(),
	}
	if oldrev != "" {
		attributes["oldrev"] = oldrev
	}
	who := f.account(m.author)
	payload := object{
		"object_kind": "merge_request", "event_type": "merge_request",
		"user":    object{"id": who.ID, "name": who.Login, "username": who.Login, "avatar_url": nil, "email": "[REDACTED]"},
		"project": p.hookProject(), "object_attributes": attributes, "changes": object{},
		"labels": []object{}, "assignees": []object{}, "reviewers": []object{},
		"repository": object{"name": p.name, "url": "git@gitlab.invalid:" + p.path() + ".git", "description": "", "homepage": p.web()},
	}
	for _, h := range p.hooks {
		h.queue(requestHook, payload)
	}
}

// web is the request's page. Called with mu held.
func (m *MergeRequest) web() string {
	return fmt.Sprintf("%s/-/merge_requests/%d", m.project.web(), m.iid)
}

// null is nil for an empty text.
func null(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// mergeStatus is detailed_merge_status. Called with mu held.
func (m *MergeRequest) mergeStatus() string {
	switch {
	case m.state != "opened":
		return "not_open"
	case m.draft:
		return "draft_status"
	case m.refHead != m.head || m.refTarget != m.project.under.Ref("refs/heads/"+m.target):
		return "unchecked"
	case m.conflicted:
		return "conflict"
	case m.project.settings.OnlyIfPipelineSucceeds && m.headPipe != nil && m.headPipe.status() == "running":
		return "ci_still_running"
	case m.project.settings.OnlyIfPipelineSucceeds && m.headPipe != nil && m.headPipe.status() != "success":
		return "ci_must_pass"
	}
	return "mergeable"
}

// render is the request as the API shows it. Called with mu held.
func (m *MergeRequest) render() object {
	f := m.project.forge
	var diff, merged, pipe any
	if m.unready > 0 {
		m.unready--
	} else {
		diff = object{"base_sha": m.diff.base, "head_sha": m.diff.head, "start_sha": m.diff.start}
	}
	if m.merged != "" {
		merged = stamp(m.mergeAt)
	}
	if m.headPipe != nil {
		pipe = m.headPipe.render()
	}
	from := any(m.from.id)
	if m.from.gone {
		from = nil
	}
	return object{
		"id": m.id, "iid": m.iid, "project_id": m.project.id, "title": m.title, "description": "", "state": m.state,
		"created_at": stamp(m.made), "updated_at": stamp(m.updated), "prepared_at": stamp(m.made), "merged_at": merged,
		"source_project_id": from, "target_project_id": m.project.id, "source_branch": m.source, "target_branch": m.target,
		"sha": m.head, "merge_commit_sha": null(m.merged), "squash_commit_sha": nil, "squash": m.squash, "squash_on_merge": m.squash,
		"diff_refs": diff, "draft": m.draft, "work_in_progress": m.draft, "has_conflicts": m.conflicted,
		"detailed_merge_status": m.mergeStatus(), "merge_status": "can_be_merged", "head_pipeline": pipe, "merge_error": nil,
		"user": object{"can_merge": false}, "author": f.user(m.author), "web_url": m.web(),
	}
}

// request finds a request. Called with mu held.
func (p *Project) request(iid int64) *MergeRequest {
	for _, m := range p.requests {
		if m.iid == iid {
			return m
		}
	}
	return nil
}
