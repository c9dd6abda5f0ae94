package gitlab_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
)

// signing is the 32 bytes 00 01 … 1f. contracts/gitlab.md §2
const signing = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// A receiver answers webhooks with a status that can change.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	headers []http.Header
	bodies  []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: 200}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.headers, r.bodies = append(r.headers, req.Header), append(r.bodies, string(body))
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (b *bench) deliver() {
	b.t.Helper()
	must(b.t, b.forge.Deliver(b.t.Context()))
}

func (b *bench) push(names ...string) {
	b.t.Helper()
	must(b.t, skip(b.docs.Push(b.t.Context(), forgesim.Push{Change: texts(names...)})))
}

func TestDeliveriesAreSignedByStandardWebhooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hook, err := b.docs.AddHook(gitlab.HookConfig{SigningToken: signing, Token: "legacy"})
	must(t, err)
	d := gitlab.Delivery{
		Hook: hook, Event: "Push Hook", MessageID: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", Body: []byte(`{"object_kind":"push","project_id":15}`),
	}
	b.now.Store(1744578123)
	r, err := b.forge.SignedRequest(t.Context(), d, "http://127.0.0.1:1/")
	must(t, err)
	for name, want := range map[string]string{
		"webhook-id": d.MessageID, "Idempotency-Key": d.MessageID, "webhook-timestamp": "1744578123", "X-Gitlab-Event": "Push Hook",
		"webhook-signature": "v1,E+icIzwwMVoc7k+hDdKtYQvaGNuzj8I32pz5uUmqNso=", "X-Gitlab-Instance": "http://gitlab.invalid",
		"X-Gitlab-Token": "legacy", "Content-Type": "application/json", "User-Agent": "GitLab/19.4.0-ee",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if r.Header.Get("X-Gitlab-Webhook-UUID") == "" {
		t.Error("the hook has no id")
	}
	for _, bad := range []string{"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_AAEC", "whsec_!"} {
		if _, err := b.docs.AddHook(gitlab.HookConfig{SigningToken: bad}); !errors.Is(err, forgesim.ErrConfig) {
			t.Errorf("a signing token %q is taken: %v", bad, err)
		}
	}
}

func TestOlderServersTakeASigningTokenInSilence(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *gitlab.Config) { c.Version = gitlab.Version{Major: 18, Minor: 11} })
	owner := b.forge.NewToken("owner", gitlab.Owner, "api")
	at := fmt.Sprintf("/api/v4/projects/%d/hooks", b.docs.ID())
	code, _, body := b.do("POST", at, owner, `{"url":"http://127.0.0.1:1/","signing_token":"`+signing+`","push_events":true}`)
	if code != 201 || strings.Contains(body, "signing_token_present") || strings.Contains(body, signing) {
		t.Errorf("answered %d %s", code, body)
	}
	b.push("a")
	r, err := b.forge.SignedRequest(t.Context(), b.forge.TakeOutbox()[0], "http://127.0.0.1:1/")
	must(t, err)
	if r.Header.Get("webhook-signature") != "" || r.Header.Get("webhook-id") != "" {
		t.Error("an old server signs")
	}
	newer := newBench(t)
	code, _, body = newer.do("POST", at, newer.forge.NewToken("owner", gitlab.Owner, "api"), `{"url":"http://127.0.0.1:1/","signing_token":"`+signing+`"}`)
	if code != 201 || !strings.Contains(body, `"signing_token_present":true`) || strings.Contains(body, signing) {
		t.Errorf("answered %d %s", code, body)
	}
}

func TestAResendKeepsTheIDAndTakesANewTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := newReceiver(t)
	hook, err := b.docs.AddHook(gitlab.HookConfig{URL: r.URL, SigningToken: signing})
	must(t, err)
	b.push("a")
	b.deliver()
	id := b.forge.Deliveries()[0].ID
	b.pass(time.Hour)
	at := fmt.Sprintf("/api/v4/projects/%d/hooks/%d/events/%d/resend", b.docs.ID(), hook.ID(), id)
	owner := b.forge.NewToken("owner", gitlab.Owner, "api")
	if code, _, body := b.do("POST", at, owner); code != 201 {
		t.Fatalf("resend: %d %s", code, body)
	}
	b.deliver()
	if len(r.bodies) != 2 || r.bodies[0] != r.bodies[1] || r.headers[0].Get("webhook-id") != r.headers[1].Get("webhook-id") ||
		r.headers[0].Get("webhook-timestamp") == r.headers[1].Get("webhook-timestamp") || r.headers[0].Get("webhook-signature") == r.headers[1].Get("webhook-signature") {
		t.Errorf("the two differ in %v and %v", r.headers[0], r.headers[1])
	}
	for range 4 {
		must(t, b.forge.Resend(id))
	}
	if code, _, _ := b.do("POST", at, owner); code != 429 {
		t.Errorf("the sixth in a minute: %d", code)
	}
	b.pass(time.Minute)
	must(t, b.forge.Resend(id))
	must(t, hook.Set(r.URL+"/moved", signing))
	if code, _, _ := b.do("POST", at, owner); code != 422 {
		t.Errorf("after the hook moved: %d", code)
	}
	must(t, hook.Set(r.URL, signing))
	b.pass(48 * time.Hour)
	if err := b.forge.Resend(id); !errors.Is(err, forgesim.ErrNotFound) {
		t.Errorf("after two days: %v", err)
	}
}

func TestFailuresSwitchAHookOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := newReceiver(t)
	r.answer(401)
	hook, err := b.docs.AddHook(gitlab.HookConfig{URL: r.URL, Requests: true})
	must(t, err)
	m := b.open("one", "1")
	b.forge.TakeOutbox()
	tell := func() {
		if m.State() == "opened" {
			must(t, m.Close(t.Context()))
		} else {
			must(t, m.Reopen(t.Context()))
		}
		b.deliver()
	}
	want := func(status string, received int) {
		t.Helper()
		if got, _ := hook.AlertStatus(); got != status || len(r.bodies) != received {
			t.Fatalf("the hook is %s after %d deliveries, want %s after %d", got, len(r.bodies), status, received)
		}
	}
	for range 3 {
		tell()
	}
	want("executable", 3)
	tell()
	want("temporarily_disabled", 4)
	tell()
	want("temporarily_disabled", 4) // skipped
	if o := b.get(fmt.Sprintf("/hooks/%d", hook.ID())).(map[string]any); o["alert_status"] != "temporarily_disabled" || o["disabled_until"] == nil {
		t.Errorf("the API says %v", o)
	}
	b.pass(time.Minute)
	tell()
	want("temporarily_disabled", 5)
	b.pass(time.Minute) // twice as long now
	tell()
	want("temporarily_disabled", 5)
	for received := 6; received < 40; received++ {
		b.pass(24 * time.Hour)
		tell()
		want("temporarily_disabled", received)
	}
	b.pass(24 * time.Hour)
	tell()
	want("disabled", 40)
	b.pass(240 * time.Hour)
	tell()
	want("disabled", 40)
	r.answer(200)
	must(t, hook.Test(t.Context()))
	b.deliver()
	want("executable", 41)
	tell()
	want("executable", 42)
}

func TestAPushOfManyRefsIsNotTold(t *testing.T) {
	t.Parallel()
	for refs, want := range map[int]int{3: 3, 4: 0} {
		b := newBench(t)
		must(t, skipHook(b.docs.AddHook(gitlab.HookConfig{})))
		var pushes []forgesim.Push
		for i := range refs {
			pushes = append(pushes, forgesim.Push{Branch: fmt.Sprint("b", i), Change: texts("a")})
		}
		must(t, b.docs.PushTogether(t.Context(), pushes...))
		if got := len(b.forge.TakeOutbox()); got != want {
			t.Errorf("a push of %d refs is told of by %d deliveries, want %d", refs, got, want)
		}
	}
}

