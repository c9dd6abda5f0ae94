package gitlab_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	car, got := b.join("change")
	job := car.Pipeline().Job(jobName)
	want := gate.Subject{Number: 1, Head: commit(t, car.Commit()), BaseRef: "refs/heads/main", Job: gate.Job{
		ID: job.ID(), Pipeline: car.Pipeline().ID(), Source: "pipeline_execution_policy",
		PolicyURL:    b.server.URL + "/acme/policies/-/blob/" + b.commits[0].String() + "/" + forge.PolicyPath,
		PolicyCommit: b.commits[0].String(),
	}}
	if got != want {
		t.Errorf("admitted %+v, want %+v", got, want)
	}

	const hint = `{"merge_request": 1}`
	for _, c := range []struct {
		name string
		edit func(claims map[string]any)
		body string
		want fencepost.Reason
	}{
		{"another project", func(c map[string]any) { c["job_project_id"] = "21" }, hint, fencepost.ReasonUnauthorized},
		{"a server that does not say in which project", func(c map[string]any) { delete(c, "job_project_id") }, hint, fencepost.ReasonUnauthorized},
		{"a push", func(c map[string]any) { c["pipeline_source"] = "push" }, hint, fencepost.ReasonEventNotHandled},
		{"another project's push", func(c map[string]any) { c["pipeline_source"], c["job_project_id"] = "push", "21" }, hint, fencepost.ReasonUnauthorized},
		{"SHA-256", func(c map[string]any) { c["sha"] = strings.Repeat("ab", 32) }, hint, fencepost.ReasonMalformed},
		{"an id that is a number", func(c map[string]any) { c["job_id"] = 302 }, hint, fencepost.ReasonMalformed},
		{"a long policy", func(c map[string]any) { c["job_source"] = strings.Repeat("x", gate.MaxJobText+1) }, hint, fencepost.ReasonMalformed},
		{"no hint", nil, `{}`, fencepost.ReasonMalformed},
		{"a hint of nothing", nil, `{"merge_request": 0}`, fencepost.ReasonMalformed},
		{"a hint that JSON can't hold", nil, `{"merge_request": 9007199254740993}`, fencepost.ReasonMalformed},
		{"a hint that is a text", nil, `{"merge_request": "1"}`, fencepost.ReasonMalformed},
		{"more than a hint", nil, `{"merge_request": 1, "gate": "docs"}`, fencepost.ReasonMalformed},
		{"two hints", nil, `{"merge_request": 1, "merge_request": 2}`, fencepost.ReasonMalformed},
	} {
		claims := job.Claims(audience)
		if c.edit != nil {
			c.edit(claims)
		}
		_, err := b.admit(claims, c.body)
		if err == nil || fencepost.ReasonOf(err) != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := b.lane.Admit(fencepost.NewHeaders(nil), []byte(hint)); fencepost.ReasonOf(err) != fencepost.ReasonMalformed {
		t.Errorf("without a token: %v", err)
	}
}

// TestAnOldServerIsAdmittedAndToldWhatItLacks: what a token of before 18.9 does
// not say is a fact that is not met.
func TestAnOldServerIsAdmittedAndToldWhatItLacks(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forge.Config) { c.Version = forge.Version{Major: 18, Minor: 8} })
	_, s := b.join("change")
	got := b.wantState(s, fencepost.ReasonGateUnproven, "project.merge_train_enforcement job.source policy.commit policy.url policy.file")
	for _, f := range unmetOf(got) {
		if (f.Name == "project.merge_train_enforcement" || f.Name == "job.source") && !strings.Contains(f.Observed, "GitLab before") {
			t.Errorf("%s is %q, which does not say that the server is too old", f.Name, f.Observed)
		}
	}
}
