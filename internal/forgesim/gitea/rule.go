package gitea

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// A Rule is a branch protection, as far as the forge goes by it. Which of its
// fields are sent depends on what the forge is.
type Rule struct {
	// Name is the glob of the branches that it protects.
	Name string

	Push          bool
	PushWhitelist bool
	PushUsers     []string
	ForcePush     bool

	StatusCheck bool
	Contexts    []string

	Approvals     int64
	Whitelist     bool
	Approvers     []string
	ApproverTeams []string

	BlockOnRejected, BlockOnOutdated bool
	DismissStale, IgnoreStale        bool
	UnprotectedFiles                 string

	// BlockAdmins keeps administrators from merging past the rule: the
	// products send it under names of their own.
	BlockAdmins bool
	// Bypass is Gitea's, from 1.27 on.
	Bypass bool
	// Leave names fields that are not sent, as older versions do.
	Leave []string
}

// GateRule is the rule that a gate needs: an approval by one reviewer alone,
// and a status.
func GateRule(branch, reviewer, context string) Rule {
	return Rule{
		Name: branch, StatusCheck: true, Contexts: []string{context}, Approvals: 1, Whitelist: true, Approvers: []string{reviewer},
		BlockOnRejected: true, BlockOnOutdated: true, DismissStale: true, IgnoreStale: true, BlockAdmins: true,
	}
}

// Protect sets the one rule of the repository; the zero Rule removes it.
func (r *Repository) Protect(rule Rule) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.rule = rule
}

// protects reports whether the rule is the branch's. Called with mu held.
func (r *Repository) protects(branch string) bool {
	matched, err := path.Match(r.rule.Name, branch)
	return r.rule.Name != "" && (err == nil && matched || r.rule.Name == branch)
}

// render is the rule as it is sent. contracts/gitea.md §5
func (rule Rule) render(forgejo bool) object {
	list := func(names []string) []string { return append([]string{}, names...) }
	stamp := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	o := object{
		"rule_name": rule.Name, "branch_name": rule.Name,
		"enable_push": rule.Push, "enable_push_whitelist": rule.PushWhitelist, "push_whitelist_usernames": list(rule.PushUsers),
		"push_whitelist_teams": []string{}, "push_whitelist_deploy_keys": false,
		"enable_merge_whitelist": false, "merge_whitelist_usernames": []string{}, "merge_whitelist_teams": []string{},
		"enable_status_check": rule.StatusCheck, "status_check_contexts": list(rule.Contexts),
		"required_approvals": rule.Approvals, "enable_approvals_whitelist": rule.Whitelist,
		"approvals_whitelist_username": list(rule.Approvers), "approvals_whitelist_teams": list(rule.ApproverTeams),
		"block_on_rejected_reviews": rule.BlockOnRejected, "block_on_official_review_requests": false,
		"block_on_outdated_branch": rule.BlockOnOutdated, "dismiss_stale_approvals": rule.DismissStale,
		"ignore_stale_approvals": rule.IgnoreStale, "require_signed_commits": false, "protected_file_patterns": "",
		"unprotected_file_patterns": rule.UnprotectedFiles, "created_at": stamp, "updated_at": stamp,
	}
	if forgejo {
		o["apply_to_admins"] = rule.BlockAdmins
	} else {
		o["priority"] = 1
		o["enable_force_push"], o["enable_force_push_allowlist"] = rule.ForcePush, false
		o["block_admin_merge_override"] = rule.BlockAdmins
		o["enable_bypass_allowlist"] = rule.Bypass
	}
	for _, name := range rule.Leave {
		delete(o, name)
	}
	return o
}

// getRule gives a rule to administrators of the repository alone.
func getRule(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	f.mu.Lock()
	t, _ := f.identify(r)
	admin := t != nil && repo.may(t.user, Admin)
	rule, found := repo.rule, repo.rule.Name != "" && repo.rule.Name == r.PathValue("name")
	f.mu.Unlock()
	switch {
	case !admin:
		f.failure(w, http.StatusForbidden, "user should be an owner or a collaborator with admin write of a repository")
	case !found:
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
	default:
		reply(w, http.StatusOK, rule.render(f.config.Forgejo))
	}
}

func getBranch(w http.ResponseWriter, r *http.Request, repo *Repository) {
	f := repo.forge
	branch := r.PathValue("branch")
	tip := repo.Ref("refs/heads/" + branch)
	if tip == "" {
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
		return
	}
	f.mu.Lock()
	t, _ := f.identify(r)
	o := object{
		"name": branch, "commit": object{"id": tip}, "protected": false, "required_approvals": 0, "enable_status_check": false,
		"status_check_contexts": []string{}, "user_can_push": false, "user_can_merge": false, "effective_branch_protection_name": "",
	}
	if repo.protects(branch) {
		o["protected"], o["required_approvals"] = true, repo.rule.Approvals
		o["enable_status_check"], o["status_check_contexts"] = repo.rule.StatusCheck, append([]string{}, repo.rule.Contexts...)
		// Only an administrator of the repository is told the name.
		if t != nil && repo.may(t.user, Admin) {
			o["effective_branch_protection_name"] = repo.rule.Name
		}
	}
	f.mu.Unlock()
	reply(w, http.StatusOK, o)
}

// listed reports whether a user's reviews count: those on the list, or where
// there is none, those who may write. Called with mu held.
func (r *Repository) listed(branch, login string) bool {
	if r.protects(branch) && r.rule.Whitelist {
		return slices.ContainsFunc(r.rule.Approvers, func(a string) bool { return strings.EqualFold(a, login) })
	}
	return r.may(login, Writer)
}
