package gitea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// routes builds the table of operations.
func (f *Forge) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+APIPrefix+"/version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, object{"version": f.config.Version})
	})
	mux.HandleFunc("GET "+APIPrefix+"/user", f.getUser)
	byName := func(serve func(http.ResponseWriter, *http.Request, *Repository)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { f.onRepository(w, r, serve) }
	}
	const repository = APIPrefix + "/repos/{owner}/{repo}"
	mux.HandleFunc("GET "+repository, byName(getRepository))
	mux.HandleFunc("GET "+APIPrefix+"/repositories/{id}", byName(getRepository))
	mux.HandleFunc("GET "+repository+"/branches/{branch}", byName(getBranch))
	mux.HandleFunc("GET "+repository+"/hooks", byName(listHooks))
	mux.HandleFunc("GET "+repository+"/collaborators/{login}/permission", byName(getPermission))
	mux.HandleFunc("GET "+repository+"/compare/{basehead}", byName(compare))
	mux.HandleFunc("GET "+repository+"/branch_protections/{name}", byName(getRule))
	mux.HandleFunc("GET "+repository+"/git/commits/{sha}", byName(getCommit))
	mux.HandleFunc("GET "+repository+"/commits/{sha}/statuses", byName(listStatuses))
	mux.HandleFunc("POST "+repository+"/statuses/{sha}", byName(postStatus))
	mux.HandleFunc("GET "+repository+"/pulls", byName(listPulls))
	mux.HandleFunc("GET "+repository+"/pulls/{number}", byName(onPull(getPull)))
	mux.HandleFunc("GET "+repository+"/pulls/{number}/reviews", byName(onPull(listReviews)))
	mux.HandleFunc("POST "+repository+"/pulls/{number}/reviews", byName(onPull(postReview)))
	mux.HandleFunc("GET "+repository+"/pulls/{number}/reviews/{review}", byName(onPull(getReview)))
	mux.HandleFunc("POST "+repository+"/pulls/{number}/merge", byName(onPull(mergePull)))
	mux.HandleFunc("POST "+repository+"/hooks/{hook}/tests", byName(testHook))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { f.failure(w, http.StatusNotFound, "404 Not Found") })
	return mux
}

// ServeHTTP serves the API below [APIPrefix] and git elsewhere.
func (f *Forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	t, invalid := f.identify(r)
	by := "anonymous"
	switch {
	case invalid:
		by = "invalid"
	case t != nil:
		by = t.user
	}
	if len(f.journal) < maxJournal {
		f.journal = append(f.journal, Request{r.Method, r.URL.Path, r.URL.RawQuery, by, r.Header.Get("If-None-Match") != ""})
	}
	down, interfere := f.down, f.interfere
	f.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if interfere != nil {
		if a := interfere(r); a != nil {
			a.Write(w)
			return
		}
	}
	api := strings.HasPrefix(r.URL.Path, APIPrefix+"/")
	switch {
	case invalid && api:
		f.failure(w, http.StatusUnauthorized, "invalid username, password or token")
	case api:
		f.api.ServeHTTP(w, r)
	default:
		f.serveGit(w, r, t, invalid)
	}
}

// Quietly does what a request asks for and answers nobody; it is for what
// [Forge.Interfere] decides about writes whose answer is to be lost.
func (f *Forge) Quietly(r *http.Request) {
	f.api.ServeHTTP(forgesim.Silence{}, r)
}

// reply answers with a JSON value.
func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=0, private, must-revalidate, no-transform")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// failure answers in the form of all errors.
func (f *Forge) failure(w http.ResponseWriter, status int, message string) {
	f.mu.Lock()
	base := f.base
	f.mu.Unlock()
	reply(w, status, object{"message": message, "url": base + "/api/swagger"})
}

