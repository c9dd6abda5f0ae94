package gitea

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// A ruleAnswer is a branch protection, as far as it is looked at. A pointer is
// nil where the server doesn't send the field: another product, or an older
// one. contracts/gitea.md §5, trap 16
type ruleAnswer struct {
	Name string `json:"rule_name"`

	EnablePush          *bool    `json:"enable_push"`
	EnablePushWhitelist *bool    `json:"enable_push_whitelist"`
	PushUsers           []string `json:"push_whitelist_usernames"`
	PushTeams           []string `json:"push_whitelist_teams"`
	PushDeployKeys      *bool    `json:"push_whitelist_deploy_keys"`
	EnableForcePush     *bool    `json:"enable_force_push"`

	EnableStatusCheck *bool    `json:"enable_status_check"`
	StatusContexts    []string `json:"status_check_contexts"`

	RequiredApprovals *int64   `json:"required_approvals"`
	EnableApprovers   *bool    `json:"enable_approvals_whitelist"`
	Approvers         []string `json:"approvals_whitelist_username"` // singular: trap 15
	ApproverTeams     []string `json:"approvals_whitelist_teams"`
	BlockOnRejected   *bool    `json:"block_on_rejected_reviews"`
	BlockOnOutdated   *bool    `json:"block_on_outdated_branch"`
	DismissStale      *bool    `json:"dismiss_stale_approvals"`
	IgnoreStale       *bool    `json:"ignore_stale_approvals"`

	UnprotectedFiles *string `json:"unprotected_file_patterns"`

	// Who gets past it.
	BlockAdminOverride *bool `json:"block_admin_merge_override"` // Gitea
	ApplyToAdmins      *bool `json:"apply_to_admins"`            // Forgejo
	EnableBypass       *bool `json:"enable_bypass_allowlist"`    // Gitea 1.27
}

// A rule is what the effective rule of the base branch says of our gate.
type rule struct {
	// name is the effective rule's; "" where none could be proven.
	name string
	// settings are what each needed one is, in a fixed order.
	settings []setting
}

// A setting is one that a gate needs, as it was seen.
type setting struct{ name, want, seen string }

// proven reports whether every needed setting is as it must be.
func (r rule) proven() bool {
	return r.name != "" && !slices.ContainsFunc(r.settings, func(s setting) bool { return s.want != s.seen })
}

// facts says what is required of the rule and what was seen.
func (r rule) facts() []gate.Fact {
	facts := []gate.Fact{{Name: "rule", Expected: "present", Observed: presence(r.name != "")}}
	for _, s := range r.settings {
		facts = append(facts, gate.Fact{Name: "rule." + s.name, Expected: s.want, Observed: s.seen})
	}
	return facts
}

func presence(present bool) string {
	if present {
		return "present"
	}
	return "absent"
}

// readRule asks for the rule that the server says is in effect. Which of
// several that is, the two products decide differently; an instance that does
// not say, or hides the rule, has proven nothing: trap 14.
func (l *Lane) readRule(ctx context.Context, name, effective string) (rule, error) {
	const op = "get branch protection"
	if effective == "" {
		return rule{}, nil
	}
	a, err := l.config.Rules.Get(ctx, op, "/repos/"+name+"/branch_protections/"+url.PathEscape(effective), "")
	if err != nil {
		return rule{}, err
	}
	if a.Status == http.StatusNotFound {
		return rule{}, nil
	}
	var got ruleAnswer
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return rule{}, err
	}
	if got.Name != effective {
		return rule{}, forge.Fail(op, fencepost.ReasonProvider, errOther)
	}
	bypass := shown(got.EnableBypass)
	if got.EnableBypass == nil && l.config.Kind == Gitea {
		older, err := l.hasNoBypass(ctx)
		if err != nil {
			return rule{}, err
		}
		if older {
			bypass = "false"
		}
	}
	return rule{name: got.Name, settings: l.settings(got, bypass)}, nil
}