func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := fmt.Sprintf("/api/v4/projects/%d", b.docs.ID())
	job := b.join(b.open("one", "1")).Pipeline().Job("fencepost")
	env, err := job.Environment()
	must(t, err)
	jobToken := ""
	for _, v := range env {
		if text, ok := strings.CutPrefix(v, "CI_JOB_TOKEN="); ok {
			jobToken = text
		}
	}
	for name, tc := range map[string]struct {
		method, path, token string
		want                int
	}{
		"reader":        {"GET", at, b.token, 200},
		"by path":       {"GET", "/api/v4/projects/acme%2Fhandbooks%2Fdocs", b.token, 200},
		"nobody":        {"GET", at, "", 404},
		"wrong token":   {"GET", at, "none", 401},
		"other scope":   {"GET", at, b.forge.NewToken("x", gitlab.Owner, "read_repository"), 403},
		"reader writes": {"PUT", at + "/merge_requests/1/merge", b.token, 403},
		"job token":     {"GET", at, jobToken, 401},
		"no project":    {"GET", "/api/v4/projects/4711", b.token, 404},
		"hooks":         {"GET", at + "/hooks", b.forge.NewToken("x", gitlab.Developer, "read_api"), 403},
	} {
		if code, _, body := b.do(tc.method, tc.path, tc.token); code != tc.want {
			t.Errorf("%s: %d %s, want %d", name, code, body, tc.want)
		}
	}
	// contracts/gitlab.md, traps 27
	_, _, body := b.do("GET", at, b.forge.NewToken("x", gitlab.Developer, "read_api"))
	if strings.Contains(body, "merge_train_enforcement") || !strings.Contains(body, "merge_trains_enabled") {
		t.Errorf("a developer sees %s", body)
	}
	b.docs.Hide("merge_method")
	if _, _, body := b.do("GET", at, b.token); strings.Contains(body, "merge_method") {
		t.Errorf("hidden is %s", body)
	}
}

func TestMovedProjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := b.docs.NamespaceID()
	must(t, b.docs.Rename("manual"))
	must(t, b.docs.Transfer("umbrella"))
	code, header, _ := b.do("GET", "/api/v4/projects/acme%2Fhandbooks%2Fmanual", b.token)
	if want := fmt.Sprintf("http://gitlab.invalid/api/v4/projects/%d", b.docs.ID()); code != 301 || header.Get("Location") != want {
		t.Errorf("the old path: %d to %q", code, header.Get("Location"))
	}
	o := b.get("").(map[string]any)
	if o["path_with_namespace"] != "umbrella/manual" || o["namespace"].(map[string]any)["id"] == float64(before) {
		t.Errorf("the project is %v", o)
	}
	b.docs.Delete()
	if code, _, _ := b.do("GET", fmt.Sprintf("/api/v4/projects/%d", b.docs.ID()), b.token); code != 404 {
		t.Errorf("a deleted project: %d", code)
	}
}

func TestGitAsksForTheToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ask := func(path, user, password string) (int, http.Header) {
		request := httptest.NewRequest("GET", path+"/info/refs?service=git-upload-pack", nil)
		if password != "" {
			request.SetBasicAuth(user, password)
		}
		w := httptest.NewRecorder()
		b.forge.ServeHTTP(w, request)
		return w.Code, w.Header()
	}
	const refs = "/acme/handbooks/docs.git"
	for name, tc := range map[string]struct {
		user, password string
		want           int
	}{
		"token": {"git", b.token, 200}, "nobody": {"", "", 401}, "wrong": {"git", "none", 401}, "no user": {"", b.token, 401},
		"another scope": {"git", b.forge.NewToken("x", gitlab.Owner, "read_api"), 403},
	} {
		if code, header := ask(refs, tc.user, tc.password); code != tc.want || (header.Get("WWW-Authenticate") != "") != (code == 401) {
			t.Errorf("%s: %d, want %d", name, code, tc.want)
		}
	}
	if got := b.forge.GitRefused(); got != 3 {
		t.Errorf("%d failed, want 3", got)
	}
	must(t, b.docs.Rename("manual"))
	code, header := ask(refs, "git", b.token)
	if want := "http://gitlab.invalid/acme/handbooks/manual.git/info/refs?service=git-upload-pack"; code != 301 || header.Get("Location") != want {
		t.Errorf("the old name answers %d to %q", code, header.Get("Location"))
	}
}

