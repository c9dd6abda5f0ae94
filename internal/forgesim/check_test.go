package forgesim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

func (b *bench) runs(sha, query string) []any {
	b.t.Helper()
	return b.get("/repos/acme/docs/commits/" + sha + "/check-runs" + query).object(b.t)["check_runs"].([]any)
}

// contracts/github.md §6: no idempotency key, and latest hides older runs.
func TestEveryPostMakesAnotherRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	for range 3 {
		b.want(http.StatusCreated, "POST", "/repos/acme/docs/check-runs", createRun("fencepost/docs", head, "evl_same"))
	}
	if n := len(b.repo.CheckRuns(head)); n != 3 {
		t.Errorf("%d runs are there, want 3", n)
	}
	if n := len(b.runs(head, "")); n != 1 {
		t.Errorf("the default list has %d runs, want the latest alone", n)
	}
	all := b.runs(head, "?filter=all")
	if len(all) != 3 {
		t.Errorf("the list of all has %d runs, want 3", len(all))
	}
	if id := b.runs(head, "")[0].(map[string]any)["id"].(float64); int64(id) != b.repo.CheckRuns(head)[2].ID || id < 1<<31 {
		t.Errorf("latest is run %.0f, want the newest, above 2^31", id)
	}
}

func TestListsOfRunsAreFiltered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	other, err := b.forge.AddApp(forgesim.AppConfig{ID: 7, Slug: "other", Key: appKey()})
	must(t, err)
	for _, n := range []forgesim.NewCheckRun{
		{Name: "fencepost/docs", HeadSHA: head, ExternalID: "ours", Conclusion: "success", Title: "t", Summary: "s"},
		{Name: "fencepost/docs", HeadSHA: head, ExternalID: "foreign", Conclusion: "neutral", App: other},
		{Name: "lint", HeadSHA: head, App: other},
	} {
		_, err := b.repo.CreateCheckRun(t.Context(), n)
		must(t, err)
	}
	for query, want := range map[string]int{
		"": 3, "?app_id=12345": 1, "?app_id=7": 2, "?app_id=8": 0, "?check_name=fencepost%2Fdocs": 2,
		"?check_name=fencepost%2Fdocs&app_id=12345&filter=all": 1, "?status=queued": 1, "?status=completed": 2,
		"?status=in_progress": 0, "?per_page=2": 2, "?per_page=2&page=2": 1, "?per_page=2&page=9": 0,
	} {
		if n := len(b.runs(head, query)); n != want {
			t.Errorf("%q lists %d runs, want %d", query, n, want)
		}
	}
	suites := b.get("/repos/acme/docs/commits/" + head + "/check-suites").object(t)["check_suites"].([]any)
	if len(suites) != 2 {
		t.Errorf("%d suites, want one for each App", len(suites))
	}
	for query, want := range map[string]int{"?app_id=7": 1, "?check_name=lint": 1, "?check_name=none": 0} {
		if n := len(b.get("/repos/acme/docs/commits/" + head + "/check-suites" + query).object(t)["check_suites"].([]any)); n != want {
			t.Errorf("%q lists %d suites, want %d", query, n, want)
		}
	}
}

func TestRunsAreValidated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	long := strings.Repeat("é", 65_536)
	annotation := `{"path":"a","start_line":1,"end_line":1,"annotation_level":"notice","message":"m"}`
	body := func(rest string) string { return fmt.Sprintf(`{"name":"c","head_sha":%q%s}`, head, rest) }
	output := func(rest string) string { return body(`,"output":{"title":"t","summary":"s"` + rest + `}`) }
	for _, test := range []struct {
		name, body string
		want       int
	}{
		{"least", body(""), 201},
		{"summary of the most characters", body(`,"output":{"title":"t","summary":"` + long[:2*65_535] + `"}`), 201},
		{"fifty annotations", output(`,"annotations":[` + strings.Repeat(annotation+",", 49) + annotation + `]`), 201},
		{"no name", fmt.Sprintf(`{"head_sha":%q}`, head), 422},
		{"no head", `{"name":"c"}`, 422},
		{"short head", `{"name":"c","head_sha":"abc"}`, 422},
		{"completed without conclusion", body(`,"status":"completed"`), 422},
		{"completed_at without conclusion", body(`,"completed_at":"2026-11-30T12:00:00Z"`), 422},
		{"stale", body(`,"conclusion":"stale"`), 422},
		{"unknown conclusion", body(`,"conclusion":"passed"`), 422},
		{"unknown status", body(`,"status":"waiting"`), 422},
		{"time that is none", body(`,"started_at":"yesterday"`), 422},
		{"URL that is none", body(`,"details_url":"evl_1"`), 422},
		{"name that is a number", fmt.Sprintf(`{"name":7,"head_sha":%q}`, head), 422},
		{"output without title", body(`,"output":{"summary":"s"}`), 422},
		{"output without summary", body(`,"output":{"title":"t"}`), 422},
		{"summary too long", body(`,"output":{"title":"t","summary":"` + long + `"}`), 422},
		{"text too long", output(`,"text":"` + long + `"`), 422},
		{"too many annotations", output(`,"annotations":[` + strings.Repeat(annotation+",", 50) + annotation + `]`), 422},
		{"columns across lines", output(`,"annotations":[` + strings.Replace(annotation, `"end_line":1`, `"end_line":2,"start_column":1`, 1) + `]`), 422},
		{"lines backwards", output(`,"annotations":[` + strings.Replace(annotation, `"start_line":1`, `"start_line":2`, 1) + `]`), 422},
		{"unknown level", output(`,"annotations":[` + strings.Replace(annotation, "notice", "loud", 1) + `]`), 422},
		{"too many actions", body(`,"actions":[` + strings.Repeat(`{"label":"l","description":"d","identifier":"i"},`, 3) + `{"label":"l","description":"d","identifier":"i"}]`), 422},
		{"label too long", body(`,"actions":[{"label":"` + strings.Repeat("l", 21) + `","description":"d","identifier":"i"}]`), 422},
		{"no JSON", `{"name":`, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(b.repo.CheckRuns(""))
			b.want(test.want, "POST", "/repos/acme/docs/check-runs", test.body)
			made := len(b.repo.CheckRuns("")) - before
			if (made == 1) != (test.want == 201) {
				t.Errorf("%d runs were made", made)
			}
		})
	}
}

