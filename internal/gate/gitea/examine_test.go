package gitea_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
)

// unmet names what an examination found wrong: a leading "~" is advice.
func (b *bench) unmet() (names []string) {
	b.t.Helper()
	for _, f := range b.lane.Examine(b.t.Context()) {
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
	slices.Sort(names)
	return names
}

// hooked gives the bench's repository a webhook that leads to the gate.
func (b *bench) hooked() *forge.Hook {
	b.t.Helper()
	return b.repo.AddHook(forge.HookConfig{
		URL: "https://fencepost.example.org/hooks/docs", Secret: []byte("a secret of hooks"), Events: []string{"pull_request"}, Forgejo: b.kind == gitea.Forgejo,
	})
}

func TestAnExaminationOfAGateThatIsRight(t *testing.T) {
	t.Parallel()
	for _, kind := range []gitea.Kind{gitea.Gitea, gitea.Forgejo} {
		b := newBench(t, kind)
		b.hooked()
		if got := b.unmet(); len(got) > 0 {
			t.Errorf("%s: %v", kind, got)
		}
		for _, r := range b.forge.Journal() {
			if r.Method != http.MethodGet && !strings.HasSuffix(r.Path, "/pulls/0/reviews") {
				t.Errorf("%s %s: an examination changes nothing", r.Method, r.Path)
			}
		}
	}
}

// TestEachBrokenSettingIsNamed breaks one thing at a time.
func TestEachBrokenSettingIsNamed(t *testing.T) {
	t.Parallel()
	type broken struct {
		*bench
		lane gitea.LaneConfig
		rule forge.Rule
		hook *forge.Hook
	}
	shared := map[gitea.Kind]*bench{gitea.Gitea: newBench(t, gitea.Gitea), gitea.Forgejo: newBench(t, gitea.Forgejo)}
	hooks := map[gitea.Kind]*forge.Hook{}
	for kind, b := range shared {
		hooks[kind] = b.hooked()
	}
	for _, tc := range []struct {
		name string
		kind gitea.Kind
		// alone has a forge of its own: what is broken can't be mended.
		alone  bool
		change func(w *broken)
		want   string
	}{
		{"another product", gitea.Gitea, false, func(w *broken) { w.lane.Kind = gitea.Forgejo }, "rule.apply_to_admins server.product"},
		{"transferred", gitea.Gitea, true, func(w *broken) { must(w.t, w.repo.Transfer("rival")) }, "repository"},
		{"renamed", gitea.Gitea, true, func(w *broken) { must(w.t, w.repo.Rename("manual")) }, "~repository.name"},
		{"gone", gitea.Gitea, true, func(w *broken) { w.repo.Delete() }, "repository"},
		{"archived", gitea.Gitea, true, func(w *broken) { w.repo.Set(forge.Settings{Archived: true}) }, "repository.archived"},
		{"no requests", gitea.Gitea, true, func(w *broken) { w.repo.Set(forge.Settings{NoPulls: true}) }, "repository.pull_requests"},
		{"merges by hand", gitea.Gitea, true, func(w *broken) { w.repo.Set(forge.Settings{ManualMerge: true}) }, "~repository.manual_merge"},
		{"another reviewer", gitea.Gitea, false, func(w *broken) { w.lane.Reviewer.ID++ }, "reviewer.account"},
		{"a reviewer that only reads", gitea.Gitea, true, func(w *broken) { w.repo.Grant(reviewer, forge.Reader) }, "reviewer.permission"},
		{"a reviewer that administers", gitea.Gitea, true, func(w *broken) { w.repo.Grant(reviewer, forge.Admin) }, "~reviewer.permission"},
		{"a token that only reads", gitea.Gitea, false, func(w *broken) { w.lane.Reviews = w.client(w.forge.NewToken(reviewer, "read:repository")) }, "reviewer.token"},
		{"a token for all", gitea.Gitea, false, func(w *broken) { w.lane.Reviews = w.client(w.forge.NewToken(reviewer, "all")) }, "~reviewer.token.scope"},
		{"a revoked token", gitea.Gitea, true, func(w *broken) { w.forge.RevokeToken(w.reviews) }, "repository server.product"},
		{"a revoked rule token", gitea.Gitea, true, func(w *broken) { w.forge.RevokeToken(w.rules) }, "-rule_token.scope -webhook base reviewer.account rule_token rule_token.writes"},
		{"a rule token that writes", gitea.Gitea, false, func(w *broken) { w.lane.Rules = w.client(w.forge.NewToken("auditor", "write:repository")) }, "~rule_token.writes"},
		{"the reviewer's token for the rule", gitea.Gitea, false, func(w *broken) { w.lane.Rules = w.client(w.forge.NewToken(reviewer, "read:repository")) }, "-webhook rule rule_token"},
		{"no such branch", gitea.Gitea, false, func(w *broken) { w.lane.BaseRef = "refs/heads/next" }, "base"},
		{"no rule", gitea.Gitea, false, func(w *broken) { w.rule = forge.Rule{} }, "rule"},
		{"pushes", gitea.Gitea, false, func(w *broken) { w.rule.Push = true }, "rule.enable_push"},
		{"forced pushes", gitea.Gitea, false, func(w *broken) { w.rule.ForcePush = true }, "rule.enable_force_push"},
		{"no status", gitea.Gitea, false, func(w *broken) { w.rule.StatusCheck = false }, "rule.enable_status_check"},
		{"another status", gitea.Gitea, false, func(w *broken) { w.rule.Contexts = []string{"x/*"} }, "rule.status_check_contexts"},
		{"no approval", gitea.Gitea, false, func(w *broken) { w.rule.Approvals = 0 }, "rule.required_approvals"},
		{"approvals by all", gitea.Gitea, false, func(w *broken) { w.rule.Whitelist = false }, "rule.enable_approvals_whitelist"},
		{"two approvers", gitea.Gitea, false, func(w *broken) { w.rule.Approvers = append(w.rule.Approvers, "x") }, "rule.approvals_whitelist_username"},
		{"a team", gitea.Gitea, false, func(w *broken) { w.rule.ApproverTeams = []string{"x"} }, "rule.approvals_whitelist_teams"},
		{"rejected merges", gitea.Gitea, false, func(w *broken) { w.rule.BlockOnRejected = false }, "rule.block_on_rejected_reviews"},
		{"outdated merges", gitea.Gitea, false, func(w *broken) { w.rule.BlockOnOutdated = false }, "rule.block_on_outdated_branch"},
		{"approvals stay", gitea.Gitea, false, func(w *broken) { w.rule.DismissStale = false }, "rule.dismiss_stale_approvals"},
		{"stale ones count", gitea.Gitea, false, func(w *broken) { w.rule.IgnoreStale = false }, "rule.ignore_stale_approvals"},
		{"unprotected files", gitea.Gitea, false, func(w *broken) { w.rule.UnprotectedFiles = "*.md" }, "rule.unprotected_file_patterns"},
		{"administrators", gitea.Gitea, false, func(w *broken) { w.rule.BlockAdmins = false }, "rule.block_admin_merge_override"},
		{"administrators of Forgejo", gitea.Forgejo, false, func(w *broken) { w.rule.BlockAdmins = false }, "rule.apply_to_admins"},
		{"a bypass list", gitea.Gitea, false, func(w *broken) { w.rule.Bypass = true }, "rule.enable_bypass_allowlist"},
		{"the webhook is off", gitea.Gitea, false, func(w *broken) { w.hook.SetActive(false) }, "~webhook"},
		{"the webhook leads to loopback", gitea.Gitea, false, func(w *broken) { w.hook.Set("http://127.0.0.1:1/hooks/docs", []byte("a secret of hooks")) }, "~webhook.address"},
		{"… of IPv6", gitea.Gitea, false, func(w *broken) { w.hook.Set("http://[::1]/hooks/docs", []byte("a secret of hooks")) }, "~webhook.address"},
		{"… into a private network", gitea.Gitea, false, func(w *broken) { w.hook.Set("https://10.1.2.3/hooks/docs", []byte("a secret of hooks")) }, "~webhook.address"},
		{"… to a name of it", gitea.Forgejo, false, func(w *broken) { w.hook.Set("https://fencepost:8080/hooks/docs", []byte("a secret of hooks")) }, "~webhook.address"},
		{"… to a public address", gitea.Gitea, false, func(w *broken) { w.hook.Set("https://198.51.100.7/hooks/docs", []byte("a secret of hooks")) }, ""},
		{"the webhook leads elsewhere", gitea.Gitea, false, func(w *broken) { w.hook.Set("https://fencepost.example.org/hooks/other", []byte("a secret of hooks")) }, "~webhook"},
	} {
		w := broken{bench: shared[tc.kind], hook: hooks[tc.kind], rule: forge.GateRule("main", reviewer, check)}
		if tc.alone {
			w.bench = newBench(t, tc.kind)
			w.hook = w.hooked()
		}
		w.lane = w.config()
		w.hook.SetActive(true)
		w.hook.Set("https://fencepost.example.org/hooks/docs", []byte("a secret of hooks"))
		tc.change(&w)
		w.repo.Protect(w.rule)
		var err error
		w.bench.lane, err = gitea.New(w.lane)
		must(t, err)
		if got := strings.Join(w.unmet(), " "); got != tc.want {
			t.Errorf("%s: found wrong: %s\nwant: %s", tc.name, got, tc.want)
		}
	}
}

// TestAnExaminationTellsNothingThatIsSecret: no token and nothing that a
// server answers beyond the words that are looked for.
func TestAnExaminationTellsNothingThatIsSecret(t *testing.T) {
	t.Parallel()
	const canary = "canary-9f2b7c"
	b := newBench(t, gitea.Gitea)
	b.hooked()
	for _, a := range []*forge.Answer{
		nil,
		{Status: http.StatusInternalServerError, Body: `{"message":"` + canary + `"}`},
		{Status: http.StatusForbidden, Body: canary},
		{Status: http.StatusOK, Body: `{"version":"` + canary + `","permission":"` + canary + `","user":{"id":1,"login":"` + canary + `"},"name":"main","protected":true,` +
			`"commit":{"id":"` + strings.Repeat("0", 40) + `"},"effective_branch_protection_name":"` + canary + `"}`},
	} {
		b.forge.Interfere(func(r *http.Request) *forge.Answer {
			if strings.Contains(r.URL.Path, "/repositories/") {
				return nil
			}
			return a
		})
		var found []gate.Finding
		found = append(found, b.lane.Examine(t.Context())...)
		if len(found) < 5 {
			t.Errorf("%d findings", len(found))
		}
		text := fmt.Sprintf("%+v", found)
		for _, secret := range []string{canary, b.reviews, b.rules, "a secret of hooks"} {
			if strings.Contains(text, secret) {
				t.Errorf("answered %+v, the examination tells %q", a, secret)
			}
		}
	}
}