func TestAncestry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.main()
	b.push("a")
	second := b.main()
	aside, err := b.docs.Push(t.Context(), forgesim.Push{Branch: "side", Onto: first, Change: texts("b")})
	must(t, err)
	for _, tc := range []struct {
		from, to, base string
		commits        int
	}{{first, second, first, 1}, {second, first, first, 0}, {second, aside, first, 1}, {"main", "side", first, 1}} {
		o := b.get("/repository/compare?from=" + tc.from + "&to=" + tc.to).(map[string]any)
		hold(t, "comparison", o, map[string]string{"commit": "null|object", "commits": "array", "compare_timeout": "bool", "compare_same_ref": "bool"})
		if got := len(o["commits"].([]any)); got != tc.commits {
			t.Errorf("%.7s...%.7s has %d commits, want %d", tc.from, tc.to, got, tc.commits)
		}
		base := b.get("/repository/merge_base?refs[]=" + tc.from + "&refs[]=" + tc.to).(map[string]any)
		if base["id"] != tc.base {
			t.Errorf("the base of %.7s and %.7s is %v, want %s", tc.from, tc.to, base["id"], tc.base)
		}
	}
	at := fmt.Sprintf("/api/v4/projects/%d/repository/merge_base?refs[]=%s&refs[]=%s", b.docs.ID(), first, strings.Repeat("ab", 20))
	if code, _, _ := b.do("GET", at, b.token); code != 400 {
		t.Errorf("of a commit that is not there: %d", code)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.open(fmt.Sprint("r", i), fmt.Sprint(i))
	}
	at := fmt.Sprintf("/api/v4/projects/%d/merge_requests?state=opened&per_page=2", b.docs.ID())
	_, header, body := b.do("GET", at, b.token)
	next, _, found := strings.Cut(strings.TrimPrefix(header.Get("Link"), "<http://gitlab.invalid"), ">; rel=\"next\"")
	if !found || header.Get("X-Total") != "3" || strings.Count(body, `"iid"`) != 2 {
		t.Fatalf("the first page is %s, then %s", body, header.Get("Link"))
	}
	_, header, body = b.do("GET", next, b.token)
	if strings.Count(body, `"iid":1`) != 1 || header.Get("Link") != "" {
		t.Errorf("the last page is %s, then %s", body, header.Get("Link"))
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := fmt.Sprintf("/api/v4/projects/%d", b.docs.ID())
	b.forge.Interfere(func(*http.Request) *gitlab.Answer { return b.forge.TooMany(7 * time.Second) })
	code, header, _ := b.do("GET", at, b.token)
	if code != 429 || header.Get("Retry-After") != "7" || header.Get("RateLimit-Reset") != fmt.Sprint(b.now.Load()+7) || header.Get("RateLimit-Limit") == "" {
		t.Errorf("answered %d %v", code, header)
	}
	b.forge.Interfere(func(*http.Request) *gitlab.Answer { return gitlab.Broken() })
	if code, _, _ := b.do("GET", at, b.token); code != 500 {
		t.Errorf("answered %d", code)
	}
	m := b.open("one", "1")
	b.forge.Interfere(func(r *http.Request) *gitlab.Answer {
		b.forge.Quietly(r)
		return &gitlab.Answer{}
	})
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("a lost answer is there")
			}
		}()
		b.do("POST", at+"/merge_trains/merge_requests/1", b.forge.NewToken("mona", gitlab.Developer, "api"))
	}()
	b.forge.Interfere(nil)
	if code, _, _ := b.do("GET", at+"/merge_trains/merge_requests/1", b.token); code != 200 || m.State() != "opened" {
		t.Errorf("what was asked for was not done: %d", code)
	}
	if j := b.forge.Journal(); j[0].By != "reader" || j[0].Path != at {
		t.Errorf("the journal begins with %v", j[0])
	}
}

func TestAStartedForgeDeliversByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := newReceiver(t)
	server, err := b.forge.Start(t.Context())
	must(t, err)
	must(t, skipHook(b.docs.AddHook(gitlab.HookConfig{URL: r.URL, SigningToken: signing})))
	b.push("a")
	for deadline := time.Now().Add(20 * time.Second); len(b.forge.Deliveries()) == 0 || b.forge.Deliveries()[0].StatusCode == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no delivery within 20 s")
		}
	}
	must(t, server.Close())
	must(t, server.Close())
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signing, "whsec_"))
	must(t, err)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.headers[0].Get("webhook-id") + "." + r.headers[0].Get("webhook-timestamp") + "." + r.bodies[0]))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.headers[0].Get("webhook-signature") != want {
		t.Error("the signature is another")
	}
	if !strings.Contains(r.bodies[0], server.URL+"/acme/handbooks/docs.git") {
		t.Error("links in the payload lead elsewhere")
	}
}
