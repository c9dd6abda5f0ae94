package gitlab_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	client "github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitlab"
	"github.com/fencepost/fencepost/internal/gate/shelf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	jobName  = "fencepost"
	audience = "https://fencepost.example.com"
	pinned   = "0123456789abcdef0123456789abcdef01234567"
)

// policyText is a policy whose include is at a commit.
const policyText = `pipeline_execution_policy:
- name: gate
  enabled: true
  pipeline_config_strategy: inject_policy
  content:
    include:
    - {project: acme/policies, file: job.yml, ref: ` + pinned + `}
- name: another
  enabled: false
  pipeline_config_strategy: override_project_ci
  content: {include: [{local: any.yml}]}
`

// firstKey is shared, since making one takes longer than most tests.
var firstKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// A bench is a gate on a simulated instance.
type bench struct {
	t        *testing.T
	forge    *forge.Forge
	server   *forge.Server
	docs     *forge.Project
	policies *forge.Project
	commits  []fencepost.CommitID // allowed
	token    string
	cars     []*forge.Car
	results  *results
	lane     *gitlab.Lane
	now      atomic.Int64
}

func newBench(t *testing.T, change ...func(*forge.Config)) *bench {
	t.Helper()
	b := &bench{t: t, results: &results{held: map[fencepost.DeliveryID]shelf.Entry{}}}
	b.now.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Unix())
	config := forge.Config{Key: firstKey(), Dir: filepath.Join(t.TempDir(), "forge"), Now: b.time}
	for _, c := range change {
		c(&config)
	}
	var err error
	b.forge, err = forge.New(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { must(t, b.forge.Close()) })
	b.docs, err = b.forge.CreateProject(t.Context(), forge.Create{Namespace: "acme/handbooks", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	must(t, err)
	b.docs.Protect(forge.ProtectedBranch{Name: "main", Merge: forge.Maintainer})
	b.policies, err = b.forge.CreateProject(t.Context(), forge.Create{Namespace: "acme", Name: "policies", Files: map[string]string{forge.PolicyPath: policyText}})
	must(t, err)
	b.token = b.forge.NewToken("reader", forge.Maintainer, "read_api", "read_repository")
	b.commits = []fencepost.CommitID{commit(t, b.policies.Ref("refs/heads/main"))}
	b.docs.SetJobs(forge.JobSpec{Name: jobName, Policy: &forge.Policy{Project: b.policies}, Audience: audience})
	b.server, err = b.forge.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, b.server.Close()) })
	b.lane = b.newLane()
	return b
}

func (b *bench) time() time.Time { return time.Unix(b.now.Load(), 0).UTC() }

