package gitlab

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
	// URL is the instance's root and issuer, API the root of its API, Git that
	// of repositories: Git + "/group/name.git". None ends in a slash.
	URL, API, Git string

	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// Start puts the instance on a loopback port and sends webhooks as they are
// made. It runs until ctx ends or [Server.Close].
func (f *Forge) Start(ctx context.Context) (*Server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start gitlab: %w", err)
	}
	root := "http://" + listener.Addr().String()
	f.mu.Lock()
	f.base = root
	f.mu.Unlock()
	running, cancel := context.WithCancel(ctx)
	s := &Server{URL: root, API: root + APIPrefix, Git: root, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = f.run(running, listener)
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
func (f *Forge) run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handlers, owned sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			f.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	var closing error
	owned.Go(func() {
		<-ctx.Done()
		closing = server.Close()
	})
	owned.Go(func() { f.deliverLoop(ctx) })
	serving := server.Serve(listener)
	cancel()
	owned.Wait()
	handlers.Wait()
	f.client.CloseIdleConnections()
	if errors.Is(serving, http.ErrServerClosed) {
		serving = nil
	}
	if err := errors.Join(serving, closing); err != nil {
		return fmt.Errorf("gitlab: %w", err)
	}
	return nil
}

func (f *Forge) deliverLoop(ctx context.Context) {
	for {
		if err := f.Deliver(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
		}
	}
}
