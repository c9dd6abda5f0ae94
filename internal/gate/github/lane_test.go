package github_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/gate/lanetest"
	"github.com/fencepost/fencepost/webhook"
)

func TestLane(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, lanetest.Suite{
		Lane: "GitHub", New: newLaneWorld,
		Writes: func(op string) bool { return strings.HasPrefix(op, "POST ") && strings.HasSuffix(op, "/check-runs") },
		Docs:   "../../../docs/lanes.md", Calls: "../../../docs/gates.md",
	})
}

const hookSecret = "a secret of the webhook"

// A laneWorld is a gate at a simulated GitHub.
type laneWorld struct {
	forge  *forgesim.Forge
	server *forgesim.Server
	repo   *forgesim.Repository
	inst   *forgesim.Installation
	rules  int64
	now    func() time.Time
	wire   *lanetest.Wire
	keys   *webhook.Keyring
	made   atomic.Int64 // events
	fork   *forgesim.Repository
}

func newLaneWorld(t testing.TB, now func() time.Time, wire *lanetest.Wire) lanetest.World {
	t.Helper()
	w := &laneWorld{now: now, wire: wire}
	var err error
	w.forge, err = forgesim.New(t.Context(), forgesim.Config{
		Dir: filepath.Join(t.TempDir(), "forge"), Now: now, MergePolls: -1,
		App: forgesim.AppConfig{Key: appKey(), HookSecret: []byte(hookSecret)},
	})
	done(t, err)
	w.repo, err = w.forge.ImportRepository(t.Context(), forgesim.Import{
		Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"},
	})
	done(t, err)
	w.inst, err = w.forge.App().Install(w.repo)
	done(t, err)
	w.rules = w.repo.AddRuleset(forgesim.RequireCheck(check, w.forge.App().ID()))
	w.server, err = w.forge.Start(t.Context(), forgesim.ManualDelivery())
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
	webhook.GitHub
	keys *webhook.Keyring
}

func (l laneTrust) Trusts(a fencepost.AnchorID) bool { return l.keys.Has(a) }

func (w *laneWorld) Gate(t testing.TB) *gate.Gate {
	t.Helper()
	client, err := github.NewClient(github.ClientConfig{
		API: mustURL(t, w.server.API), AllowHTTP: true,
		App:       github.App{ID: w.forge.App().ID(), Installation: w.inst.ID(), Key: keyOf(pkcs1(appKey()))},
		Transport: w.wire.Transport(w.forge.RoundTripper()), Limits: quick(), Now: w.now,
	})
	done(t, err)
	lane, err := github.NewLane(client, github.LaneConfig{
		Gate: "docs", Repository: github.Repository{ID: w.repo.ID(), OwnerID: w.repo.OwnerID(), Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: check, Git: mustURL(t, w.server.Git), AllowHTTP: true,
	})
	done(t, err)
	return &gate.Gate{
		Lane: lane, Trust: laneTrust{webhook.GitHub{Keys: w.keys}, w.keys}, Provider: "github", RepositoryID: "1",
		Rule: fencepost.RouteRule{
			Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow,
		},
	}
}

func (w *laneWorld) Open(t testing.TB, fromFork bool) lanetest.Request {
	t.Helper()
	o := forgesim.OpenPull{Head: "change", Change: forgesim.Change{Files: map[string]string{"guide.md": "a guide\n"}}}
	if fromFork {
		var err error
		w.fork, err = w.repo.Fork(t.Context(), "contributor")
		done(t, err)
		o.From = w.fork
	}
	p, err := w.repo.OpenPullRequest(t.Context(), o)
	done(t, err)
	return p
}

// Event sends the newest event of a request in other words each time: only the
// body is signed.
func (w *laneWorld) Event(t testing.TB, _ lanetest.Request) lanetest.Event {
	t.Helper()
	var last forgesim.Delivery
	for _, d := range w.forge.Outbox() {
		if d.Event == "pull_request" && slices.Contains([]string{"opened", "synchronize"}, d.Action) {
			last = d
		}
	}
	last.Body = append(slices.Clone(last.Body), strings.Repeat("\n", int(w.made.Add(1)))...)
	req, err := w.forge.Request(t.Context(), last, "http://fencepost.invalid/hooks/docs")
	done(t, err)
	return lanetest.Event{Headers: webhook.RequestHeaders(req), Body: last.Body}
}

func pull(r lanetest.Request) *forgesim.PullRequest { return r.(*forgesim.PullRequest) }

func (w *laneWorld) Push(t testing.TB, r lanetest.Request) {
	t.Helper()
	_, err := pull(r).Push(t.Context(), forgesim.Change{Files: map[string]string{"guide.md": "a better guide\n"}})
	done(t, err)
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
	done(t, pull(r).SetDraft(t.Context(), draft))
}

func (w *laneWorld) DeleteFork(testing.TB, lanetest.Request) { w.fork.Delete() }

func (w *laneWorld) Rename(t testing.TB) {
	t.Helper()
	done(t, w.repo.Rename("handbook"))
}

func (w *laneWorld) Revoke(testing.TB)    { w.inst.Suspend(true) }
func (w *laneWorld) Authorize(testing.TB) { w.inst.Suspend(false) }

// Weaken lets the check come from any App.
func (w *laneWorld) Weaken(testing.TB) {
	w.repo.ReplaceRuleset(w.rules, forgesim.RequireCheck(check, 0))
}

func (w *laneWorld) Foreign(t testing.TB, r lanetest.Request) {
	t.Helper()
	other, err := w.forge.AddApp(forgesim.AppConfig{ID: 9, Slug: "copycat", Key: appKey()})
	done(t, err)
	_, err = w.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{
		App: other, Name: check, HeadSHA: pull(r).Head(), Conclusion: "success",
	})
	done(t, err)
}

func (w *laneWorld) Impersonate(t testing.TB, r lanetest.Request, _ fencepost.DeliveryID, evaluation string) {
	t.Helper()
	_, err := w.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{
		Name: check, HeadSHA: pull(r).Head(), ExternalID: evaluation, Conclusion: "success", Title: "All is well", Summary: "Trust me",
	})
	done(t, err)
}

func (w *laneWorld) Shown(testing.TB, lanetest.Request) []lanetest.Result {
	var shown []lanetest.Result
	for _, run := range w.repo.CheckRuns("") {
		if run.AppID != w.forge.App().ID() || run.Name != check {
			continue
		}
		c := gate.Fail
		if run.Conclusion == "success" {
			c = gate.Pass
		}
		i := slices.IndexFunc(shown, func(s lanetest.Result) bool { return s.Evaluation == run.ExternalID })
		if i < 0 {
			shown = append(shown, lanetest.Result{Evaluation: run.ExternalID, Conclusion: c})
			i = len(shown) - 1
		}
		shown[i].Copies++
		shown[i].Partial = shown[i].Partial || run.Status != "completed" || shown[i].Conclusion != c
	}
	return shown
}

func (w *laneWorld) Locked(t testing.TB, r lanetest.Request) string {
	t.Helper()
	s, err := pull(r).MergeState(t.Context())
	done(t, err)
	if s.Allowed {
		return ""
	}
	return cmp.Or(strings.Join(s.Reasons, "; "), "not allowed")
}

func (w *laneWorld) Secrets() []string {
	lines := strings.Split(string(pkcs1(appKey())), "\n")
	// Tokens of installations begin so.
	return []string{hookSecret, lines[len(lines)/2], "ghs_"}
}

func (w *laneWorld) Fetches() int {
	return w.forge.Count(forgesim.GitAdvertise) + w.forge.Count(forgesim.GitFetch)
}
