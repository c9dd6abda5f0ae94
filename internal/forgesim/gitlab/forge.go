package gitlab

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// APIPrefix is the path below which a [Forge] serves its API.
const APIPrefix = "/api/v4"

// Defaults and bounds.
const (
	// DefaultHookTimeout is how long a receiver may take to answer.
	DefaultHookTimeout = 10 * time.Second
	// maxJournal is how many requests the journal keeps.
	maxJournal      = 100_000
	maxHookResponse = 1 << 20
	maxRequestBody  = 1 << 20
)

// A Version is that of an instance. Older ones lack fields and claims.
type Version struct{ Major, Minor int }

// before reports whether v is older than a version of the contract.
func (v Version) before(major, minor int) bool {
	return v.Major < major || v.Major == major && v.Minor < minor
}

// String writes it as the instance does.
func (v Version) String() string { return fmt.Sprintf("%d.%d.0-ee", v.Major, v.Minor) }

// A Config says what [New] makes. Dir and Now are required.
type Config struct {
	// Dir is an empty or absent directory that the forge keeps its
	// repositories in. The forge never removes it.
	Dir string
	// Now is the forge's clock.
	Now func() time.Time
	// Version is what it is; default 19.4.
	Version Version
	// Seed chooses ids of events, tokens, and which deliveries are lost; Lose
	// is the fraction of them.
	Seed uint64
	Lose float64
	// Key is the first signing key, of 2048 bits or more; default a fresh one,
	// made when it is first needed.
	Key *rsa.PrivateKey
	// HookTimeout bounds one delivery; default [DefaultHookTimeout].
	HookTimeout time.Duration
	// HookClient sends webhooks; default a client of its own.
	HookClient *http.Client
}

// A Forge is one simulated instance. Close it.
type Forge struct {
	config Config
	under  *forgesim.Forge
	api    *http.ServeMux
	client *http.Client
	kick   chan struct{} // wakes the delivery loop; holds at most one token
	ctx    context.Context
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	mu sync.Mutex
	// Guarded by mu:
	base       string
	rng        *rand.Rand
	ids        ids
	projects   []*Project
	moved      map[string]*Project // old path, folded
	namespaces map[string]*namespace
	tokens     map[string]*token
	people     map[string]Account
	keys       []*signingKey
	onJob      func(context.Context, *Job) error
	lag        int
	outbox     []*Delivery
	deliveries []*Delivery
	journal    []Request
	interfere  func(*http.Request) *Answer
	down       bool
	gitRefused int
	closed     bool
}

// ids are the last of each kind.
type ids struct {
	project, namespace, request, pipeline, job, car, hook, event, user int64
}

// New makes an instance without projects, with one signing key.
func New(ctx context.Context, config Config) (*Forge, error) {
	if config.Now == nil {
		return nil, fmt.Errorf("%w: Now is nil", forgesim.ErrConfig)
	}
	key, err := forgesim.IdleKey()
	if err != nil {
		return nil, fmt.Errorf("gitlab: key of the App within: %w", err)
	}
	under, err := forgesim.New(ctx, forgesim.Config{Dir: config.Dir, Now: config.Now, App: forgesim.AppConfig{Key: key}})
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	if config.Version == (Version{}) {
		config.Version = Version{19, 4}
	}
	if config.HookTimeout == 0 {
		config.HookTimeout = DefaultHookTimeout
	}
	f := &Forge{
		config: config, under: under, client: config.HookClient, kick: make(chan struct{}, 1), base: "http://gitlab.invalid",
		rng:   rand.New(rand.NewPCG(config.Seed, 0x6769746c6162)),
		moved: map[string]*Project{}, namespaces: map[string]*namespace{}, tokens: map[string]*token{}, people: map[string]Account{},
		// Apart from each other, so that no id passes for one of another kind.
		ids: ids{project: 19, namespace: 71, request: 5_000, pipeline: 573, job: 301, car: 2_000, hook: 800, event: 90_000, user: 6_999},
	}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if f.client == nil {
		f.client = &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute},
			// A redirect is a failed delivery. Standard Webhooks
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	f.api = f.routes()
	if config.Key != nil {
		f.addKey(config.Key)
	}
	return f, nil
}

