package app

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/jobclient"
	"github.com/fencepost/fencepost/webhook"
)

// jobSettings are a gate at a GitLab that is not there.
const jobSettings = `version: 1
data_dir: data
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
runner: {sandbox: best_effort}
work: {backoff: 100ms, max_backoff: 1s}
trust:
  instance:
    - {id: one, jwk: "file:key.json"}
gates:
  docs:
    provider: gitlab
    api: http://127.0.0.1:1/api/v4
    git: http://127.0.0.1:1
    allow_http: true
    trust: instance
    audience: https://fencepost.example
    token: "file:token"
    policy: {project: 31, path: acme/policies, commits: ["1111111111222222222233333333334444444444"], job: fencepost}
    repository: {id: 20, owner_id: 72, name: acme/docs}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "http://127.0.0.1:1/acme/checks.git", commit: "1234567890123456789012345678901234567890"}
      program: bin/check
      sha256: "00000000000000000000000000000000000000000000000000000000000000ff"
`

const (
	jobSHA      = "714a629c0b401fdce83e847fc9589983fc6f46bc"
	readerToken = "canary-of-a-reader"
)

// jobKey signs tokens of jobs; it is nobody's.
var jobKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// newJobStage opens a controller with a gate at GitLab, and runs it.
func newJobStage(t *testing.T) *stage {
	t.Helper()
	dir, key := t.TempDir(), jobKey()
	jwk, err := json.Marshal(map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": webhook.ThumbprintOf(&key.PublicKey).String(),
		"n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"fencepost.yaml": []byte(jobSettings), "key.json": jwk, "token": []byte(readerToken)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{file: filepath.Join(dir, "fencepost.yaml"), log: &lines{}}
	s.App, err = Open(t.Context(), Options{
		Config: s.load(t), LookupEnv: os.LookupEnv, Now: time.Now, Entry: entry,
		Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
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
		"iss": "http://127.0.0.1:1", "aud": "https://fencepost.example", "jti": id, "iat": now, "nbf": now - 5, "exp": now + 300,
		"runner_id": 1, "pipeline_id": "574", "pipeline_source": "merge_request_event", "job_id": "302", "job_project_id": "20",
		"ref": "feature-1", "ref_path": "refs/heads/feature-1", "sha": jobSHA, "job_source": "pipeline_execution_policy",
		"job_config": map[string]string{"url": "http://127.0.0.1:1/acme/policies", "sha": "1111111111222222222233333333334444444444"},
	}
	if change != nil {
		change(claims)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	key := jobKey()
	head := fmt.Sprintf(`{"alg":"RS256","typ":"JWT","kid":%q}`, webhook.ThumbprintOf(&key.PublicKey))
	text := b64([]byte(head)) + "." + b64(payload)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(signature)
}

// ask runs the job's side. accepted is called with the delivery once the
// controller has taken it.
func (s *stage) ask(t *testing.T, token string, accepted func(d fencepost.DeliveryID)) (jobclient.Report, error) {
	t.Helper()
	return jobclient.Run(t.Context(), jobclient.Config{
		Controller: "http://" + s.listener.Addr().String(), Route: "docs", Token: fencepost.NewSecret([]byte(token)), MergeRequest: 7,
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
	document, err := s.lanes["docs"].Compose(gate.Verdict{
		Gate: "docs", Delivery: d, Evaluation: fencepost.EvaluationID{1}, Conclusion: c,
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
		"no pipeline":      {func(c map[string]any) { delete(c, "pipeline_id") }, "the token lacks what the gate needs, or the hint is malformed (400)"},
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
		other, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Error(err)
		}
		jwk, err := json.Marshal(map[string]string{"kty": "RSA", "n": b64(other.N.Bytes()), "e": "AQAB"})
		if err != nil {
			t.Error(err)
		}
		s.write(t, "two.json", string(jwk))
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
