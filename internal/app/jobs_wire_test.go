package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/jobclient"
)

// jobSHA is the commit of the pipeline of [jobToken].
const jobSHA = "714a629c0b401fdce83e847fc9589983fc6f46bc"

// newJobStage opens a controller that has a gate at a GitLab and nothing else,
// and runs it.
func newJobStage(t *testing.T) *stage {
	t.Helper()
	head, _, _ := strings.Cut(settings, "trust:\n")
	s := unopened(t, head+`work: {backoff: 100ms, max_backoff: 1s}
trust:
  jobs:
    - {id: one, jwk: "file:key.json"}
gates:
`+fmt.Sprintf(jobGate, "http://127.0.0.1:1"))
	_, key := publicKey(t, 0)
	s.write(t, "key.json", key)
	s.open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.run(t)
	return s
}

// jobToken is a token of a policy's job in a merge train.
func jobToken(t *testing.T, id string, change func(claims map[string]any)) string {
	t.Helper()
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": "http://127.0.0.1:1", "aud": "https://fencepost.example.org", "jti": id, "iat": now, "nbf": now - 5, "exp": now + 300,
		"runner_id": 1, "pipeline_id": "574", "pipeline_source": "merge_request_event", "job_id": "302", "job_project_id": "1296271",
		"ref": "feature-1", "ref_path": "refs/heads/feature-1", "sha": jobSHA, "job_source": "pipeline_execution_policy",
		"job_config": map[string]string{"url": "http://127.0.0.1:1/acme/policies", "sha": "1234567890123456789012345678901234567890"},
	}
	if change != nil {
		change(claims)
	}
	return signToken(t, 0, claims)
}

// ask runs the job's side. accepted is called with the delivery once the
// controller has taken it.
func (s *stage) ask(t *testing.T, token string, accepted func(d fencepost.DeliveryID)) (jobclient.Report, error) {
	t.Helper()
	return jobclient.Run(t.Context(), jobclient.Config{
		Controller: "http://" + s.listener.Addr().String(), Route: "jobs", Token: fencepost.NewSecret([]byte(token)), MergeRequest: 7,
		Timeout: time.Minute, AllowHTTP: true, Now: time.Now,
		Say: func(line string) {
			if _, rest, ok := strings.Cut(line, "accepted as "); ok {
				id, _, _ := strings.Cut(rest, ";")
				accepted(fencepost.DeliveryID(id))
			}
		},
	})
}

