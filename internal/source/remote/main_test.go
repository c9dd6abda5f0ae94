package remote_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
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
		t.Fatalf("reason %q, want %q: %v", got, want, err)
	}
}

// onGitHub is the identity and the comparison of one repository at GitHub, as
// whoever wires a source makes them.
type onGitHub struct {
	client *github.Client
	repo   github.Repository
}

func (g onGitHub) Identity(ctx context.Context) (remote.Facts, error) {
	f, err := g.client.RepositoryFacts(ctx, g.repo)
	return remote.Facts{ID: f.ID, OwnerID: f.OwnerID, FullName: f.FullName, Private: f.Private}, err
}

func (g onGitHub) Ancestry(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	how, err := g.client.Compare(ctx, g.repo, head, other)
	return map[github.Comparison]source.Ancestry{
		github.Identical: source.Same, github.Ahead: source.Ahead, github.Behind: source.Behind,
		github.Diverged: source.Apart, github.NotComparable: source.Unknown,
	}[how], err
}

// A bench is one source at a simulated GitHub. Every exchange with the API is
// held against GitHub's description.
type bench struct {
	t      *testing.T
	forge  *forgesim.Forge
	repo   *forgesim.Repository
	inst   *forgesim.Installation
	person string // the personal token, if it is with one
	config remote.Config
	remote *remote.Remote
	now    *clock
}

// A clock stands still unless it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

type option func(*bench)

// withToken reads by a personal token in place of an App.
func withToken(b *bench) { b.person = "wanted" }

func newBench(t *testing.T, options ...option) *bench {
	t.Helper()
	b := &bench{t: t, now: &clock{t: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	for _, o := range options {
		o(b)
	}
	var err error
	b.forge, err = forgesim.New(t.Context(), forgesim.Config{
		Dir: filepath.Join(t.TempDir(), "forge"), Now: b.now.Now, Observer: observer(t), App: forgesim.AppConfig{Key: appKey()},
	})
	must(t, err)
	b.repo, err = b.forge.ImportRepository(t.Context(), forgesim.Import{
		Owner: "acme", Name: "handbook", Files: map[string]string{"docs/a.md": "a\n", "src/x.go": "package x\n"},
	})
	must(t, err)
	b.inst, err = b.forge.App().Install(b.repo)
	must(t, err)
	server, err := b.forge.Start(t.Context(), forgesim.ManualDelivery())
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	client := b.client(server)
	t.Cleanup(client.Close)
	shared := gitfetch.NewTransport(gitfetch.TransportOptions{})
	t.Cleanup(shared.Close)
	at := onGitHub{client, github.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), Name: "acme/handbook"}}
	b.config = remote.Config{
		Repository: remote.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), FullName: "acme/handbook", Visibility: remote.Private},
		Ref:        "refs/heads/main", Git: parseURL(t, server.Git), AllowHTTP: true,
		Credential: func(ctx context.Context) (string, fencepost.Secret, error) { return client.GitCredential(ctx, at.repo) },
		Identity:   at, Ancestries: []remote.Ancestry{at}, Transport: shared, Now: b.now.Now,
	}
	b.remote = b.make(b.config)
	return b
}

func (b *bench) make(c remote.Config) *remote.Remote {
	b.t.Helper()
	r, err := remote.New(c)
	must(b.t, err)
	return r
}

func (b *bench) client(server *forgesim.Server) *github.Client {
	b.t.Helper()
	config := github.ClientConfig{
		API: parseURL(b.t, server.API), AllowHTTP: true, Now: b.now.Now,
		Limits: github.Limits{ReadPause: time.Millisecond, ReadAttempts: 1, MaxRateLimitWait: -1},
	}
	if b.person != "" {
		var err error
		b.person, err = b.repo.PersonalToken("mona", nil)
		must(b.t, err)
		config.Token = func(context.Context) (fencepost.Secret, error) {
			return fencepost.NewSecret([]byte(b.person)), nil
		}
	} else {
		key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(appKey())})
		config.App = github.App{
			ID: b.forge.App().ID(), Installation: b.inst.ID(),
			Key: func(context.Context) (fencepost.Secret, error) {
				return fencepost.NewSecret(append([]byte(nil), key...)), nil
			},
		}
	}
	client, err := github.NewClient(config)
	must(b.t, err)
	return client
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

// push changes the branch and returns its new head.
func (b *bench) push(p forgesim.Push) fencepost.CommitID {
	b.t.Helper()
	if p.To == "" && len(p.Change.Files) == 0 {
		p.Change.Files = map[string]string{"docs/a.md": strings.Repeat("b", len(b.repo.Refs())) + b.repo.Ref("refs/heads/main")}
	}
	id, err := b.repo.Push(b.t.Context(), p)
	must(b.t, err)
	return commit(b.t, id)
}

func (b *bench) head() fencepost.CommitID {
	b.t.Helper()
	return commit(b.t, b.repo.Ref("refs/heads/main"))
}

func commit(t *testing.T, s string) fencepost.CommitID {
	t.Helper()
	id, err := fencepost.ParseCommitID(s)
	must(t, err)
	return id
}

func (b *bench) observe() source.Observation {
	b.t.Helper()
	o, err := b.remote.Observe(b.t.Context())
	must(b.t, err)
	return o
}
