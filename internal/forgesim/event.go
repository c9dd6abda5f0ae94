package forgesim

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// emit makes the webhooks of something that happened in r, one for each App
// that reaches it and listens, and one for each hook of its own. payload is asked for only where one does.
// Called with mu held.
func (r *Repository) emit(event, action string, sender *account, payload func() (object, error)) error {
	f := r.forge
	var common object
	for _, a := range f.apps {
		i := f.installationFor(a, r)
		if i == nil || i.suspended || !slices.Contains(a.events, event) {
			continue
		}
		if common == nil {
			made, err := payload()
			if err != nil {
				return fmt.Errorf("webhook %s of %s: %w", event, r.fullName(), err)
			}
			common = merged(r.eventCommon(sender), made)
		}
		body := merged(common, object{
			"installation": object{"id": i.id, "node_id": nodeID("MDIzOkludGVncmF0aW9uSW5zdGFsbGF0aW9u", i.id)},
		})
		f.queue(&Delivery{
			Event: event, Action: action, AppID: a.id, InstallationID: i.id, RepositoryID: r.id, Body: encode(body),
		})
	}
	return r.emitToHooks(event, action, func() (object, error) {
		if common != nil {
			return common, nil
		}
		made, err := payload()
		return merged(r.eventCommon(sender), made), err
	})
}

// eventCommon is what every event of a repository carries.
func (r *Repository) eventCommon(sender *account) object {
	show := rendering{r.forge}
	o := object{"repository": show.webhookRepository(r), "sender": show.user(sender)}
	if r.owner.kind == "Organization" {
		o["organization"] = show.organization(r.owner)
	}
	return o
}

// webhookRepository is the "repository-webhooks".
func (r rendering) webhookRepository(repo *Repository) object {
	o := r.repository(repo)
	o["custom_properties"] = object{}
	return o
}

// emit makes a pull_request event. extra is what its action adds. Called with
// mu held.
func (p *PullRequest) emit(ctx context.Context, sender *account, action string, extra object) error {
	return p.base.emit("pull_request", action, sender, func() (object, error) {
		// A webhook never knows the test merge: it is made by being asked for.
		shown, err := rendering{p.forge}.pull(ctx, p)
		if err != nil {
			return nil, err
		}
		if p.state == "open" {
			shown["mergeable"], shown["rebaseable"], shown["mergeable_state"] = nil, nil, "unknown"
		}
		return merged(object{"action": action, "number": p.number, "pull_request": shown}, extra), nil
	})
}

// emitCheckRun makes a check_run event. Called with mu held.
func (r *Repository) emitCheckRun(_ context.Context, run *checkRun, action string) error {
	f := r.forge
	return r.emit("check_run", action, f.bot(run.app), func() (object, error) {
		show := rendering{f}
		return object{"action": action, "check_run": show.run(r, run, show.suite(r, run.suite))}, nil
	})
}

// Rerequest makes the check_run event of a person who presses Re-run. It goes
// to the App that made the run.
func (r *Repository) Rerequest(run CheckRun) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(r.runs, func(have *checkRun) bool { return have.ID == run.ID })
	if i < 0 {
		return fmt.Errorf("rerequest check run %d: %w", run.ID, ErrNotFound)
	}
	show, have := rendering{f}, r.runs[i]
	before := len(f.outbox)
	err := r.emit("check_run", "rerequested", f.actor(""), func() (object, error) {
		return object{"action": "rerequested", "check_run": show.run(r, have, show.suite(r, have.suite))}, nil
	})
	kept := slices.DeleteFunc(f.outbox[before:], func(d *Delivery) bool { return d.AppID != have.app.id })
	f.outbox = f.outbox[:before+len(kept)]
	return err
}

// maxPushCommits is how many commits a push event lists.
const maxPushCommits = 2048

// emitPush makes a push event. An empty after is a deletion. Called with mu
// held.
func (r *Repository) emitPush(ctx context.Context, sender *account, change refChange) error {
	return r.emit("push", "", sender, func() (object, error) {
		return r.pushPayload(ctx, sender, change)
	})
}

// A refChange is a ref that moved; empty ids are none.
type refChange struct {
	ref, before, after string
	forced             bool
}