// stagedResult is what the gate's lane stages of a delivery.
func (s *stage) stagedResult(t *testing.T, d fencepost.DeliveryID, c gate.Conclusion) []byte {
	t.Helper()
	head, err := fencepost.ParseCommitID(jobSHA)
	if err != nil {
		t.Fatal(err)
	}
	document, err := s.lanes["jobs"].Compose(gate.Verdict{
		Gate: "jobs", Delivery: d, Evaluation: fencepost.EvaluationID{1}, Conclusion: c,
		Subject: gate.Subject{Number: 7, Head: head, BaseRef: "refs/heads/main", Job: gate.Job{ID: 302, Pipeline: 574}},
		Title:   "2 checks", Summary: "all well", Artifact: "art_1", Revision: fencepost.GateRevision{1},
		Received: time.Now(), Started: time.Now(), Completed: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// The job's side and the controller together: what stands on the shelf is what
// the job gets, whoever put it there.
func TestAJobWaitsForWhatIsPutOnTheShelf(t *testing.T) {
	t.Parallel()
	s := newJobStage(t)
	for name, tc := range map[string]struct {
		put  func(d fencepost.DeliveryID) error
		want jobclient.Report
	}{
		"pass": {
			func(d fencepost.DeliveryID) error {
				return s.spine.results.Put(t.Context(), d, s.stagedResult(t, d, gate.Pass))
			},
			jobclient.Report{Outcome: "result", Conclusion: "success", Title: "2 checks", Summary: "all well"},
		},
		"block": {
			func(d fencepost.DeliveryID) error {
				return s.spine.results.Put(t.Context(), d, s.stagedResult(t, d, gate.Fail))
			},
			jobclient.Report{Outcome: "result", Conclusion: "failure", Title: "2 checks", Summary: "all well"},
		},
		"end": {
			func(d fencepost.DeliveryID) error {
				return s.spine.results.End(t.Context(), d, fencepost.ReasonSuperseded)
			},
			jobclient.Report{Outcome: "ended", Reason: fencepost.ReasonSuperseded},
		},
	} {
		token := jobToken(t, name, nil)
		var told fencepost.DeliveryID
		report, err := s.ask(t, token, func(d fencepost.DeliveryID) {
			if told = d; tc.put(d) != nil {
				t.Errorf("%s: could not be put", name)
			}
		})
		tc.want.Delivery = told
		if err != nil || report != tc.want || told == "" {
			t.Errorf("%s: %+v, %v; want %+v", name, report, err, tc.want)
		}
		if report.Passed() != (name == "pass") {
			t.Errorf("%s passes: %v", name, report.Passed())
		}
		// A repeat of the token is the same delivery, and has the same result.
		again, err := s.ask(t, token, func(fencepost.DeliveryID) {})
		if err != nil || again != report {
			t.Errorf("%s again: %+v, %v", name, again, err)
		}
	}
	log := s.log.String()
	for _, secret := range []string{readerToken, b64([]byte(`{"alg":"RS256"`))[:12], "all well"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestAJobThatIsNotTheGatesIsRefused(t *testing.T) {
	t.Parallel()
	s := newJobStage(t)
	for name, tc := range map[string]struct {
		change func(claims map[string]any)
		want   string
	}{
		"another audience": {func(c map[string]any) { c["aud"] = "https://elsewhere.example" }, "the job's token is not accepted (401)"},
		"another issuer":   {func(c map[string]any) { c["iss"] = "https://elsewhere.example" }, "the job's token is not accepted (401)"},
		"expired":          {func(c map[string]any) { c["exp"] = c["iat"].(int64) - 1 }, "the job's token is not accepted (401)"},
		"old":              {func(c map[string]any) { c["iat"] = c["iat"].(int64) - 3600 }, "the job's token is not accepted (401)"},
		"another project":  {func(c map[string]any) { c["job_project_id"] = "21" }, "the job is not of the project that the gate names (403)"},
		"old server":       {func(c map[string]any) { delete(c, "job_project_id") }, "the job is not of the project that the gate names (403)"},
		"a push":           {func(c map[string]any) { c["pipeline_source"] = "push" }, "the gate does not handle this job's pipeline"},
		"no pipeline":      {func(c map[string]any) { delete(c, "pipeline_id") }, "the token has a claim that the gate can't use, or the hint is malformed (400)"},
	} {
		report, err := s.ask(t, jobToken(t, name, tc.change), func(fencepost.DeliveryID) { t.Errorf("%s was accepted", name) })
		if err == nil || !strings.Contains(err.Error(), tc.want) || report.Passed() {
			t.Errorf("%s: %+v, %v; want %q", name, report, err, tc.want)
		}
	}
	if n := s.spine.inbox.Stats().Entries; n != 0 {
		t.Errorf("%d recorded", n)
	}
}

// A revoked key ends what waits: the job is told so and fails, instead of
// waiting for its timeout.
func TestAJobIsToldThatItsKeyWasRevoked(t *testing.T) {
	t.Parallel()
	s := newJobStage(t)
	report, err := s.ask(t, jobToken(t, "1", nil), func(d fencepost.DeliveryID) {
		// Another key takes the place of the one that signed.
		_, key := publicKey(t, 1)
		s.write(t, "two.json", key)
		if err := s.Reload(t.Context(), s.rewrite(t, `{id: one, jwk: "file:key.json"}`, `{id: two, jwk: "file:two.json"}`)); err != nil {
			t.Error(err)
		}
		rows := s.spine.inbox.Stats().Entries
		if rows != 1 {
			t.Errorf("%d recorded", rows)
		}
	})
	if err != nil || report.Outcome != "ended" || report.Reason != fencepost.ReasonRevoked || report.Passed() {
		t.Errorf("%+v, %v; want the end, revoked\n%s", report, err, s.log)
	}
}
