package gitlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// A publication is one write, on our own side: to where the job fetches it. The
// job's exit status is what GitLab sees.

// Find implements [gate.Publisher].
func (l *Lane) Find(ctx context.Context, data []byte) (gate.Published, bool, error) {
	const op = "find result"
	d, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, false, err
	}
	e, ok, err := l.config.Results.Get(ctx, d)
	switch {
	case err != nil:
		return gate.Published{}, false, err
	case !ok, e.Ended():
		// A result that is published after all takes an end's place.
		return gate.Published{}, false, nil
	case !bytes.Equal(e.Document, data):
		return gate.Published{}, false, forge.Fail(op, fencepost.ReasonPublishConflict, errors.New("something else is told of this delivery"))
	}
	return published(d), true, nil
}

// Create implements [gate.Publisher]. Whether a write that failed was done, only
// a look tells.
func (l *Lane) Create(ctx context.Context, data []byte) (gate.Published, error) {
	const op = "put result"
	d, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, err
	}
	switch err := l.config.Results.Put(ctx, d, data); fencepost.ReasonOf(err) {
	case fencepost.ReasonNone:
		return published(d), nil
	case fencepost.ReasonPublishConflict, fencepost.ReasonFull:
		return gate.Published{}, err
	default:
		return gate.Published{}, forge.Fail(op, fencepost.ReasonOf(err), fmt.Errorf("%w: %w", gate.ErrUnknown, err))
	}
}

func published(d fencepost.DeliveryID) gate.Published {
	return gate.Published{ID: "result " + string(d)}
}

// Ended implements [gate.Awaited].
func (l *Lane) Ended(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	return l.config.Results.End(ctx, d, why)
}

// mine reads a document and refuses one of another project than the gate's.
func (l *Lane) mine(op string, data []byte) (fencepost.DeliveryID, error) {
	d, err := parseDocument(data)
	if err != nil {
		return "", forge.Fail(op, fencepost.ReasonCorrupt, err)
	}
	if d.Repository.ID != l.config.Repository.ID || d.Gate != string(l.config.Gate) {
		return "", forge.Fail(op, fencepost.ReasonIdentity, fmt.Errorf("staged by gate %s for project %d", d.Gate, d.Repository.ID))
	}
	return fencepost.DeliveryID(d.Delivery), nil
}