// hasNoBypass reports whether the server is certainly older than the bypass
// list, Gitea 1.27: only then may it leave it out. contracts/gitea.md §5
func (l *Lane) hasNoBypass(ctx context.Context) (bool, error) {
	var got versionAnswer
	if err := l.readInto(ctx, l.config.Rules, "get version", "/version", &got); err != nil {
		return false, err
	}
	major, rest, _ := strings.Cut(got.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(major)
	y, errMinor := strconv.Atoi(minor)
	return err == nil && errMinor == nil && (x < 1 || x == 1 && y < 27), nil
}

// A versionAnswer says what a server is.
type versionAnswer struct {
	Version string `json:"version"`
}

// settings holds a rule against what a gate needs; bypass is whether somebody
// listed may pass, which not every server sends. contracts/gitea.md §6
func (l *Lane) settings(a ruleAnswer, bypass string) []setting {
	yes := func(name string, b *bool) setting { return setting{name, "true", shown(b)} }
	reviewer := l.config.Reviewer.Login
	s := []setting{
		{"enable_push", "nobody", pushers(a)},
		yes("enable_status_check", a.EnableStatusCheck),
		{"status_check_contexts", l.config.Check, has(a.StatusContexts, l.config.Check)},
		{"required_approvals", "1 or more", approvals(a.RequiredApprovals)},
		yes("enable_approvals_whitelist", a.EnableApprovers),
		{"approvals_whitelist_username", reviewer, names(a.Approvers, reviewer)},
		{"approvals_whitelist_teams", "none", count(a.ApproverTeams)},
		yes("block_on_rejected_reviews", a.BlockOnRejected),
		yes("dismiss_stale_approvals", a.DismissStale),
		yes("ignore_stale_approvals", a.IgnoreStale),
		yes("block_on_outdated_branch", a.BlockOnOutdated),
		{"unprotected_file_patterns", "empty", emptiness(a.UnprotectedFiles)},
	}
	if l.config.Kind == Forgejo {
		return append(s, yes("apply_to_admins", a.ApplyToAdmins))
	}
	return append(s,
		yes("block_admin_merge_override", a.BlockAdminOverride),
		setting{"enable_force_push", "false", shown(a.EnableForcePush)},
		setting{"enable_bypass_allowlist", "false", bypass})
}

func shown(b *bool) string {
	if b == nil {
		return "absent"
	}
	return strconv.FormatBool(*b)
}

func notTrue(b *bool) string {
	if b != nil && *b {
		return "true"
	}
	return "not true"
}

// pushers says who may push past the gate: nobody, if pushing is off or its
// list is on and empty.
func pushers(a ruleAnswer) string {
	switch {
	case a.EnablePush == nil:
		return "absent"
	case !*a.EnablePush:
		return "nobody"
	case a.EnablePushWhitelist == nil || !*a.EnablePushWhitelist:
		return "every writer"
	case len(a.PushUsers)+len(a.PushTeams) > 0:
		return "some"
	case a.PushDeployKeys == nil || *a.PushDeployKeys:
		return "deploy keys"
	}
	return "nobody"
}

// has is the context if the rule requires just it, and not by a glob that
// somebody may have meant for others.
func has(contexts []string, context string) string {
	if slices.Contains(contexts, context) {
		return context
	}
	return strconv.Itoa(len(contexts)) + " others"
}

func approvals(n *int64) string {
	switch {
	case n == nil:
		return "absent"
	case *n >= 1:
		return "1 or more"
	}
	return strconv.FormatInt(*n, 10)
}

// names is the one name if it alone is listed; logins don't distinguish case.
func names(listed []string, only string) string {
	if len(listed) == 1 && strings.EqualFold(listed[0], only) {
		return only
	}
	return strconv.Itoa(len(listed)) + " users"
}

func count(listed []string) string {
	if len(listed) == 0 {
		return "none"
	}
	return strconv.Itoa(len(listed))
}

func emptiness(s *string) string {
	switch {
	case s == nil:
		return "absent"
	case *s == "":
		return "empty"
	}
	return "set"
}
