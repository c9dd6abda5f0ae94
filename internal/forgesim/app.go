package forgesim

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// IdleKey is one key for the Apps of all forges in which nobody speaks as the
// App: making one takes longer than most tests.
var IdleKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Permissions are an App's: name of the permission → "read" or "write". What
// is not in the map is not granted.
type Permissions map[string]string

// GatePermissions are the least that a gate needs (DESIGN §8): metadata,
// contents, pull_requests and statuses read, checks write.
func GatePermissions() Permissions {
	return Permissions{
		"metadata": "read", "contents": "read", "pull_requests": "read", "statuses": "read", "checks": "write",
	}
}

// allows reports whether p grants level ("read" or "write") of name.
func (p Permissions) allows(name, level string) bool {
	return p[name] == "write" || p[name] == level
}

// A GitHub App. Its exported methods are safe for concurrent use.
type App struct {
	forge    *Forge
	id       int64
	clientID string
	slug     string
	key      *rsa.PrivateKey
	created  time.Time
	owner    *account

	// Guarded by forge.mu:
	permissions Permissions
	events      []string
	hook        hook
}

// A hook is an App's webhook configuration. Guarded by Forge.mu.
type hook struct {
	id          int64
	url         string
	secret      []byte
	contentType string
	insecureSSL string
}

// AddApp makes another App: one whose runs and statuses are foreign to the
// first. IDs must differ.
func (f *Forge) AddApp(config AppConfig) (*App, error) {
	if config.ID == 0 || config.Slug == "" {
		return nil, fmt.Errorf("%w: an App needs an id and a slug", ErrConfig)
	}
	setDefault(&config.ClientID, fmt.Sprintf("Iv23forge%011d", config.ID))
	if config.Key == nil {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, fmt.Errorf("App key: %w", err)
		}
		config.Key = key
	}
	if config.Permissions == nil {
		config.Permissions = GatePermissions()
	}
	if config.Events == nil {
		config.Events = []string{"pull_request", "push", "check_run"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.apps {
		if a.id == config.ID || a.slug == config.Slug || a.clientID == config.ClientID {
			return nil, fmt.Errorf("%w: two Apps with one id, client id or slug", ErrConfig)
		}
	}
	a := &App{
		forge:       f,
		id:          config.ID,
		clientID:    config.ClientID,
		slug:        config.Slug,
		key:         config.Key,
		created:     f.now(),
		owner:       f.account("app-owner", "Organization", 0),
		permissions: maps.Clone(config.Permissions),
		events:      slices.Clone(config.Events),
		hook: hook{
			id: next(&f.ids.hook), url: config.HookURL, secret: slices.Clone(config.HookSecret),
			contentType: "json", insecureSSL: "0",
		},
	}
	f.apps = append(f.apps, a)
	return a, nil
}

// ID returns the App's id, the integration_id of rulesets.
func (a *App) ID() int64 { return a.id }

// ClientID returns the App's client id.
func (a *App) ClientID() string { return a.clientID }

// Slug returns the App's name in URLs.
func (a *App) Slug() string { return a.slug }

// Key returns the App's private key.
func (a *App) Key() *rsa.PrivateKey { return a.key }

// KeyPEM returns the App's private key as PKCS#1 PEM, as GitHub hands it out.
func (a *App) KeyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(a.key)})
}

// SetHook changes where webhooks go and what signs them. Deliveries that were
// made before and are not sent yet use the new values, as at GitHub.
func (a *App) SetHook(url string, secret []byte) {
	a.forge.mu.Lock()
	defer a.forge.mu.Unlock()
	a.hook.url = url
	a.hook.secret = slices.Clone(secret)
	a.forge.wake()
}

// An Installation is an App on an account, with the repositories it reaches.
type Installation struct {
	forge   *Forge
	id      int64
	app     *App
	account *account
	created time.Time

	// Guarded by forge.mu:
	permissions  Permissions
	repositories map[int64]bool
	suspended    bool
	removed      bool
}

// ErrOwners: the repositories of one installation belong to one account.
var ErrOwners = errors.New("repositories of several owners")

// Install puts the App on the owner of repositories and lets it reach them. A
// second call for the same owner widens the one installation.
func (a *App) Install(repositories ...*Repository) (*Installation, error) {
	f := a.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(repositories) == 0 {
		return nil, fmt.Errorf("install App %d: no repository", a.id)
	}
	owner := repositories[0].owner
	for _, r := range repositories {
		if r.owner != owner {
			return nil, fmt.Errorf("install App %d: %w", a.id, ErrOwners)
		}
	}
	i := f.installationOn(a, owner)
	if i == nil {
		i = &Installation{
			forge:        f,
			id:           next(&f.ids.installation),
			app:          a,
			account:      owner,
			created:      f.now(),
			permissions:  maps.Clone(a.permissions),
			repositories: map[int64]bool{},
		}
		f.installations = append(f.installations, i)
	}
	for _, r := range repositories {
		i.repositories[r.id] = true
	}
	return i, nil
}

// ID returns the installation's id.
func (i *Installation) ID() int64 { return i.id }

// Remove takes a repository out of the installation's reach.
func (i *Installation) Remove(r *Repository) {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	delete(i.repositories, r.id)
}

// SetPermissions changes what the installation grants, also through tokens
// that were issued before.
func (i *Installation) SetPermissions(p Permissions) {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	i.permissions = maps.Clone(p)
}

// Suspend switches the installation off, or on again.
func (i *Installation) Suspend(off bool) {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	i.suspended = off
}

// Uninstall takes the App off the account: the installation is gone, and its
// tokens with it.
func (i *Installation) Uninstall() {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	i.removed = true
	i.forge.installations = slices.DeleteFunc(i.forge.installations, func(have *Installation) bool { return have == i })
	maps.DeleteFunc(i.forge.tokens, func(_ string, t *token) bool { return t.installation == i })
}

// installationOn is called with mu held.
func (f *Forge) installationOn(a *App, owner *account) *Installation {
	for _, i := range f.installations {
		if i.app == a && i.account == owner {
			return i
		}
	}
	return nil
}

// installationFor finds the App's installation that reaches r. Called with mu
// held.
func (f *Forge) installationFor(a *App, r *Repository) *Installation {
	if i := f.installationOn(a, r.owner); i != nil && i.repositories[r.id] {
		return i
	}
	return nil
}

// An account is a user or an organization. Immutable.
type account struct {
	id    int64
	login string
	kind  string // "User" or "Organization"
}

// account finds or makes the account of a login. Called with mu held.
func (f *Forge) account(login, kind string, id int64) *account {
	folded := strings.ToLower(login)
	if a, ok := f.accounts[folded]; ok {
		return a
	}
	if id == 0 {
		id = next(&f.ids.account)
	}
	a := &account{id: id, login: login, kind: kind}
	f.accounts[folded] = a
	return a
}
