package gitlab_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	client "github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitlab"
	"github.com/fencepost/fencepost/internal/gate/lanetest"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/webhook"
)

// putResult is what shows a result.
const putResult = "put result"

// asksItself is why nothing has to be healed here.
const asksItself = "the sender is the policy's job, which asks until it is answered or fails its pipeline: no event can be lost"

func TestLane(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, lanetest.Suite{
		Lane: "GitLab", New: newLaneWorld, Fetched: true,
		Writes: func(op string) bool { return op == putResult },
		Absent: map[string]string{
			"foreign result of our name":      "the result is the exit status of the policy's own job, which nobody else can set",
			"made ready, event lost":          asksItself,
			"reopened in the run, event lost": asksItself,
		},
		Docs: "../../../docs/lanes.md", Calls: "../../../docs/gates-gitlab.md",
	})
}

// A laneWorld is a gate at a simulated GitLab, with a real shelf.
type laneWorld struct {
	lanetest.Nothing
	forge    *forge.Forge
	server   *forge.Server
	docs     *forge.Project
	policies *forge.Project
	fork     *forge.Project
	policy   fencepost.CommitID
	shelf    *shelf.Shelf
	now      func() time.Time
	wire     *lanetest.Wire
	keys     *webhook.JobKeyring

	mu sync.Mutex
	// Guarded by mu: the token, how many events were made, and what was put for
	// which delivery, in order.
	reads string
	made  int
	put   []fencepost.DeliveryID
}

func newLaneWorld(t testing.TB, now func() time.Time, wire *lanetest.Wire) lanetest.World {
	t.Helper()
	w := &laneWorld{now: now, wire: wire}
	var err error
	w.forge, err = forge.New(t.Context(), forge.Config{Key: firstKey(), Dir: filepath.Join(t.TempDir(), "forge"), Now: now})
	done(t, err)
	t.Cleanup(func() { done(t, w.forge.Close()) })
	w.docs, err = w.forge.CreateProject(t.Context(), forge.Create{Namespace: "acme/handbooks", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	done(t, err)
	w.docs.Protect(forge.ProtectedBranch{Name: "main", Merge: forge.Maintainer})
	w.policies, err = w.forge.CreateProject(t.Context(), forge.Create{Namespace: "acme", Name: "policies", Files: map[string]string{forge.PolicyPath: policyText}})
	done(t, err)
	w.policy, err = fencepost.ParseCommitID(w.policies.Ref("refs/heads/main"))
	done(t, err)
	w.Authorize(t)
	w.docs.SetJobs(forge.JobSpec{Name: jobName, Policy: &forge.Policy{Project: w.policies}, Audience: audience})
	w.server, err = w.forge.Start(t.Context())
	done(t, err)
	t.Cleanup(func() { done(t, w.server.Close()) })
	w.keys, err = webhook.NewJobKeyring("acme", webhook.JobAnchor{ID: "a", Key: &firstKey().PublicKey})
	done(t, err)
	w.shelf, err = shelf.Open(t.Context(), crashfs.New(crashfs.Options{}).Process(), shelf.Limits{}, now)
	done(t, err)
	t.Cleanup(func() { done(t, w.shelf.Close()) })
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
	webhook.GitLabJob
	keys *webhook.JobKeyring
}

// Trusts implements [gate.Trust].
func (l laneTrust) Trusts(a fencepost.AnchorID) bool { return l.keys.Has(a) }

// Gate has the three projects' facts by the API, and the results on the shelf.
func (w *laneWorld) Gate(t testing.TB) *gate.Gate {
	t.Helper()
	at := func(s string) *url.URL {
		u, err := url.Parse(s)
		done(t, err)
		return u
	}
	c, err := client.New(client.Config{
		API: at(w.server.API), AllowHTTP: true, Now: w.now, Transport: w.wire.Transport(lanetest.InProcess(w.forge)),
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(w.token())), nil },
	})
	done(t, err)
	lane, err := gitlab.New(gitlab.LaneConfig{
		Gate: "docs", Repository: gitlab.Repository{ID: w.docs.ID(), OwnerID: w.docs.NamespaceID(), Name: "acme/handbooks/docs"},
		BaseRef: "refs/heads/main", Check: "fencepost/docs", Instance: at(w.server.URL),
		Policy: gitlab.Policy{Project: w.policies.ID(), Path: "acme/policies", Commits: []fencepost.CommitID{w.policy}, Job: jobName},
		Client: c, Results: wired{w}, Git: at(w.server.Git), AllowHTTP: true,
	})
	done(t, err)
	scheme := webhook.GitLabJob{Issuer: w.server.URL, Audience: audience, Keys: w.keys}
	return &gate.Gate{
		Lane: lane, Trust: laneTrust{scheme, w.keys}, Provider: "gitlab", RepositoryID: "1",
		Rule: fencepost.RouteRule{
			Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeRequired, Window: fencepost.DefaultReplayWindow,
		},
	}
}

func (w *laneWorld) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// wired is the shelf as a lane reaches it.
type wired struct{ *laneWorld }

func (w wired) do(ctx context.Context, op string, do func() error) error {
	err := w.wire.Do(ctx, op, do)
	if err == nil || fencepost.ReasonOf(err) == fencepost.ReasonPublishConflict {
		return err
	}
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonUnavailable, Err: err}
}

// Put implements [gitlab.Results].
func (w wired) Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error {
	return w.do(ctx, putResult, func() error {
		w.mu.Lock()
		w.put = append(w.put, d)
		w.mu.Unlock()
		return w.shelf.Put(ctx, d, document)
	})
}

