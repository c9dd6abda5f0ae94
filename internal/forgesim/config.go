package forgesim

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// APIPrefix is the path below which a [Forge] serves REST calls; every other
// path is git smart HTTP. It is the prefix of GitHub Enterprise Server, since
// API and git share one host here.
const APIPrefix = "/api/v3"

// Defaults of [Config].
const (
	// DefaultTokenLife is how long an installation token lives.
	DefaultTokenLife = time.Hour
	// DefaultRateLimit is how many counted requests an hour one identity has.
	DefaultRateLimit = 5000
	// DefaultHookTimeout is how long a webhook receiver may take to answer.
	DefaultHookTimeout = 10 * time.Second
	// DefaultJournalLimit is how many exchanges the journal keeps.
	DefaultJournalLimit = 100_000
	// DefaultMergePolls is how often a pull request answers "mergeable": null
	// before the test merge is made.
	DefaultMergePolls = 1
)

// Bounds that are not configurable.
const (
	maxRequestBody  = 4 << 20
	maxGitBody      = 32 << 20
	maxHookResponse = 64 << 10
	maxJWTLife      = 10 * time.Minute
	// redeliverable is how long a delivery can be asked for again.
	redeliverable = 72 * time.Hour
	// runsPerName is how many runs of one name a suite keeps.
	runsPerName = 1000
	// suitesPerRef is how many suites a list of check runs looks into.
	suitesPerRef = 1000
)

// ErrConfig is matched by the errors of [New] about its configuration.
var ErrConfig = errors.New("forge configuration")

// A Config says what [New] makes. Dir and Now are required.
type Config struct {
	// Dir is an empty or absent directory that the forge keeps its
	// repositories in. The forge never removes it.
	Dir string
	// Now is the forge's clock.
	Now func() time.Time
	// App is the App whose gate is being tested.
	App AppConfig
	// Hostility says how the forge misbehaves within GitHub's rules. The zero
	// value is polite: every answer is current, in order and at once.
	Hostility Hostility
	// BaseURL is what links in answers and payloads begin with until
	// [Forge.Start] sets its own. Default http://forge.invalid.
	BaseURL string
	// Git is the git binary; default: git of PATH.
	Git string
	// TokenLife is the life of an installation token; default
	// [DefaultTokenLife].
	TokenLife time.Duration
	// RateLimit is the number of counted requests an hour for each identity;
	// default [DefaultRateLimit].
	RateLimit int
	// HookTimeout bounds one webhook delivery; default [DefaultHookTimeout].
	HookTimeout time.Duration
	// HookClient sends webhooks; default a client of its own that follows no
	// redirect and uses no proxy.
	HookClient *http.Client
	// JournalLimit bounds the journal; the oldest exchanges are dropped, their
	// counts stay. Default [DefaultJournalLimit].
	JournalLimit int
	// MergePolls is how many answers carry "mergeable": null after a pull
	// request's head or base moved; default [DefaultMergePolls], negative for
	// none.
	MergePolls int
	// RememberGit gives what git answered once again to equal requests for
	// commits by their ids, from memory: for measurements beside a forge that
	// answers at once.
	RememberGit bool
	// Observer, where set, sees each REST exchange that has an answer, before
	// faults lose or disfigure it. The request's URL has no [APIPrefix]. It is
	// called concurrently.
	Observer Observer
}

// An Observer is told one REST exchange; it must not keep or change its
// arguments.
type Observer func(request *http.Request, requestBody []byte, status int, header http.Header, body []byte)

// An AppConfig describes the first App of a forge. The zero value is a usable
// App.
type AppConfig struct {
	// ID is the App's id; default 12345.
	ID int64
	// ClientID is the App's client id; default made from ID.
	ClientID string
	// Slug is the App's name in URLs; default "fencepost".
	Slug string
	// Key is the App's private key; default a fresh one of 2048 bits.
	Key *rsa.PrivateKey
	// Permissions is the most that an installation of this App grants;
	// default [GatePermissions].
	Permissions Permissions
	// Events is what the App's webhook is subscribed to; default pull_request,
	// push, check_run.
	Events []string
	// HookURL is where webhooks go; empty: they stay in [Forge.Outbox].
	HookURL string
	// HookSecret signs webhooks; empty: they are unsigned, as GitHub's are.
	HookSecret []byte
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return Config{}, fmt.Errorf("%w: Dir is empty", ErrConfig)
	}
	if c.Now == nil {
		return Config{}, fmt.Errorf("%w: Now is nil", ErrConfig)
	}
	setDefault(&c.BaseURL, "http://forge.invalid")
	setDefault(&c.TokenLife, DefaultTokenLife)
	setDefault(&c.RateLimit, DefaultRateLimit)
	setDefault(&c.HookTimeout, DefaultHookTimeout)
	setDefault(&c.JournalLimit, DefaultJournalLimit)
	setDefault(&c.MergePolls, DefaultMergePolls)
	c.MergePolls = max(c.MergePolls, 0)
	setDefault(&c.App.ID, 12345)
	setDefault(&c.App.Slug, "fencepost")
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
