package forgesim

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// checkOperations are the calls on Check Runs, suites and commit statuses.
func checkOperations() []route {
	return []route{
		write("POST", "/check-runs", "checks", createRun),
		write("PATCH", "/check-runs/{check_run_id}", "checks", updateRun),
		read("/check-runs/{check_run_id}", "checks", getRun),
		read("/check-runs/{check_run_id}/annotations", "checks", listAnnotations),
		read("/commits/{ref}/check-runs", "checks", listRuns),
		read("/commits/{ref}/check-suites", "checks", listSuites),
		read("/check-suites/{check_suite_id}", "checks", getSuite),
		read("/check-suites/{check_suite_id}/check-runs", "checks", listSuiteRuns),
		read("/commits/{ref}/status", "statuses", getCombinedStatus),
		read("/commits/{ref}/statuses", "statuses", listStatuses),
		write("POST", "/statuses/{sha}", "statuses", createStatus),
	}
}

// createRun makes a run each time it is asked: GitHub has no key that would
// tell a repeat from a new run.
func createRun(f *Forge, c *call) answer {
	in, err := parseRun(c.body)
	if err != nil {
		return refused(err)
	}
	if in.Name == nil || *in.Name == "" || in.HeadSHA == nil {
		return invalid("Invalid request.", wrong("CheckRun", "name, head_sha", "missing_field", "are needed"))
	}
	if _, err := c.repo.readCommit(c.ctx, *in.HeadSHA); errors.Is(err, ErrNotFound) {
		return noCommit(c, *in.HeadSHA)
	} else if err != nil {
		return missing(err)
	}
	run := &checkRun{app: c.who.token.installation.app}
	run.HeadSHA, run.Status, run.StartedAt = *in.HeadSHA, "queued", f.now()
	in.apply(run, f.now())
	if err := c.repo.addRun(c.ctx, run); err != nil {
		return missing(err)
	}
	a := reply(http.StatusCreated, rendering{f}.runOfREST(c.repo, run))
	a.header.Set("Location", f.apiURL("/repos/%s/check-runs/%d", c.repo.fullName(), run.ID))
	return a
}

// refused answers a body that is none.
func refused(err error) answer {
	if request, ok := errors.AsType[*errRunRequest](err); ok {
		return invalid("Invalid request.", request.faults...)
	}
	return failure(http.StatusBadRequest, "Problems parsing JSON")
}

// updateRun changes a run of the asking App.
func updateRun(f *Forge, c *call) answer {
	run := c.runOfPath()
	if run == nil {
		return notFound()
	}
	if run.app != c.who.token.installation.app {
		return failure(http.StatusForbidden, "Invalid app_id: the check run belongs to another App")
	}
	in, err := parseRun(c.body)
	if err != nil {
		return refused(err)
	}
	before := run.Status
	in.apply(run, f.now())
	run.suite.updated = f.now()
	if before != "completed" && run.Status == "completed" {
		if err := c.repo.emitCheckRun(c.ctx, run, "completed"); err != nil {
			return missing(err)
		}
	}
	return found(rendering{f}.runOfREST(c.repo, run))
}

// runOfPath finds the run that a path names.
func (c *call) runOfPath() *checkRun {
	id := c.number("check_run_id")
	i := slices.IndexFunc(c.repo.runs, func(run *checkRun) bool { return run.ID == id })
	if i < 0 {
		return nil
	}
	return c.repo.runs[i]
}

func getRun(f *Forge, c *call) answer {
	if run := c.runOfPath(); run != nil {
		return found(rendering{f}.runOfREST(c.repo, run))
	}
	return notFound()
}

