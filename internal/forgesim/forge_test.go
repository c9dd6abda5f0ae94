package forgesim_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
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

// A clock is set by hand.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// A bench is a forge with one repository that its App is installed on.
type bench struct {
	t     *testing.T
	clock *clock
	forge *forgesim.Forge
	repo  *forgesim.Repository
	inst  *forgesim.Installation
	http  *http.Client
	token string
}

// newBench makes a bench whose every exchange is held against GitHub's
// description.
func newBench(t *testing.T, change ...func(*forgesim.Config)) *bench {
	t.Helper()
	spec := githubspec.Load(t)
	b := &bench{t: t, clock: newClock()}
	config := forgesim.Config{
		Dir: filepath.Join(t.TempDir(), "forge"), Now: b.clock.Now, Observer: spec.Observer(t),
		App: forgesim.AppConfig{Key: appKey()},
	}
	for _, c := range change {
		c(&config)
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
	b.http = &http.Client{
		Transport:     b.forge.RoundTripper(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	b.token = b.inst.Token(b.repo)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reply is an answer read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// object reads the body as an object.
func (r reply) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(r.body, &o); err != nil {
		t.Fatalf("answer %d %q: %v", r.status, r.body, err)
	}
	return o
}

// list reads the body as a list of objects.
func (r reply) list(t *testing.T) []map[string]any {
	t.Helper()
	var l []map[string]any
	if err := json.Unmarshal(r.body, &l); err != nil {
		t.Fatalf("answer %d %q: %v", r.status, r.body, err)
	}
	return l
}

// ask sends a request and reads the answer.
func (b *bench) ask(method, path, credential, body string, header ...string) (reply, error) {
	b.t.Helper()
	if !strings.Contains(path, "://") {
		path = "http://forge.invalid" + forgesim.APIPrefix + path
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(body))
	must(b.t, err)
	request.Header.Set("User-Agent", "test")
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	if credential != "" {
		request.Header.Set("Authorization", "Bearer "+credential)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return do(b.http, request)
}

func do(client *http.Client, request *http.Request) (reply, error) {
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, text}, err
}

// get asks with the installation token and wants 200.
func (b *bench) get(path string) reply {
	b.t.Helper()
	return b.want(http.StatusOK, "GET", path, "")
}

// want asks with the installation token and wants a status.
func (b *bench) want(status int, method, path, body string) reply {
	b.t.Helper()
	return b.wantAs(b.token, status, method, path, body)
}

// wantAs asks with a credential and wants a status.
func (b *bench) wantAs(credential string, status int, method, path, body string, header ...string) reply {
	b.t.Helper()
	r, err := b.ask(method, path, credential, body, header...)
	must(b.t, err)
	if r.status != status {
		b.t.Fatalf("%s %s answered %d %s, want %d", method, path, r.status, r.body, status)
	}
	return r
}

// jwt signs the App's claims as a careful client does.
func (b *bench) jwt() string {
	b.t.Helper()
	now := b.clock.Now()
	return b.sign(jwt.SigningMethodRS256, appKey(), jwt.MapClaims{
		"iss": b.forge.App().ClientID(), "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(9 * time.Minute).Unix(),
	})
}

func (b *bench) sign(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	b.t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	must(b.t, err)
	return text
}

// open opens a request that adds one file.
func (b *bench) open(head string) *forgesim.PullRequest {
	b.t.Helper()
	pr, err := b.repo.OpenPullRequest(b.t.Context(), forgesim.OpenPull{Head: head, Change: files(head + ".md")})
	must(b.t, err)
	return pr
}

// files is a change that writes each path.
func files(paths ...string) forgesim.Change {
	c := forgesim.Change{Files: map[string]string{}}
	for _, path := range paths {
		c.Files[path] = path + "\n"
	}
	return c
}

// createRun is the body that makes a completed run.
func createRun(name, head, external string) string {
	return fmt.Sprintf(`{"name":%q,"head_sha":%q,"external_id":%q,"status":"completed","conclusion":"success",`+
		`"output":{"title":"Passed","summary":"All is well."}}`, name, head, external)
}

// pollPull asks for a request until its test merge is known.
func (b *bench) pollPull(pr *forgesim.PullRequest) map[string]any {
	b.t.Helper()
	for range 10 {
		if o := b.get(fmt.Sprintf("/repos/acme/docs/pulls/%d", pr.Number())).object(b.t); o["mergeable"] != nil {
			return o
		}
	}
	b.t.Fatal("mergeable is null for ever")
	return nil
}

// git runs git in the test's own directory.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t.Context(), dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}
