//go:build peer

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/trial/world"
)

var peerGitea = flag.String("peer.gitea", "", "an executable of Gitea, in the tree that it was built from")

// A giteaGate is a gate at a real server, set up as docs/gates-gitea.md says,
// with a real controller. What goes between the two passes through proxies
// that see it.
type giteaGate struct {
	*giteaPeer
	docs       *giteaRepository
	controller *world.Controller
	config     string
	ops        string // the root of the operations listener
	dev, rules string // tokens

	mu sync.Mutex
	// Guarded by mu: what the server delivered, and what is done with requests
	// of the controller before they are answered.
	delivered []giteaDelivered
	before    func(r *http.Request) (cut bool)
	after     func(r *http.Request) (cut bool)
}

// A giteaDelivered is a delivery as it came, and its answer.
type giteaDelivered struct {
	header http.Header
	body   []byte
	status int
}

func newGiteaGate(t *testing.T) *giteaGate {
	t.Helper()
	if *peerGitea == "" {
		t.Fatal("name the executable with -peer.gitea")
	}
	executable, err := filepath.Abs(*peerGitea)
	must(t, err)
	g := &giteaGate{giteaPeer: startGitea(t, executable)}
	var version struct {
		Version string `json:"version"`
	}
	g.want("boss", http.MethodGet, "/version", nil, &version)
	t.Log("Gitea ", version.Version)
	g.user("acme", "write:repository")
	reviewer := g.user("gatekeeper", "write:repository")
	g.rules = g.user("auditor", "read:repository")
	g.dev = g.user("dev", "write:repository")
	program, err := os.ReadFile(hostileProgram)
	must(t, err)
	checks := g.repository("acme", "checks", false, map[string][]byte{world.Program: program})
	g.docs = g.repository("acme", "docs", true, map[string][]byte{"behaviour": []byte("pass\n")})
	for who, what := range map[string]string{"gatekeeper": "write", "dev": "write", "auditor": "admin"} {
		g.want("acme", http.MethodPut, "/repos/acme/docs/collaborators/"+who, map[string]any{"permission": what}, nil)
	}
	g.protect()
	hooks, ops := freeAddress(t), freeAddress(t)
	api, tap := g.proxies(t, "http://"+hooks)
	secret := strings.Repeat("a secret of the webhook ", 2)
	g.want("acme", http.MethodPost, "/repos/acme/docs/hooks", map[string]any{
		"type": "gitea", "active": true, "events": []string{"pull_request"},
		"config": map[string]string{"url": tap + "/hooks/docs", "content_type": "json", "secret": secret},
	}, nil)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "secrets"), 0o700))
	sum := sha256.Sum256(program)
	g.config = filepath.Join(dir, "fencepost.yaml")
	for name, text := range map[string]string{
		"secrets/webhook": secret, "secrets/reviewer": reviewer, "secrets/rules": g.rules,
		"fencepost.yaml": fmt.Sprintf(`version: 1
data_dir: data
listen: %s
ops_listen: %s
trust:
  acme:
    - {id: first, secret: "file:secrets/webhook"}
gates:
  docs:
    provider: gitea
    api: %s/api/v1
    git: %s
    allow_http: true   # it is on loopback
    trust: acme
    reviewer: {id: %d, login: gatekeeper, token: "file:secrets/reviewer"}
    rule_token: "file:secrets/rules"
    repository: {id: %d, owner_id: %d, name: acme/docs}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "%s/acme/checks.git", commit: "%s"}
      program: %s
      sha256: "%s"
      wall: 1m
%s`, hooks, ops, api, g.url, g.ids["gatekeeper"], g.docs.id, g.docs.ownerID, g.url, checks.git("rev-parse", "HEAD"), world.Program,
			hex.EncodeToString(sum[:]), quick),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	g.ops = "http://" + ops
	g.controller = world.NewController(world.ControllerConfig{
		Binary: fencepostBinary, File: g.config, Log: filepath.Join(dir, "serve.log"),
		HookURL: "http://" + hooks + "/hooks/docs", OpsURL: g.ops, Client: g.client, Now: time.Now,
	})
	if _, err := g.controller.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.controller.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			dumpLog(t, g.controller.Log)
		}
	})
	return g
}

