package forgesim

import (
	"maps"
	"path"
	"slices"
)

// Enforcements of a [Ruleset].
const (
	Active   = "active"
	Evaluate = "evaluate"
	Disabled = "disabled"
)

// A Ruleset is a set of rules for branches, of the repository or of something
// above it.
type Ruleset struct {
	// Name is for people; default "ruleset".
	Name string
	// Source is who made it: "Repository" (default), "Organization" or
	// "Enterprise".
	Source string
	// Enforcement is [Active] (default), [Evaluate] or [Disabled].
	Enforcement string
	// Include and Exclude are patterns of full ref names, as [path.Match] has
	// them, or "~DEFAULT_BRANCH" and "~ALL". Default include: "~DEFAULT_BRANCH".
	Include, Exclude []string
	// Rules apply to the branches that match.
	Rules []Rule
}

// A Rule is one rule of a [Ruleset].
type Rule struct {
	// Type is the rule's type: "required_status_checks", "deletion", ….
	Type string
	// Checks and Strict are the parameters of required_status_checks.
	Checks []RequiredContext
	Strict bool
	// Parameters are those of other types; nil: none.
	Parameters map[string]any
}

// A RequiredContext is one check that a rule demands.
type RequiredContext struct {
	// Context is the name of the Check Run or commit status.
	Context string
	// Integration is the App that it must come from; zero: any App and any
	// commit status.
	Integration int64
}

// RequireCheck is the ruleset of a proven gate: the default branch demands
// context from the App, strictly.
func RequireCheck(context string, integration int64) Ruleset {
	return Ruleset{Name: "gate", Rules: []Rule{{
		Type: "required_status_checks", Strict: true,
		Checks: []RequiredContext{{Context: context, Integration: integration}},
	}}}
}

// A ruleset is a Ruleset in force, or not. Guarded by Forge.mu.
type ruleset struct {
	Ruleset
	id int64
}

// AddRuleset adds a ruleset and returns its id.
func (r *Repository) AddRuleset(rs Ruleset) int64 {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	id := next(&r.forge.ids.ruleset)
	r.rulesets = append(r.rulesets, &ruleset{Ruleset: rs.withDefaults(), id: id})
	return id
}

// ReplaceRuleset changes the ruleset of an id, which stays.
func (r *Repository) ReplaceRuleset(id int64, rs Ruleset) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	for _, have := range r.rulesets {
		if have.id == id {
			have.Ruleset = rs.withDefaults()
		}
	}
}

// RemoveRuleset removes the ruleset of an id.
func (r *Repository) RemoveRuleset(id int64) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.rulesets = slices.DeleteFunc(r.rulesets, func(rs *ruleset) bool { return rs.id == id })
}

func (rs Ruleset) withDefaults() Ruleset {
	setDefault(&rs.Name, "ruleset")
	setDefault(&rs.Source, "Repository")
	setDefault(&rs.Enforcement, Active)
	if rs.Include == nil {
		rs.Include = []string{"~DEFAULT_BRANCH"}
	}
	rs.Rules = slices.Clone(rs.Rules)
	for i := range rs.Rules {
		rs.Rules[i].Checks = slices.Clone(rs.Rules[i].Checks)
		rs.Rules[i].Parameters = maps.Clone(rs.Rules[i].Parameters)
	}
	return rs
}

// covers reports whether the ruleset is active for a branch.
func (rs *ruleset) covers(branch, defaultBranch string) bool {
	if rs.Enforcement != Active {
		return false
	}
	matches := func(pattern string) bool {
		switch pattern {
		case "~ALL":
			return true
		case "~DEFAULT_BRANCH":
			return branch == defaultBranch
		}
		ok, err := path.Match(pattern, "refs/heads/"+branch)
		return err == nil && ok
	}
	return slices.ContainsFunc(rs.Include, matches) && !slices.ContainsFunc(rs.Exclude, matches)
}

// A Protection is the classic protection of one branch.
type Protection struct {
	// Checks are demanded; none: the protection demands no check.
	Checks []RequiredContext
	// Strict: the head must contain the base's tip.
	Strict bool
	// EnforceAdmins: administrators are bound too.
	EnforceAdmins bool
}

// Protect gives a branch classic protection.
func (r *Repository) Protect(branch string, p Protection) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	p.Checks = slices.Clone(p.Checks)
	r.protections[branch] = p
}

// Unprotect takes classic protection off a branch.
func (r *Repository) Unprotect(branch string) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	delete(r.protections, branch)
}

// demands collects what rules and classic protection demand of a branch.
// Called with mu held.
func (r *Repository) demands(branch string) (contexts []RequiredContext, strict bool) {
	for _, rs := range r.rulesets {
		if !rs.covers(branch, r.defaultBranch) {
			continue
		}
		for _, rule := range rs.Rules {
			if rule.Type == "required_status_checks" {
				contexts = append(contexts, rule.Checks...)
				strict = strict || rule.Strict
			}
		}
	}
	if p, ok := r.protections[branch]; ok {
		contexts = append(contexts, p.Checks...)
		strict = strict || p.Strict && len(p.Checks) > 0
	}
	return contexts, strict
}
