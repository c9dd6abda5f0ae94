package forgesim_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

func TestConventionsOfEveryCall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, test := range []struct {
		name, path, header, value string
		want                      int
	}{
		{"described version", "/repos/acme/docs", "X-GitHub-Api-Version", "2022-11-28", 200},
		{"later version", "/repos/acme/docs", "X-GitHub-Api-Version", "2026-03-10", 200},
		{"no version", "/repos/acme/docs", "X-GitHub-Api-Version", "", 200},
		{"unsupported version", "/repos/acme/docs", "X-GitHub-Api-Version", "2021-01-01", 400},
		{"no User-Agent", "/repos/acme/docs", "User-Agent", "", 403},
		{"recommended Accept", "/repos/acme/docs", "Accept", "application/vnd.github+json", 200},
		{"Accept that is no JSON", "/repos/acme/docs", "Accept", "application/xml", 415},
		{"unknown path", "/repos/acme/docs/nothing", "", "", 404},
		{"trailing slash", "/repos/acme/docs/", "", "", 404},
		{"unclean path", "/repos//acme/docs", "", "", 404},
		{"other letter case", "/repos/ACME/Docs", "", "", 200},
		{"pull request that is no number", "/repos/acme/docs/pulls/x", "", "", 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			var header []string
			if test.header != "" {
				header = []string{test.header, test.value}
			}
			b.wantAs(b.token, test.want, "GET", test.path, "", header...)
		})
	}
}

func TestVersion2026HasNoMergeCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	if b.pollPull(pr)["merge_commit_sha"] == nil {
		t.Fatal("version 2022-11-28 shows no merge_commit_sha")
	}
	for _, path := range []string{"/repos/acme/docs/pulls/1", "/repos/acme/docs/pulls", "/rate_limit", "/repos/acme/docs"} {
		r := b.wantAs(b.token, 200, "GET", path, "", "X-GitHub-Api-Version", "2026-03-10")
		for _, gone := range []string{`"merge_commit_sha"`, `"assignee"`, `"rate"`, `"has_downloads"`} {
			if strings.Contains(string(r.body), gone) {
				t.Errorf("%s still has %s", path, gone)
			}
		}
	}
}

func TestUnchangedAnswersAre304AndFree(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.get("/repos/acme/docs/pulls")
	tag := first.header.Get("ETag")
	second := b.wantAs(b.token, http.StatusNotModified, "GET", "/repos/acme/docs/pulls", "", "If-None-Match", tag)
	if len(second.body) != 0 {
		t.Errorf("304 has a body of %d bytes", len(second.body))
	}
	if got, want := second.header.Get("X-Ratelimit-Used"), first.header.Get("X-Ratelimit-Used"); got != want {
		t.Errorf("304 used %s requests, want %s as before", got, want)
	}
	b.open("change")
	b.wantAs(b.token, http.StatusOK, "GET", "/repos/acme/docs/pulls", "", "If-None-Match", tag)
}

func TestPrimaryRateLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.RateLimit = 3 })
	for want := 2; want >= 0; want-- {
		r := b.get("/repos/acme/docs")
		if got := r.header.Get("X-Ratelimit-Remaining"); got != strconv.Itoa(want) {
			t.Errorf("remaining %s, want %d", got, want)
		}
	}
	r := b.want(403, "GET", "/repos/acme/docs", "")
	reset := b.clock.Now().Add(time.Hour).Unix()
	if r.header.Get("X-Ratelimit-Remaining") != "0" || r.header.Get("X-Ratelimit-Reset") != strconv.FormatInt(reset, 10) {
		t.Errorf("headers %v, want nothing remaining until %d", r.header, reset)
	}
	core := b.get("/rate_limit").object(t)["resources"].(map[string]any)["core"].(map[string]any)
	if core["remaining"] != 0.0 {
		t.Errorf("rate_limit says %v, want nothing remaining", core)
	}
	// Others have an allowance of their own, and this one has again later.
	b.wantAs(b.jwt(), 200, "GET", "/app", "")
	b.clock.Advance(time.Hour)
	b.token = b.inst.Token(b.repo)
	b.get("/repos/acme/docs")
}

func TestRenamedRepositoriesRedirectById(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	must(t, b.repo.Rename("manual"))
	r := b.want(http.StatusMovedPermanently, "GET", "/repos/acme/docs/pulls?state=all", "")
	location := r.header.Get("Location")
	if want := "/repositories/" + strconv.FormatInt(b.repo.ID(), 10) + "/pulls?state=all"; !strings.HasSuffix(location, want) {
		t.Errorf("Location %q, want one that ends in %q", location, want)
	}
	if got := b.get(location).list(t)[0]["number"]; got != float64(pr.Number()) {
		t.Errorf("the redirect leads to request %v", got)
	}
	b.want(http.StatusTemporaryRedirect, "POST", "/repos/acme/docs/check-runs", createRun("c", pr.Head(), "e"))
	if n := len(b.repo.CheckRuns("")); n != 0 {
		t.Errorf("a redirected write made %d runs", n)
	}
	if got := b.get("/repos/acme/manual").object(t)["full_name"]; got != "acme/manual" {
		t.Errorf("full_name %v, want acme/manual", got)
	}
	// The old name is whose takes it.
	other, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "docs", Public: true})
	must(t, err)
	if got := b.get("/repos/acme/docs").object(t)["id"]; got != float64(other.ID()) {
		t.Errorf("the old name leads to %v, want the new repository %d", got, other.ID())
	}
}

func TestATransferIsOutOfReach(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must(t, b.repo.Transfer("elsewhere"))
	b.want(404, "GET", "/repos/acme/docs", "")
	b.want(404, "GET", "/repos/elsewhere/docs", "")
	b.wantAs(b.jwt(), 301, "GET", "/repos/acme/docs/installation", "")
	_, err := b.forge.App().Install(b.repo)
	must(t, err)
}

func TestADeletedRepositoryIsNotThere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must(t, b.repo.Rename("manual"))
	b.repo.Delete()
	for _, path := range []string{"/repos/acme/docs", "/repos/acme/manual", "/repositories/" + strconv.FormatInt(b.repo.ID(), 10)} {
		b.want(404, "GET", path, "")
	}
}
