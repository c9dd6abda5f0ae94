package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	jobToken    = "eyJhbGciOiJSUzI1NiJ9.eyJqdGkiOiIxIn0.canary-of-a-signature-canary-of-a-signature"
	jobDelivery = "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	jobSecret   = "canary-of-a-poll-secret-canary-of-a-poll-se"
)

// jobController takes every job and tells it that result.
func jobController(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/jobs/docs" && r.Header.Get("Authorization") == "Bearer "+jobToken:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"outcome":"accepted","reason":"","delivery":%q,"poll":%q}`, jobDelivery, jobSecret)
		case r.Method == http.MethodGet && r.URL.Path == "/jobs/docs/"+jobDelivery && r.Header.Get("Authorization") == "Bearer "+jobSecret:
			fmt.Fprint(w, result)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"outcome":"rejected","reason":"unauthenticated","delivery":""}`)
		}
	}
}

// runJob runs the command in an environment, and fails if it tells a secret.
func runJob(t *testing.T, ctx context.Context, env map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e strings.Builder
	m := Main{In: strings.NewReader(""), Out: &o, Err: &e, Now: time.Now, LookupEnv: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}
	code = m.Run(ctx, append([]string{"gitlab-job"}, args...))
	if all := o.String() + e.String(); strings.Contains(all, "canary") || strings.Contains(all, "\x1b") {
		t.Errorf("%v tells a secret or a control character:\n%s", args, all)
	}
	return code, o.String(), e.String()
}

var jobEnv = map[string]string{"FENCEPOST_ID_TOKEN": jobToken, "CI_MERGE_REQUEST_IID": "7"}

func jobResult(outcome, reason, conclusion string) string {
	return fmt.Sprintf(`{"outcome":%q,"reason":%q,"delivery":%q,"conclusion":%q,"title":"2 \u001bchecks","summary":"one\ntwo %s\n"}`,
		outcome, reason, jobDelivery, conclusion, jobToken)
}

func TestGitLabJobExitsAsTheGateSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result    string
		code      int
		out, errs string
	}{
		"pass":     {jobResult("result", "", "success"), exitDone, "pass: 2 checks\n\none\ntwo [redacted]\n", ""},
		"block":    {jobResult("result", "", "failure"), exitFailed, "block: 2 checks\n\none\ntwo [redacted]\n", jobDelivery + ": the gate blocks"},
		"moved on": {jobResult("ended", "superseded", ""), exitFailed, "", "(superseded): the merge train moved on"},
		"revoked":  {jobResult("ended", "revoked", ""), exitFailed, "", "(revoked); docs/reasons.md has the mend"},
		"gone":     {jobResult("ended", "", ""), exitFailed, "", "ended without a result that is kept; retry the job"},
		"nonsense": {"<html>", exitFailed, "", "what answers there is no controller; see that the URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(jobController(tc.result))
			t.Cleanup(server.Close)
			args := []string{"--controller", server.URL, "--route", "docs", "--allow-http"}
			code, out, errs := runJob(t, t.Context(), jobEnv, args...)
			if code != tc.code || out != tc.out || !strings.Contains(errs, tc.errs) {
				t.Errorf("code %d, out %q, err %q; want %d, %q, %q", code, out, errs, tc.code, tc.out, tc.errs)
			}
			for line := range strings.Lines(errs) {
				if !strings.HasPrefix(line, "fencepost: ") {
					t.Errorf("line %q", line)
				}
			}
			if tc.result == "<html>" {
				return
			}
			args = []string{"--controller", server.URL + "/jobs/docs", "--allow-http", "--json"}
			code, out, errs = runJob(t, t.Context(), jobEnv, args...)
			if code != tc.code || !strings.HasPrefix(out, `{"delivery":"`+jobDelivery+`","outcome":"`) || strings.Count(out, "\n") != 1 || strings.Contains(errs, "the mend") {
				t.Errorf("as JSON: code %d, out %q, err %q", code, out, errs)
			}
		})
	}
}

func TestGitLabJobSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	base := []string{"--controller", "https://fencepost.invalid", "--route", "docs"}
	without := func(name string) map[string]string {
		env := map[string]string{}
		for k, v := range jobEnv {
			if k != name {
				env[k] = v
			}
		}
		return env
	}
	other := map[string]string{"OTHER": "canary", "CI_MERGE_REQUEST_IID": "7"}
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"no controller": {jobEnv, base[2:], "needs --controller: https://HOST/jobs/NAME"},
		"no route":      {jobEnv, base[:2], "it is not said which gate: the controller's URL must end in /jobs/NAME"},
		"two routes":    {jobEnv, []string{"--controller", "https://fencepost.invalid/jobs/docs", "--route", "other"}, "names another gate than the route"},
		"an environment's": {map[string]string{
			"FENCEPOST_ID_TOKEN": jobToken, "CI_MERGE_REQUEST_IID": "7", "FENCEPOST_ROUTE": "docs", "FENCEPOST_CONTROLLER": "https://fencepost.invalid/jobs/docs",
		}, nil, "needs --controller"},
		"no token":            {without("FENCEPOST_ID_TOKEN"), base, "$FENCEPOST_ID_TOKEN is not set; give the job id_tokens: {FENCEPOST_ID_TOKEN: {aud: …}}"},
		"no token's form":     {other, append(base, "--token-env", "OTHER"), "must be an ID token"},
		"no merge request":    {without("CI_MERGE_REQUEST_IID"), base, "where GitLab sets $CI_MERGE_REQUEST_IID"},
		"merge request of 0":  {jobEnv, append(base, "--merge-request", "0"), "merge request's number"},
		"merge request !7":    {jobEnv, append(base, "--merge-request", "!7"), "merge request's number"},
		"plain http":          {jobEnv, append(base, "--controller", "http://127.0.0.1:1"), "plain http"},
		"http of another":     {jobEnv, append(base, "--controller", "http://fencepost.invalid", "--allow-http"), "this machine itself alone"},
		"no time":             {jobEnv, append(base, "--timeout", "0s"), "timeout must be"},
		"no file of the CA":   {jobEnv, append(base, "--ca", filepath.Join(t.TempDir(), "none.pem")), "--ca: "},
		"no CA in the file":   {jobEnv, append(base, "--ca", "gitlab_job_test.go"), "holds no certificate in PEM"},
		"an argument":         {jobEnv, append(base, "https://fencepost.invalid"), "unknown command"},
		"a token as argument": {jobEnv, append(base, "--token", "x"), "unknown flag"},
	} {
		code, out, errs := runJob(t, t.Context(), tc.env, tc.args...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, out %q, err %q; want 2 and %q", name, code, out, errs, tc.want)
		}
	}
}

func TestGitLabJobTrustsTheNamedAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(jobController(jobResult("result", "", "success")))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--controller", server.URL, "--route", "docs"}
	if code, _, errs := runJob(t, t.Context(), jobEnv, args...); code != exitFailed || !strings.Contains(errs, "certificate is not one that this machine trusts; give the file of its authority with --ca") {
		t.Errorf("without: code %d, err %q", code, errs)
	}
	if code, _, errs := runJob(t, t.Context(), jobEnv, append(args, "--ca", file)...); code != exitDone {
		t.Errorf("with: code %d, err %q", code, errs)
	}
}

func TestGitLabJobEndsAtOnce(t *testing.T) {
	t.Parallel()
	waiting := jobResult("waiting", "", "")
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		jobController(waiting)(w, r)
		if r.Method == http.MethodGet {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	code, out, errs := runJob(t, ctx, jobEnv, "--controller", server.URL, "--route", "docs", "--allow-http")
	if code != exitFailed || out != "" || !strings.Contains(errs, "stopped before there was a result") {
		t.Errorf("stopped: code %d, out %q, err %q", code, out, errs)
	}
	code, out, errs = runJob(t, t.Context(), jobEnv, "--controller", server.URL, "--route", "docs", "--allow-http", "--timeout", "100ms")
	if code != exitFailed || out != "" || !strings.Contains(errs, "no result within 100ms") {
		t.Errorf("timeout: code %d, out %q, err %q", code, out, errs)
	}
}
