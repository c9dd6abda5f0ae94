package github_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// unmet names what an examination found wrong: a leading "~" is advice.
func (b *bench) unmet() (names []string) {
	b.t.Helper()
	found := b.lane.Examine(b.t.Context())
	for _, f := range found {
		switch {
		case f.Skipped != "":
			names = append(names, "-"+f.Name)
		case f.Met():
		case f.Mend == "":
			b.t.Errorf("%s: %q, want %q, and no mend", f.Name, f.Observed, f.Expected)
		case f.Advice:
			names = append(names, "~"+f.Name)
		default:
			names = append(names, f.Name)
		}
	}
	if text := fmt.Sprintf("%+v", found); strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, examineSecret) {
		b.t.Error("a secret is told")
	}
	slices.Sort(names)
	return names
}

const examineSecret = "canary-of-the-webhook-5b1f"

// least are the permissions that a gate needs, and no more.
func least() forgesim.Permissions {
	return forgesim.Permissions{"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "read", "statuses": "read"}
}

func TestEachBrokenSettingIsNamed(t *testing.T) {
	t.Parallel()
	with := func(name, level string) func(b *bench) {
		return func(b *bench) {
			p := least()
			p[name] = level
			if level == "" {
				delete(p, name)
			}
			b.inst.SetPermissions(p)
		}
	}
	rule := func(change func(r *forgesim.Ruleset)) func(b *bench) {
		return func(b *bench) {
			r := forgesim.RequireCheck(check, b.forge.App().ID())
			change(&r)
			b.repo.ReplaceRuleset(b.rules, r)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(b *bench)
		want   string
	}{
		{"nothing", func(*bench) {}, ""},
		{"no permission for checks", with("checks", ""), "permission.checks repository"},
		{"no right to write checks", with("checks", "read"), "permission.checks repository"},
		{"more than is needed", with("contents", "write"), "~permission.contents"},
		{"another permission", with("issues", "read"), "~permission.others"},
		{"suspended", func(b *bench) { b.inst.Suspend(true) }, "installation.active"},
		{"uninstalled", func(b *bench) { b.inst.Uninstall() }, "installation"},
		{"not for this repository", func(b *bench) { b.inst.Remove(b.repo) }, "repository"},
		{"renamed", func(b *bench) { must(b.t, b.repo.Rename("manual")) }, "~repository.name"},
		{"no branch", func(b *bench) { must(b.t, b.repo.DeleteBranch(b.t.Context(), "main")) }, "base"},
		{"no rule", func(b *bench) { b.repo.RemoveRuleset(b.rules) }, "rule.required_check"},
		{"a rule for another check", rule(func(r *forgesim.Ruleset) { *r = forgesim.RequireCheck("other", 1) }), "rule.required_check"},
		{"no webhook", func(b *bench) { b.forge.App().SetHook("", nil) }, "~webhook"},
		{"a webhook to elsewhere", func(b *bench) { b.forge.App().SetHook("http://127.0.0.1:1/hooks/other", []byte(examineSecret)) }, "~webhook"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.inst.SetPermissions(least())
			b.forge.App().SetHook("http://127.0.0.1:1/hooks/docs", []byte(examineSecret))
			tc.change(b)
			if got := strings.Join(b.unmet(), " "); got != tc.want {
				t.Errorf("found wrong: %s\nwant: %s", got, tc.want)
			}
		})
	}
}
