package gitlab

import (
	"context"

	"github.com/fencepost/fencepost/internal/gate"
)

// Open implements [gate.Watcher]: there is nothing that a gate ought to know.
// Nothing can be missed here without a word: the sender is a job, which asks
// until it is answered, and fails by itself where it is not. With it fails its
// pipeline, and the car leaves the train.
func (l *Lane) Open(context.Context) ([]gate.OpenRequest, error) { return nil, nil }

// Shown implements [gate.Watcher]. A result is its delivery's alone, so that
// none stands for a request.
func (l *Lane) Shown(context.Context, gate.Subject) (bool, error) { return false, nil }