// protect sets the rule as docs/gates-gitea.md says.
func (g *giteaGate) protect() {
	g.t.Helper()
	g.want("acme", http.MethodPost, "/repos/acme/docs/branch_protections", map[string]any{
		"rule_name": "main", "enable_push": false, "required_approvals": 1,
		"enable_approvals_whitelist": true, "approvals_whitelist_username": []string{"gatekeeper"},
		"block_on_rejected_reviews": true, "dismiss_stale_approvals": true, "ignore_stale_approvals": true,
		"block_on_outdated_branch": true, "block_admin_merge_override": true,
		"enable_status_check": true, "status_check_contexts": []string{"fencepost/docs"},
	}, nil)
}

// proxies are one before the server's API, for the controller, and one before
// the controller, for the server.
func (g *giteaGate) proxies(t *testing.T, controller string) (api, tap string) {
	t.Helper()
	to := func(s string) *httputil.ReverseProxy {
		u, err := url.Parse(s)
		must(t, err)
		return &httputil.ReverseProxy{
			Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}
	}
	forward := to(g.url)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		before, after := g.before, g.after
		g.mu.Unlock()
		if before != nil && before(r) {
			panic(http.ErrAbortHandler)
		}
		answer := httptest.NewRecorder()
		forward.ServeHTTP(answer, r)
		if after != nil && after(r) {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the controller may be killed by now
	}))
	t.Cleanup(front.Close)
	back := to(controller)
	seen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		back.ServeHTTP(answer, r)
		g.mu.Lock()
		g.delivered = append(g.delivered, giteaDelivered{r.Header.Clone(), body, answer.Code})
		g.mu.Unlock()
		w.WriteHeader(answer.Code)
	}))
	t.Cleanup(seen.Close)
	return front.URL, seen.URL
}