func TestAConclusionCompletes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	made := b.want(201, "POST", "/repos/acme/docs/check-runs", fmt.Sprintf(`{"name":"c","head_sha":%q}`, head)).object(t)
	if made["status"] != "queued" || made["conclusion"] != nil {
		t.Errorf("a new run is %v %v, want queued without conclusion", made["status"], made["conclusion"])
	}
	b.clock.Advance(time.Minute)
	path := fmt.Sprintf("/repos/acme/docs/check-runs/%.0f", made["id"])
	done := b.want(200, "PATCH", path, `{"conclusion":"failure"}`).object(t)
	if done["status"] != "completed" || done["completed_at"] != "2026-11-30T12:01:00Z" {
		t.Errorf("a concluded run is %v at %v, want completed now", done["status"], done["completed_at"])
	}
	annotated := `{"output":{"title":"t","summary":"s","annotations":[{"path":"a","start_line":1,"end_line":1,"annotation_level":"notice","message":"m"}]}}`
	b.want(200, "PATCH", path, annotated)
	b.want(200, "PATCH", path, annotated)
	if n := len(b.get(path + "/annotations").list(t)); n != 2 {
		t.Errorf("%d annotations, want those of both requests", n)
	}
}

func TestARunIsChangedByItsAppAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	other, err := b.forge.AddApp(forgesim.AppConfig{ID: 7, Slug: "other", Key: appKey()})
	must(t, err)
	run, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{App: other, Name: "c", HeadSHA: head})
	must(t, err)
	b.want(403, "PATCH", fmt.Sprintf("/repos/acme/docs/check-runs/%d", run.ID), `{"conclusion":"success"}`)
	if got := b.repo.CheckRuns(head)[0].Status; got != "queued" {
		t.Errorf("the run is %s, want queued as before", got)
	}
}

func TestASuiteKeepsAThousandRunsOfAName(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.App.Events = []string{"push"} })
	head := b.repo.Ref("refs/heads/main")
	for i := range 1001 {
		_, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: "c", HeadSHA: head, ExternalID: fmt.Sprint(i)})
		must(t, err)
	}
	runs := b.repo.CheckRuns(head)
	if len(runs) != 1000 || runs[0].ExternalID != "1" {
		t.Errorf("%d runs from %s, want 1000 without the oldest", len(runs), runs[0].ExternalID)
	}
}

func TestStatusesAreNoRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	for _, s := range []forgesim.Status{
		{SHA: head, Context: "ci", State: "pending"},
		{SHA: head, Context: "CI", State: "success"},
		{SHA: head, Context: "lint", State: "success", AppID: 12345},
	} {
		must(t, b.repo.PostStatus(t.Context(), s))
	}
	_, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: "run", HeadSHA: head, Conclusion: "failure"})
	must(t, err)
	combined := b.get("/repos/acme/docs/commits/main/status").object(t)
	if combined["state"] != "success" || combined["total_count"] != 2.0 {
		t.Errorf("combined status is %v of %v, want success of 2 contexts", combined["state"], combined["total_count"])
	}
	list := b.get("/repos/acme/docs/commits/main/statuses").list(t)
	if len(list) != 3 || list[0]["context"] != "lint" {
		t.Errorf("%d statuses from %v, want 3, newest first", len(list), list[0]["context"])
	}
	if creator := list[0]["creator"].(map[string]any); creator["type"] != "Bot" {
		t.Errorf("creator of an App's status is a %v, want a Bot", creator["type"])
	}
	b.want(403, "POST", "/repos/acme/docs/statuses/"+head, `{"state":"success"}`)
}
