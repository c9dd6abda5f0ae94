package gitea_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type bench struct {
	t     *testing.T
	forge *gitea.Forge
	repo  *gitea.Repository
	token string
}

func newBench(t *testing.T, change ...func(*gitea.Config)) *bench {
	t.Helper()
	config := gitea.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }}
	for _, c := range change {
		c(&config)
	}
	forge, err := gitea.New(t.Context(), config)
	must(t, err)
	b := &bench{t: t, forge: forge, token: forge.NewToken("reader", "read:repository")}
	b.repo, err = forge.CreateRepository(t.Context(), gitea.Create{Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	must(t, err)
	return b
}

// get asks the API and returns status, headers and body.
func (b *bench) do(method, path, authorization string) (int, http.Header, string) {
	b.t.Helper()
	request := httptest.NewRequest(method, "http://gitea.invalid"+path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	b.forge.ServeHTTP(w, request)
	return w.Code, w.Header(), w.Body.String()
}

func (b *bench) push(p forgesim.Push) string {
	b.t.Helper()
	head, err := b.repo.Push(b.t.Context(), p)
	must(b.t, err)
	return head
}

func files(names ...string) forgesim.Change {
	c := forgesim.Change{Files: map[string]string{}}
	for _, n := range names {
		c.Files[n] = n
	}
	return c
}

func TestPushesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	b.repo.AddHook(gitea.HookConfig{Events: []string{"push", "create", "delete"}})
	before := b.repo.Ref("refs/heads/main")
	first := b.push(forgesim.Push{Change: files("a"), Actor: "mona"})
	b.push(forgesim.Push{Branch: "side", Change: files("b")})
	for i := range 7 {
		b.push(forgesim.Push{Branch: "many", Change: files(fmt.Sprint("m", i))})
	}
	many := b.repo.Ref("refs/heads/many")
	b.push(forgesim.Push{Branch: "side", To: many})
	must(t, b.repo.DeleteBranch(ctx, "side"))
	out := b.forge.TakeOutbox()
	var events []string
	for _, d := range out {
		events = append(events, d.Event)
		if d.Event == "push" {
			holdPush(t, d.Body)
		}
	}
	want := []string{"push", "create", "push", "create", "push", "push", "push", "push", "push", "push", "push", "push", "delete"}
	if !slices.Equal(events, want) {
		t.Fatalf("events %v, want %v", events, want)
	}
	o := parse(t, out[0].Body)
	if o["before"] != before || o["after"] != first || o["ref"] != "refs/heads/main" || o["head_commit"].(map[string]any)["id"] != first ||
		o["sender"].(map[string]any)["login"] != "mona" || o["total_commits"] != 1.0 {
		t.Errorf("the first push says %v", o)
	}
	created := parse(t, out[1].Body)
	if created["ref"] != "side" || created["ref_type"] != "branch" || created["sha"] == "" || created["repository"] == nil {
		t.Errorf("create says %v", created)
	}
	if p := parse(t, out[2].Body); p["before"] != strings.Repeat("0", 40) {
		t.Errorf("a new branch was before at %v", p["before"])
	}
	// 7 commits and those of side that many lacks: 5 shown, the newest first.
	big := parse(t, out[11].Body)
	commits := big["commits"].([]any)
	if len(commits) != 5 || big["total_commits"].(float64) <= 5 || commits[0].(map[string]any)["id"] != many {
		t.Errorf("a push of %v commits shows %d, first %v", big["total_commits"], len(commits), commits[0].(map[string]any)["id"])
	}
	gone := parse(t, out[12].Body)
	if gone["ref"] != "side" || gone["ref_type"] != "branch" || gone["pusher_type"] != "user" {
		t.Errorf("delete says %v", gone)
	}
}

func TestDeliveriesAreSignedAndNamed(t *testing.T) {
	t.Parallel()
	for _, forgejo := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgejo %v", forgejo), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *gitea.Config) { c.Forgejo = forgejo })
			hook := b.repo.AddHook(gitea.HookConfig{Secret: []byte("topsecret")})
			b.push(forgesim.Push{Change: files("a")})
			d := b.forge.TakeOutbox()[0]
			d.Body = []byte(`{"ref":"refs/heads/main"}`)
			r, err := b.forge.Request(t.Context(), d, "http://127.0.0.1:1/")
			must(t, err)
			// The contract's vector.
			const mac = "7804d460f7eadad206a6d4c5a760b15defa80add90a31069e5ab2df85f18bcfa"
			want := map[string]string{
				"X-Gitea-Delivery": d.UUID, "X-Gogs-Delivery": d.UUID, "X-GitHub-Delivery": d.UUID,
				"X-Gitea-Event": "push", "X-Gogs-Event": "push", "X-GitHub-Event": "push",
				"X-Gitea-Event-Type": "push", "X-Gogs-Event-Type": "push", "X-GitHub-Event-Type": "push",
				"X-Gitea-Signature": mac, "X-Gogs-Signature": mac, "X-Hub-Signature-256": "sha256=" + mac,
				"Content-Type": "application/json", "X-Forgejo-Event": "", "X-Forgejo-Signature": "",
				"X-Gitea-Hook-Installation-Target-Type": "repository",
			}
			if forgejo {
				want["X-Forgejo-Event"], want["X-Forgejo-Signature"], want["X-Forgejo-Delivery"] = "push", mac, d.UUID
				want["X-Gitea-Hook-Installation-Target-Type"] = ""
			}
			for name, value := range want {
				if got := r.Header.Get(name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
			hook.Set("", nil)
			r, err = b.forge.Request(t.Context(), d, "http://127.0.0.1:1/")
			must(t, err)
			if v, there := r.Header["X-Gitea-Signature"]; !there || v[0] != "" || r.Header.Get("X-Hub-Signature-256") != "sha256=" {
				t.Errorf("without a secret the signatures are %v and %q", v, r.Header.Get("X-Hub-Signature-256"))
			}
		})
	}
}