// Close ends the jobs under way and waits for them. A [Server] is closed
// before.
func (f *Forge) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.jobs.Wait()
	f.client.CloseIdleConnections()
	return nil
}

// URL is the instance's root, which is the issuer of its tokens.
func (f *Forge) URL() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.base
}

// SetDown makes every request end without an answer, and holds deliveries
// back, until it is up again.
func (f *Forge) SetDown(down bool) {
	f.mu.Lock()
	f.down = down
	f.mu.Unlock()
	f.wake()
}

// A Request is one entry of the journal.
type Request struct {
	Method, Path, Query string
	// By is the token's user, "anonymous" or "invalid".
	By string
}

// Journal returns what was asked for, in order.
func (f *Forge) Journal() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.journal)
}

// A Level is what a token's user may do, as access_level says it.
type Level int

// The levels.
const (
	Reporter   Level = 20
	Developer  Level = 30
	Maintainer Level = 40
	Owner      Level = 50
)

// A token is a user's. Guarded by Forge.mu.
type token struct {
	user   string
	level  Level
	scopes []string
	// job is set where it is a job's own.
	job *Job
}

// NewToken makes a token of a user that has a level in every project, within
// its scopes: "api", "read_api", "read_repository".
func (f *Forge) NewToken(user string, level Level, scopes ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("glpat-%016x%08x", f.rng.Uint64(), f.rng.Uint32())
	f.tokens[text] = &token{user: user, level: level, scopes: slices.Clone(scopes)}
	return text
}

// RevokeToken makes a token invalid.
func (f *Forge) RevokeToken(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tokens, text)
}

// allows reports whether one of the scopes is granted.
func (t *token) allows(scopes ...string) bool {
	return slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(t.scopes, s) })
}

// identify finds the token of a request of the API or of git. Called with mu
// held.
func (f *Forge) identify(r *http.Request) (t *token, invalid bool) {
	text := r.Header.Get("PRIVATE-TOKEN")
	if scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " "); text == "" && ok && strings.EqualFold(scheme, "bearer") {
		text = bearer
	}
	user, password, basic := r.BasicAuth()
	if text == "" && basic {
		text = password
	}
	if text == "" {
		return nil, r.Header.Get("Authorization") != ""
	}
	t = f.tokens[text]
	switch {
	case t == nil:
		return nil, true
	case basic && user == "", t.job != nil && (user != "gitlab-ci-token" || t.job.ended):
		return nil, true
	}
	return t, false
}

// An Account is a user.
type Account struct {
	ID    int64
	Login string
}

// Account is the user of a name, made when it is first named.
func (f *Forge) Account(login string) Account {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.account(login)
}

// account is called with mu held.
func (f *Forge) account(login string) Account {
	if login == "" {
		login = forgesim.DefaultActor
	}
	key := strings.ToLower(login)
	a, ok := f.people[key]
	if !ok {
		f.ids.user++
		a = Account{ID: f.ids.user, Login: login}
		f.people[key] = a
	}
	return a
}

// user is an account as the API shows it. Called with mu held.
func (f *Forge) user(login string) object {
	a := f.account(login)
	return object{
		"id": a.ID, "username": a.Login, "name": a.Login, "state": "active", "locked": false, "public_email": "",
		"avatar_url": nil, "web_url": f.base + "/" + a.Login,
	}
}

// uuid makes an id of an event, a message or a token. Called with mu held.
func (f *Forge) uuid() string {
	a, b := f.rng.Uint64(), f.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffff_ffff_ffff)
}

// stamp is how the API writes times.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

var errClosed = errors.New("gitlab: the forge is closed")