func listAnnotations(f *Forge, c *call) answer {
	run := c.runOfPath()
	if run == nil {
		return notFound()
	}
	page, header := pageOf(c, run.annotations)
	shown := []object{}
	for _, a := range page {
		shown = append(shown, object{
			"path": a.Path, "start_line": a.StartLine, "end_line": a.EndLine, "start_column": a.StartColumn,
			"end_column": a.EndColumn, "annotation_level": a.Level, "message": a.Message, "title": a.Title,
			"raw_details": a.RawDetails,
			"blob_href":   f.webURL("/%s/blob/%s/%s", c.repo.fullName(), run.HeadSHA, (&url.URL{Path: a.Path}).EscapedPath()),
		})
	}
	return found(shown).withHeader(header)
}

// listRuns lists the runs of a commit: of its newest suites, and unless all
// are asked for, the newest of each App and name.
func listRuns(f *Forge, c *call) answer {
	sha, a, ok := c.commitOf(c.ctx)
	if !ok {
		return a
	}
	suites := c.suitesOf(sha)
	if len(suites) > suitesPerRef {
		suites = suites[len(suites)-suitesPerRef:]
	}
	return c.runs(f, func(run *checkRun) bool { return slices.Contains(suites, run.suite) })
}

func listSuiteRuns(f *Forge, c *call) answer {
	suite := c.suiteOfPath()
	if suite == nil {
		return notFound()
	}
	return c.runs(f, func(run *checkRun) bool { return run.suite == suite })
}

// runs answers a list of those runs that are in it and pass the filters.
func (c *call) runs(f *Forge, in func(*checkRun) bool) answer {
	var chosen []*checkRun
	for _, run := range c.visibleRuns(f) {
		if in(run) && c.wantsRun(run) {
			chosen = append(chosen, run)
		}
	}
	if c.query.Get("filter") != "all" {
		chosen = latest(chosen)
	}
	if !f.mood.OldestFirst {
		slices.Reverse(chosen)
	}
	page, header := pageOf(c, chosen)
	shown := []object{}
	for _, run := range page {
		shown = append(shown, rendering{f}.runOfREST(c.repo, run))
	}
	return found(object{"total_count": len(chosen), "check_runs": shown}).withHeader(header)
}

// visibleRuns leaves out what lists do not show yet.
func (c *call) visibleRuns(f *Forge) []*checkRun {
	hide := 0
	if e, ok := first[HideRuns](c.effects); ok {
		hide = e.N
	}
	if c.repo.hidden > 0 {
		c.repo.hidden--
		hide = max(hide, 1)
	}
	return c.repo.runs[:max(len(c.repo.runs)-hide, 0)]
}

func (c *call) wantsRun(run *checkRun) bool {
	if name := c.query.Get("check_name"); name != "" && name != run.Name {
		return false
	}
	if state := c.query.Get("status"); state != "" && state != run.Status {
		return false
	}
	app := c.query.Get("app_id")
	return app == "" || app == strconv.FormatInt(run.app.id, 10)
}

// latest keeps the newest run of each suite and name.
func latest(runs []*checkRun) []*checkRun {
	type key struct {
		suite *checkSuite
		name  string
	}
	newest := map[key]*checkRun{}
	for _, run := range runs {
		newest[key{run.suite, run.Name}] = run
	}
	return slices.DeleteFunc(runs, func(run *checkRun) bool { return newest[key{run.suite, run.Name}] != run })
}

func (c *call) suitesOf(sha string) []*checkSuite {
	var found []*checkSuite
	for _, s := range c.repo.suites {
		if s.headSHA == sha {
			found = append(found, s)
		}
	}
	return found
}

func listSuites(f *Forge, c *call) answer {
	sha, a, ok := c.commitOf(c.ctx)
	if !ok {
		return a
	}
	app, name := c.query.Get("app_id"), c.query.Get("check_name")
	chosen := slices.DeleteFunc(c.suitesOf(sha), func(s *checkSuite) bool {
		named := slices.ContainsFunc(c.repo.runs, func(run *checkRun) bool { return run.suite == s && run.Name == name })
		return app != "" && app != strconv.FormatInt(s.app.id, 10) || name != "" && !named
	})
	page, header := pageOf(c, chosen)
	shown := []object{}
	for _, s := range page {
		o, err := rendering{f}.suiteOfREST(c.ctx, c.repo, s)
		if err != nil {
			return missing(err)
		}
		shown = append(shown, o)
	}
	return found(object{"total_count": len(chosen), "check_suites": shown}).withHeader(header)
}

