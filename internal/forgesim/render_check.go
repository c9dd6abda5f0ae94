package forgesim

import "context"

// run is the "check-run". suite says how the suite is shown.
func (r rendering) run(repo *Repository, run *checkRun, suite object) object {
	api := r.f.apiURL("/repos/%s/check-runs/%d", repo.fullName(), run.ID)
	web := r.f.webURL("/%s/runs/%d", repo.fullName(), run.ID)
	details := run.DetailsURL
	setDefault(&details, r.f.webURL("/apps/%s", run.app.slug))
	output := object{
		"title": nil, "summary": nil, "text": textOrNull(run.Text), "annotations_count": run.Annotations,
		"annotations_url": api + "/annotations",
	}
	if run.output {
		output["title"], output["summary"] = run.Title, run.Summary
	}
	return object{
		"id": run.ID, "node_id": nodeID("CR", run.ID), "name": run.Name, "head_sha": run.HeadSHA,
		"external_id": run.ExternalID, "url": api, "html_url": web, "details_url": details,
		"status": run.Status, "conclusion": textOrNull(run.Conclusion), "started_at": orNull(run.StartedAt),
		"completed_at": orNull(run.CompletedAt), "output": output, "check_suite": suite, "app": r.app(run.app),
		"pull_requests": r.pullsOf(repo, run.HeadSHA),
	}
}

// runOfREST is the check run as REST calls show it.
func (r rendering) runOfREST(repo *Repository, run *checkRun) object {
	return r.run(repo, run, object{"id": run.suite.id})
}

// suiteState sums a suite's runs up.
func (repo *Repository) suiteState(s *checkSuite) (status, conclusion string, runs int) {
	status, conclusion = "completed", "success"
	for _, run := range repo.runs {
		if run.suite != s {
			continue
		}
		runs++
		if run.Status != "completed" {
			status = run.Status
		} else if !passes(run.Conclusion) {
			conclusion = run.Conclusion
		}
	}
	if runs == 0 {
		status = "queued"
	}
	if status != "completed" {
		conclusion = ""
	}
	return status, conclusion, runs
}

// suite is what REST and webhooks show of a suite alike.
func (r rendering) suite(repo *Repository, s *checkSuite) object {
	state, conclusion, _ := repo.suiteState(s)
	var branch any
	for _, p := range repo.pulls {
		if p.headSHA == s.headSHA && p.head == repo {
			branch = p.headBranch
		}
	}
	return object{
		"id": s.id, "node_id": nodeID("CS", s.id), "head_branch": branch, "head_sha": s.headSHA, "status": state,
		"conclusion": textOrNull(conclusion), "url": r.f.apiURL("/repos/%s/check-suites/%d", repo.fullName(), s.id),
		"before": zeroID, "after": s.headSHA, "pull_requests": r.pullsOf(repo, s.headSHA), "app": r.app(s.app),
		"created_at": stamp(s.created), "updated_at": stamp(s.updated),
	}
}

// suiteOfREST is the "check-suite".
func (r rendering) suiteOfREST(ctx context.Context, repo *Repository, s *checkSuite) (object, error) {
	_, _, runs := repo.suiteState(s)
	commit, err := repo.readCommit(ctx, s.headSHA)
	if err != nil {
		return nil, err
	}
	return merged(r.suite(repo, s), object{
		"repository": r.minimal(repo), "latest_check_runs_count": runs, "rerequestable": true, "runs_rerequestable": true,
		"check_runs_url": r.f.apiURL("/repos/%s/check-suites/%d/check-runs", repo.fullName(), s.id),
		"head_commit": object{
			"id": commit.sha, "tree_id": commit.tree, "message": commit.message, "timestamp": stamp(commit.committer.when),
			"author": person(commit.author), "committer": person(commit.committer),
		},
	}), nil
}

func person(s signature) object { return object{"name": s.name, "email": s.email} }

// status is the "status"; a combined status shows less of it.
func (r rendering) status(repo *Repository, s *status, combined bool) object {
	o := object{
		"url":        r.f.apiURL("/repos/%s/statuses/%s", repo.fullName(), s.SHA),
		"avatar_url": r.f.webURL("/avatars/u/%d", s.creator.id), "id": s.id, "node_id": nodeID("SC", s.id),
		"state": s.State, "description": textOrNull(s.Description), "target_url": textOrNull(s.TargetURL),
		"context": s.Context, "created_at": stamp(s.created), "updated_at": stamp(s.created),
	}
	if !combined {
		o["creator"] = r.user(s.creator)
	}
	return o
}

// signed is a commit's author or committer with the date.
func signed(s signature) object {
	return object{"name": s.name, "email": s.email, "date": stamp(s.when)}
}

func unverified() object {
	return object{"verified": false, "reason": "unsigned", "signature": nil, "payload": nil, "verified_at": nil}
}

// gitCommit is the "git-commit".
func (r rendering) gitCommit(repo *Repository, c commitObject) object {
	name := repo.fullName()
	parents := []object{}
	for _, p := range c.parents {
		parents = append(parents, object{
			"sha": p, "url": r.f.apiURL("/repos/%s/git/commits/%s", name, p), "html_url": r.f.webURL("/%s/commit/%s", name, p),
		})
	}
	return object{
		"sha": c.sha, "node_id": "C_" + c.sha, "url": r.f.apiURL("/repos/%s/git/commits/%s", name, c.sha),
		"html_url": r.f.webURL("/%s/commit/%s", name, c.sha), "author": signed(c.author), "committer": signed(c.committer),
		"message": c.message, "parents": parents, "verification": unverified(),
		"tree": object{"sha": c.tree, "url": r.f.apiURL("/repos/%s/git/trees/%s", name, c.tree)},
	}
}

// commit is the "commit", which branches carry.
func (r rendering) commit(repo *Repository, c commitObject) object {
	name := repo.fullName()
	g := r.gitCommit(repo, c)
	return object{
		"url": r.f.apiURL("/repos/%s/commits/%s", name, c.sha), "sha": c.sha, "node_id": g["node_id"],
		"html_url": g["html_url"], "comments_url": r.f.apiURL("/repos/%s/commits/%s/comments", name, c.sha),
		"commit": object{
			"url": g["url"], "author": g["author"], "committer": g["committer"], "message": c.message,
			"comment_count": 0, "tree": g["tree"], "verification": g["verification"],
		},
		"author": nil, "committer": nil, "parents": g["parents"],
	}
}
