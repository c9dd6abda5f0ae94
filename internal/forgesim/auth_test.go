package forgesim_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/internal/forgesim"
)

func TestAppTokensAreVerified(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := b.clock.Now()
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	claims := func(issuer any, issued, expires time.Duration) jwt.MapClaims {
		return jwt.MapClaims{"iss": issuer, "iat": now.Add(issued).Unix(), "exp": now.Add(expires).Unix()}
	}
	rs, client := jwt.SigningMethodRS256, b.forge.App().ClientID()
	good := b.sign(rs, appKey(), claims(client, -time.Minute, 9*time.Minute))
	for _, test := range []struct {
		name, token string
		want        int
	}{
		{"client id", good, 200},
		{"App id as text", b.sign(rs, appKey(), claims("12345", -time.Minute, 9*time.Minute)), 200},
		{"App id as number", b.sign(rs, appKey(), claims(12345, -time.Minute, 9*time.Minute)), 200},
		{"exactly ten minutes ahead", b.sign(rs, appKey(), claims(client, 0, 10*time.Minute)), 200},
		{"more than ten minutes ahead", b.sign(rs, appKey(), claims(client, 0, 10*time.Minute+time.Second)), 401},
		{"expired", b.sign(rs, appKey(), claims(client, -10*time.Minute, 0)), 401},
		{"issued in the future", b.sign(rs, appKey(), claims(client, time.Second, 5*time.Minute)), 401},
		{"without iat", b.sign(rs, appKey(), jwt.MapClaims{"iss": client, "exp": now.Add(time.Minute).Unix()}), 401},
		{"without exp", b.sign(rs, appKey(), jwt.MapClaims{"iss": client, "iat": now.Unix()}), 401},
		{"unknown issuer", b.sign(rs, appKey(), claims("Iv1.other", -time.Minute, time.Minute)), 401},
		{"another key", b.sign(rs, other, claims(client, -time.Minute, time.Minute)), 401},
		{"another algorithm", b.sign(jwt.SigningMethodRS512, appKey(), claims(client, -time.Minute, time.Minute)), 401},
		{"no algorithm", b.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(client, 0, time.Minute)), 401},
		{"altered", good[:len(good)-4] + "AAAA", 401},
		{"an installation token", b.token, 401},
		{"nothing", "", 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := b.ask("GET", "/app", test.token, "")
			must(t, err)
			if r.status != test.want {
				t.Errorf("answered %d %s, want %d", r.status, r.body, test.want)
			}
		})
	}
}

func TestAnAppTokenReadsNoRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.wantAs(b.jwt(), http.StatusUnauthorized, "GET", "/repos/acme/docs", "")
}

func TestInstallationTokensAreOfWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "other"})
	must(t, err)
	foreign, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "elsewhere", Name: "docs"})
	must(t, err)
	_, err = b.forge.App().Install(other)
	must(t, err)
	path := fmt.Sprintf("/app/installations/%d/access_tokens", b.inst.ID())
	for _, test := range []struct {
		name, body string
		want       int
	}{
		{"one repository, fewer permissions", fmt.Sprintf(`{"repository_ids":[%d],"permissions":{"contents":"read"}}`, b.repo.ID()), 201},
		{"by name", `{"repositories":["docs"]}`, 201},
		{"everything", ``, 201},
		{"a repository that is not there", `{"repository_ids":[7]}`, 422},
		{"a repository of another owner", fmt.Sprintf(`{"repository_ids":[%d]}`, foreign.ID()), 422},
		{"a permission that is not granted", `{"permissions":{"issues":"read"}}`, 422},
		{"a higher level", `{"permissions":{"contents":"write"}}`, 422},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.wantAs(b.jwt(), test.want, "POST", path, test.body)
		})
	}
	b.wantAs(b.jwt(), http.StatusNotFound, "POST", "/app/installations/7/access_tokens", "{}")

	made := b.wantAs(b.jwt(), 201, "POST", path,
		fmt.Sprintf(`{"repository_ids":[%d],"permissions":{"contents":"read"}}`, b.repo.ID())).object(t)
	token := made["token"].(string)
	if !strings.HasPrefix(token, "ghs_") {
		t.Errorf("token %.8s… has no prefix ghs_", token)
	}
	if want := "2026-11-30T13:00:00Z"; made["expires_at"] != want {
		t.Errorf("expires_at %v, want %s", made["expires_at"], want)
	}
	b.wantAs(token, 200, "GET", "/repos/acme/docs/git/ref/heads/main", "")
	b.wantAs(token, 200, "GET", "/repos/acme/docs", "")
	refused := b.wantAs(token, 403, "GET", "/repos/acme/docs/pulls", "")
	if want := "pull_requests=read"; refused.header.Get("X-Accepted-Github-Permissions") != want {
		t.Errorf("403 names %q, want %q", refused.header.Get("X-Accepted-Github-Permissions"), want)
	}
	b.wantAs(token, 403, "POST", "/repos/acme/docs/check-runs", createRun("c", b.repo.Ref("refs/heads/main"), "e"))
	// What a token can't see is not there, whether it is or not.
	b.wantAs(token, 404, "GET", "/repos/acme/other", "")
	b.wantAs(token, 404, "GET", "/repos/elsewhere/docs", "")
	b.clock.Advance(time.Hour - time.Second)
	b.wantAs(token, 200, "GET", "/repos/acme/docs", "")
	b.clock.Advance(time.Second)
	b.wantAs(token, 401, "GET", "/repos/acme/docs", "")
}

func TestPermissionsAreThoseOfNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.get("/repos/acme/docs/pulls")
	b.inst.SetPermissions(forgesim.Permissions{"metadata": "read"})
	b.want(403, "GET", "/repos/acme/docs/pulls", "")
	b.inst.Suspend(true)
	b.want(404, "GET", "/repos/acme/docs", "")
	b.wantAs(b.jwt(), 403, "POST", fmt.Sprintf("/app/installations/%d/access_tokens", b.inst.ID()), "{}")
	b.inst.Suspend(false)
	b.get("/repos/acme/docs")
	b.inst.Remove(b.repo)
	b.want(404, "GET", "/repos/acme/docs", "")
	b.wantAs(b.jwt(), 404, "GET", "/repos/acme/docs/installation", "")
}

func TestPublicRepositoriesAreReadWithoutPermission(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "open", Name: "docs", Public: true})
	must(t, err)
	for _, credential := range []string{"", b.token} {
		b.wantAs(credential, 200, "GET", "/repos/open/docs", "")
		b.wantAs(credential, 200, "GET", "/repos/open/docs/commits/main/statuses", "")
		b.wantAs(credential, 403, "GET", "/repos/open/docs/branches/main/protection", "")
		b.wantAs(credential, 403, "POST", "/repos/open/docs/check-runs", "{}")
	}
	b.wantAs("", 404, "GET", "/repos/acme/docs", "")
	b.wantAs("ghs_wrong", 401, "GET", "/repos/open/docs", "")
}

func TestJournalHasNoCredential(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.get("/repos/acme/docs")
	b.wantAs(b.jwt(), 200, "GET", "/app", "")
	b.wantAs("ghs_wrong", 401, "GET", "/app", "")
	b.wantAs("", 404, "GET", "/repos/acme/docs", "")
	var by []string
	for _, e := range b.forge.Journal() {
		by = append(by, e.By)
		if text := fmt.Sprintf("%+v", e); strings.Contains(text, b.token) || strings.Contains(text, "ghs_wrong") {
			t.Errorf("exchange %s holds a credential", text)
		}
	}
	want := fmt.Sprintf("[installation %d app 12345 invalid anonymous]", b.inst.ID())
	if fmt.Sprint(by) != want {
		t.Errorf("journal names %v, want %s", by, want)
	}
}
