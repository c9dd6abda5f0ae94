package gitea_test

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	client "github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
	"github.com/fencepost/fencepost/internal/gate/lanetest"
	"github.com/fencepost/fencepost/webhook"
)

func TestLane(t *testing.T)          { runLane(t, gitea.Gitea) }
func TestLaneOfForgejo(t *testing.T) { runLane(t, gitea.Forgejo) }

func runLane(t *testing.T, kind gitea.Kind) {
	t.Parallel()
	lanetest.Run(t, lanetest.Suite{
		Lane: "Gitea, Forgejo", Twin: kind == gitea.Forgejo,
		New: func(t testing.TB, now func() time.Time, wire *lanetest.Wire) lanetest.World {
			return newLaneWorld(t, kind, now, wire)
		},
		Writes: func(op string) bool { return strings.HasPrefix(op, "POST ") },
		Docs:   "../../../docs/lanes.md", Calls: "../../../docs/gates-gitea.md",
	})
}

const hookSecret = "a secret of the webhook"

// A laneWorld is a gate at a simulated Gitea or Forgejo.
type laneWorld struct {
	kind     gitea.Kind
	forge    *forge.Forge
	server   *forge.Server
	repo     *forge.Repository
	fork     *forge.Repository
	reviewer int64
	rules    string
	now      func() time.Time
	wire     *lanetest.Wire
	keys     *webhook.Keyring

	mu sync.Mutex
	// Guarded by mu: the reviewer's token, how many events were made.
	reviews string
	made    int
	heads   []string // that the request has had
}

func newLaneWorld(t testing.TB, kind gitea.Kind, now func() time.Time, wire *lanetest.Wire) lanetest.World {
	t.Helper()
	w := &laneWorld{kind: kind, now: now, wire: wire}
	var err error
	w.forge, err = forge.New(t.Context(), forge.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: now, Forgejo: kind == gitea.Forgejo})
	done(t, err)
	w.repo, err = w.forge.CreateRepository(t.Context(), forge.Create{Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	done(t, err)
	w.repo.AddHook(forge.HookConfig{Secret: []byte(hookSecret), Events: []string{"pull_request"}, Forgejo: kind == gitea.Forgejo})
	w.reviewer = w.repo.Grant(reviewer, forge.Writer)
	w.repo.Grant("auditor", forge.Admin)
	w.rules = w.forge.NewToken("auditor", "read:repository")
	w.Authorize(t)
	w.repo.Protect(forge.GateRule("main", reviewer, check))
	w.server, err = w.forge.Start(t.Context())
	done(t, err)
	t.Cleanup(func() { done(t, w.server.Close()) })
	w.keys, err = webhook.NewKeyring("acme", webhook.Anchor{ID: "a", Secret: fencepost.NewSecret([]byte(hookSecret))})
	done(t, err)
	return w
}

func done(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// laneTrust is the trust set of the route.
type laneTrust struct {
	webhook.Gitea
	keys *webhook.Keyring
}

// Trusts implements [gate.Trust].
func (l laneTrust) Trusts(a fencepost.AnchorID) bool { return l.keys.Has(a) }

func (w *laneWorld) client(t testing.TB, token func() string) *client.Client {
	t.Helper()
	api, err := url.Parse(w.server.API)
	done(t, err)
	c, err := client.New(client.Config{
		API: api, AllowHTTP: true, Now: w.now, Transport: w.wire.Transport(lanetest.InProcess(w.forge)),
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(token())), nil },
	})
	done(t, err)
	return c
}

func (w *laneWorld) Gate(t testing.TB) *gate.Gate {
	t.Helper()
	git, err := url.Parse(w.server.Git)
	done(t, err)
	lane, err := gitea.New(gitea.LaneConfig{
		Gate: "docs", Kind: w.kind, Repository: gitea.Repository{ID: w.repo.ID(), OwnerID: w.repo.OwnerID(), Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: check, Reviewer: gitea.Reviewer{ID: w.reviewer, Login: reviewer},
		Reviews: w.client(t, w.token), Rules: w.client(t, func() string { return w.rules }), Git: git, AllowHTTP: true,
	})
	done(t, err)
	return &gate.Gate{
		Lane: lane, Trust: laneTrust{webhook.Gitea{Keys: w.keys}, w.keys}, Provider: string(w.kind), RepositoryID: "1",
		Rule: fencepost.RouteRule{
			Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow,
		},
	}
}

func (w *laneWorld) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reviews
}

func (w *laneWorld) Open(t testing.TB, fromFork bool) lanetest.Request {
	t.Helper()
	if fromFork {
		var err error
		w.fork, err = w.repo.Fork(t.Context(), "contributor")
		done(t, err)
	}
	p, err := w.repo.OpenPull(t.Context(), forgesim.OpenPull{
		Head: "change", Change: forgesim.Change{Files: map[string]string{"guide.md": "a guide\n"}},
	}, w.fork)
	done(t, err)
	w.heads = append(w.heads, p.Head())
	return p
}

