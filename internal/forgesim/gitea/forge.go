package gitea

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// APIPrefix is the path below which a [Forge] serves its API.
const APIPrefix = "/api/v1"

// Defaults and bounds.
const (
	// DefaultHookTimeout is how long a receiver may take to answer.
	DefaultHookTimeout = 5 * time.Second
	// pushCommits is how many commits a push shows.
	pushCommits = 5
	// maxJournal is how many requests the journal keeps.
	maxJournal      = 100_000
	maxHookResponse = 1 << 20
)

// A Config says what [New] makes. Dir and Now are required.
type Config struct {
	// Dir is an empty or absent directory that the forge keeps its
	// repositories in. The forge never removes it.
	Dir string
	// Now is the forge's clock.
	Now func() time.Time
	// Forgejo makes it a Forgejo.
	Forgejo bool
	// Version is what it says it is; default one of the kind.
	Version string
	// Seed chooses which deliveries are lost; Lose is the fraction of them.
	Seed uint64
	Lose float64
	// HookTimeout bounds one delivery; default [DefaultHookTimeout].
	HookTimeout time.Duration
	// HookClient sends webhooks; default a client of its own. The real one
	// follows redirects, with signature and events: a receiver must send none.
	HookClient *http.Client
}

// A Forge is one simulated instance.
type Forge struct {
	config Config
	under  *forgesim.Forge
	api    *http.ServeMux
	client *http.Client
	kick   chan struct{} // wakes the delivery loop; holds at most one token

	mu sync.Mutex
	// Guarded by mu:
	base         string
	rng          *rand.Rand
	repositories []*Repository
	moved        map[string]*Repository // old full name, folded
	tokens       map[string]*token
	people       map[string]account // by login, folded
	hooks        int64
	reviewed     int64
	outbox       []*Delivery
	deliveries   []*Delivery
	journal      []Request
	interfere    func(*http.Request) *Answer
	down         bool
}

// New makes an instance without repositories.
func New(ctx context.Context, config Config) (*Forge, error) {
	if config.Now == nil {
		return nil, fmt.Errorf("%w: Now is nil", forgesim.ErrConfig)
	}
	key, err := forgesim.IdleKey()
	if err != nil {
		return nil, fmt.Errorf("gitea: key of the App within: %w", err)
	}
	under, err := forgesim.New(ctx, forgesim.Config{Dir: config.Dir, Now: config.Now, App: forgesim.AppConfig{Key: key}})
	if err != nil {
		return nil, fmt.Errorf("gitea: %w", err)
	}
	if config.Version == "" {
		config.Version = "1.27.3"
		if config.Forgejo {
			config.Version = "11.0.1+gitea-1.22.0"
		}
	}
	if config.HookTimeout == 0 {
		config.HookTimeout = DefaultHookTimeout
	}
	f := &Forge{
		config: config, under: under, client: config.HookClient, kick: make(chan struct{}, 1), base: "http://gitea.invalid",
		rng: rand.New(rand.NewPCG(config.Seed, 0x6769746561)), moved: map[string]*Repository{}, tokens: map[string]*token{},
	}
	if f.client == nil {
		f.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}}
	}
	f.api = f.routes()
	return f, nil
}

// SetDown makes every request end without an answer, and holds deliveries
// back, until it is up again.
func (f *Forge) SetDown(down bool) {
	f.mu.Lock()
	f.down = down
	f.mu.Unlock()
	f.wake()
}

// An Answer is what a request gets in place of the usual.
type Answer = forgesim.Answer

// Interfere lets decide answer every request that it does not return nil for;
// a status of zero closes the connection. Nil ends it.
func (f *Forge) Interfere(decide func(*http.Request) *Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interfere = decide
}

// A Request is one entry of the journal.
type Request struct {
	Method, Path, Query string
	// By is the token's user, "anonymous" or "invalid".
	By string
	// Conditional says whether the request asked for a change alone.
	Conditional bool
}

// Journal returns what was asked for, in order.
func (f *Forge) Journal() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.journal)
}

// A token is a user's. Guarded by Forge.mu.
type token struct {
	user   string
	scopes []string
}

// NewToken makes a token of a user that reaches every repository, within its
// scopes, such as "read:repository" or "all".
func (f *Forge) NewToken(user string, scopes ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("%016x%016x%08x", f.rng.Uint64(), f.rng.Uint64(), f.rng.Uint32())
	f.tokens[text] = &token{user, slices.Clone(scopes)}
	return text
}

// RevokeToken makes a token invalid.
func (f *Forge) RevokeToken(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tokens, text)
}

// allows reports whether a scope is granted.
func (t *token) allows(area, level string) bool {
	return slices.ContainsFunc(t.scopes, func(s string) bool {
		return s == "all" || s == level+":"+area || s == "write:"+area
	})
}