func (r *Repository) pushPayload(ctx context.Context, sender *account, c refChange) (object, error) {
	commits, err := r.pushedCommits(ctx, c.before, c.after)
	if err != nil {
		return nil, err
	}
	var head any
	if c.after != "" {
		head = commits[len(commits)-1]
	}
	created, deleted := c.before == "", c.after == ""
	if deleted {
		commits = []object{}
	}
	web := r.forge.webURL("/%s", r.fullName())
	compare := fmt.Sprintf("%s/compare/%.12s...%.12s", web, c.before, c.after)
	setDefault(&c.before, zeroID)
	setDefault(&c.after, zeroID)
	return object{
		"ref": c.ref, "before": c.before, "after": c.after, "created": created, "deleted": deleted, "forced": c.forced,
		"base_ref": nil, "compare": compare, "commits": commits, "head_commit": head,
		"repository": r.pushRepository(),
		"pusher":     object{"name": sender.login, "email": sender.login + "@forge.invalid"},
	}, nil
}

// pushRepository is the repository as push events alone show it.
func (r *Repository) pushRepository() object {
	show := rendering{r.forge}
	o := show.webhookRepository(r)
	owner := show.user(r.owner)
	owner["name"], owner["email"] = r.owner.login, nil
	o["owner"] = owner
	o["created_at"], o["pushed_at"] = r.created.Unix(), r.pushed.Unix()
	o["stargazers"], o["master_branch"] = 0, r.defaultBranch
	if r.owner.kind == "Organization" {
		o["organization"] = r.owner.login
	}
	return o
}

// pushedCommits lists what after has and before has not, oldest first, always
// with after at the end.
func (r *Repository) pushedCommits(ctx context.Context, before, after string) ([]object, error) {
	if after == "" {
		return nil, nil
	}
	args := []string{"rev-list", "--reverse", fmt.Sprintf("--max-count=%d", maxPushCommits), after}
	if before == "" {
		args = []string{"rev-list", "--max-count=1", after}
	} else {
		args = append(args, "^"+before)
	}
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: args})
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	if len(ids) == 0 || ids[len(ids)-1] != after {
		ids = append(ids, after)
	}
	changed, err := r.changedPaths(ctx, ids)
	if err != nil {
		return nil, err
	}
	var commits []object
	for _, id := range ids {
		c, err := r.readCommit(ctx, id)
		if err != nil {
			return nil, err
		}
		commits = append(commits, merged(object{
			"id": id, "tree_id": c.tree, "distinct": true, "message": c.message, "timestamp": stamp(c.committer.when),
			"url":    r.forge.webURL("/%s/commit/%s", r.fullName(), id),
			"author": pusher(c.author), "committer": pusher(c.committer),
		}, changed[id].render()))
	}
	return commits, nil
}

// pusher is a person as commits of push events show one.
func pusher(s signature) object { return merged(person(s), object{"username": DefaultActor}) }

// A pathChange are the paths that one commit touched, by git's status letter.
type pathChange map[string][]string

func (p pathChange) render() object {
	o := object{"added": []string{}, "removed": []string{}, "modified": []string{}}
	for letter, name := range map[string]string{"A": "added", "D": "removed", "M": "modified", "T": "modified"} {
		if paths := p[letter]; len(paths) > 0 {
			o[name] = append(o[name].([]string), paths...)
		}
	}
	return o
}

// changedPaths asks git what each commit touched.
func (r *Repository) changedPaths(ctx context.Context, ids []string) (map[string]pathChange, error) {
	out, err := r.forge.git.run(ctx, gitCall{
		dir: r.dir, args: []string{"diff-tree", "--stdin", "--root", "-r", "-z", "--no-renames", "--name-status"},
		stdin: []byte(strings.Join(ids, "\n") + "\n"),
	})
	if err != nil {
		return nil, err
	}
	all := map[string]pathChange{}
	var current pathChange
	// With -z each field ends in NUL: a commit's id, then letter and path by
	// turns.
	fields := strings.Split(out, "\x00")
	for i := 0; i < len(fields); i++ {
		field := strings.TrimSpace(fields[i])
		if isObjectID(field) {
			current = pathChange{}
			all[field] = current
		} else if field != "" && current != nil && i+1 < len(fields) {
			i++
			current[field] = append(current[field], fields[i])
		}
	}
	return all, nil
}