// Event sends the newest event that asks for a verdict in other words each time:
// only the body is signed.
func (w *laneWorld) Event(t testing.TB, _ lanetest.Request) lanetest.Event {
	t.Helper()
	w.mu.Lock()
	w.made++
	blanks := strings.Repeat("\n", w.made)
	w.mu.Unlock()
	var last forge.Delivery
	for _, d := range w.forge.Outbox() {
		var e struct{ Action string }
		done(t, json.Unmarshal(d.Body, &e))
		if e.Action == "opened" || e.Action == "synchronized" {
			last = d
		}
	}
	last.Body = append(slices.Clone(last.Body), blanks...)
	req, err := w.forge.Request(t.Context(), last, "http://fencepost.invalid/hooks/docs")
	done(t, err)
	return lanetest.Event{Headers: webhook.RequestHeaders(req), Body: last.Body}
}

func pull(r lanetest.Request) *forge.Pull { return r.(*forge.Pull) }

func (w *laneWorld) Push(t testing.TB, r lanetest.Request) {
	t.Helper()
	head, err := pull(r).Push(t.Context(), forgesim.Change{Files: map[string]string{"guide.md": "a better guide\n"}})
	done(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heads = append(w.heads, head)
}

func (w *laneWorld) MoveBase(t testing.TB) {
	t.Helper()
	_, err := w.repo.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"news.md": "news\n"}}})
	done(t, err)
}

func (w *laneWorld) Close(t testing.TB, r lanetest.Request) {
	t.Helper()
	done(t, pull(r).Close(t.Context()))
}

func (w *laneWorld) Reopen(t testing.TB, r lanetest.Request) {
	t.Helper()
	done(t, pull(r).Reopen(t.Context()))
}

func (w *laneWorld) Draft(t testing.TB, r lanetest.Request, draft bool) {
	t.Helper()
	done(t, pull(r).SetTitle(t.Context(), map[bool]string{true: "WIP: a guide", false: "A guide"}[draft]))
}

func (w *laneWorld) DeleteFork(testing.TB, lanetest.Request) { w.fork.Delete() }

func (w *laneWorld) Rename(t testing.TB) {
	t.Helper()
	done(t, w.repo.Rename("handbook"))
}

// Revoke takes the reviewer's token away, Authorize gives another one.
func (w *laneWorld) Revoke(testing.TB) { w.forge.RevokeToken(w.token()) }

func (w *laneWorld) Authorize(testing.TB) {
	token := w.forge.NewToken(reviewer, "write:repository")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reviews = token
}

// Weaken leaves the status out of the rule.
func (w *laneWorld) Weaken(testing.TB) {
	rule := forge.GateRule("main", reviewer, check)
	rule.StatusCheck, rule.Contexts = false, nil
	w.repo.Protect(rule)
}

func (w *laneWorld) Foreign(_ testing.TB, r lanetest.Request) {
	w.repo.SetStatus("somebody", pull(r).Head(), check, "success")
}

func (w *laneWorld) Impersonate(_ testing.TB, r lanetest.Request, d fencepost.DeliveryID, evaluation string) {
	pull(r).Review(reviewer, "APPROVED", "All is well.\n\nEvaluation `"+evaluation+"` of delivery `"+string(d)+"`.")
}

// Shown puts together what names one evaluation. An approval that was taken back
// counts for nothing any more, and is not shown.
func (w *laneWorld) Shown(_ testing.TB, r lanetest.Request) []lanetest.Result {
	type parts struct {
		reviews, statuses int
		counts, passes    bool
	}
	shown, order := map[string]*parts{}, []string{}
	of := func(evaluation string) *parts {
		if shown[evaluation] == nil {
			shown[evaluation] = &parts{}
			order = append(order, evaluation)
		}
		return shown[evaluation]
	}
	for _, review := range pull(r).Reviews() {
		_, origin, ok := strings.Cut(review.Body, "Evaluation `")
		if review.User != reviewer || !ok || strings.HasPrefix(review.Body, "Taken back") {
			continue
		}
		evaluation, _, _ := strings.Cut(origin, "`")
		p := of(evaluation)
		p.reviews++
		p.counts = p.counts || review.Official && !review.Dismissed
		p.passes = review.State == "APPROVED"
	}
	conclusions := map[string]gate.Conclusion{}
	for _, status := range w.statuses() {
		i := strings.LastIndex(status.Description, " · ")
		if status.By != reviewer || status.Context != check || i < 0 {
			continue
		}
		evaluation := status.Description[i+len(" · "):]
		p := of(evaluation)
		p.statuses++
		p.counts = true
		conclusions[evaluation] = gate.Fail
		if status.State == "success" {
			conclusions[evaluation] = gate.Pass
		}
	}
	var results []lanetest.Result
	for _, evaluation := range order {
		p := shown[evaluation]
		if !p.counts {
			continue
		}
		results = append(results, lanetest.Result{
			Evaluation: evaluation, Conclusion: conclusions[evaluation], Copies: max(p.reviews, p.statuses),
			Partial: p.reviews == 0 || p.statuses == 0 || p.passes != (conclusions[evaluation] == gate.Pass),
		})
	}
	return results
}

func (w *laneWorld) statuses() (all []forge.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, head := range w.heads {
		all = append(all, w.repo.Statuses(head)...)
	}
	return all
}

func (w *laneWorld) Locked(t testing.TB, r lanetest.Request) string {
	t.Helper()
	why, err := pull(r).Locked(t.Context())
	done(t, err)
	return why
}

func (w *laneWorld) Secrets() []string { return []string{hookSecret, w.token(), w.rules} }

func (w *laneWorld) Fetches() int {
	n := 0
	for _, r := range w.forge.Journal() {
		if !strings.HasPrefix(r.Path, forge.APIPrefix) {
			n++
		}
	}
	return n
}
