package forgesim

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// repositoryOperations are the calls on a repository, its Git data and rules.
func repositoryOperations() []route {
	protection := read("/branches/{branch}/protection", "administration", getProtection)
	protection.public = false
	return []route{
		read("", "metadata", getRepository),
		read("/compare/{basehead}", "contents", compareCommits),
		read("/git/ref/{ref}", "contents", getRef),
		read("/git/matching-refs/{ref}", "contents", listMatchingRefs),
		read("/git/commits/{commit_sha}", "contents", getGitCommit),
		read("/branches/{branch}", "contents", getBranch),
		protection,
		read("/rules/branches/{branch}", "metadata", listBranchRules),
		read("/rulesets", "metadata", listRulesets),
		read("/rulesets/{ruleset_id}", "metadata", getRuleset),
	}
}

func getRepository(f *Forge, c *call) answer {
	return found(dated(c, rendering{f}.full(c.repo)))
}

// dated takes out of an object what the call's version of the API removed.
func dated(c *call, o object) object {
	if c.version == version2022 {
		return o
	}
	for _, gone := range []string{"merge_commit_sha", "assignee", "has_downloads", "use_squash_pr_title_as_default"} {
		delete(o, gone)
	}
	for _, inner := range o {
		if nested, ok := inner.(object); ok {
			dated(c, nested)
		}
	}
	return o
}

func (c *call) refObject(f *Forge, ref, id string) object {
	name := c.repo.fullName()
	kind, path := "commit", "commits"
	if strings.HasPrefix(ref, "refs/tags/") {
		out, err := f.git.run(c.ctx, gitCall{dir: c.repo.dir, args: []string{"cat-file", "-t", id}})
		if err == nil && out == "tag" {
			kind, path = "tag", "tags"
		}
	}
	return object{
		"ref": ref, "node_id": nodeID("REF", c.repo.id) + ref, "url": f.apiURL("/repos/%s/git/%s", name, ref),
		"object": object{"type": kind, "sha": id, "url": f.apiURL("/repos/%s/git/%s/%s", name, path, id)},
	}
}

// getRef finds exactly one ref; a prefix finds nothing.
func getRef(f *Forge, c *call) answer {
	if len(c.repo.refs) == 0 {
		return failure(http.StatusConflict, "Git Repository is empty.")
	}
	ref := "refs/" + c.path("ref")
	id := c.repo.refs[ref]
	if id == "" {
		return notFound()
	}
	return found(c.refObject(f, ref, id))
}

// listMatchingRefs finds all refs with a prefix.
func listMatchingRefs(f *Forge, c *call) answer {
	prefix := "refs/" + c.path("ref")
	shown := []object{}
	for _, ref := range sortedKeys(c.repo.refs) {
		if strings.HasPrefix(ref, prefix) {
			shown = append(shown, c.refObject(f, ref, c.repo.refs[ref]))
		}
	}
	return found(shown)
}

func getGitCommit(f *Forge, c *call) answer {
	commit, err := c.repo.readCommit(c.ctx, c.path("commit_sha"))
	if err != nil {
		return missing(err)
	}
	return found(rendering{f}.gitCommit(c.repo, commit))
}

// missing answers an error of looking for something.
func missing(err error) answer {
	if errors.Is(err, ErrNotFound) {
		return notFound()
	}
	return failure(http.StatusInternalServerError, "Server Error")
}

func getBranch(f *Forge, c *call) answer {
	branch := c.path("branch")
	id := c.repo.refs["refs/heads/"+branch]
	if id == "" {
		return failure(http.StatusNotFound, "Branch not found")
	}
	commit, err := c.repo.readCommit(c.ctx, id)
	if err != nil {
		return missing(err)
	}
	r := rendering{f}
	name := c.repo.fullName()
	self := f.apiURL("/repos/%s/branches/%s", name, branch)
	_, protected := c.repo.protections[branch]
	for _, rs := range c.repo.rulesets {
		protected = protected || rs.covers(branch, c.repo.defaultBranch)
	}
	return found(object{
		"name": branch, "commit": r.commit(c.repo, commit), "protected": protected, "protection_url": self + "/protection",
		"_links":     object{"self": self, "html": f.webURL("/%s/tree/%s", name, branch)},
		"protection": c.repo.protectionSummary(branch),
	})
}

// protectionSummary is what a branch shows of its classic protection.
func (r *Repository) protectionSummary(branch string) object {
	p, ok := r.protections[branch]
	level := "off"
	if len(p.Checks) > 0 {
		level = "non_admins"
		if p.EnforceAdmins {
			level = "everyone"
		}
	}
	contexts, checks := showContexts(p.Checks)
	return object{
		"enabled": ok,
		"required_status_checks": object{
			"enforcement_level": level, "contexts": contexts, "checks": checks, "strict": p.Strict,
		},
	}
}

