package gitlab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// carsAtOnce is how many cars of one train have pipelines at a time.
// contracts/gitlab.md §7
const carsAtOnce = 20

// A Car is one request in a merge train.
type Car struct {
	request *MergeRequest
	id      int64
	user    string
	made    time.Time

	// Guarded by Forge.mu:
	status   string // idle, fresh, stale, merging, merged, skip_merged; "" once it left
	why      string // why it left
	pipeline *Pipeline
	base     string // what it was built on
	commit   string
	head     string
	updated  time.Time
	mergedAt time.Time
	unready  int // reads for which pipeline is not there yet
}

// JoinTrain adds the request to the train of its target branch, by its author.
// Its error matches [ErrRefused] where it can't be merged or the project has no
// trains.
func (m *MergeRequest) JoinTrain(ctx context.Context) (*Car, error) {
	f := m.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.join(ctx, m.author)
}

// join is called with mu held.
func (m *MergeRequest) join(ctx context.Context, user string) (*Car, error) {
	p := m.project
	f := p.forge
	if err := m.makeMergeRef(ctx); err != nil {
		return nil, err
	}
	if c := m.car(); c != nil {
		return c, nil
	}
	if status := m.mergeStatus(); status != "mergeable" || !p.settings.MergeTrains {
		return nil, fmt.Errorf("gitlab: join the train: %w: %s", ErrRefused, status)
	}
	f.ids.car++
	now := f.config.Now()
	c := &Car{request: m, id: f.ids.car, user: user, made: now, updated: now, status: "idle"}
	p.cars = append(p.cars, c)
	return c, p.refreshTrain(ctx, m.target)
}

// car is the one in which the request is, or nil. Called with mu held.
func (m *MergeRequest) car() *Car {
	for _, c := range m.project.cars {
		if c.request == m && c.active() {
			return c
		}
	}
	return nil
}

// active reports whether the car is in its train. Called with mu held.
func (c *Car) active() bool {
	return c.status != "" && c.status != "merged" && c.status != "skip_merged"
}

// Status is what the API says of the car, "" once it has left.
func (c *Car) Status() string {
	c.request.project.forge.mu.Lock()
	defer c.request.project.forge.mu.Unlock()
	return c.status
}

// Left says why the car left its train, "" where it did not.
func (c *Car) Left() string {
	c.request.project.forge.mu.Lock()
	defer c.request.project.forge.mu.Unlock()
	return c.why
}

// Pipeline returns the car's present pipeline, or nil.
func (c *Car) Pipeline() *Pipeline {
	c.request.project.forge.mu.Lock()
	defer c.request.project.forge.mu.Unlock()
	return c.pipeline
}

// Commit returns the train commit that the car has now, "" where it has none.
func (c *Car) Commit() string {
	c.request.project.forge.mu.Lock()
	defer c.request.project.forge.mu.Unlock()
	return c.commit
}

// Leave takes the car out of its train.
func (c *Car) Leave(ctx context.Context) error {
	p := c.request.project
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	if err := p.drop(ctx, c, "taken out"); err != nil {
		return err
	}
	return p.refreshTrain(ctx, c.request.target)
}

// drop takes a car out, cancels its pipeline and removes its ref. The train is
// to be refreshed after it. Called with mu held.
func (p *Project) drop(ctx context.Context, c *Car, why string) error {
	if c == nil || !c.active() {
		return nil
	}
	if c.pipeline != nil {
		c.pipeline.cancel()
	}
	c.status, c.why, c.updated = "", why, p.forge.config.Now()
	return c.forget(ctx)
}

// forget removes the train ref. Called with mu held.
func (c *Car) forget(ctx context.Context) error {
	p := c.request.project
	name := c.request.refName("train")
	if p.under.Ref(name) == "" {
		return nil
	}
	return p.under.SetRef(ctx, name, "")
}

// train lists the cars of a branch, the first first. Called with mu held.
func (p *Project) train(branch string) []*Car {
	return slices.DeleteFunc(slices.Clone(p.cars), func(c *Car) bool { return !c.active() || c.request.target != branch })
}

// refreshTrain builds what has to be built anew, takes out what failed and
// merges what passed. Called with mu held.
func (p *Project) refreshTrain(ctx context.Context, branch string) error {
	for again := true; again; {
		var err error
		if again, err = p.refreshOnce(ctx, branch); err != nil {
			return fmt.Errorf("gitlab: merge train: %w", err)
		}
	}
	return nil
}

