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
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start forge: %w", err)
	}
	root := "http://" + listener.Addr().String()
	f.mu.Lock()
	f.base = root
	f.mu.Unlock()
	running, cancel := context.WithCancel(ctx)
	s := &Server{URL: root, API: root + APIPrefix, Git: root, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = f.run(running, listener, !o.manual)
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
func (f *Forge) run(ctx context.Context, listener net.Listener, deliver bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           f,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		// Faults end connections by panics; they are in the journal.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	var handlers sync.WaitGroup
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		f.ServeHTTP(w, r)
	})
	var owned sync.WaitGroup
	var closing error
	owned.Go(func() {
		<-ctx.Done()
		closing = server.Close()
	})
	if deliver {
		owned.Go(func() { f.deliverLoop(ctx) })
	}
	serving := server.Serve(listener)
	// A listener that fails by itself ends the rest too.
	cancel()
	owned.Wait()
	handlers.Wait()
	f.client.CloseIdleConnections()
	if errors.Is(serving, http.ErrServerClosed) {
		serving = nil
	}
	if err := errors.Join(serving, closing); err != nil {
		return fmt.Errorf("forge: %w", err)
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
