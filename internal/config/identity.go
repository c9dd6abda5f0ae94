package config

import (
	"fmt"
	"slices"
	"strings"
)

// identity is whom a gate speaks as, and what it knows its senders by.
func (v *validator) identity(path string, s gateSection, g *Gate) {
	v.foreign(path, g.Provider)
	switch g.Provider {
	case GitHub:
		v.byApp(path, s, g)
	case GitLab:
		v.byPolicy(path, s, g)
	case Gitea, Forgejo:
		v.byReviewer(path, s, g)
	}
}

// foreign refuses the fields of other providers.
func (v *validator) foreign(path string, p ProviderKind) {
	known := map[ProviderKind]string{GitHub: "its App", GitLab: "its policy", Gitea: "its reviewer", Forgejo: "its reviewer"}
	for _, f := range []struct {
		name string
		of   []ProviderKind
	}{
		{"app", []ProviderKind{GitHub}},
		{"reviewer", []ProviderKind{Gitea, Forgejo}}, {"rule_token", []ProviderKind{Gitea, Forgejo}},
		{"issuer", []ProviderKind{GitLab}}, {"audience", []ProviderKind{GitLab}},
		{"token", []ProviderKind{GitLab}}, {"policy", []ProviderKind{GitLab}},
	} {
		if v.given(path+"."+f.name) && !slices.Contains(f.of, p) {
			v.refuse(path+"."+f.name, "has no meaning for %s, which knows a gate by %s; take it out", p, known[p])
		}
	}
}

func (v *validator) byApp(path string, s gateSection, g *Gate) {
	switch {
	case s.App != nil:
		g.App = App{ID: s.App.ID, Installation: s.App.Installation, Key: v.use(path+".app.key", s.App.Key, asAppKey, "")}
	case !v.faultyWithin(path + ".app"):
		v.refuse(path+".app", "missing: add it, such as app: {id: 1, installation: 2, key: file:secrets/app.pem}")
	}
}

func (v *validator) byReviewer(path string, s gateSection, g *Gate) {
	if strings.ContainsAny(g.Check, `*?[]{}!\`) {
		v.refuse(path+".check", "must have no character that is special in the rule's patterns: one of *?[]{}!\\")
	}
	switch {
	case s.Reviewer != nil:
		g.Reviewer = Reviewer{
			ID: s.Reviewer.ID, Login: string(s.Reviewer.Login), Token: v.use(path+".reviewer.token", s.Reviewer.Token, asToken, ""),
		}
	case !v.faultyWithin(path + ".reviewer"):
		v.refuse(path+".reviewer", "missing: add it, such as reviewer: {id: 7, login: gatekeeper, token: file:secrets/reviewer-token}")
	}
	switch {
	case !s.RuleToken.IsZero():
		g.RuleToken = v.use(path+".rule_token", s.RuleToken, asToken, "")
	case !v.faultyWithin(path + ".rule_token"):
		v.refuse(path+".rule_token", "missing: add it, such as rule_token: file:secrets/rule-token; only an administrator's token can prove the branch rule")
	}
}

func (v *validator) byPolicy(path string, s gateSection, g *Gate) {
	issuer := g.Git
	if v.given(path + ".issuer") {
		issuer = v.secure(path+".issuer", s.Issuer, s.AllowHTTP, path+".allow_http")
	}
	g.GitLab = GitLabGate{Issuer: issuer, Audience: string(s.Audience), Token: v.use(path+".token", s.Token, asToken, "")}
	if s.Audience == "" && !v.faulty(path+".audience") {
		v.refuse(path+".audience", "missing: add it, such as audience: https://fencepost.example.org; jobs ask for their tokens with the same text")
	}
	if s.Token.IsZero() && !v.faulty(path+".token") {
		v.refuse(path+".token", "missing: add it, such as token: file:secrets/gitlab-token; only a maintainer's token is shown what must be proven")
	}
	p := s.Policy
	if p == nil {
		if !v.faultyWithin(path + ".policy") {
			v.refuse(path+".policy", "missing: add it, such as policy: {project: 31, path: acme/policies, commits: [<40 hex>], job: fencepost}")
		}
		return
	}
	g.GitLab.Policy = Policy{Project: p.Project, Path: string(p.Path), Job: string(p.Job)}
	for i, c := range p.Commits {
		if slices.Contains(g.GitLab.Policy.Commits, c.id) {
			v.refuse(fmt.Sprintf("%s.policy.commits[%d]", path, i), "is listed already; keep one of the two")
			continue
		}
		g.GitLab.Policy.Commits = append(g.GitLab.Policy.Commits, c.id)
	}
	if s.Repository != nil && p.Project != 0 && p.Project == s.Repository.ID {
		v.refuse(path+".policy.project", "is the gated repository itself: who can change it could change the policy; use a project of its own")
	}
}