// refreshOnce goes along the train up to the first car that leaves or is
// merged, and says then that it has to be done again.
func (p *Project) refreshOnce(ctx context.Context, branch string) (again bool, err error) {
	before := p.under.Ref("refs/heads/" + branch)
	for i, c := range p.train(branch) {
		if i >= carsAtOnce {
			return false, nil
		}
		if c.pipeline == nil || c.base != before || c.head != c.request.head {
			if left, err := p.build(ctx, c, before); left || err != nil {
				return true, err
			}
		}
		switch status := c.pipeline.status(); {
		case status == "success" && i == 0:
			return true, p.merge(ctx, c)
		case status == "failed", status == "canceled":
			return true, p.drop(ctx, c, "the pipeline "+status)
		}
		before = c.commit
	}
	return false, nil
}

// build makes a car's train commit on top of another commit, and its pipeline.
// It reports a car that left because it conflicts. Called with mu held.
func (p *Project) build(ctx context.Context, c *Car, base string) (left bool, err error) {
	m := c.request
	if c.pipeline != nil {
		c.pipeline.cancel()
	}
	commit, err := p.under.Merge(ctx, base, m.head, m.message())
	if errors.Is(err, forgesim.ErrConflict) {
		return true, p.drop(ctx, c, "a conflict")
	}
	if err != nil {
		return false, err
	}
	if err := p.under.SetRef(ctx, m.refName("train"), commit); err != nil {
		return false, err
	}
	c.base, c.commit, c.head, c.status, c.updated = base, commit, m.head, "fresh", p.forge.config.Now()
	c.unready = p.forge.lag
	if c.pipeline, err = p.newPipeline(m, MergeTrain, m.refName("train"), commit, c.user); err != nil {
		return false, err
	}
	if c.pipeline == nil {
		return true, p.drop(ctx, c, "a pipeline without jobs")
	}
	return false, nil
}

// merge merges the first car: the target branch becomes its commit. Called with
// mu held.
func (p *Project) merge(ctx context.Context, c *Car) error {
	m, now := c.request, p.forge.config.Now()
	c.status, c.updated, c.mergedAt = "merged", now, now
	m.state, m.merged, m.mergeAt, m.updated = "merged", c.commit, now, now
	if err := c.forget(ctx); err != nil {
		return err
	}
	m.tell("merge", "")
	_, err := p.push(ctx, forgesim.Push{Branch: m.target, To: c.commit, Actor: c.user})
	return err
}

// MergeNow merges past the train, as whoever may merge can where the settings
// let them; it matches [ErrRefused] where they don't. The train is built anew,
// also after a skip, which needs a setting of its own.
func (m *MergeRequest) MergeNow(ctx context.Context, by string, level Level, skip bool) error {
	f := m.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.mergeNow(ctx, by, level, skip)
}

// mergeNow is called with mu held.
func (m *MergeRequest) mergeNow(ctx context.Context, by string, level Level, skip bool) error {
	p := m.project
	if err := m.makeMergeRef(ctx); err != nil {
		return err
	}
	s := p.settings
	enforced := s.MergeTrains && (s.Enforcement == "enforce_for_all_users" || s.Enforcement == "enforce_with_owner_override" && level < Owner)
	status := m.mergeStatus()
	if enforced || skip && !s.SkipTrainAllowed || status != "mergeable" || level < Developer {
		return fmt.Errorf("gitlab: merge: %w: %s", ErrRefused, status)
	}
	now := p.forge.config.Now()
	if c := m.car(); c != nil {
		if err := p.drop(ctx, c, "merged at once"); err != nil {
			return err
		}
		c.status, c.mergedAt = "skip_merged", now
	}
	m.state, m.merged, m.mergeAt, m.updated = "merged", m.ref, now, now
	m.tell("merge", "")
	_, err := p.push(ctx, forgesim.Push{Branch: m.target, To: m.ref, Actor: by})
	return err
}

// render is the car as the API shows it. Called with mu held.
func (c *Car) render() object {
	m := c.request
	var pipe, merged, duration any
	switch {
	case c.unready > 0:
		c.unready--
	case c.pipeline != nil:
		pipe = c.pipeline.render()
	}
	if !c.mergedAt.IsZero() {
		merged, duration = stamp(c.mergedAt), int(c.mergedAt.Sub(c.made).Seconds())
	}
	return object{
		"id": c.id, "merge_request": object{
			"id": m.id, "iid": m.iid, "project_id": m.project.id, "title": m.title, "description": "", "state": m.state,
			"created_at": stamp(m.made), "updated_at": stamp(m.updated), "web_url": m.web(),
		},
		"user": m.project.forge.user(c.user), "pipeline": pipe, "target_branch": m.target, "status": c.status,
		"created_at": stamp(c.made), "updated_at": stamp(c.updated), "merged_at": merged, "duration": duration,
	}
}