// onRepository finds the repository that a path names, and whether the caller
// may see it.
func (f *Forge) onRepository(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request, *Repository)) {
	f.mu.Lock()
	repo, moved := f.byID(r.PathValue("id")), false
	if r.PathValue("id") == "" {
		repo, moved = f.find(r.PathValue("owner") + "/" + r.PathValue("repo"))
	}
	t, _ := f.identify(r)
	hidden := repo == nil || repo.private && t == nil
	level := "read"
	if r.Method != http.MethodGet {
		level = "write"
	}
	forbidden := t != nil && !t.allows("repository", level) || t == nil && level == "write"
	f.mu.Unlock()
	switch {
	case forbidden:
		f.failure(w, http.StatusForbidden, "token does not have at least one of required scope(s), required=["+level+":repository]")
	case moved: // it is told before anybody asks who may know
		old := APIPrefix + "/repos/" + r.PathValue("owner") + "/" + r.PathValue("repo")
		w.Header().Set("Location", APIPrefix+"/repos/"+repo.FullName()+strings.TrimPrefix(r.URL.Path, old))
		w.WriteHeader(http.StatusMovedPermanently)
	case hidden:
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
	default:
		serve(w, r, repo)
	}
}

func getRepository(w http.ResponseWriter, r *http.Request, repo *Repository) {
	repo.forge.mu.Lock()
	shown := repo.render()
	if t, _ := repo.forge.identify(r); t != nil {
		shown["permissions"] = object{"admin": repo.may(t.user, Admin), "push": repo.may(t.user, Writer), "pull": true}
	}
	repo.forge.mu.Unlock()
	reply(w, http.StatusOK, shown)
}

// compare lists what the second commit has that the first lacks.
func compare(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	var shown []compared
	total := 1
	for page := 1; len(shown) < total; page++ {
		var got struct {
			Total   int        `json:"total_commits"`
			Commits []compared `json:"commits"`
		}
		if err := f.inside(r.Context(), repo, fmt.Sprintf("/compare/%s?per_page=100&page=%d", r.PathValue("basehead"), page), &got); err != nil {
			f.failure(w, http.StatusNotFound, "not found")
			return
		}
		total, shown = got.Total, append(shown, got.Commits...)
		if len(got.Commits) == 0 {
			break
		}
	}
	f.mu.Lock()
	base := f.base
	f.mu.Unlock()
	commits := []object{}
	for _, c := range slices.Backward(shown) {
		parents := []object{}
		for _, p := range c.Parents {
			parents = append(parents, object{"sha": p.SHA, "url": base + APIPrefix + "/repos/" + repo.FullName() + "/git/commits/" + p.SHA})
		}
		commits = append(commits, object{"sha": c.SHA, "url": base + APIPrefix + "/repos/" + repo.FullName() + "/git/commits/" + c.SHA, "parents": parents})
	}
	reply(w, http.StatusOK, object{"total_commits": total, "commits": commits})
}

// A compared commit is one of a comparison.
type compared struct {
	SHA     string `json:"sha"`
	Parents []struct {
		SHA string `json:"sha"`
	} `json:"parents"`
}

