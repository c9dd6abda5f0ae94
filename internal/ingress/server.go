package ingress

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
)

// Options make a [Server].
type Options struct {
	// Config bounds it.
	Config Config
	// Table is the routes to begin with.
	Table *Table
	// Now is the clock of receipt times; it never goes back.
	Now func() time.Time
	// Log is where it logs; nil is nowhere.
	Log *slog.Logger
	// Observer is told of every request; nil is nobody.
	Observer Observer
}

// A Server takes webhooks. It is an [http.Handler], and safe for concurrent
// use.
type Server struct {
	cfg      Config
	now      func() time.Time
	observer Observer
	log      *logger
	fixed    *fixedHeaders
	budget   *budget
	table    holder
	flight   flight
	conns    slots
}

// ErrCutOff: requests were still in flight when the time to drain was over.
var ErrCutOff = errors.New("requests were cut off")

// New makes a server. Its error lists every fault of the options and matches
// [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func New(o Options) (*Server, error) {
	cfg := o.Config.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if o.Table == nil || o.Now == nil {
		return nil, fmt.Errorf("ingress: table or clock: %w", fencepost.ErrZeroValue)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	s := &Server{
		cfg: cfg, now: o.Now, observer: o.Observer,
		log:    &logger{slog: o.Log, now: o.Now},
		fixed:  newFixedHeaders(cfg),
		budget: newBudget(cfg.BodyMemory, cfg.MaxBody, cfg.BodyWait),
		conns:  slots{tokens: make(chan struct{}, cfg.MaxConnections)},
	}
	s.table.swap(o.Table)
	return s, nil
}

type nobody struct{}

func (nobody) Answered(Answered) {}

// Swap puts another table in place of the present one. Requests under way
// keep theirs; the channel is closed when none of them is left, after which
// the old table's keys may be zeroed.
func (s *Server) Swap(t *Table) (done <-chan struct{}) { return s.table.swap(t) }

// Stats is what a server is doing now.
type Stats struct {
	// Connections is how many connections are open.
	Connections int
	// Requests is how many requests are between draining check and answer.
	Requests int
	// Waiting is how many of them wait for room in the body budget.
	Waiting int
	// BodyBytes is the memory of all bodies, in bytes.
	BodyBytes int64
	// Draining reports that new requests are refused.
	Draining bool
}

// Stats returns what the server is doing now.
func (s *Server) Stats() Stats {
	requests, draining := s.flight.state()
	return Stats{
		Connections: int(s.conns.open.Load()), Requests: requests, Waiting: int(s.budget.waiting.Load()),
		BodyBytes: s.budget.inUse(), Draining: draining,
	}
}

const (
	// headerSlack is how much more than MaxHeaderBytes net/http takes, so
	// that it is we who answer: for the request line, ": " and line ends.
	headerSlack = 16 << 10
	// trimEvery is how often buffers that nobody used are dropped.
	trimEvery = 30 * time.Second
	// lastCloses is how long idle connections may take to close.
	lastCloses = time.Second
)

// Run serves on ln, which it closes, until ctx ends, and then drains. It runs
// once. It returns nil after all requests were answered, an error that
// matches [ErrCutOff] if some were cut off, and otherwise the listener's.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	// Requests outlive ctx: its end begins the draining.
	base := context.WithoutCancel(ctx)
	server := &http.Server{
		Handler:                      s,
		ReadHeaderTimeout:            s.cfg.HeaderTimeout,
		WriteTimeout:                 s.cfg.WriteTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		MaxHeaderBytes:               s.cfg.MaxHeaderBytes + headerSlack,
		ErrorLog:                     log.New(s.log, "", 0),
		BaseContext:                  func(net.Listener) context.Context { return base },
		DisableGeneralOptionsHandler: true,
		Protocols:                    new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(newListener(ln, &s.conns)) }()
	trim := time.NewTicker(trimEvery)
	defer trim.Stop()
	for {
		select {
		case err := <-served:
			// Nobody told it to end, so nobody waits for requests in flight.
			return errors.Join(fmt.Errorf("ingress: serve: %w", err), s.stop(base, server, 0))
		case <-trim.C:
			s.budget.trim()
		case <-ctx.Done():
			err := s.stop(base, server, s.cfg.Drain)
			<-served
			return err
		}
	}
}

// stop refuses new requests, waits for those in flight, and closes.
func (s *Server) stop(ctx context.Context, server *http.Server, wait time.Duration) error {
	idle := s.flight.drain()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var cutOff error
	select {
	case <-idle:
	case <-timer.C:
		if requests, _ := s.flight.state(); requests > 0 {
			cutOff = fmt.Errorf("ingress: %d %w", requests, ErrCutOff)
		}
	}
	if cutOff == nil {
		closing, cancel := context.WithTimeout(ctx, lastCloses)
		defer cancel()
		if server.Shutdown(closing) == nil {
			return nil
		}
	}
	// What is left is clients that are slow to read or to close.
	err := server.Close()
	// Reading fails now, and recording ends with its time-out.
	<-idle
	return errors.Join(cutOff, err)
}

// A flight counts requests, and says when there are none and will be none.
type flight struct {
	mu   sync.Mutex
	n    int           // guarded by mu
	idle chan struct{} // guarded by mu: not nil while draining; closed at n = 0
}

// enter returns false while draining.
func (f *flight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return false
	}
	f.n++
	return true
}

func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.idle != nil {
		close(f.idle)
	}
}

// drain lets nobody else enter. The channel closes when all have left.
func (f *flight) drain() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle == nil {
		f.idle = make(chan struct{})
		if f.n == 0 {
			close(f.idle)
		}
	}
	return f.idle
}

func (f *flight) state() (n int, draining bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.idle != nil
}

// A holder holds the present table and counts who uses it.
type holder struct{ present atomic.Pointer[held] }

type held struct {
	*Table
	users   atomic.Int64
	retired atomic.Bool
	done    chan struct{}
	once    sync.Once
}

// acquire returns the present table for use until release.
func (h *holder) acquire() *held {
	for {
		t := h.present.Load()
		t.users.Add(1)
		if h.present.Load() == t {
			return t
		}
		// Swapped in between, and perhaps declared done already.
		t.release()
	}
}

func (t *held) release() {
	if t.users.Add(-1) == 0 && t.retired.Load() {
		t.once.Do(func() { close(t.done) })
	}
}

func (h *holder) swap(t *Table) <-chan struct{} {
	old := h.present.Swap(&held{Table: t, done: make(chan struct{})})
	if old == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	// Hold it while it is marked, so that its last user isn't missed.
	old.users.Add(1)
	old.retired.Store(true)
	old.release()
	return old.done
}