func (c *call) suiteOfPath() *checkSuite {
	id := c.number("check_suite_id")
	i := slices.IndexFunc(c.repo.suites, func(s *checkSuite) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return c.repo.suites[i]
}

func getSuite(f *Forge, c *call) answer {
	suite := c.suiteOfPath()
	if suite == nil {
		return notFound()
	}
	o, err := rendering{f}.suiteOfREST(c.ctx, c.repo, suite)
	if err != nil {
		return missing(err)
	}
	return found(o)
}

// statusesOf returns the statuses of a commit, newest first.
func (r *Repository) statusesOf(sha string) []*status {
	var found []*status
	for _, s := range slices.Backward(r.statuses) {
		if s.SHA == sha {
			found = append(found, s)
		}
	}
	return found
}

// getCombinedStatus shows the newest status of each context. Check Runs are
// not in it.
func getCombinedStatus(f *Forge, c *call) answer {
	sha, a, ok := c.commitOf(c.ctx)
	if !ok {
		return a
	}
	seen := map[string]bool{}
	newest := slices.DeleteFunc(c.repo.statusesOf(sha), func(s *status) bool {
		key := strings.ToLower(s.Context)
		defer func() { seen[key] = true }()
		return seen[key]
	})
	state := "success"
	if len(newest) == 0 {
		state = "pending"
	}
	for _, s := range newest {
		switch {
		case s.State == "error" || s.State == "failure":
			state = "failure"
		case s.State == "pending" && state == "success":
			state = "pending"
		}
	}
	page, header := pageOf(c, newest)
	shown := []object{}
	for _, s := range page {
		shown = append(shown, rendering{f}.status(c.repo, s, true))
	}
	commit := f.apiURL("/repos/%s/commits/%s", c.repo.fullName(), sha)
	return found(object{
		"state": state, "statuses": shown, "sha": sha, "total_count": len(newest),
		"repository": rendering{f}.minimal(c.repo), "commit_url": commit, "url": commit + "/status",
	}).withHeader(header)
}

func listStatuses(f *Forge, c *call) answer {
	sha, a, ok := c.commitOf(c.ctx)
	if !ok {
		return a
	}
	page, header := pageOf(c, c.repo.statusesOf(sha))
	shown := []object{}
	for _, s := range page {
		shown = append(shown, rendering{f}.status(c.repo, s, false))
	}
	return found(shown).withHeader(header)
}

func createStatus(f *Forge, c *call) answer {
	var in struct {
		State       string  `json:"state"`
		TargetURL   *string `json:"target_url"`
		Description *string `json:"description"`
		Context     string  `json:"context"`
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		return failure(http.StatusBadRequest, "Problems parsing JSON")
	}
	if !slices.Contains([]string{"error", "failure", "pending", "success"}, in.State) {
		return invalid("Validation Failed", wrong("Status", "state", "invalid", "is no state"))
	}
	if _, err := c.repo.readCommit(c.ctx, c.path("sha")); errors.Is(err, ErrNotFound) {
		return noCommit(c, c.path("sha"))
	} else if err != nil {
		return missing(err)
	}
	s := Status{SHA: c.path("sha"), Context: in.Context, State: in.State, AppID: c.who.token.installation.app.id}
	if in.Description != nil {
		s.Description = *in.Description
	}
	if in.TargetURL != nil {
		s.TargetURL = *in.TargetURL
	}
	st := c.repo.addStatus(s, c.who.token.installation.app)
	return reply(http.StatusCreated, rendering{f}.status(c.repo, st, false))
}
