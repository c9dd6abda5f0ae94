package gitea

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Status is one of a commit.
type Status struct {
	ID                         int64
	Commit, Context, State, By string
	Description                string
	At                         time.Time
}

// Statuses returns all statuses of a commit, oldest first.
func (r *Repository) Statuses(commit string) []Status {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	var found []Status
	for _, s := range r.statuses {
		if s.Commit == commit {
			found = append(found, s)
		}
	}
	return found
}

// SetStatus sets a status as a user with write access can.
func (r *Repository) SetStatus(login, commit, context, state string) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.addStatus(Status{Commit: commit, Context: context, State: state, By: login})
}

// addStatus is called with mu held.
func (r *Repository) addStatus(s Status) Status {
	s.ID, s.At = int64(len(r.statuses))+1, r.forge.config.Now()
	r.statuses = append(r.statuses, s)
	return s
}

// render is called with Forge.mu held. What is sent as "state" is listed as
// "status": trap 23.
func (s Status) render(r *Repository) object {
	f := r.forge
	return object{
		"id": s.ID, "status": s.State, "target_url": "", "description": s.Description, "context": s.Context,
		"url": f.base + APIPrefix + "/repos/" + r.FullName() + "/statuses/" + s.Commit, "creator": f.user(f.account(s.By)),
		"created_at": s.At.UTC().Format(time.RFC3339), "updated_at": s.At.UTC().Format(time.RFC3339),
	}
}

func listStatuses(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	f.mu.Lock()
	all := []object{}
	for _, s := range repo.statuses {
		if s.Commit == r.PathValue("sha") {
			all = append(all, s.render(repo))
		}
	}
	f.mu.Unlock()
	slices.Reverse(all)
	page(w, r, all)
}

func postStatus(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	var body struct {
		State       string `json:"state"`
		Context     string `json:"context"`
		Description string `json:"description"`
	}
	if !f.read(w, r, &body) {
		return
	}
	sha := r.PathValue("sha")
	f.mu.Lock()
	by, _ := f.identify(r)
	may := by != nil && repo.may(by.user, Writer)
	f.mu.Unlock()
	var known object
	switch {
	case !may:
		f.failure(w, http.StatusForbidden, "user should have a permission to write to a repo")
		return
	case f.inside(r.Context(), repo, "/git/commits/"+sha, &known) != nil:
		// Seen: an empty 500 for a commit that is not there.
		f.failure(w, http.StatusInternalServerError, "")
		return
	case !slices.Contains([]string{"pending", "success", "error", "failure", "warning"}, body.State):
		f.failure(w, http.StatusUnprocessableEntity, "unknown state")
		return
	}
	f.mu.Lock()
	shown := repo.addStatus(Status{
		Commit: sha, Context: body.Context, State: body.State, Description: body.Description, By: by.user,
	}).render(repo)
	f.mu.Unlock()
	reply(w, http.StatusCreated, shown)
}

// getCommit gives a commit in this API's form.
func getCommit(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	var inner struct {
		SHA     string `json:"sha"`
		Message string `json:"message"`
		Parents []struct {
			SHA string `json:"sha"`
		} `json:"parents"`
	}
	if err := f.inside(r.Context(), repo, "/git/commits/"+r.PathValue("sha"), &inner); err != nil {
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
		return
	}
	parents := []object{}
	for _, p := range inner.Parents {
		parents = append(parents, object{"sha": p.SHA, "url": "", "created": "0001-01-01T00:00:00Z"})
	}
	reply(w, http.StatusOK, object{
		"sha": inner.SHA, "url": "", "created": "2026-01-01T00:00:00Z", "html_url": "", "author": nil, "committer": nil, "parents": parents,
		"commit": object{"message": inner.Message, "tree": object{
			// It says the commit's own id, as the server itself was seen to.
			"sha": inner.SHA, "url": "", "created": "0001-01-01T00:00:00Z",
		}},
	})
}

// newest returns the newest state of each context. Called with mu held.
func (r *Repository) newest(commit string) map[string]string {
	states := map[string]string{}
	for _, s := range r.statuses {
		if s.Commit == commit {
			states[strings.ToLower(s.Context)] = s.State
		}
	}
	return states
}