// inside asks the inner forge about a repository.
func (f *Forge) inside(ctx context.Context, repo *Repository, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://inner.invalid"+forgesim.APIPrefix+"/repos/"+repo.FullName()+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("gitea: inside: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+repo.door)
	request.Header.Set("User-Agent", "gitea")
	answer, err := f.under.RoundTripper().RoundTrip(request)
	if err != nil {
		return fmt.Errorf("gitea: inside: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("gitea: inside: answered %d", answer.StatusCode), answer.Body.Close())
	}
	return errors.Join(json.NewDecoder(answer.Body).Decode(into), answer.Body.Close())
}

func testHook(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	f.mu.Lock()
	err := error(forgesim.ErrNotFound)
	for _, h := range repo.hooks {
		if r.PathValue("hook") == fmt.Sprint(h.id) {
			err = h.test(r.URL.Query().Get("ref"))
		}
	}
	f.mu.Unlock()
	if err != nil {
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// render is the repository, the same in answers and payloads. Called with mu
// held.
func (r *Repository) render() object {
	f := r.forge
	fullName := r.under.FullName()
	owner, name, _ := strings.Cut(fullName, "/")
	web := f.base + "/" + fullName
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return object{
		"id": r.under.ID(), "owner": f.user(account{r.under.OwnerID(), owner}), "name": name, "full_name": fullName,
		"description": "", "empty": len(r.under.Refs()) == 0, "private": r.private, "fork": false, "template": false, "mirror": false,
		"size": 25, "language": "", "languages_url": f.base + APIPrefix + "/repos/" + fullName + "/languages",
		"html_url": web, "url": f.base + APIPrefix + "/repos/" + fullName, "link": "", "ssh_url": "git@gitea.invalid:" + fullName + ".git",
		"clone_url": web + ".git", "original_url": "", "website": "", "stars_count": 0, "forks_count": 0, "watchers_count": 1,
		"open_issues_count": 0, "open_pr_counter": 0, "release_counter": 0, "default_branch": "main", "archived": r.settings.Archived,
		"created_at": stamp(r.made), "updated_at": stamp(r.updated), "archived_at": "1970-01-01T00:00:00Z",
		"permissions": object{"admin": false, "push": false, "pull": true}, "has_code": true, "has_issues": true, "has_wiki": true,
		"has_pull_requests": !r.settings.NoPulls, "has_projects": true, "has_releases": true, "has_packages": true, "has_actions": true,
		"internal": false, "mirror_interval": "", "object_format_name": "sha1", "topics": []string{}, "licenses": []string{},
		"avatar_url": "", "default_merge_style": "merge", "branch_count": 1, "projects_mode": "all", "mirror_updated": "0001-01-01T00:00:00Z",
		"ignore_whitespace_conflicts": false, "allow_merge_commits": true, "allow_rebase": true, "allow_rebase_explicit": true,
		"allow_squash_merge": true, "allow_fast_forward_only_merge": true, "allow_rebase_update": true, "allow_manual_merge": r.settings.ManualMerge,
		"autodetect_manual_merge": false, "default_delete_branch_after_merge": false, "default_allow_maintainer_edit": false,
		"internal_tracker": object{
			"enable_time_tracker": true, "allow_only_contributors_to_track_time": true, "enable_issue_dependencies": true,
		},
	}
}

// serveGit serves git smart HTTP through the inner forge.
func (f *Forge) serveGit(w http.ResponseWriter, r *http.Request, t *token, invalid bool) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.Error(w, "Not found.", http.StatusNotFound)
		return
	}
	f.mu.Lock()
	repo, moved := f.find(parts[0] + "/" + strings.TrimSuffix(parts[1], ".git"))
	private := repo == nil || repo.private
	f.mu.Unlock()
	switch {
	case moved:
		to := "/" + repo.FullName() + ".git/" + parts[2]
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
	case invalid || private && t == nil:
		w.Header().Set("WWW-Authenticate", `Basic realm="Gitea"`)
		http.Error(w, "", http.StatusUnauthorized)
	case t != nil && !t.allows("repository", "read"):
		http.Error(w, "", http.StatusForbidden)
	case repo == nil:
		http.Error(w, "Not found.", http.StatusNotFound)
	default:
		inner := r.Clone(r.Context())
		inner.SetBasicAuth("x-access-token", repo.door)
		f.under.ServeHTTP(w, inner)
	}
}

// A Server is a [Forge] on a loopback port.
type Server = forgesim.Server

// Start puts the instance on a loopback port and sends webhooks as they are
// made. It runs until ctx ends or [Server.Close].
func (f *Forge) Start(ctx context.Context) (*Server, error) {
	return forgesim.Process{
		Name: "gitea", Handler: f, APIPrefix: APIPrefix, Deliver: f.deliverLoop, Ended: f.client.CloseIdleConnections,
		Base: func(root string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.base = root
		},
	}.Start(ctx)
}

func (f *Forge) deliverLoop(ctx context.Context) {
	for {
		if err := f.Deliver(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
		}
	}
}
