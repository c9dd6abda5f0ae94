package forgesim_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// Every operation is asked at least once in its good case; the bench holds
// request and answer against GitHub's description.
func TestEveryOperationKeepsToTheDescription(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	b.inst.SetPermissions(forgesim.Permissions{
		"metadata": "read", "contents": "read", "pull_requests": "read", "checks": "write", "statuses": "write",
		"administration": "read",
	})
	b.token = b.inst.Token(b.repo)
	b.repo.AddRuleset(forgesim.RequireCheck("fencepost/docs", b.forge.App().ID()))
	b.repo.AddRuleset(forgesim.Ruleset{Source: "Organization", Rules: []forgesim.Rule{{Type: "deletion"}, {
		Type: "pull_request",
		Parameters: map[string]any{
			"dismiss_stale_reviews_on_push": true, "require_code_owner_review": false, "require_last_push_approval": false,
			"required_approving_review_count": 1, "required_review_thread_resolution": false,
		},
	}}})
	b.repo.Protect("main", forgesim.Protection{
		Checks: []forgesim.RequiredContext{{Context: "fencepost/docs", Integration: b.forge.App().ID()}, {Context: "any"}},
		Strict: true, EnforceAdmins: true,
	})
	pr := b.open("change")
	b.pollPull(pr)
	head, repo := pr.Head(), "/repos/acme/docs"
	app := b.jwt()

	for _, path := range []string{
		"/app", "/app/installations", fmt.Sprintf("/app/installations/%d", b.inst.ID()), repo + "/installation",
		"/app/hook/config",
	} {
		b.wantAs(app, http.StatusOK, "GET", path, "")
	}
	b.wantAs(app, http.StatusOK, "PATCH", "/app/hook/config", `{"url":"http://127.0.0.1:1/hook","content_type":"json"}`)
	must(t, b.forge.Deliver(ctx))
	delivery := b.wantAs(app, http.StatusOK, "GET", "/app/hook/deliveries?per_page=1", "").list(t)[0]
	deliveries := fmt.Sprintf("/app/hook/deliveries/%d", b.forge.Deliveries()[0].ID)
	if delivery["event"] != "pull_request" {
		t.Errorf("newest delivery is %v, want pull_request", delivery["event"])
	}
	b.wantAs(app, http.StatusOK, "GET", deliveries, "")
	b.wantAs(app, http.StatusAccepted, "POST", deliveries+"/attempts", "")
	made := b.wantAs(app, http.StatusCreated, "POST", fmt.Sprintf("/app/installations/%d/access_tokens", b.inst.ID()),
		fmt.Sprintf(`{"repository_ids":[%d],"permissions":{"contents":"read"}}`, b.repo.ID())).object(t)

	run := b.want(http.StatusCreated, "POST", repo+"/check-runs", createRun("fencepost/docs", head, "evl_1")).object(t)
	runPath := fmt.Sprintf(repo+"/check-runs/%.0f", run["id"])
	b.want(http.StatusOK, "PATCH", runPath, `{"output":{"title":"t","summary":"s","annotations":[`+
		`{"path":"a b.md","start_line":1,"end_line":1,"annotation_level":"notice","message":"m"}]}}`)
	b.want(http.StatusCreated, "POST", repo+"/statuses/"+head, `{"state":"success","context":"ci"}`)
	suite := fmt.Sprintf(repo+"/check-suites/%.0f", run["check_suite"].(map[string]any)["id"])
	rulesets := b.get(repo + "/rulesets").list(t)
	for _, path := range []string{
		repo, repo + "/git/ref/heads/main", repo + "/git/matching-refs/heads/", repo + "/compare/main...change", repo + "/git/commits/" + head,
		repo + "/branches/main", repo + "/branches/main/protection", repo + "/rules/branches/main",
		fmt.Sprintf(repo+"/rulesets/%.0f", rulesets[0]["id"]), repo + "/pulls", repo + "/pulls/1", runPath,
		runPath + "/annotations", repo + "/commits/" + head + "/check-runs", repo + "/commits/" + head + "/check-suites",
		suite, suite + "/check-runs", repo + "/commits/" + head + "/status", repo + "/commits/" + head + "/statuses",
		"/installation/repositories", "/rate_limit", "/meta",
	} {
		b.get(path)
	}
	b.wantAs(made["token"].(string), http.StatusNoContent, "DELETE", "/installation/token", "")

	for _, operation := range forgesim.Operations() {
		if b.forge.Count(operation) == 0 {
			t.Errorf("operation %s was not asked", operation)
		}
	}
}