// identify finds the token of a request, as the Authorization header has it:
// "token", "Bearer", or Basic with it as password or as the user's name.
// Called with mu held.
func (f *Forge) identify(r *http.Request) (t *token, invalid bool) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return nil, false
	}
	if user, password, ok := r.BasicAuth(); ok {
		if t := f.tokens[password]; t != nil {
			return t, false
		}
		if t := f.tokens[user]; t != nil && (password == "" || password == "x-oauth-basic") {
			return t, false
		}
		return nil, true
	}
	scheme, text, _ := strings.Cut(header, " ")
	if t := f.tokens[text]; t != nil && (strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		return t, false
	}
	return nil, true
}

// A Repository is one repository of a [Forge].
type Repository struct {
	forge *Forge
	under *forgesim.Repository
	door  string // the token by which Git data is read inside
	made  time.Time

	// Guarded by Forge.mu:
	private bool
	gone    bool
	updated time.Time
	hooks   []*Hook
	roles   map[string]Role // by login, folded
	rule    Rule
	pulls   []*Pull
	// settings are those that a gate looks at.
	settings Settings
	// statuses of all commits, oldest first.
	statuses []Status
}

// A Create says what [Forge.CreateRepository] makes. Owner and Name are
// required.
type Create struct {
	Owner, Name string
	// ID and OwnerID fix the immutable ids; zero: chosen.
	ID, OwnerID int64
	// Files are the first commit's on branch main: path → content. Source is a
	// local repository or directory to take instead, whose branch becomes main.
	Files  map[string]string
	Source string
	// Public repositories can be read without a token.
	Public bool
}

// CreateRepository makes a repository. It sends no webhook.
func (f *Forge) CreateRepository(ctx context.Context, c Create) (*Repository, error) {
	under, err := f.under.ImportRepository(ctx, forgesim.Import{
		Owner: c.Owner, Name: c.Name, ID: c.ID, OwnerID: c.OwnerID, Files: c.Files, Source: c.Source,
	})
	if err != nil {
		return nil, fmt.Errorf("gitea: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &Repository{forge: f, under: under, made: f.config.Now(), updated: f.config.Now(), private: !c.Public}
	// What happens inside is told by the inner forge's own hook.
	under.AddHook("", nil)
	f.under.TakeOutbox()
	if err := r.openDoor(); err != nil {
		return nil, err
	}
	f.repositories = append(f.repositories, r)
	return r, nil
}

// openDoor makes the token by which the inner forge lets its Git data be read.
func (r *Repository) openDoor() (err error) {
	r.door, err = r.under.PersonalToken("gitea", nil)
	return err
}

// ID returns the immutable id.
func (r *Repository) ID() int64 { return r.under.ID() }

// OwnerID returns the id of the present owner.
func (r *Repository) OwnerID() int64 { return r.under.OwnerID() }

// FullName returns the present owner/name.
func (r *Repository) FullName() string { return r.under.FullName() }

// Ref returns the object id of a full ref name, and "" where there is none.
func (r *Repository) Ref(name string) string { return r.under.Ref(name) }

// GitDir returns the bare repository's directory.
func (r *Repository) GitDir() string { return r.under.GitDir() }

// FreezeRefs is [forgesim.Repository.FreezeRefs].
func (r *Repository) FreezeRefs() *forgesim.InjectedFault { return r.under.FreezeRefs() }

// SetPrivate hides the repository from those without a token, or no longer.
func (r *Repository) SetPrivate(private bool) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.private, r.updated = private, r.forge.config.Now()
}

// Rename gives the repository another name. The old one redirects until
// another repository takes it.
func (r *Repository) Rename(name string) error {
	return r.move(func() error { return r.under.Rename(name) })
}

// Transfer gives the repository to another owner. The old name redirects.
func (r *Repository) Transfer(owner string) error {
	return r.move(func() error {
		if err := r.under.Transfer(owner); err != nil {
			return err
		}
		return r.openDoor()
	})
}

func (r *Repository) move(do func() error) error {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	old := r.under.FullName()
	if err := do(); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	f.moved[strings.ToLower(old)], r.updated = r, f.config.Now()
	return nil
}

// Delete removes the repository: 404 everywhere.
func (r *Repository) Delete() {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	r.gone = true
	r.under.Delete()
}

// find finds a repository by a present or an old name. Called with mu held.
func (f *Forge) find(fullName string) (r *Repository, moved bool) {
	for _, r := range f.repositories {
		if !r.gone && strings.EqualFold(r.under.FullName(), fullName) {
			return r, false
		}
	}
	if r := f.moved[strings.ToLower(fullName)]; r != nil && !r.gone {
		return r, true
	}
	return nil, false
}

// byID finds a repository by its id. Called with mu held.
func (f *Forge) byID(text string) *Repository {
	for _, r := range f.repositories {
		if !r.gone && strconv.FormatInt(r.under.ID(), 10) == text {
			return r
		}
	}
	return nil
}
