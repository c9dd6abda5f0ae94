package gitlab

import (
	"context"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A Server is a [Forge] on a loopback port. Its URL is the issuer as well.
type Server = forgesim.Server

// Start puts the instance on a loopback port and sends webhooks as they are
// made. It runs until ctx ends or [Server.Close].
func (f *Forge) Start(ctx context.Context) (*Server, error) {
	return forgesim.Process{
		Name: "gitlab", Handler: f, APIPrefix: APIPrefix, Deliver: f.deliverLoop, Ended: f.client.CloseIdleConnections,
		Base: func(root string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.base = root
		},
	}.Start(ctx)
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
