package forgesim

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A Forge is one simulated GitHub.
type Forge struct {
	config Config
	git    *gitRunner
	api    *http.ServeMux
	client *http.Client
	// kick wakes the delivery loop; it holds at most one token.
	kick chan struct{}

	mu sync.Mutex
	// Guarded by mu:
	base          string
	mood          *mood
	ids           ids
	apps          []*App
	installations []*Installation
	accounts      map[string]*account
	repositories  []*Repository
	moved         map[string]int64 // old full name, folded → repository id
	tokens        map[string]*token
	limits        map[string]*allowance
	faults        []*InjectedFault
	journal       *journal
	outbox        []*Delivery
	deliveries    []*Delivery
	answers       map[string]answer // last good answer by URL, for Stale
	down          bool
	gitAnswers    gitMemory
}

// New makes a forge with one App and no repository.
func New(ctx context.Context, config Config) (*Forge, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := emptyDir(config.Dir); err != nil {
		return nil, err
	}
	git, err := newGitRunner(ctx, config.Git, config.Dir, config.Now)
	if err != nil {
		return nil, err
	}
	f := &Forge{
		config:   config,
		git:      git,
		client:   config.HookClient,
		kick:     make(chan struct{}, 1),
		base:     config.BaseURL,
		mood:     newMood(config.Hostility),
		ids:      newIDs(),
		accounts: map[string]*account{},
		moved:    map[string]int64{},
		tokens:   map[string]*token{},
		limits:   map[string]*allowance{},
		journal:  newJournal(config.JournalLimit),
		answers:  map[string]answer{},
	}
	if f.client == nil {
		f.client = newHookClient()
	}
	f.api = f.routes()
	if _, err := f.AddApp(config.App); err != nil {
		return nil, err
	}
	return f, nil
}

// emptyDir makes dir, or finds it empty.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("forge directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("forge directory: %w", err)
	}
	if len(entries) != 0 {
		return fmt.Errorf("%w: directory %s is not empty", ErrConfig, filepath.Base(dir))
	}
	return nil
}

// App returns the App of [Config.App].
func (f *Forge) App() *App {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.apps[0]
}

func (f *Forge) now() time.Time { return f.config.Now() }

// apiURL returns the URL of a REST path. Called with mu held.
func (f *Forge) apiURL(format string, args ...any) string {
	return f.base + APIPrefix + fmt.Sprintf(format, args...)
}

// webURL returns the URL of a page for people. Called with mu held.
func (f *Forge) webURL(format string, args ...any) string {
	return f.base + fmt.Sprintf(format, args...)
}

// ids hands out the numbers that name things. Those that are above 2^31 at
// GitHub are so here, and delivery ids are above 2^53, so that a client that
// takes one for a float is found out. Guarded by Forge.mu.
type ids struct {
	account, repository, installation, pull, run, suite, status, delivery, ruleset, hook int64
}

func newIDs() ids {
	return ids{
		account:      1_000,
		repository:   1_296_268,
		installation: 52_000_000,
		pull:         2_400_000_000,
		run:          41_000_000_000,
		suite:        35_000_000_000,
		status:       29_000_000_000,
		delivery:     1<<53 + 1_000,
		ruleset:      7_000_000,
		hook:         480_000_000,
	}
}

func next(id *int64) int64 {
	*id++
	return *id
}