// Get implements [gitlab.Results].
func (w wired) Get(ctx context.Context, d fencepost.DeliveryID) (e shelf.Entry, ok bool, err error) {
	err = w.do(ctx, "get result", func() (err error) {
		e, ok, err = w.shelf.Get(ctx, d)
		return err
	})
	return e, ok, err
}

// End implements [gitlab.Results].
func (w wired) End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	return w.do(ctx, "put end", func() error { return w.shelf.End(ctx, d, why) })
}

// A riding is a request and its car.
type riding struct {
	request *forge.MergeRequest

	mu  sync.Mutex
	car *forge.Car // guarded by mu: the newest
}

func (r *riding) join(t testing.TB) {
	t.Helper()
	car, err := r.request.JoinTrain(t.Context())
	done(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.car = car
}

// job is the job that keeps the request from being merged; nil: none does.
func (r *riding) job() *forge.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.car.Pipeline(); p != nil {
		return p.Job(jobName)
	}
	return nil
}

func ride(r lanetest.Request) *riding { return r.(*riding) }

// Open opens a request and puts it into the train.
func (w *laneWorld) Open(t testing.TB, fromFork bool) lanetest.Request {
	t.Helper()
	o := forge.Open{Source: "change", Change: forgesim.Change{Files: map[string]string{"guide.md": "a guide\n"}}}
	if fromFork {
		var err error
		w.fork, err = w.docs.Fork(t.Context(), "contributor")
		done(t, err)
		o.From = w.fork
	}
	m, err := w.docs.OpenRequest(t.Context(), o)
	done(t, err)
	r := &riding{request: m}
	r.join(t)
	return r
}

// Event is the present job's, with another token each time.
func (w *laneWorld) Event(t testing.TB, r lanetest.Request) lanetest.Event {
	t.Helper()
	w.mu.Lock()
	w.made++
	made := w.made
	w.mu.Unlock()
	claims := ride(r).job().Claims(audience)
	claims["jti"] = fmt.Sprintf("%s-%d", claims["jti"], made)
	token, err := w.forge.Sign(claims)
	done(t, err)
	return lanetest.Event{
		Headers: fencepost.NewHeaders([]fencepost.Header{{Name: "authorization", Value: "Bearer " + token}}),
		Body:    fmt.Appendf(nil, `{"merge_request": %d}`, ride(r).request.IID()),
	}
}

// Push takes the request out of the train, and it joins again.
func (w *laneWorld) Push(t testing.TB, r lanetest.Request) {
	t.Helper()
	_, err := ride(r).request.Push(t.Context(), forgesim.Change{Files: map[string]string{"guide.md": "a better guide\n"}})
	done(t, err)
	ride(r).join(t)
}

// MoveBase has the train built anew.
func (w *laneWorld) MoveBase(t testing.TB) {
	t.Helper()
	_, err := w.docs.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"news.md": "news\n"}}})
	done(t, err)
}

func (w *laneWorld) Close(t testing.TB, r lanetest.Request) {
	t.Helper()
	done(t, ride(r).request.Close(t.Context()))
}

func (w *laneWorld) DeleteFork(testing.TB, lanetest.Request) { w.fork.Delete() }

func (w *laneWorld) Rename(t testing.TB) {
	t.Helper()
	done(t, w.docs.Rename("manual"))
}

// Revoke takes the token away, Authorize gives another one.
func (w *laneWorld) Revoke(testing.TB) { w.forge.RevokeToken(w.token()) }

func (w *laneWorld) Authorize(testing.TB) {
	token := w.forge.NewToken("reader", forge.Maintainer, "read_api", "read_repository")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = token
}

// Weaken lets people pass by the train.
func (w *laneWorld) Weaken(testing.TB) {
	w.docs.Set(func(s *forge.Settings) { s.Enforcement = "allow_bypass" })
}

// Impersonate puts something else where the job would fetch its result.
func (w *laneWorld) Impersonate(t testing.TB, _ lanetest.Request, d fencepost.DeliveryID, evaluation string) {
	t.Helper()
	done(t, w.shelf.Put(t.Context(), d, []byte(`{"evaluation":"`+evaluation+`","conclusion":"success"}`)))
}

// entries are the results on the shelf, oldest first.
func (w *laneWorld) entries(t testing.TB) (results []gate.Verdict) {
	t.Helper()
	w.mu.Lock()
	put := slices.Compact(slices.Clone(w.put))
	w.mu.Unlock()
	lane := w.Gate(t).Lane
	for _, d := range put {
		e, ok, err := w.shelf.Get(t.Context(), d)
		done(t, err)
		if !ok || e.Ended() {
			continue
		}
		v, err := lane.Inspect(e.Document)
		done(t, err)
		results = append(results, v)
	}
	return results
}

// Shown is what jobs can fetch: of a delivery, one thing or none.
func (w *laneWorld) Shown(t testing.TB, _ lanetest.Request) (results []lanetest.Result) {
	t.Helper()
	for _, v := range w.entries(t) {
		results = append(results, lanetest.Result{Evaluation: v.Evaluation.String(), Conclusion: v.Conclusion, Copies: 1})
	}
	return results
}

// Locked says what the job that stands before the merge makes of it: its exit
// status is 0 for a pass that is its own alone.
func (w *laneWorld) Locked(t testing.TB, r lanetest.Request) string {
	t.Helper()
	job := ride(r).job()
	if job == nil {
		return "no job lets it pass"
	}
	for _, v := range w.entries(t) {
		if v.Subject.Job.ID == job.ID() && v.Conclusion == gate.Pass {
			return ""
		}
	}
	return "the job has no pass"
}

func (w *laneWorld) Secrets() []string { return []string{w.token()} }

func (w *laneWorld) Fetches() int {
	n := 0
	for _, r := range w.forge.Journal() {
		if strings.Contains(r.Path, ".git/") {
			n++
		}
	}
	return n
}
