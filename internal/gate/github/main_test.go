package github_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// appKey is made once: 2048 bits take a while.
var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func pkcs1(key *rsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

func keyOf(pemBytes []byte) func(context.Context) (fencepost.Secret, error) {
	return func(context.Context) (fencepost.Secret, error) {
		return fencepost.NewSecret(append([]byte(nil), pemBytes...)), nil
	}
}

// quick are limits that keep tests short without changing what is decided.
func quick() github.Limits {
	return github.Limits{
		ReadPause: time.Millisecond, WriteInterval: -1, VisiblePause: time.Millisecond,
		NotYetVisible: 30 * time.Millisecond, MaxRateLimitWait: -1, RequestTimeout: 5 * time.Second,
	}
}

const check = "fencepost/docs"

// A bench is a gate on a simulated forge. Every exchange is held against
// GitHub's description.
type bench struct {
	t     *testing.T
	forge *forgesim.Forge
	repo  *forgesim.Repository
	inst  *forgesim.Installation
	rules int64
	lane  *github.Lane
}

func newBench(t *testing.T, change ...func(*forgesim.Config, *github.Limits)) *bench {
	t.Helper()
	b := &bench{t: t}
	config := forgesim.Config{
		Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now, MergePolls: 1,
		Observer: observer(t), App: forgesim.AppConfig{Key: appKey()},
	}
	limits := quick()
	for _, c := range change {
		c(&config, &limits)
	}
	var err error
	b.forge, err = forgesim.New(t.Context(), config)
	must(t, err)
	b.repo, err = b.forge.ImportRepository(t.Context(), forgesim.Import{
		Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"},
	})
	must(t, err)
	b.inst, err = b.forge.App().Install(b.repo)
	must(t, err)
	b.rules = b.repo.AddRuleset(forgesim.RequireCheck(check, b.forge.App().ID()))
	b.lane = b.newLane(limits)
	return b
}

// observer holds every exchange against GitHub's description, which leaves out
// that any conditional read may be answered 304 (contracts/github.md §5).
func observer(t *testing.T) forgesim.Observer {
	hold := githubspec.Load(t).Client(t)
	return func(r *http.Request, requestBody []byte, status int, header http.Header, body []byte) {
		if status == http.StatusNotModified && r.Header.Get("If-None-Match") != "" && len(body) == 0 {
			return
		}
		hold(r, requestBody, status, header, body)
	}
}

func (b *bench) newLane(limits github.Limits) *github.Lane {
	b.t.Helper()
	return b.newLaneOver(b.forge.RoundTripper(), limits)
}

func (b *bench) newLaneOver(transport http.RoundTripper, limits github.Limits) *github.Lane {
	b.t.Helper()
	client, err := github.NewClient(github.ClientConfig{
		API: parseURL(b.t, "http://forge.invalid/api/v3"), AllowHTTP: true,
		App:       github.App{ID: b.forge.App().ID(), Installation: b.inst.ID(), Key: keyOf(pkcs1(appKey()))},
		Transport: transport, Limits: limits, Now: time.Now,
	})
	must(b.t, err)
	lane, err := github.NewLane(client, github.LaneConfig{
		Gate:       "docs",
		Repository: github.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), Name: "acme/docs"},
		BaseRef:    "refs/heads/main", Check: check,
		Git: parseURL(b.t, "http://forge.invalid"), AllowHTTP: true,
	})
	must(b.t, err)
	return lane
}

// open opens a pull request and returns what its event asks for.
func (b *bench) open(o forgesim.OpenPull) (*forgesim.PullRequest, gate.Subject) {
	b.t.Helper()
	if o.Head == "" {
		o.Head, o.Change = "change", forgesim.Change{Files: map[string]string{"a.md": "text\n"}}
	}
	pr, err := b.repo.OpenPullRequest(b.t.Context(), o)
	must(b.t, err)
	return pr, subjectOf(b.t, pr)
}

func subjectOf(t *testing.T, pr *forgesim.PullRequest) gate.Subject {
	t.Helper()
	head, err := fencepost.ParseCommitID(pr.Head())
	must(t, err)
	return gate.Subject{Number: int64(pr.Number()), Head: head, BaseRef: "refs/heads/main"}
}

func (b *bench) refresh(s gate.Subject) gate.Snapshot {
	b.t.Helper()
	got, err := b.lane.Refresh(b.t.Context(), s)
	must(b.t, err)
	return got
}

// verdict is a pass for a snapshot.
func verdict(s gate.Subject, snap gate.Snapshot) gate.Verdict {
	now := time.Date(2026, 11, 30, 12, 0, 0, 5, time.UTC)
	return gate.Verdict{
		Gate: "docs", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa", Evaluation: fencepost.EvaluationID{1, 2, 3},
		Subject: s, Conclusion: gate.Pass, Title: "All links lead somewhere", Summary: "2 files, 0 broken links",
		Artifact: "art_x", Revision: snap.Revision, Received: now, Started: now, Completed: now.Add(time.Second),
	}
}

func (b *bench) compose(v gate.Verdict) []byte {
	b.t.Helper()
	document, err := b.lane.Compose(v)
	must(b.t, err)
	return document
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
}

func wantReason(t *testing.T, err error, want fencepost.Reason) {
	t.Helper()
	if got := fencepost.ReasonOf(err); got != want {
		t.Fatalf("error %v has reason %q, want %q", err, got, want)
	}
}

// wantClean fails where an error's text holds anything that belongs nowhere.
func wantClean(t *testing.T, err error, secrets ...string) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, s := range secrets {
			if strings.Contains(err.Error(), s) {
				t.Errorf("error text %q holds %q", err.Error(), s)
			}
		}
	}
}

func fixedNow() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()
	u, err := url.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}
