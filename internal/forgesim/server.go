package forgesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Server is a [Forge] on a loopback port.
type Server struct {
	// URL is the forge's root, API the root of REST calls, Git that of
	// repositories: Git + "/owner/name.git". None ends in a slash.
	URL, API, Git string

	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// A StartOption changes what [Forge.Start] does.
type StartOption func(*startOptions)

type startOptions struct{ manual bool }

// ManualDelivery leaves webhooks in the outbox until [Forge.Deliver].
func ManualDelivery() StartOption { return func(o *startOptions) { o.manual = true } }

// Start puts the forge on a loopback port, makes links lead there, and sends
// webhooks as they are made. It runs until ctx ends or [Server.Close].
func (f *Forge) Start(ctx context.Context, options ...StartOption) (*Server, error) {
	var o startOptions
	for _, option := range options {
		option(&o)
	}
	p := Process{Name: "forge", Handler: f, APIPrefix: APIPrefix, Base: f.setBase, Ended: f.client.CloseIdleConnections}
	if !o.manual {
		p.Deliver = f.deliverLoop
	}
	return p.Start(ctx)
}

func (f *Forge) setBase(root string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.base = root
}

// A Process is what runs while a forge, of this or another make, is on a
// loopback port.
type Process struct {
	// Name stands in errors.
	Name string
	// Handler answers.
	Handler http.Handler
	// APIPrefix is where the API is below the root.
	APIPrefix string
	// Base is told the root before anything is asked.
	Base func(root string)
	// Deliver sends webhooks until ctx ends; nil sends none.
	Deliver func(ctx context.Context)
	// Ended is called when nothing runs any more.
	Ended func()
}

// Start puts it on a port. It runs until ctx ends or [Server.Close].
func (p Process) Start(ctx context.Context) (*Server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	root := "http://" + listener.Addr().String()
	p.Base(root)
	running, cancel := context.WithCancel(ctx)
	s := &Server{URL: root, API: root + p.APIPrefix, Git: root, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = p.run(running, listener)
	}()
	return s, nil
}

// Close stops the server, cuts the requests under way, and waits for all of
// it. It may be called more than once.
func (s *Server) Close() error {
	s.cancel()
	<-s.done
	return s.err
}

// run serves and delivers until ctx ends.
func (p Process) run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handlers, owned sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			p.Handler.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		// Faults end connections by panics; they are in the journal.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	var closing error
	owned.Go(func() {
		<-ctx.Done()
		closing = server.Close()
	})
	if p.Deliver != nil {
		owned.Go(func() { p.Deliver(ctx) })
	}
	serving := server.Serve(listener)
	// A listener that fails by itself ends the rest too.
	cancel()
	owned.Wait()
	handlers.Wait()
	p.Ended()
	if errors.Is(serving, http.ErrServerClosed) {
		serving = nil
	}
	if err := errors.Join(serving, closing); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// deliverLoop sends webhooks as they come.
func (f *Forge) deliverLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// Without a hook's URL the outbox waits for the next event.
		if err := f.Deliver(ctx); err != nil && !errors.Is(err, ErrNoHook) {
			return
		}
		timer.Stop()
		if wait, some := f.nextDue(); some {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
		case <-timer.C:
		}
	}
}
