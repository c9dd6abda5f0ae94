package forgesim

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A CheckRun is a Check Run as the forge stores it.
type CheckRun struct {
	// ID is the forge's.
	ID int64
	// AppID is the App that made it and alone may change it.
	AppID int64
	// Name, HeadSHA, ExternalID and DetailsURL are as given.
	Name, HeadSHA, ExternalID, DetailsURL string
	// Status is queued, in_progress or completed.
	Status string
	// Conclusion is set once Status is completed.
	Conclusion string
	// StartedAt and CompletedAt are as given, or the forge's time.
	StartedAt, CompletedAt time.Time
	// Title, Summary and Text are the output's; empty without one.
	Title, Summary, Text string
	// Annotations counts those of all requests.
	Annotations int
	// Created is when the forge took it.
	Created time.Time
}

// A checkRun is a CheckRun with what else the forge keeps of it. Guarded by
// Forge.mu.
type checkRun struct {
	CheckRun
	app         *App
	suite       *checkSuite
	output      bool
	annotations []annotation
}

// A checkSuite holds the runs of one App on one commit. Guarded by Forge.mu.
type checkSuite struct {
	id      int64
	app     *App
	headSHA string
	created time.Time
	updated time.Time
}

// A NewCheckRun is a run that [Repository.CreateCheckRun] makes for an App
// without a request: somebody else's run, or a visible duplicate.
type NewCheckRun struct {
	// App makes it; nil: the forge's first App.
	App *App
	// Name and HeadSHA are required.
	Name, HeadSHA, ExternalID string
	// Conclusion completes the run; empty: it stays queued.
	Conclusion string
	// Title and Summary make an output where Title is not empty.
	Title, Summary string
}

// CreateCheckRun makes a run without a request.
func (r *Repository) CreateCheckRun(ctx context.Context, n NewCheckRun) (CheckRun, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.App == nil {
		n.App = f.apps[0]
	}
	if _, err := r.readCommit(ctx, n.HeadSHA); err != nil {
		return CheckRun{}, fmt.Errorf("create check run: %w", err)
	}
	run := &checkRun{
		CheckRun: CheckRun{
			Name: n.Name, HeadSHA: n.HeadSHA, ExternalID: n.ExternalID, Status: "queued",
			Title: n.Title, Summary: n.Summary, StartedAt: f.now(),
		},
		app: n.App, output: n.Title != "",
	}
	if n.Conclusion != "" {
		run.Status, run.Conclusion, run.CompletedAt = "completed", n.Conclusion, f.now()
	}
	if err := r.addRun(ctx, run); err != nil {
		return CheckRun{}, fmt.Errorf("create check run: %w", err)
	}
	return run.CheckRun, nil
}

// addRun stores a run in the suite of its App and commit, and sends check_run.
// Nothing keeps two runs from being alike. Called with mu held.
func (r *Repository) addRun(ctx context.Context, run *checkRun) error {
	f := r.forge
	run.ID, run.AppID, run.Created = next(&f.ids.run), run.app.id, f.now()
	run.suite = r.suiteOf(run.app, run.HeadSHA)
	run.suite.updated = run.Created
	r.runs = append(r.runs, run)
	r.hidden = f.mood.upTo(f.mood.HiddenReads)
	r.dropOldRuns(run)
	if err := r.emitCheckRun(ctx, run, "created"); err != nil {
		return err
	}
	if run.Status == "completed" {
		return r.emitCheckRun(ctx, run, "completed")
	}
	return nil
}

// dropOldRuns deletes the oldest run of a name above [runsPerName] in a suite.
func (r *Repository) dropOldRuns(latest *checkRun) {
	n := 0
	for _, run := range r.runs {
		if run.suite == latest.suite && run.Name == latest.Name {
			n++
		}
	}
	if n <= runsPerName {
		return
	}
	oldest := slices.IndexFunc(r.runs, func(run *checkRun) bool {
		return run.suite == latest.suite && run.Name == latest.Name
	})
	r.runs = slices.Delete(r.runs, oldest, oldest+1)
}

// suiteOf finds or makes a suite. Called with mu held.
func (r *Repository) suiteOf(a *App, sha string) *checkSuite {
	for _, s := range r.suites {
		if s.app == a && s.headSHA == sha {
			return s
		}
	}
	f := r.forge
	s := &checkSuite{id: next(&f.ids.suite), app: a, headSHA: sha, created: f.now(), updated: f.now()}
	r.suites = append(r.suites, s)
	return s
}

// CheckRuns returns every App's runs on a commit, oldest first; "" means on
// every commit.
func (r *Repository) CheckRuns(headSHA string) []CheckRun {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	var found []CheckRun
	for _, run := range r.runs {
		if headSHA == "" || run.HeadSHA == headSHA {
			found = append(found, run.CheckRun)
		}
	}
	return found
}

// A status is one commit status. Guarded by Forge.mu.
type status struct {
	Status
	id      int64
	app     *App // nil: creator is a person
	creator *account
	created time.Time
}

// A Status is a commit status.
type Status struct {
	// SHA is the commit.
	SHA string
	// Context is its name; default "default".
	Context string
	// State is error, failure, pending or success.
	State string
	// Description and TargetURL are optional.
	Description, TargetURL string
	// AppID is the App that posted it; zero: a person.
	AppID int64
}

// PostStatus posts a commit status as an App of the forge (AppID) or as a
// person.
func (r *Repository) PostStatus(ctx context.Context, s Status) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := r.readCommit(ctx, s.SHA); err != nil {
		return fmt.Errorf("post status: %w", err)
	}
	var app *App
	for _, a := range f.apps {
		if a.id == s.AppID {
			app = a
		}
	}
	if s.AppID != 0 && app == nil {
		return fmt.Errorf("post status as App %d: %w", s.AppID, ErrNotFound)
	}
	r.addStatus(s, app)
	return nil
}

// addStatus is called with mu held.
func (r *Repository) addStatus(s Status, app *App) *status {
	f := r.forge
	setDefault(&s.Context, "default")
	st := &status{Status: s, id: next(&f.ids.status), app: app, creator: f.actor(""), created: f.now()}
	if app != nil {
		st.creator = f.bot(app)
	}
	r.statuses = append(r.statuses, st)
	return st
}

// Statuses returns the statuses of a commit, oldest first; "" means of every
// commit.
func (r *Repository) Statuses(sha string) []Status {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	var found []Status
	for _, st := range r.statuses {
		if sha == "" || st.SHA == sha {
			found = append(found, st.Status)
		}
	}
	return found
}

// bot is the account that an App acts as. Called with mu held.
func (f *Forge) bot(a *App) *account { return f.account(a.slug+"[bot]", "Bot", 0) }
