package ops

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
)

// Bounds of the operations listener. They are fixed: nobody but operators
// and their Prometheus is there.
const (
	maxConnections = 64
	maxHeaderBytes = 16 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	stopTimeout    = 5 * time.Second
	// beatEvery is how often health is looked at without being asked.
	beatEvery = 10 * time.Second
)

// ErrGone is what an [Artifacts] returns, wrapped or not, for a reference
// under which nothing is stored any more, or never was.
var ErrGone = errors.New("artifact is gone")

// Artifacts reads evidence. It is safe for concurrent use.
type Artifacts interface {
	// Artifact returns the bytes of a reference. Its error matches [ErrGone],
	// or [fencepost.ErrMalformed] for what is no reference; any other means
	// that they are damaged or can't be read.
	Artifact(ctx context.Context, ref string) ([]byte, error)
}

// Options are what a [Server] shows. A nil interface leaves its part out.
type Options struct {
	Metrics    *Metrics
	Health     *Health
	Deliveries Deliveries
	Gates      Gates
	Sources    Sources
	Alerts     Alerts
	Artifacts  Artifacts
	Figures    Figures
	Build      Build
	Now        func() time.Time
	Log        *slog.Logger
}

// A Server serves the operations listener.
type Server struct {
	o        Options
	template *template.Template
}

// New makes a server. Metrics, Health, Now and Log are needed.
func New(o Options) *Server { return &Server{o: o, template: pageTemplate()} }

// Run serves l until ctx ends, which is no error. It closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		// What net/http has to say quotes what clients sent.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(&limitedListener{Listener: l, room: make(chan struct{}, maxConnections)})
	}()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		s.o.Metrics.beat(s.o.Health.Results(ctx))
		select {
		case err := <-served:
			return errors.Join(fmt.Errorf("serve operations: %w", err), server.Close())
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err := server.Shutdown(stopCtx)
		if errors.Is(err, context.DeadlineExceeded) {
			// A client that doesn't go away doesn't keep the program.
			err = server.Close()
		}
		<-served
		return err
	}
}

// Handler is everything that the listener serves.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.Handle("/metrics", s.o.Metrics.Handler())
	mux.Handle("/{$}", byOperators(http.HandlerFunc(s.page)))
	mux.Handle("/artifacts/{ref}", byOperators(http.HandlerFunc(s.artifact)))
	return readOnly(mux)
}

// readOnly lets GET and HEAD through alone, and sets the headers that hold
// for everything.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "private, no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Robots-Tag", "noindex")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// byOperators keeps other sites' pages from reading this one through a name
// of theirs that leads to loopback (DNS rebinding): on loopback, the host
// asked for must be an address or localhost.
func byOperators(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if local != nil && local.IP.IsLoopback() && host != "localhost" && net.ParseIP(trimBrackets(host)) == nil {
			http.Error(w, "ask for this page by address or as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// healthz says that the program runs and answers; nothing more.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz says whether it can do its work, check by check.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	results, ready := s.o.Health.Results(r.Context())
	body, err := json.Marshal(struct {
		Ready  bool     `json:"ready"`
		Checks []Result `json:"checks"`
	}{ready, results})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n'))
}

// artifact hands out evidence as a file to be saved, never as something that
// a browser would show: programs of others wrote parts of it.
func (s *Server) artifact(w http.ResponseWriter, r *http.Request) {
	if s.o.Artifacts == nil {
		http.NotFound(w, r)
		return
	}
	ref := r.PathValue("ref")
	data, err := s.o.Artifacts.Artifact(r.Context(), ref)
	switch {
	case errors.Is(err, fencepost.ErrMalformed):
		http.Error(w, "not an artifact's reference", http.StatusNotFound)
	case errors.Is(err, ErrGone):
		http.Error(w, "the artifact is gone: it expired, or was never stored here", http.StatusGone)
	case err != nil:
		s.o.Log.Error("artifact not served", "reason", string(fencepost.ReasonOf(err)))
		http.Error(w, "the artifact is damaged or can't be read", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="`+safeName(ref)+`.txt"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

// safeName keeps of a reference what is a letter, a digit or _.
func safeName(ref string) string {
	name := make([]byte, 0, len(ref))
	for i := range len(ref) {
		if c := ref[i]; c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			name = append(name, c)
		}
	}
	return string(name)
}

// A limitedListener accepts no more connections at once than there is room.
type limitedListener struct {
	net.Listener
	room chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: c, room: l.room}, nil
}

// A limitedConn gives its room back when it is closed.
type limitedConn struct {
	net.Conn
	room chan struct{}
	once sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.room })
	return err
}