func showContexts(required []RequiredContext) (contexts []string, checks []object) {
	contexts, checks = []string{}, []object{}
	for _, c := range required {
		var app any
		if c.Integration != 0 {
			app = c.Integration
		}
		contexts = append(contexts, c.Context)
		checks = append(checks, object{"context": c.Context, "app_id": app})
	}
	return contexts, checks
}

func getProtection(f *Forge, c *call) answer {
	branch := c.path("branch")
	p, ok := c.repo.protections[branch]
	if !ok {
		return failure(http.StatusNotFound, "Branch not protected")
	}
	self := f.apiURL("/repos/%s/branches/%s/protection", c.repo.fullName(), branch)
	out := object{
		"url":            self,
		"enforce_admins": object{"url": self + "/enforce_admins", "enabled": p.EnforceAdmins},
	}
	if len(p.Checks) > 0 {
		contexts, checks := showContexts(p.Checks)
		out["required_status_checks"] = object{
			"url": self + "/required_status_checks", "strict": p.Strict, "contexts": contexts, "checks": checks,
			"contexts_url": self + "/required_status_checks/contexts",
		}
	}
	return found(out)
}

// parameters renders a rule's parameters; nil: none.
func (r Rule) parameters() any {
	if r.Type != "required_status_checks" {
		if r.Parameters == nil {
			return nil
		}
		return r.Parameters
	}
	checks := []object{}
	for _, c := range r.Checks {
		o := object{"context": c.Context}
		if c.Integration != 0 {
			o["integration_id"] = c.Integration
		}
		checks = append(checks, o)
	}
	return object{
		"strict_required_status_checks_policy": r.Strict, "do_not_enforce_on_create": false,
		"required_status_checks": checks,
	}
}

func (r Rule) render() object {
	o := object{"type": r.Type}
	if p := r.parameters(); p != nil {
		o["parameters"] = p
	}
	return o
}

// listBranchRules lists the rules in force for a branch that may not exist.
// Who may bypass them, and classic protection, it does not say.
func listBranchRules(f *Forge, c *call) answer {
	var rules []object
	for _, rs := range c.repo.rulesets {
		if !rs.covers(c.path("branch"), c.repo.defaultBranch) {
			continue
		}
		for _, rule := range rs.Rules {
			rules = append(rules, merged(rule.render(), object{
				"ruleset_source_type": rs.Source, "ruleset_source": c.repo.sourceOf(rs), "ruleset_id": rs.id,
			}))
		}
	}
	page, header := pageOf(c, rules)
	if page == nil {
		page = []object{}
	}
	return found(page).withHeader(header)
}

func (r *Repository) sourceOf(rs *ruleset) string {
	if rs.Source == "Repository" {
		return r.fullName()
	}
	return r.owner.login
}

func (c *call) ruleset(f *Forge, rs *ruleset, detailed bool) object {
	self := f.apiURL("/repos/%s/rulesets/%d", c.repo.fullName(), rs.id)
	o := object{
		"id": rs.id, "name": rs.Name, "target": "branch", "source_type": rs.Source, "source": c.repo.sourceOf(rs),
		"enforcement": rs.Enforcement, "node_id": nodeID("RRS", rs.id),
		"_links":     object{"self": object{"href": self}, "html": object{"href": f.webURL("/%s/rules/%d", c.repo.fullName(), rs.id)}},
		"created_at": stamp(c.repo.created), "updated_at": stamp(c.repo.created),
	}
	if !detailed {
		return o
	}
	rules := []object{}
	for _, rule := range rs.Rules {
		rules = append(rules, rule.render())
	}
	exclude := slices.Clone(rs.Exclude)
	if exclude == nil {
		exclude = []string{}
	}
	return merged(o, object{
		"rules": rules, "current_user_can_bypass": "never",
		"conditions": object{"ref_name": object{"include": rs.Include, "exclude": exclude}},
	})
}

func (c *call) rulesets() []*ruleset {
	parents := c.query.Get("includes_parents") != "false"
	var found []*ruleset
	for _, rs := range c.repo.rulesets {
		if parents || rs.Source == "Repository" {
			found = append(found, rs)
		}
	}
	return found
}

func listRulesets(f *Forge, c *call) answer {
	page, header := pageOf(c, c.rulesets())
	shown := []object{}
	for _, rs := range page {
		shown = append(shown, c.ruleset(f, rs, false))
	}
	return found(shown).withHeader(header)
}

func getRuleset(f *Forge, c *call) answer {
	id := c.number("ruleset_id")
	for _, rs := range c.rulesets() {
		if rs.id == id {
			return found(c.ruleset(f, rs, true))
		}
	}
	return notFound()
}

// commitOf resolves the {ref} of a path, or answers that there is none.
func (c *call) commitOf(ctx context.Context) (string, answer, bool) {
	sha := c.repo.resolve(ctx, c.path("ref"))
	if sha == "" {
		return "", noCommit(c, c.path("ref")), false
	}
	return sha, answer{}, true
}
