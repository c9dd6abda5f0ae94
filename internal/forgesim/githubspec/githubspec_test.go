package githubspec_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
)

const sha = "6dcb09b5b57875f334f61aebed695e2e4193db5e"

func TestRequestsAreHeldAgainstTheDescription(t *testing.T) {
	t.Parallel()
	spec := githubspec.Load(t)
	run := `{"name":"a","head_sha":"` + sha + `"`
	for _, test := range []struct {
		name, method, target, body string
		want                       string // part of the error; "" is none
	}{
		{"a plain read", "GET", "/app", "", ""},
		{"parameters of a list", "GET", "/repos/o/r/commits/" + sha + "/check-runs?filter=all&app_id=7&per_page=100", "", ""},
		{"a ref with slashes", "GET", "/repos/o/r/git/ref/heads/feature/x", "", ""},
		{"an escaped branch", "GET", "/repos/o/r/rules/branches/feature%2Fx", "", ""},
		{"a repository by id", "GET", "/repositories/7/pulls/1", "", ""},
		{"a repository itself by id", "GET", "/repositories/7", "", ""},
		{"a whole body", "POST", "/repos/o/r/check-runs", run + `,"status":"completed","conclusion":"success"}`, ""},
		{"an unknown path", "GET", "/repos/o/r/nothing", "", "not in the description"},
		{"an unknown parameter", "GET", "/repos/o/r/commits/x/check-runs?app=7", "", "query parameter app"},
		{"a repeated parameter", "GET", "/repos/o/r/pulls?page=1&page=2", "", "query parameter page"},
		{"a value that is none", "GET", "/repos/o/r/pulls?state=merged", "", "parameter state"},
		{"a number that is none", "GET", "/repos/o/r/pulls/first", "", "parameter pull_number"},
		{"an unknown field", "POST", "/repos/o/r/check-runs", run + `,"idempotency_key":"x"}`, "/idempotency_key is not in the description"},
		{"an unknown field within", "POST", "/repos/o/r/check-runs", run + `,"output":{"title":"t","summary":"s","color":"x"}}`, "/output/color is not in the description"},
		{"a field of another type", "POST", "/repos/o/r/check-runs", `{"name":"a","head_sha":7}`, "head_sha"},
		{"a missing field", "POST", "/repos/o/r/check-runs", `{"name":"a"}`, "head_sha"},
		{"a missing body", "POST", "/repos/o/r/check-runs", "", "a body is required"},
		{"a body too many", "GET", "/app", "{}", "takes no body"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(test.method, test.target, strings.NewReader(test.body))
			r.Header.Set("Content-Type", "application/json")
			err := spec.CheckRequest(r, []byte(test.body))
			if test.want == "" && err != nil {
				t.Fatalf("error %v, want none", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestAnUnknownOperationCanBeMatched(t *testing.T) {
	t.Parallel()
	spec := githubspec.Load(t)
	err := spec.CheckRequest(httptest.NewRequest("GET", "/nothing", nil), nil)
	if !errors.Is(err, githubspec.ErrUnknownOperation) {
		t.Fatalf("error %v, want ErrUnknownOperation", err)
	}
}

func TestAnswersAreHeldAgainstTheDescription(t *testing.T) {
	t.Parallel()
	spec := githubspec.Load(t)
	ref := `{"ref":"refs/heads/main","node_id":"x","url":"https://forge.invalid/x","object":{"type":"commit","sha":"` + sha +
		`","url":"https://forge.invalid/y"}`
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"a described answer", 200, ref + "}", ""},
		{"a described error", 404, `{"message":"Not Found"}`, ""},
		{"a usual error", 401, `{"message":"Bad credentials","status":"401"}`, ""},
		{"a missing field", 200, `{"ref":"refs/heads/main"}`, "node_id"},
		{"a field of another type", 200, strings.Replace(ref, `"x"`, `7`, 1) + "}", "node_id"},
		{"an unknown field", 200, ref + `,"branch":"main"}`, "/branch is not in the description"},
		{"an unknown status", 206, ref + "}", "status 206"},
		{"another error's form", 401, `{"error":"no"}`, "/error is not in the description"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/repos/o/r/git/ref/heads/main", nil)
			header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
			err := spec.CheckAnswer(r, test.status, header, []byte(test.body))
			if test.want == "" && err != nil {
				t.Fatalf("error %v, want none", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
