package gitfetch

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/clock"
)

// TransportOptions bound a [Transport]. Zero fields mean the defaults.
type TransportOptions struct {
	// ConnsPerHost is the most connections to one host and port; what needs one
	// more waits, within its own budgets. Default 16.
	ConnsPerHost int
	// IdleTime is how long a connection is kept that nobody uses. Default 2 m 30 s.
	IdleTime time.Duration
	// Remember is how many repositories' capabilities are kept, and
	// RememberFor how long: until then no request asks for them again.
	// Default 20,000 and 30 min.
	Remember    int
	RememberFor time.Duration
	// Now is read for RememberFor alone; nil means this machine's clock.
	Now func() time.Time
}

// A Transport keeps connections between fetches, and what servers said they
// can do. It is for many repositories that are looked at again and again: an
// [LsRefs] of one that was seen lately is one exchange on an open connection.
//
// Connections are shared only by requests that agree in AllowHTTP,
// AllowPrivate, RootCAs and the connect budget, so that none gets one which its
// own rules would not have made. Credentials are with requests and never with
// a connection. What was redirected is not remembered. Safe for concurrent use.
type Transport struct {
	opts    TransportOptions
	servers servers

	users sync.WaitGroup // requests under way
	dials sync.WaitGroup

	mu      sync.Mutex
	closed  bool                             // guarded by mu: nothing more enters
	ended   bool                             // guarded by mu: nothing more dials
	pools   map[poolKey]*http.Transport      // guarded by mu
	dialing map[*context.CancelFunc]struct{} // guarded by mu
}

// A poolKey is what requests that share connections agree in.
type poolKey struct {
	http, private bool
	roots         *x509.CertPool
	connect       time.Duration
}

// NewTransport returns an empty transport. Its fields below zero are taken for
// zero.
func NewTransport(opts TransportOptions) *Transport {
	const (
		conns       = 16
		idle        = 150 * time.Second
		remember    = 20_000
		rememberFor = 30 * time.Minute
	)
	if opts.ConnsPerHost <= 0 {
		opts.ConnsPerHost = conns
	}
	if opts.IdleTime <= 0 {
		opts.IdleTime = idle
	}
	if opts.Remember <= 0 {
		opts.Remember = remember
	}
	if opts.RememberFor <= 0 {
		opts.RememberFor = rememberFor
	}
	if opts.Now == nil {
		opts.Now = clock.System().Now
	}
	return &Transport{
		opts:    opts,
		servers: servers{most: opts.Remember, keep: opts.RememberFor, now: opts.Now, seen: make(map[string]server)},
		pools:   make(map[poolKey]*http.Transport),
		dialing: make(map[*context.CancelFunc]struct{}),
	}
}

// enter counts a request in, until leave.
func (tr *Transport) enter() (leave func(), err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.closed {
		return nil, fmt.Errorf("%w: transport is closed", ErrRequest)
	}
	tr.users.Add(1)
	return tr.users.Done, nil
}

// Close waits for the requests under way and closes all connections. What is
// begun with the transport after that matches [ErrRequest].
func (tr *Transport) Close() {
	tr.mu.Lock()
	tr.closed = true
	tr.mu.Unlock()
	tr.users.Wait()
	tr.mu.Lock()
	tr.ended = true
	for cancel := range tr.dialing {
		(*cancel)()
	}
	tr.mu.Unlock()
	tr.dials.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	// A dial that was under way may have left its connection.
	for _, pool := range tr.pools {
		pool.CloseIdleConnections()
	}
}

// maxPools is how many kinds of requests share connections. Those of further
// kinds have connections of their own.
const maxPools = 64

// pool returns the connections that t may use, or nil.
func (tr *Transport) pool(t *target) *http.Transport {
	key := poolKey{http: t.AllowHTTP, private: t.AllowPrivate, roots: t.RootCAs, connect: t.Budgets.Connect}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if rt := tr.pools[key]; rt != nil {
		return rt
	}
	if len(tr.pools) >= maxPools {
		return nil
	}
	rules := &target{Request: Request{AllowHTTP: key.http, AllowPrivate: key.private, RootCAs: key.roots}}
	rules.Budgets.Connect = key.connect
	rt := (&dialer{t: rules}).transport(tr.opts.ConnsPerHost, tr.bind)
	rt.IdleConnTimeout = tr.opts.IdleTime
	tr.pools[key] = rt
	return rt
}

// bind makes a dial end with the transport.
func (tr *Transport) bind(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.ended {
		cancel()
		return ctx, cancel
	}
	tr.dials.Add(1)
	tr.dialing[&cancel] = struct{}{}
	return ctx, func() {
		cancel()
		tr.mu.Lock()
		delete(tr.dialing, &cancel)
		tr.mu.Unlock()
		tr.dials.Done()
	}
}

// servers remembers what repositories' servers can do.
type servers struct {
	most int
	keep time.Duration
	now  func() time.Time

	mu   sync.Mutex
	seen map[string]server // guarded by mu; by URL
}

type server struct {
	caps  capabilities
	until time.Time
}

func (s *servers) get(url string) (capabilities, bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.seen[url]
	if !ok || !s.now().Before(k.until) {
		return nil, false
	}
	return k.caps, true
}

func (s *servers) put(url string, caps capabilities) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[url]; !known && len(s.seen) >= s.most {
		// Any one: the order of a map is as good as chance, and whoever is
		// forgotten is asked once more.
		for other := range s.seen {
			delete(s.seen, other)
			break
		}
	}
	s.seen[url] = server{caps: caps, until: s.now().Add(s.keep)}
}

func (s *servers) forget(url string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, url)
}

// converse has ask begin an exchange with what the server can do: as
// remembered, or from a first request. Where what was remembered may be why it
// went wrong, it is asked once more with what is true now.
func (c *client) converse(ctx context.Context, ask func(capabilities) error) error {
	url := c.t.base.String()
	if caps, ok := c.known.get(url); ok {
		err := ask(caps)
		if err == nil || !perhapsOutdated(err) {
			return err
		}
		c.known.forget(url)
	}
	caps, err := c.discover(ctx)
	if err != nil {
		return err
	}
	if c.base == c.t.base {
		c.known.put(url, caps)
	}
	return ask(caps)
}

// perhapsOutdated reports whether an answer may be that of a server which has
// moved, or can do other things than it could.
func perhapsOutdated(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return errors.Is(status, ErrNotFound) || errors.Is(status, ErrRedirect)
	}
	return errors.Is(err, ErrRejected) || errors.Is(err, ErrProtocol) || errors.Is(err, ErrUnsupported)
}