// A receiver takes webhooks.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	ids    []string
	come   chan struct{}
}

func newReceiver(t *testing.T, status int) *receiver {
	t.Helper()
	r := &receiver{come: make(chan struct{}, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.bodies, r.ids = append(r.bodies, string(body)), append(r.ids, q.Header.Get("X-Gitea-Delivery"))
		r.mu.Unlock()
		w.WriteHeader(status)
		r.come <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

func TestOneAttemptAndReplayUnderANewName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := newReceiver(t, 500)
	b.repo.AddHook(gitea.HookConfig{URL: r.URL, Secret: []byte("first secret")})
	b.push(forgesim.Push{Change: files("a")})
	must(t, b.forge.Deliver(t.Context()))
	must(t, b.forge.Deliver(t.Context()))
	if len(r.ids) != 1 || b.forge.Deliveries()[0].StatusCode != 500 {
		t.Fatalf("%d attempts", len(r.ids))
	}
	must(t, b.forge.Replay(r.ids[0]))
	must(t, b.forge.Deliver(t.Context()))
	if len(r.ids) != 2 || r.ids[0] == r.ids[1] || r.bodies[0] != r.bodies[1] {
		t.Errorf("ids %v, equal bodies: %v", r.ids, r.bodies[0] == r.bodies[len(r.bodies)-1])
	}
	if err := b.forge.Replay("none"); !errors.Is(err, forgesim.ErrNotFound) {
		t.Errorf("replay of nothing: %v", err)
	}
}

func TestLossAndOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *gitea.Config) { c.Seed, c.Lose = 7, 0.4 })
	r := newReceiver(t, 200)
	b.repo.AddHook(gitea.HookConfig{URL: r.URL})
	for i := range 12 {
		b.push(forgesim.Push{Change: files(fmt.Sprint(i))})
	}
	b.forge.SetDown(true)
	must(t, b.forge.Deliver(t.Context()))
	if n := len(r.ids); n != 0 {
		t.Fatalf("%d deliveries left while it was down", n)
	}
	b.forge.SetDown(false)
	must(t, b.forge.Deliver(t.Context()))
	lost := 0
	for _, d := range b.forge.Deliveries() {
		if d.Lost {
			lost++
		}
	}
	if lost == 0 || lost == 12 || lost+len(r.ids) != 12 {
		t.Errorf("%d lost and %d arrived of 12", lost, len(r.ids))
	}
}

func TestTheTestDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hook := b.repo.AddHook(gitea.HookConfig{Events: []string{"create"}})
	admin := "token " + b.forge.NewToken("admin", "write:repository")
	if code, _, _ := b.do("POST", fmt.Sprintf("/api/v1/repos/acme/docs/hooks/%d/tests?ref=main", hook.ID()), admin); code != 204 {
		t.Fatalf("answered %d", code)
	}
	must(t, hook.Test(""))
	out := b.forge.TakeOutbox()
	tip := b.repo.Ref("refs/heads/main")
	for i, ref := range []string{"main", "refs/heads/main"} {
		if o := holdPush(t, out[i].Body); o["ref"] != ref || o["before"] != tip || o["after"] != tip || out[i].Event != "push" {
			t.Errorf("the test delivery says %v, %v, %v", o["ref"], o["before"], o["after"])
		}
	}
}

func TestTheAPIOfARepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	byID := fmt.Sprintf("/api/v1/repositories/%d", b.repo.ID())
	reader := "token " + b.token
	other := "Bearer " + b.forge.NewToken("reader", "read:issue")
	for _, tc := range []struct {
		path, authorization string
		want                int
	}{
		{"/api/v1/repos/acme/docs", reader, 200},
		{"/api/v1/repos/ACME/Docs", "Bearer " + b.token, 200},
		{byID, reader, 200},
		{"/api/v1/repos/acme/docs", "", 404},
		{"/api/v1/repos/acme/docs", other, 403},
		{"/api/v1/repos/acme/docs", "token none", 401},
		{"/api/v1/repos/acme/docs?token=" + b.token, "", 404},
		{"/api/v1/repos/acme/none", reader, 404},
		{"/api/v1/repositories/999", reader, 404},
		{"/api/v1/repos/acme/docs/branches/main", reader, 200},
		{"/api/v1/repos/acme/docs/branches/none", reader, 404},
		{"/api/v1/version", "", 200},
	} {
		code, _, body := b.do("GET", tc.path, tc.authorization)
		if code != tc.want {
			t.Errorf("GET %s: %d %s, want %d", tc.path, code, body, tc.want)
		}
		if code >= 400 {
			hold(t, "error", parse(t, []byte(body)), map[string]string{"message": "string", "url": "string"})
		}
	}
	_, _, body := b.do("GET", byID, reader)
	hold(t, "repository", parse(t, []byte(body)), repositoryFields)
	must(t, b.repo.Rename("manual"))
	code, header, _ := b.do("GET", "/api/v1/repos/acme/docs", reader)
	if code != 301 || header.Get("Location") != "/api/v1/repos/acme/manual" {
		t.Errorf("the old name answers %d to %q", code, header.Get("Location"))
	}
	if _, _, body := b.do("GET", byID, reader); parse(t, []byte(body))["full_name"] != "acme/manual" {
		t.Errorf("by id it is %s", body)
	}
	b.repo.SetPrivate(false)
	if code, _, _ := b.do("GET", byID, ""); code != 200 {
		t.Errorf("a public repository answers %d to nobody", code)
	}
	b.repo.Delete()
	if code, _, _ := b.do("GET", byID, reader); code != 404 {
		t.Errorf("a deleted repository answers %d", code)
	}
	b.forge.RevokeToken(b.token)
	if code, _, _ := b.do("GET", "/api/v1/repos/acme/docs", reader); code != 401 {
		t.Errorf("a revoked token gets %d", code)
	}
}

func TestComparisonsCountWhatIsLacking(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.repo.Ref("refs/heads/main")
	second := b.push(forgesim.Push{Change: files("a")})
	aside := b.push(forgesim.Push{Branch: "side", Onto: first, Change: files("b")})
	for _, tc := range []struct {
		base, head string
		want       int
	}{{first, second, 1}, {second, first, 0}, {second, aside, 1}, {aside, second, 1}} {
		_, _, body := b.do("GET", "/api/v1/repos/acme/docs/compare/"+tc.base+"..."+tc.head, "token "+b.token)
		o := parse(t, []byte(body))
		commits := o["commits"].([]any)
		if o["total_commits"] != float64(tc.want) || len(commits) != tc.want {
			t.Errorf("%.7s...%.7s: %s", tc.base, tc.head, body)
		}
		for _, c := range commits {
			hold(t, "compared commit", c, map[string]string{"sha": "string", "url": "string", "parents[].sha": "string"})
		}
	}
	if code, _, _ := b.do("GET", "/api/v1/repos/acme/docs/compare/"+strings.Repeat("ab", 20)+"..."+first, "token "+b.token); code != 404 {
		t.Errorf("of a commit that is not there: %d", code)
	}
}

func TestGitAsksForTheToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	basic := func(user, password string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	const refs = "/acme/docs.git/info/refs?service=git-upload-pack"
	for _, tc := range []struct {
		name, authorization string
		want                int
	}{
		{"password", basic("anybody", b.token), 200}, {"user", basic(b.token, ""), 200}, {"header", "token " + b.token, 200},
		{"nobody", "", 401}, {"wrong", basic("anybody", "none"), 401},
		{"another scope", basic("x", b.forge.NewToken("x", "read:issue")), 403},
	} {
		if code, header, _ := b.do("GET", refs, tc.authorization); code != tc.want || (header.Get("WWW-Authenticate") != "") != (code == 401) {
			t.Errorf("%s: %d, want %d", tc.name, code, tc.want)
		}
	}
	must(t, b.repo.Rename("manual"))
	code, header, _ := b.do("GET", refs, "token "+b.token)
	if code != 301 || header.Get("Location") != "/acme/manual.git/info/refs?service=git-upload-pack" {
		t.Errorf("the old name answers %d to %q", code, header.Get("Location"))
	}
}

func TestAStartedForgeDeliversByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := newReceiver(t, 202)
	server, err := b.forge.Start(t.Context())
	must(t, err)
	b.repo.AddHook(gitea.HookConfig{URL: r.URL})
	b.push(forgesim.Push{Change: files("a")})
	<-r.come
	must(t, server.Close())
	must(t, server.Close())
	if !strings.Contains(r.bodies[0], server.URL+"/acme/docs.git") {
		t.Error("links in the payload lead elsewhere")
	}
}

func TestInterference(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.Interfere(func(r *http.Request) *gitea.Answer {
		if r.URL.Path == "/api/v1/version" {
			return &gitea.Answer{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: "slow down"}
		}
		return nil
	})
	if code, header, body := b.do("GET", "/api/v1/version", ""); code != 429 || header.Get("Retry-After") != "7" || body != "slow down" {
		t.Errorf("answered %d %q", code, body)
	}
	if code, _, _ := b.do("GET", "/api/v1/repos/acme/docs", "token "+b.token); code != 200 {
		t.Errorf("others are answered %d", code)
	}
	if j := b.forge.Journal(); len(j) != 2 || j[0].By != "anonymous" || j[1].By != "reader" {
		t.Errorf("the journal is %+v", j)
	}
}
