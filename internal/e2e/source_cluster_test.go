package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// postgres is the server of this package's tests; TestMain stops it.
var postgres pgtest.Server

// A cable is a way to a server that can be cut: then bytes get stuck, as they
// do when a network breaks, and nobody is told.
type cable struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   chan struct{} // closed when the way is whole again; nil while it is
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// newCable lays a cable to the host of a URL, and returns the URL of its end.
func newCable(t *testing.T, database string) (*cable, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := relayTo(t, l, u.Host)
	u.Host = l.Addr().String()
	return c, u.String()
}

// relayTo carries what comes to a listener to an address, and ends with the
// test.
func relayTo(t *testing.T, l net.Listener, to string) *cable {
	t.Helper()
	c := &cable{listener: l, to: to, conns: map[net.Conn]bool{}}
	c.all.Go(c.accept)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		c.mend()
		c.mu.Lock()
		for conn := range c.conns {
			conn.Close()
		}
		c.mu.Unlock()
		c.all.Wait()
	})
	return c
}

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return // closed at the test's end
		}
		c.all.Go(func() { c.carry(near) })
	}
}

// carry carries one connection until one of its ends is gone.
func (c *cable) carry(near net.Conn) {
	defer c.keep(near)()
	c.whole()
	far, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer c.keep(far)()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			c.copy(pair[0], pair[1])
			near.Close()
			far.Close()
		})
	}
	both.Wait()
}

// keep remembers a connection; what it returns closes and forgets it.
func (c *cable) keep(conn net.Conn) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[conn] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
		conn.Close()
	}
}

func (c *cable) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		c.whole()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// whole waits until the cable is.
func (c *cable) whole() {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut != nil {
		<-cut
	}
}

func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut == nil {
		c.cut = make(chan struct{})
	}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut != nil {
		close(c.cut)
		c.cut = nil
	}
}

// balance sends the webhooks of a field to one controller after the other, as
// a load balancer without a health check does.
func balance(t *testing.T, f *world.Field) {
	t.Helper()
	var targets []*url.URL
	for i := range f.Controllers {
		u, err := url.Parse(f.HookURL(i, ""))
		if err != nil {
			t.Fatal(err)
		}
		u.Path = ""
		targets = append(targets, u)
	}
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(targets[turn.Add(1)%uint64(len(targets))]) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    &http.Transport{ResponseHeaderTimeout: 2 * time.Second},
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	for key, hook := range f.Hooks {
		hook.Set("http://"+l.Addr().String()+"/hooks/"+key, []byte(f.Secret))
	}
}

// DESIGN §12: the same with three processes over one PostgreSQL database, with
// data directories of their own and sinks on a file system that they share;
// one of them loses the database for a while, without being told.
func TestThreeControllersOverOneDatabase(t *testing.T) {
	t.Parallel()
	seed := soakSeed(t)
	sources, seconds := fromEnv(t, "FENCEPOST_SOAK_SOURCES", 8), fromEnv(t, "FENCEPOST_SOAK_SECONDS", 8)
	database := postgres.Database(t)
	config := stormField(seed, sources)
	line, far := newCable(t, database)
	config.Databases = []string{database, database, far}
	f := newField(t, config)
	balance(t, f)
	s, l := newStorm(t, seed, f), lookInto(t, f)
	stop := s.observe(l)
	defer stop()
	third := time.Duration(seconds) * time.Second / 3
	pause := time.Duration(max(50, 1500/sources)) * time.Millisecond
	s.rage(third, pause, max(1, seconds/45))
	s.tell("the database is out of reach of controller 2")
	line.sever()
	// Longer than the lease: whatever it held is somebody else's by the time.
	s.rage(max(third, 6*time.Second), pause, 0)
	s.tell("it is back")
	line.mend()
	s.rage(third, pause, max(1, seconds/45))
	s.settle(l, stop, 5*time.Minute)
	for i, c := range f.Controllers {
		if c.PID() == 0 {
			t.Errorf("controller %d is gone", i)
		}
	}
	wantSharedWork(t, l)
}

// Invariants 5 and 14: an owner that loses the database in the middle of a run
// goes on with what needs none, and switches nothing; another process takes
// the source over once the lease is over, and is not disturbed by the one that
// comes back late.
func TestAnOwnerThatIsCutOffSwitchesNothing(t *testing.T) {
	t.Parallel()
	database := postgres.Database(t)
	line, far := newCable(t, database)
	f := fallowField(t, handbook(world.FieldConfig{
		Databases: []string{database, far}, Manual: true, Timings: calm,
	}))
	other, owner := f.Controllers[0], f.Controllers[1]
	if _, err := owner.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l := lookInto(t, f)
	w := watchHandbook(t, f)
	l.awaitQuiet("handbook")
	old := f.Repositories["handbook"].Ref("refs/heads/main")

	cut := make(chan struct{})
	f.Forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Effect: forgesim.Before{Do: func(context.Context) error {
		line.sever()
		close(cut)
		return nil
	}}})
	commit := w.push(t, f, 1)
	deliverTo(t, f, f.HookURL(1, "handbook"))
	<-cut
	if run := l.state("handbook").Run; run == nil || run.Status != source.Running {
		t.Fatalf("cut off outside of a run: %s", l.story("handbook"))
	}
	await(t, "the owner's word that it lost the source", func() bool {
		text, err := os.ReadFile(owner.Log)
		return err == nil && strings.Contains(string(text), `"reason":"lost"`)
	})
	wantServed(t, f, "handbook", old)
	if _, err := other.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l.awaitApplied("handbook", commit)
	if runs := l.runs("handbook"); runs[0].Trigger.Kind != source.ByRecovery || runs[1].Reason != fencepost.ReasonLost {
		t.Errorf("want a recovery of a lost run, got: %s", l.story("handbook"))
	}
	line.mend()
	next := w.push(t, f, 2)
	deliverTo(t, f, f.HookURL(0, "handbook"))
	l.awaitApplied("handbook", next)
	w.finish(t, f, next)
	l.wantSound()
}

// wantSharedWork demands that more than one process worked: otherwise the test
// shows nothing.
func wantSharedWork(t *testing.T, l ledger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), convergeWithin)
	defer cancel()
	var n int
	if err := l.db.Reader().QueryRowContext(ctx, `select count(distinct a) from (select unnest(attempted_by) as a from river_job) as b`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n < 3 {
		t.Errorf("jobs were worked by %d processes, want 3 or more", n)
	}
}
