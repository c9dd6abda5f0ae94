//go:build !unix

package runner

import "context"

// This system offers no way to end a whole process tree and to prove it, not
// even at best effort.

type workspace struct{}

func openWorkspace(context.Context, string, []string) (*workspace, Swept, error) {
	return nil, Swept{}, ErrUnsupported
}

func openBackend(context.Context, Config, *workspace) (backend, error) { return nil, ErrUnsupported }

func (*workspace) close() error { return nil }
