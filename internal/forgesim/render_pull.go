package forgesim

import "context"

// pullSimple is the "pull-request-simple" of lists.
func (r rendering) pullSimple(p *PullRequest) object {
	repo := p.base.fullName()
	api, issue := r.f.apiURL("/repos/%s/pulls/%d", repo, p.number), r.f.apiURL("/repos/%s/issues/%d", repo, p.number)
	web := r.f.webURL("/%s/pull/%d", repo, p.number)
	statuses := r.f.apiURL("/repos/%s/statuses/%s", repo, p.headSHA)
	href := func(url string) object { return object{"href": url} }
	return object{
		"url": api, "id": p.id, "node_id": nodeID("PR", p.id), "html_url": web, "diff_url": web + ".diff",
		"patch_url": web + ".patch", "issue_url": issue, "commits_url": api + "/commits",
		"review_comments_url": api + "/comments", "comments_url": issue + "/comments", "statuses_url": statuses,
		"review_comment_url": r.f.apiURL("/repos/%s/pulls/comments{/number}", repo),
		"number":             p.number, "state": p.state, "locked": false, "active_lock_reason": nil, "title": p.title,
		"user": r.user(p.author), "body": textOrNull(p.body), "labels": []any{}, "milestone": nil,
		"created_at": stamp(p.created), "updated_at": stamp(p.updated), "closed_at": orNull(p.closed),
		"merged_at": orNull(p.merged), "merge_commit_sha": textOrNull(p.mergeCommit()), "assignee": nil,
		"assignees": []any{}, "requested_reviewers": []any{}, "requested_teams": []any{},
		"head":   r.side(p.head, p.headBranch, p.headSHA),
		"base":   r.side(p.base, p.baseBranch, p.baseSHA),
		"_links": r.pullLinks(href, api, issue, web, statuses), "author_association": "CONTRIBUTOR", "auto_merge": nil,
		"draft": p.draft,
	}
}

func (r rendering) pullLinks(href func(string) object, api, issue, web, statuses string) object {
	return object{
		"self": href(api), "html": href(web), "issue": href(issue), "comments": href(issue + "/comments"),
		"review_comments": href(api + "/comments"), "commits": href(api + "/commits"), "statuses": href(statuses),
		"review_comment": href(api + "/comments{/number}"),
	}
}

// side is the head or the base of a request. A deleted repository is null.
func (r rendering) side(repo *Repository, branch, sha string) object {
	o := object{
		"label": repo.owner.login + ":" + branch, "ref": branch, "sha": sha, "user": r.user(repo.owner), "repo": nil,
	}
	if !repo.deleted {
		o["repo"] = r.repository(repo)
	}
	return o
}

// mergeCommit is what merge_commit_sha says. Called with mu held.
func (p *PullRequest) mergeCommit() string {
	switch {
	case p.mergeSHA != "":
		return p.mergeSHA
	case p.test.known && !p.test.mergeable:
		return ""
	}
	return p.test.sha
}

// pull is the "pull-request". The sizes of its change, which no gate looks at,
// are constants.
func (r rendering) pull(ctx context.Context, p *PullRequest) (object, error) {
	o := merged(r.pullSimple(p), object{
		"merged": !p.merged.IsZero(), "mergeable": nil, "rebaseable": nil, "mergeable_state": "unknown",
		"merged_by": nil, "comments": 0, "review_comments": 0, "maintainer_can_modify": p.head != p.base,
		"commits": 1, "additions": 1, "deletions": 0, "changed_files": 1,
	})
	if p.mergedBy != nil {
		o["merged_by"] = r.user(p.mergedBy)
	}
	if !p.test.known || p.state != "open" {
		return o, nil
	}
	o["mergeable"], o["rebaseable"] = p.test.mergeable, p.test.mergeable
	state, err := p.mergeableState(ctx)
	o["mergeable_state"] = state
	return o, err
}

// mergeableState is the word for people. Called with mu held.
func (p *PullRequest) mergeableState(ctx context.Context) (string, error) {
	if !p.test.mergeable {
		return "dirty", nil
	}
	if p.draft {
		return "draft", nil
	}
	contexts, strict := p.base.demands(p.baseBranch)
	if strict {
		contained, err := p.base.contains(ctx, p.headSHA, p.test.base)
		if err != nil {
			return "", err
		}
		if !contained {
			return "behind", nil
		}
	}
	judged := p.judged()
	for _, c := range contexts {
		if p.base.judge(judged, c) != "" {
			return "blocked", nil
		}
	}
	return "clean", nil
}

// pullMinimal is the "pull-request-minimal" that check runs carry.
func (r rendering) pullMinimal(p *PullRequest) object {
	repo := func(repo *Repository) object {
		return object{"id": repo.id, "url": r.f.apiURL("/repos/%s", repo.fullName()), "name": repo.name}
	}
	return object{
		"id": p.id, "number": p.number, "url": r.f.apiURL("/repos/%s/pulls/%d", p.base.fullName(), p.number),
		"head": object{"ref": p.headBranch, "sha": p.headSHA, "repo": repo(p.head)},
		"base": object{"ref": p.baseBranch, "sha": p.baseSHA, "repo": repo(p.base)},
	}
}

// pullsOf are the open requests of a commit, as check runs list them: none
// that come from a fork.
func (r rendering) pullsOf(repo *Repository, sha string) []object {
	found := []object{}
	for _, p := range repo.pulls {
		if p.state == "open" && p.headSHA == sha && p.head == repo {
			found = append(found, r.pullMinimal(p))
		}
	}
	return found
}