// interfere has requests of the controller seen before the server gets them,
// and before its answer goes back; what returns true cuts the connection.
func (g *giteaGate) interfere(before, after func(r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// A giteaPull is a request there.
type giteaPull struct {
	number int
	branch string
	head   string
}

// open pushes a branch whose check does what it is told, and opens a request.
func (g *giteaGate) open(what string) *giteaPull {
	g.t.Helper()
	p := &giteaPull{branch: fmt.Sprintf("change-%d", time.Now().UnixNano())}
	g.docs.branch(p.branch)
	p.head = g.docs.commit(map[string][]byte{"behaviour": []byte(what + "\n")})
	g.docs.push("dev", p.branch, false)
	var made struct {
		Number int `json:"number"`
	}
	g.want(g.dev, http.MethodPost, "/repos/acme/docs/pulls", map[string]any{"head": p.branch, "base": "main", "title": "A change"}, &made)
	p.number = made.Number
	return p
}

// move pushes another commit to the request's branch.
func (g *giteaGate) move(p *giteaPull, what string) {
	g.t.Helper()
	p.head = g.docs.commit(map[string][]byte{"behaviour": []byte(what + "\n")})
	g.docs.push("dev", p.branch, false)
}

type giteaReview struct {
	ID        int64  `json:"id"`
	State     string `json:"state"`
	CommitID  string `json:"commit_id"`
	Official  bool   `json:"official"`
	Stale     bool   `json:"stale"`
	Dismissed bool   `json:"dismissed"`
	Body      string `json:"body"`
	User      struct {
		Login string `json:"login"`
	} `json:"user"`
}

func (g *giteaGate) reviews(p *giteaPull) (all []giteaReview) {
	g.t.Helper()
	g.want(g.dev, http.MethodGet, fmt.Sprintf("/repos/acme/docs/pulls/%d/reviews?limit=50", p.number), nil, &all)
	return all
}

type giteaStatus struct {
	Status  string `json:"status"`
	Context string `json:"context"`
	Creator struct {
		Login string `json:"login"`
	} `json:"creator"`
}

func (g *giteaGate) statuses(commit string) (all []giteaStatus) {
	g.t.Helper()
	g.want(g.dev, http.MethodGet, "/repos/acme/docs/commits/"+commit+"/statuses?limit=50", nil, &all)
	return all
}

// result waits until both words of the gate stand on the request's head, and
// holds that there is one of each.
func (g *giteaGate) result(p *giteaPull, status, review string) {
	g.t.Helper()
	var statuses []giteaStatus
	var reviews []giteaReview
	look := func() {
		statuses, reviews = g.statuses(p.head), nil
		for _, r := range g.reviews(p) {
			if r.CommitID == p.head && r.User.Login == "gatekeeper" {
				reviews = append(reviews, r)
			}
		}
	}
	if err := g.await(func() (bool, error) {
		look()
		return len(statuses) > 0 && len(reviews) > 0, nil
	}); err != nil {
		g.t.Fatalf("result of #%d at %.7s: %v; statuses %+v, reviews %+v", p.number, p.head, err, statuses, g.reviews(p))
	}
	g.idle()
	look()
	if len(statuses) != 1 || len(reviews) != 1 {
		g.t.Fatalf("#%d at %.7s: statuses %+v, reviews %+v: want one of each", p.number, p.head, statuses, reviews)
	}
	if s, r := statuses[0], reviews[0]; s.Status != status || s.Context != "fencepost/docs" || s.Creator.Login != "gatekeeper" || r.State != review {
		g.t.Fatalf("#%d at %.7s: status %+v, review %+v: want %s and %s", p.number, p.head, s, r, status, review)
	}
}

// await looks until look says that it is so. The server has more to do than to
// be asked.
func (g *giteaGate) await(look func() (bool, error)) error {
	_, err := world.Await(g.t.Context(), endWithin, func() (struct{}, bool, error) {
		ok, err := look()
		if !ok {
			time.Sleep(200 * time.Millisecond)
		}
		return struct{}{}, ok, err
	})
	return err
}

// idle waits until nothing that was recorded is under way.
func (g *giteaGate) idle() {
	g.t.Helper()
	if err := g.await(func() (bool, error) {
		resp, err := g.client.Get(g.ops + "/metrics")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
		return bytes.Contains(text, []byte("\nfencepost_inbox_entries 0\n")), err
	}); err != nil {
		g.t.Fatal("the controller does not come to rest: ", err)
	}
}

// merge asks for the merge as somebody; the status is the server's answer.
func (g *giteaGate) merge(by string, p *giteaPull, force bool) int {
	g.t.Helper()
	return g.ask(by, http.MethodPost, fmt.Sprintf("/repos/acme/docs/pulls/%d/merge", p.number), map[string]any{"do": "merge", "force_merge": force}, nil)
}

// wantLocked holds that nobody can merge, be it by force.
func (g *giteaGate) wantLocked(p *giteaPull) {
	g.t.Helper()
	for _, try := range []struct {
		by    string
		force bool
	}{{g.dev, false}, {"acme", true}, {"boss", true}} {
		if status := g.merge(try.by, p, try.force); status/100 == 2 {
			g.t.Fatalf("#%d at %.7s was merged by %.8s, force %t", p.number, p.head, try.by, try.force)
		}
	}
}

// wantMerged merges. For a moment after a request was made or moved the server
// may still be working out whether it can be merged.
func (g *giteaGate) wantMerged(p *giteaPull) {
	g.t.Helper()
	if err := g.await(func() (bool, error) { return g.merge(g.dev, p, false)/100 == 2, nil }); err != nil {
		g.t.Fatalf("#%d at %.7s is not merged: %v", p.number, p.head, err)
	}
}

// The whole gate at a real Gitea.
func TestPeerGitea(t *testing.T) {
	g := newGiteaGate(t)

	g.scene(t, "a pass unlocks the merge", func(t *testing.T) {
		p := g.open("slow 2s")
		g.wantLocked(p)
		g.result(p, "success", "APPROVED")
		g.wantMerged(p)
	})

	g.scene(t, "a block locks it", func(t *testing.T) {
		p := g.open("block")
		g.result(p, "failure", "REQUEST_CHANGES")
		g.wantLocked(p)
	})

	g.scene(t, "a push after the approval locks it again", func(t *testing.T) {
		p := g.open("pass")
		g.result(p, "success", "APPROVED")
		approved := p.head
		g.move(p, "slow 3s")
		// At once, and for as long as the new head has no result.
		for range 10 {
			g.wantLocked(p)
		}
		g.result(p, "success", "APPROVED")
		counts := 0
		for _, r := range g.reviews(p) {
			if r.State == "APPROVED" && r.Official && !r.Dismissed {
				counts++
				if r.CommitID == approved {
					t.Errorf("the approval of the old head still counts: %+v", r)
				}
			}
		}
		if counts != 1 {
			t.Errorf("%d approvals count, want one", counts)
		}
		g.move(p, "block")
		g.result(p, "failure", "REQUEST_CHANGES")
		g.wantLocked(p)
	})

	g.scene(t, "a replayed hook changes nothing", func(t *testing.T) {
		p := g.open("pass")
		g.result(p, "success", "APPROVED")
		before := len(g.reviews(p))
		g.mu.Lock()
		var again giteaDelivered
		for _, d := range g.delivered {
			if bytes.Contains(d.body, []byte(p.head)) && d.header.Get("X-Gitea-Event") == "pull_request" && d.status == http.StatusAccepted {
				again = d
				break
			}
		}
		g.mu.Unlock()
		if again.body == nil {
			t.Fatal("the delivery of the request was not seen")
		}
		for _, uuid := range []string{again.header.Get("X-Gitea-Delivery"), "11111111-2222-4333-8444-555555555555"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.controller.HookURL, bytes.NewReader(again.body))
			must(t, err)
			req.Header = again.header.Clone()
			for _, family := range []string{"Gitea", "Gogs", "GitHub"} {
				req.Header.Set("X-"+family+"-Delivery", uuid)
			}
			resp, err := g.client.Do(req)
			must(t, err)
			text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
			must(t, err)
			resp.Body.Close()
			if a, err := world.ReadAnswer(text); err != nil || resp.StatusCode != http.StatusOK || a.Outcome != "replayed" {
				t.Errorf("the same body again: %d %s, %v", resp.StatusCode, text, err)
			}
		}
		g.idle()
		g.result(p, "success", "APPROVED")
		if after := len(g.reviews(p)); after != before {
			t.Errorf("%d reviews, %d before", after, before)
		}
		g.wantMerged(p)
	})

	g.scene(t, "kill -9 while the check runs", func(t *testing.T) {
		p := g.open("slow 3s")
		if err := g.await(func() (bool, error) { return g.taken(p), nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // into the run
		must(t, g.controller.Kill())
		if n := len(g.statuses(p.head)); n != 0 {
			t.Fatalf("killed too late: there are %d statuses", n)
		}
		g.start()
		g.result(p, "success", "APPROVED")
		g.wantMerged(p)
	})

	g.scene(t, "kill -9 while the result is published", func(t *testing.T) {
		for _, when := range []string{"before the status is taken", "after the status was taken"} {
			killed := make(chan error, 1)
			var once sync.Once
			kill := func(r *http.Request) (cut bool) {
				if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/statuses/") {
					once.Do(func() { killed <- g.controller.Kill(); cut = true })
				}
				return cut
			}
			if when == "before the status is taken" {
				g.interfere(kill, nil)
			} else {
				g.interfere(nil, kill)
			}
			p := g.open("pass")
			select {
			case err := <-killed:
				must(t, err)
			case <-time.After(endWithin):
				t.Fatal("nothing was published")
			}
			if when == "before the status is taken" {
				g.wantLocked(p) // the approval stands alone
			}
			g.interfere(nil, nil)
			g.start()
			g.result(p, "success", "APPROVED")
			g.wantMerged(p)
		}
	})

	g.scene(t, "a head that moves while it is approved is not let through", func(t *testing.T) {
		moved := make(chan struct{})
		var p *giteaPull
		var ready sync.WaitGroup
		ready.Add(1)
		var once sync.Once
		g.interfere(nil, func(r *http.Request) bool {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/reviews") {
				once.Do(func() {
					ready.Wait()
					g.move(p, "block")
					close(moved)
				})
			}
			return false
		})
		p = g.open("pass")
		first := p.head
		ready.Done()
		select {
		case <-moved:
		case <-time.After(endWithin):
			t.Fatal("nothing was approved")
		}
		g.interfere(nil, nil)
		g.result(p, "failure", "REQUEST_CHANGES")
		if statuses := g.statuses(first); len(statuses) != 0 {
			t.Errorf("the head that was left behind has statuses %+v", statuses)
		}
		for _, r := range g.reviews(p) {
			if r.State == "APPROVED" && r.Official && !r.Dismissed {
				t.Errorf("an approval counts: %+v", r)
			}
		}
		g.wantLocked(p)
	})
}

// scene runs a part of the story, whose failures are its own.
func (g *giteaGate) scene(t *testing.T, name string, tell func(t *testing.T)) {
	t.Run(name, func(inner *testing.T) {
		g.t = inner
		defer func() { g.t = t }()
		tell(inner)
	})
}

// taken reports whether a delivery about the request's head was accepted.
func (g *giteaGate) taken(p *giteaPull) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.delivered {
		if d.status == http.StatusAccepted && bytes.Contains(d.body, []byte(p.head)) {
			return true
		}
	}
	return false
}

func (g *giteaGate) start() {
	g.t.Helper()
	if _, err := g.controller.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
}
