package gitea

import (
	"net/http"
	"strings"
)

// Settings are those of a repository that a gate looks at.
type Settings struct {
	// Archived repositories take no changes.
	Archived bool
	// NoPulls turns pull requests off.
	NoPulls bool
	// ManualMerge lets a request be marked as merged by hand.
	ManualMerge bool
}

// Set changes the repository's settings.
func (r *Repository) Set(s Settings) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.settings = s
}

// SetActive turns a webhook on or off.
func (h *Hook) SetActive(active bool) {
	h.repo.forge.mu.Lock()
	defer h.repo.forge.mu.Unlock()
	h.off = !active
}

// getUser shows the caller's own account: it takes a scope of its own.
func (f *Forge) getUser(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	t, _ := f.identify(r)
	allowed := t != nil && t.allows("user", "read")
	var shown object
	if allowed {
		shown = f.user(f.account(t.user))
	}
	f.mu.Unlock()
	if !allowed {
		f.failure(w, http.StatusForbidden, "token does not have at least one of required scope(s), required=[read:user]")
		return
	}
	reply(w, http.StatusOK, shown)
}

// getPermission tells an administrator of the repository what somebody may do.
func getPermission(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	login := strings.ToLower(r.PathValue("login"))
	f.mu.Lock()
	t, _ := f.identify(r)
	admin := t != nil && (repo.may(t.user, Admin) || strings.EqualFold(t.user, login))
	who, known := f.people[login]
	role := string(repo.roles[login])
	if role == "" {
		role = "none"
	}
	shown := f.user(who)
	f.mu.Unlock()
	switch {
	case !admin:
		f.failure(w, http.StatusForbidden, "Only admins can query all permissions, repo admins can query all repo permissions, collaborators can query only their own")
	case !known:
		f.failure(w, http.StatusNotFound, "user does not exist")
	default:
		reply(w, http.StatusOK, object{"permission": role, "role_name": role, "user": shown})
	}
}

// listHooks shows the webhooks to an administrator of the repository; secrets
// are never shown.
func listHooks(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	f.mu.Lock()
	t, _ := f.identify(r)
	admin := t != nil && repo.may(t.user, Admin)
	shown := []object{}
	for _, h := range repo.hooks {
		kind := "gitea"
		if h.config.Forgejo {
			kind = "forgejo"
		}
		shown = append(shown, object{
			"id": h.id, "type": kind, "branch_filter": "", "active": !h.off, "events": h.events(), "authorization_header": "",
			"config":     object{"url": h.config.URL, "content_type": "json"},
			"updated_at": "2026-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
		})
	}
	f.mu.Unlock()
	if !admin {
		f.failure(w, http.StatusForbidden, "user should be an owner or a collaborator with admin write of a repository")
		return
	}
	reply(w, http.StatusOK, shown)
}

// events are the fine types that the hook's events stand for: a choice of pull
// requests is one of all that happens to them.
func (h *Hook) events() []string {
	all := []string{}
	for _, e := range h.config.Events {
		if e == "pull_request" {
			all = append(all, "pull_request", "pull_request_assign", "pull_request_label", "pull_request_milestone",
				"pull_request_sync", "pull_request_review_request")
			continue
		}
		all = append(all, e)
	}
	return all
}