func (b *bench) client() *client.Client {
	b.t.Helper()
	c, err := client.New(client.Config{
		API: parseURL(b.t, b.server.API), AllowHTTP: true, Now: b.time,
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(b.token)), nil },
	})
	must(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func (b *bench) config() gitlab.LaneConfig {
	return gitlab.LaneConfig{
		Gate: "docs", Repository: gitlab.Repository{ID: b.docs.ID(), OwnerID: b.docs.NamespaceID(), Name: "acme/handbooks/docs"},
		BaseRef: "refs/heads/main", Check: "fencepost/docs", Instance: parseURL(b.t, b.server.URL),
		Policy: gitlab.Policy{Project: b.policies.ID(), Path: "acme/policies", Commits: b.commits, Job: jobName},
		Client: b.client(), Results: b.results, Git: parseURL(b.t, b.server.Git), AllowHTTP: true,
	}
}

func (b *bench) newLane() *gitlab.Lane {
	b.t.Helper()
	lane, err := gitlab.New(b.config())
	must(b.t, err)
	return lane
}

// open opens a request of a branch that adds a file of its name.
func (b *bench) open(branch string) *forge.MergeRequest {
	b.t.Helper()
	m, err := b.docs.OpenRequest(b.t.Context(), forge.Open{Source: branch, Change: forgesim.Change{Files: map[string]string{branch + ".md": branch + "\n"}}})
	must(b.t, err)
	return m
}

// join opens a request and puts it into the train.
func (b *bench) join(branch string) (*forge.Car, gate.Subject) {
	b.t.Helper()
	c, err := b.open(branch).JoinTrain(b.t.Context())
	must(b.t, err)
	b.cars = append(b.cars, c)
	return c, b.subject(c.Pipeline().Job(jobName))
}

// subject is what the lane admits of a job.
func (b *bench) subject(j *forge.Job) gate.Subject {
	b.t.Helper()
	s, err := b.admit(j.Claims(audience), fmt.Sprintf(`{"merge_request": %d}`, j.Request().IID()))
	must(b.t, err)
	return s
}

func (b *bench) admit(claims map[string]any, body string) (gate.Subject, error) {
	b.t.Helper()
	token, err := b.forge.Sign(claims)
	must(b.t, err)
	return b.lane.Admit(fencepost.NewHeaders([]fencepost.Header{{Name: "authorization", Value: "Bearer " + token}}), []byte(body))
}

func (b *bench) refresh(s gate.Subject) gate.Snapshot {
	b.t.Helper()
	got, err := b.lane.Refresh(b.t.Context(), s)
	must(b.t, err)
	return got
}

// wantState refreshes and holds the state against the reason. What is unproven
// has exactly one fact that is not met, of that name.
func (b *bench) wantState(s gate.Subject, want fencepost.Reason, unmet string) gate.Snapshot {
	b.t.Helper()
	got := b.refresh(s)
	if got.State != want {
		b.t.Fatalf("state %q, want %q; unmet: %v", got.State, want, unmetOf(got))
	}
	if names := strings.Join(unmetNames(got), " "); names != unmet {
		b.t.Errorf("unmet %v, want %q", unmetOf(got), unmet)
	}
	return got
}

func unmetOf(s gate.Snapshot) (unmet []gate.Fact) {
	for _, f := range s.Facts {
		if !f.Met() {
			unmet = append(unmet, f)
		}
	}
	return unmet
}

func unmetNames(s gate.Snapshot) (names []string) {
	for _, f := range unmetOf(s) {
		names = append(names, f.Name)
	}
	return names
}

// document composes the document of a verdict.
func (b *bench) document(s gate.Subject, c gate.Conclusion, revision fencepost.GateRevision) []byte {
	b.t.Helper()
	data, err := b.lane.Compose(b.verdict(s, c, revision))
	must(b.t, err)
	return data
}

func (b *bench) verdict(s gate.Subject, c gate.Conclusion, revision fencepost.GateRevision) gate.Verdict {
	b.t.Helper()
	id, err := fencepost.NewEvaluationID(repeat(7))
	must(b.t, err)
	return gate.Verdict{
		Gate: "docs", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa", Evaluation: id, Subject: s, Conclusion: c,
		Title: "3 of 3 links work", Summary: "All links work.", Artifact: "art_1", Revision: revision,
		Received: b.time(), Started: b.time(), Completed: b.time().Add(time.Second),
	}
}

// results is a shelf in memory, by the rules of package shelf.
type results struct {
	mu   sync.Mutex
	held map[fencepost.DeliveryID]shelf.Entry
	// fail, where set, is what writes end in; lost has been done all the same.
	fail error
	lost bool
}

func (r *results) Put(_ context.Context, d fencepost.DeliveryID, document []byte) error {
	return r.change(d, shelf.Entry{Document: document}, func(was shelf.Entry) error {
		if string(was.Document) != string(document) {
			return shelf.Conflict("put")
		}
		return nil
	})
}

func (r *results) End(_ context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	return r.change(d, shelf.Entry{Reason: why}, func(shelf.Entry) error { return nil })
}

func (r *results) change(d fencepost.DeliveryID, e shelf.Entry, stands func(shelf.Entry) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A result takes an end's place, and nothing a result's.
	if was, ok := r.held[d]; ok && (!was.Ended() || e.Ended()) {
		return stands(was)
	}
	if r.fail == nil || r.lost {
		r.held[d] = e
	}
	return r.fail
}

func (r *results) Get(_ context.Context, d fencepost.DeliveryID) (shelf.Entry, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.held[d]
	return e, ok, nil
}

// repeat is a source of one byte.
type repeat byte

// Read implements [io.Reader].
func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantReason(t *testing.T, err error, want fencepost.Reason) {
	t.Helper()
	if err == nil || fencepost.ReasonOf(err) != want {
		t.Fatalf("error %v with reason %q, want %q", err, fencepost.ReasonOf(err), want)
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
}

func commit(t *testing.T, s string) fencepost.CommitID {
	t.Helper()
	id, err := fencepost.ParseCommitID(s)
	must(t, err)
	return id
}

// edited is an answer of the API with a field changed, as a server would say
// it.
func edited(t *testing.T, body []byte, change func(map[string]any)) string {
	t.Helper()
	var v map[string]any
	must(t, json.Unmarshal(body, &v))
	change(v)
	out, err := json.Marshal(v)
	must(t, err)
	return string(out)
}
