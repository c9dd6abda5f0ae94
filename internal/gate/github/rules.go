package github

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/internal/gate"
)

type ruleAnswer struct {
	Type       string `json:"type"`
	RulesetID  int64  `json:"ruleset_id"`
	Parameters struct {
		Strict bool `json:"strict_required_status_checks_policy"`
		Checks []struct {
			Context       string `json:"context"`
			IntegrationID *int64 `json:"integration_id"`
		} `json:"required_status_checks"`
	} `json:"parameters"`
}

// A rule is what the active rules of the base branch say of our check.
type rule struct {
	// rulesets that name our check from our App in a strict rule, sorted.
	rulesets []int64
	// lax are those that name it otherwise: from any or another App, or in a
	// rule that is not strict. They take nothing from a proven gate, since all
	// rules apply.
	lax []int64
	// queue is set when the branch has a merge queue.
	queue bool
}

// proven reports whether an active rule requires our check from our App on a
// head that contains the base tip. A merge queue would need the check once
// more, on its own merges, which is not built: such a gate could never open.
// contracts/github.md §7, traps 5 and 7
func (r rule) proven() bool { return len(r.rulesets) > 0 && !r.queue }

// readRule lists the active rules. Rules in evaluation and switched-off ones
// are not in the list. Who may bypass can't be seen here (trap 8).
func (l *Lane) readRule(ctx context.Context, name string) (rule, error) {
	var r rule
	k := l.call("list branch rules", name, "/rules/branches/"+url.PathEscape(l.branch), url.Values{"per_page": {"100"}})
	err := pages(ctx, l.client, k, func(page []ruleAnswer) error {
		for _, a := range page {
			r.add(a, l.config.Check, l.client.app.ID)
		}
		return nil
	})
	if err != nil {
		return rule{}, err
	}
	slices.Sort(r.rulesets)
	slices.Sort(r.lax)
	r.rulesets, r.lax = slices.Compact(r.rulesets), slices.Compact(r.lax)
	return r, nil
}

func (r *rule) add(a ruleAnswer, check string, app int64) {
	switch a.Type {
	case "merge_queue":
		r.queue = true
	case "required_status_checks":
		for _, c := range a.Parameters.Checks {
			switch {
			case c.Context != check:
			case c.IntegrationID != nil && *c.IntegrationID == app && a.Parameters.Strict:
				r.rulesets = append(r.rulesets, a.RulesetID)
			default:
				r.lax = append(r.lax, a.RulesetID)
			}
		}
	}
}

// facts says what is required of a rule and what was seen.
func (r rule) facts(check string, app int64) []gate.Fact {
	required, seen := fmt.Sprintf("%s by App %d, strict", check, app), "no such rule"
	switch {
	case len(r.rulesets) > 0:
		seen = required
	case len(r.lax) > 0:
		seen = "ruleset " + strconv.FormatInt(r.lax[0], 10) + " names it from another App, from any, or not strictly"
	}
	return []gate.Fact{
		{Name: "rule.required_check", Expected: required, Observed: seen},
		{Name: "rule.merge_queue", Expected: "absent", Observed: presence(r.queue)},
	}
}

func presence(present bool) string {
	if present {
		return "present"
	}
	return "absent"
}
