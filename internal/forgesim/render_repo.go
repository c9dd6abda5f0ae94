package forgesim

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A rendering holds what every JSON object needs: where its links lead. All
// methods are called with mu held.
type rendering struct{ f *Forge }

// nodeID is the GraphQL name of a thing.
func nodeID(kind string, id int64) string {
	return kind + "_" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%020d", id))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// orNull is t as text, or null for the zero time.
func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// textOrNull is s, or null for none.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// merged copies the objects into one; later ones win.
func merged(objects ...object) object {
	all := object{}
	for _, o := range objects {
		for k, v := range o {
			all[k] = v
		}
	}
	return all
}

// user is the "simple-user".
func (r rendering) user(a *account) object {
	escaped := strings.NewReplacer("[", "%5B", "]", "%5D").Replace(a.login)
	api := r.f.apiURL("/users/%s", escaped)
	return object{
		"login": a.login, "id": a.id, "node_id": nodeID("U", a.id), "type": a.kind, "site_admin": false,
		"avatar_url": r.f.webURL("/avatars/u/%d", a.id), "gravatar_id": "",
		"url": api, "html_url": r.f.webURL("/%s", escaped), "user_view_type": "public",
		"followers_url": api + "/followers", "following_url": api + "/following{/other_user}",
		"gists_url": api + "/gists{/gist_id}", "starred_url": api + "/starred{/owner}{/repo}",
		"subscriptions_url": api + "/subscriptions", "organizations_url": api + "/orgs", "repos_url": api + "/repos",
		"events_url": api + "/events{/privacy}", "received_events_url": api + "/received_events",
	}
}

// organization is the account in webhooks of an organization's repositories.
func (r rendering) organization(a *account) object {
	api := r.f.apiURL("/orgs/%s", a.login)
	return object{
		"login": a.login, "id": a.id, "node_id": nodeID("O", a.id), "url": api, "description": "",
		"repos_url": api + "/repos", "events_url": api + "/events", "hooks_url": api + "/hooks",
		"issues_url": api + "/issues", "members_url": api + "/members{/member}",
		"public_members_url": api + "/public_members{/member}", "avatar_url": r.f.webURL("/avatars/u/%d", a.id),
	}
}

// repositoryLinks are the URLs of a repository's parts, below its own.
func repositoryLinks() map[string]string {
	return map[string]string{
		"archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}", "blobs_url": "/git/blobs{/sha}",
		"branches_url": "/branches{/branch}", "collaborators_url": "/collaborators{/collaborator}",
		"comments_url": "/comments{/number}", "commits_url": "/commits{/sha}", "compare_url": "/compare/{base}...{head}",
		"contents_url": "/contents/{+path}", "contributors_url": "/contributors", "deployments_url": "/deployments",
		"downloads_url": "/downloads", "events_url": "/events", "forks_url": "/forks",
		"git_commits_url": "/git/commits{/sha}", "git_refs_url": "/git/refs{/sha}", "git_tags_url": "/git/tags{/sha}",
		"hooks_url": "/hooks", "issue_comment_url": "/issues/comments{/number}",
		"issue_events_url": "/issues/events{/number}", "issues_url": "/issues{/number}", "keys_url": "/keys{/key_id}",
		"labels_url": "/labels{/name}", "languages_url": "/languages", "merges_url": "/merges",
		"milestones_url": "/milestones{/number}", "notifications_url": "/notifications{?since,all,participating}",
		"pulls_url": "/pulls{/number}", "releases_url": "/releases{/id}", "stargazers_url": "/stargazers",
		"statuses_url": "/statuses/{sha}", "subscribers_url": "/subscribers", "subscription_url": "/subscription",
		"tags_url": "/tags", "teams_url": "/teams", "trees_url": "/git/trees{/sha}",
	}
}

// minimal is the "minimal-repository".
func (r rendering) minimal(repo *Repository) object {
	api := r.f.apiURL("/repos/%s", repo.fullName())
	o := object{
		"id": repo.id, "node_id": nodeID("R", repo.id), "name": repo.name, "full_name": repo.fullName(),
		"owner": r.user(repo.owner), "private": !repo.public, "html_url": r.f.webURL("/%s", repo.fullName()),
		"description": nil, "fork": repo.parent != nil, "url": api,
	}
	for name, path := range repositoryLinks() {
		o[name] = api + path
	}
	return o
}

// repository is the "repository", which requests and webhooks carry.
func (r rendering) repository(repo *Repository) object {
	web := r.f.webURL("/%s", repo.fullName())
	_, afterScheme, _ := strings.Cut(web, "://")
	visibility := "private"
	if repo.public {
		visibility = "public"
	}
	open := 0
	for _, pr := range repo.pulls {
		if pr.state == "open" {
			open++
		}
	}
	return merged(r.minimal(repo), object{
		"git_url": "git://" + afterScheme + ".git", "ssh_url": "ssh://git@" + afterScheme + ".git",
		"clone_url": web + ".git", "svn_url": web, "mirror_url": nil, "homepage": nil, "language": nil, "license": nil,
		"size": 0, "stargazers_count": 0, "watchers_count": 0, "watchers": 0, "forks_count": 0, "forks": 0,
		"open_issues_count": open, "open_issues": open, "topics": []string{}, "visibility": visibility,
		"has_issues": true, "has_projects": false, "has_downloads": true, "has_wiki": false, "has_pages": false,
		"has_discussions": false, "archived": repo.archived, "disabled": false, "is_template": false,
		"allow_forking": true, "web_commit_signoff_required": false, "default_branch": repo.defaultBranch,
		"created_at": stamp(repo.created), "updated_at": stamp(repo.pushed), "pushed_at": stamp(repo.pushed),
	})
}

// full is the "full-repository", which is asked for by name.
func (r rendering) full(repo *Repository) object {
	o := merged(r.repository(repo), object{
		"network_count": 0, "subscribers_count": 0, "temp_clone_token": "",
		"permissions":        object{"admin": false, "maintain": false, "push": false, "triage": false, "pull": true},
		"allow_rebase_merge": true, "allow_squash_merge": true, "allow_merge_commit": true, "allow_auto_merge": false,
		"delete_branch_on_merge": false, "allow_update_branch": false,
	})
	if repo.owner.kind == "Organization" {
		o["organization"] = r.user(repo.owner)
	}
	if repo.parent != nil && !repo.parent.deleted {
		o["parent"], o["source"] = r.repository(repo.parent), r.repository(repo.parent)
	}
	return o
}

// app is the "integration".
func (r rendering) app(a *App) object {
	events := slices.Clone(a.events)
	return object{
		"id": a.id, "slug": a.slug, "node_id": nodeID("A", a.id), "client_id": a.clientID, "owner": r.user(a.owner),
		"name": a.slug, "description": "", "external_url": r.f.webURL("/apps/%s", a.slug),
		"html_url": r.f.webURL("/apps/%s", a.slug), "created_at": stamp(a.created), "updated_at": stamp(a.created),
		"permissions": a.permissions, "events": events,
	}
}

// installation is the "installation".
func (r rendering) installation(i *Installation) object {
	path := "organizations"
	if i.account.kind == "User" {
		path = "settings"
	}
	o := object{
		"id": i.id, "account": r.user(i.account), "repository_selection": "selected",
		"access_tokens_url": r.f.apiURL("/app/installations/%d/access_tokens", i.id),
		"repositories_url":  r.f.apiURL("/installation/repositories"),
		"html_url":          r.f.webURL("/%s/installations/%d", path, i.id),
		"app_id":            i.app.id, "client_id": i.app.clientID, "app_slug": i.app.slug,
		"target_id": i.account.id, "target_type": i.account.kind, "permissions": i.permissions,
		"events": slices.Clone(i.app.events), "created_at": stamp(i.created), "updated_at": stamp(i.created),
		"single_file_name": nil, "has_multiple_single_files": false, "single_file_paths": []string{},
		"suspended_by": nil, "suspended_at": nil,
	}
	if i.suspended {
		o["suspended_by"], o["suspended_at"] = r.user(i.account), stamp(r.f.now())
	}
	return o
}