func TestPathsByIDAnswerLikePathsByName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("change")
	for _, path := range []string{"", "/pulls", "/git/ref/heads/main", "/rules/branches/main"} {
		byName := b.get("/repos/acme/docs" + path)
		byID := b.get(fmt.Sprintf("/repositories/%d%s", b.repo.ID(), path))
		if string(byName.body) != string(byID.body) {
			t.Errorf("%q: by name %s, by id %s", path, byName.body, byID.body)
		}
	}
}

func TestRefsAreFoundExactly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.repo.Push(t.Context(), forgesim.Push{Branch: "main-2", Change: files("x")})
	must(t, err)
	_, err = b.repo.Push(t.Context(), forgesim.Push{Branch: "feature/x", Change: files("y")})
	must(t, err)
	b.want(http.StatusNotFound, "GET", "/repos/acme/docs/git/ref/heads/mai", "")
	if n := len(b.get("/repos/acme/docs/git/matching-refs/heads/main").list(t)); n != 2 {
		t.Errorf("matching-refs found %d refs, want main and main-2", n)
	}
	for _, path := range []string{"/git/ref/heads/feature/x", "/git/ref/heads/feature%2Fx", "/branches/feature/x", "/branches/feature%2Fx"} {
		b.get("/repos/acme/docs" + path)
	}
	for _, ref := range []string{"heads/feature/x", "feature%2Fx", b.repo.Ref("refs/heads/feature/x")} {
		b.get("/repos/acme/docs/commits/" + ref + "/check-runs")
	}
}

func TestCommitsThatAreNotThere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	none := strings.Repeat("ab", 20)
	b.want(http.StatusNotFound, "GET", "/repos/acme/docs/git/commits/"+none, "")
	b.want(http.StatusUnprocessableEntity, "GET", "/repos/acme/docs/commits/"+none+"/check-runs", "")
	b.want(http.StatusUnprocessableEntity, "POST", "/repos/acme/docs/check-runs", createRun("c", none, "e"))
}

func TestPagesFollowEachOtherByLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 7 {
		b.open(fmt.Sprintf("change-%d", i))
	}
	var numbers []float64
	pages := 0
	for next := "/repos/acme/docs/pulls?per_page=3&direction=asc"; next != ""; pages++ {
		r := b.get(next)
		for _, pr := range r.list(t) {
			numbers = append(numbers, pr["number"].(float64))
		}
		next = nextLink(r.header.Get("Link"))
	}
	if want := []float64{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(numbers, want) || pages != 3 {
		t.Errorf("%d pages hold %v, want 3 with %v", pages, numbers, want)
	}
	if n := len(b.get("/repos/acme/docs/pulls?per_page=1000").list(t)); n != 7 {
		t.Errorf("a page above the limit holds %d, want all 7", n)
	}
}

// nextLink takes the rel="next" of a Link header.
func nextLink(header string) string {
	for part := range strings.SplitSeq(header, ",") {
		if target, rel, ok := strings.Cut(part, ";"); ok && strings.TrimSpace(rel) == `rel="next"` {
			return strings.Trim(strings.TrimSpace(target), "<>")
		}
	}
	return ""
}

func TestRulesOfABranch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check := []forgesim.RequiredContext{{Context: "fencepost/docs", Integration: 12345}}
	rule := []forgesim.Rule{{Type: "required_status_checks", Checks: check, Strict: true}}
	for _, rs := range []forgesim.Ruleset{
		{Name: "own", Rules: rule},
		{Name: "of the organization", Source: "Organization", Include: []string{"~ALL"}, Rules: rule},
		{Name: "tried out", Enforcement: forgesim.Evaluate, Rules: rule},
		{Name: "off", Enforcement: forgesim.Disabled, Rules: rule},
		{Name: "of other branches", Include: []string{"refs/heads/release/*"}, Rules: rule},
		{Name: "not of this one", Include: []string{"~ALL"}, Exclude: []string{"refs/heads/main"}, Rules: rule},
	} {
		b.repo.AddRuleset(rs)
	}
	for branch, want := range map[string]int{"main": 2, "release%2F1": 3, "other": 2} {
		if n := len(b.get("/repos/acme/docs/rules/branches/" + branch).list(t)); n != want {
			t.Errorf("branch %s has %d rules, want %d", branch, n, want)
		}
	}
	parameters := b.get("/repos/acme/docs/rules/branches/main").list(t)[0]["parameters"].(map[string]any)
	if parameters["strict_required_status_checks_policy"] != true {
		t.Errorf("parameters are %v, want strict", parameters)
	}
}
