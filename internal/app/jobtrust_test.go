package app

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/jobkeys"
	"github.com/fencepost/fencepost/webhook"
)

// jobGate is a gate whose issuer is at an address.
const jobGate = `  jobs:
    provider: gitlab
    api: http://127.0.0.1:1/api/v4
    git: http://127.0.0.1:1
    issuer: %s
    allow_http: true
    trust: jobs
    audience: https://fencepost.example.org
    token: "file:token"
    policy: {project: 7, path: acme/policies, commits: ["1234567890123456789012345678901234567890"], job: fencepost}
    repository: {id: 1296271, owner_id: 1, name: acme/jobs}
    base: refs/heads/main
    check: fencepost/jobs
    plan:
      action: {url: "http://127.0.0.1:1/acme/checks.git", commit: "1234567890123456789012345678901234567890"}
      program: bin/check
      sha256: "00000000000000000000000000000000000000000000000000000000000000ff"
`

var instanceKeys = sync.OnceValue(func() (all [2]*rsa.PrivateKey) {
	for i := range all {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		all[i] = key
	}
	return all
})

func publicKey(t *testing.T, i int) (webhook.JWK, string) {
	t.Helper()
	pub := &instanceKeys()[i].PublicKey
	key := webhook.JWK{Key: pub, Thumbprint: webhook.ThumbprintOf(pub), KeyID: webhook.ThumbprintOf(pub).String()}
	text, err := key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return key, string(text)
}

// jobHeaders are those of a job with a token of one of the instance's keys.
func jobHeaders(t *testing.T, i int, issuer, audience string) fencepost.Headers {
	t.Helper()
	now := time.Now().Unix()
	token := signToken(t, i, map[string]any{
		"iss": issuer, "aud": audience, "jti": "a", "runner_id": 1, "iat": now, "nbf": now - 5, "exp": now + 300,
	})
	return fencepost.NewHeaders([]fencepost.Header{{Name: "authorization", Value: "Bearer " + token}})
}

// signToken makes a token of these claims with one of the instance's keys.
func signToken(t *testing.T, i int, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := publicKey(t, i)
	text := b64(fmt.Appendf(nil, `{"alg":"RS256","typ":"JWT","kid":%q}`, key.KeyID)) + "." + b64(payload)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, instanceKeys()[i], crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(signature)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// withJobGate is a configuration with a gate at a GitLab, whose keys are pinned
// by these anchors, beside the one of [settings].
func withJobGate(issuer, anchors string) string {
	return strings.Replace(settings, "gates:\n", "  jobs:\n"+anchors+"gates:\n", 1) + fmt.Sprintf(jobGate, issuer)
}

func TestJobsAreVerifiedWithPinnedKeys(t *testing.T) {
	t.Parallel()
	_, text := publicKey(t, 1)
	pin, first := publicKey(t, 0)
	published := make(chan string, 100)
	set := `{"keys":[` + first + `]}`
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		published <- r.Method + " " + r.URL.Path
		_, _ = w.Write([]byte(set))
	}))
	defer issuer.Close()
	anchors := fmt.Sprintf("    - {id: found, thumbprint: %s}\n", pin.Thumbprint)
	s := stageOf(t, withJobGate(issuer.URL, anchors))
	verify := func(v fencepost.Verifier, i int) (fencepost.AnchorID, error) {
		ev, err := v.Verify(jobHeaders(t, i, issuer.URL, "https://fencepost.example.org"), nil, time.Now())
		return ev.Anchor, err
	}
	sender, recorded := s.senderOf(s.Config.Gates[1]), s.recordedOf(s.Config.Gates[1])
	if _, err := verify(sender, 0); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("before it was found: %v, want ErrUnauthenticated", err)
	}
	if _, err := verify(recorded, 0); !errors.Is(err, jobkeys.ErrPending) {
		t.Errorf("of what was recorded: %v, want ErrPending", err)
	}
	s.run(t)
	wait(t, "the key is found", func() bool { id, err := verify(sender, 0); return err == nil && id == "found" })
	if asked := <-published; asked != "GET "+jobkeys.Path {
		t.Errorf("asked %s", asked)
	}
	if _, err := verify(recorded, 1); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("a key of nobody's, recorded: %v, want ErrUnauthenticated", err)
	}
	for name, h := range map[string]fencepost.Headers{
		"another issuer":   jobHeaders(t, 0, issuer.URL+"/", "https://fencepost.example.org"),
		"another audience": jobHeaders(t, 0, issuer.URL, "https://fencepost.example.net"),
	} {
		if _, err := sender.Verify(h, nil, time.Now()); !errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A reload trusts a new key, and costs every refusal more at once.
	cost := func(v fencepost.Verifier) int {
		_, err := v.Verify(fencepost.Headers{}, nil, time.Now())
		r, ok := errors.AsType[*webhook.Refusal](err)
		if !ok {
			t.Fatalf("refused with %v, want a Refusal", err)
		}
		return r.Verifications
	}
	if diff := cmp.Diff([]int{1, 1}, []int{cost(sender), cost(jobDecoy{s.jobWork})}); diff != "" {
		t.Errorf("verifications (-want +got):\n%s", diff)
	}
	s.write(t, "new.json", text)
	if err := s.Reload(t.Context(), s.rewrite(t, anchors, anchors+"    - {id: new, jwk: \"file:new.json\"}\n")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []fencepost.AnchorID{"found", "new"} {
		if id, err := verify(sender, i); id != want || err != nil {
			t.Errorf("after the reload: %q, %v, want %s", id, err, want)
		}
	}
	if diff := cmp.Diff([]int{2, 2, 1}, []int{cost(sender), cost(jobDecoy{s.jobWork}), s.work.get()}); diff != "" {
		t.Errorf("verifications after the reload, and MACs (-want +got):\n%s", diff)
	}
	last := s.rewrite(t, anchors, "")
	if err := s.Reload(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(sender, 0); !errors.Is(err, fencepost.ErrUnauthenticated) || recorded.Trusts("found") || !recorded.Trusts("new") {
		t.Errorf("after its pin was taken out: %v", err)
	}
	s.write(t, "new.json", "{}")
	if err := s.Reload(t.Context(), last); err == nil {
		t.Error("a reload took a key that is none")
	}
	if id, err := verify(sender, 1); id != "new" || err != nil {
		t.Errorf("after a reload that failed: %q, %v", id, err)
	}
}

// What was found is kept, so that a start needs no issuer.
func TestFoundKeysOutliveTheProcess(t *testing.T) {
	t.Parallel()
	pin, text := publicKey(t, 0)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[` + text + `]}`)) }))
	defer issuer.Close()
	s := stageOf(t, withJobGate(issuer.URL, fmt.Sprintf("    - {id: found, thumbprint: %s}\n", pin.Thumbprint)))
	known := func(a *App) bool {
		_, err := a.senderOf(a.Config.Gates[1]).Verify(jobHeaders(t, 0, issuer.URL, "https://fencepost.example.org"), nil, time.Now())
		return err == nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	wait(t, "the key is found", func() bool { return known(s.App) })
	file := filepath.Join(s.Config.DataDir, "keys", pin.Thumbprint.String()+".jwk")
	wait(t, "the key is kept", func() bool { _, err := os.Stat(file); return err == nil })
	stop()
	if err := errors.Join(<-ended, s.Close()); err != nil {
		t.Fatal(err)
	}
	issuer.Close()
	again, err := Open(t.Context(), s.Options)
	if err != nil {
		t.Fatal(err)
	}
	if !known(again) {
		t.Error("the key was forgotten")
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestAGateWithoutAnyKeyAlerts(t *testing.T) {
	t.Parallel()
	pin, _ := publicKey(t, 0)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) }))
	defer issuer.Close()
	s := stageOf(t, withJobGate(issuer.URL, fmt.Sprintf("    - {id: lost, thumbprint: %s}\n", pin.Thumbprint)))
	s.run(t)
	wait(t, "an alert", func() bool {
		for _, a := range s.alerts.Alerts() {
			if a.Code == "credential" && a.Subject == "gate:jobs" {
				return true
			}
		}
		return false
	})
	if log := s.log.String(); !strings.Contains(log, "pinned keys were not found") {
		t.Errorf("the log tells of none:\n%s", log)
	}
}

// wait looks until something is so.
func wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
