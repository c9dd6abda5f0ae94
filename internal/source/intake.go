package source

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/fencepost/fencepost"
)

// An Intake turns what was authenticated into runs, each in one transaction
// (DESIGN §9): delivery fence, run log and job are there together or not at
// all. It is safe for concurrent use.
type Intake struct {
	// Store holds the rows. Required.
	Store Store
	// Random draws run ids; crypto/rand's Reader outside of tests. Required.
	Random io.Reader
}

// Push records a push; d has everything but the run. When it returns nil the
// answer is on stable storage. Its errors are those of [OnPush] and of the
// store.
func (i Intake) Push(ctx context.Context, p Policy, d DeliveryRow) (PushAnswer, error) {
	id, err := fencepost.NewRunID(i.Random)
	if err != nil {
		return 0, err
	}
	var answer PushAnswer
	err = i.Store.Change(ctx, p.ID, Lookup{Delivery: &d}, func(s Snapshot) (c Change, err error) {
		c, answer, err = OnPush(s, p, Push{Delivery: d, NewRun: id})
		return c, err
	})
	if err != nil {
		return 0, fmt.Errorf("record push: %w", err)
	}
	return answer, nil
}

// Request asks for a look at a source's head under a key of the caller's, and
// returns the run that the key has. Its errors are those of [OnRequest] and of
// the store, and match [fencepost.ErrMalformed] for a key that is none.
func (i Intake) Request(ctx context.Context, p Policy, key string, intent Digest) (fencepost.RunID, error) {
	if key == "" || len(key) > maxRequestKey || intent.IsZero() {
		return fencepost.RunID{}, fmt.Errorf("request needs a key of 1 to %d characters and an intent: %w", maxRequestKey, fencepost.ErrMalformed)
	}
	id, err := fencepost.NewRunID(i.Random)
	if err != nil {
		return fencepost.RunID{}, err
	}
	var run fencepost.RunID
	// A caller's keys can't meet those of reconcile windows.
	key = "request/" + key
	err = i.Store.Change(ctx, p.ID, Lookup{Request: key}, func(s Snapshot) (c Change, err error) {
		c, run, err = OnRequest(s, p, Request{Key: key, Intent: intent, NewRun: id})
		return c, err
	})
	if err != nil {
		return fencepost.RunID{}, fmt.Errorf("request run: %w", err)
	}
	return run, nil
}

// maxRequestKey is how many characters of a request key are the caller's.
const maxRequestKey = 100

// Register brings the policies of a configuration into force. It is called at
// start, after freshness was judged and before anything else.
func (i Intake) Register(ctx context.Context, policies []Policy) error {
	all := make([]Registration, len(policies))
	byID := make(map[fencepost.SourceID]Policy, len(policies))
	for n, p := range policies {
		all[n] = Registration{ID: p.ID, Key: p.Key, Revision: p.Revision, Enabled: p.Enabled}
		byID[p.ID] = p
	}
	changed, err := i.Store.Register(ctx, all)
	if err != nil {
		return fmt.Errorf("register sources: %w", err)
	}
	for part := range slices.Chunk(changed, registerBatch) {
		if err := i.Store.Group(ctx, func(ctx context.Context, c Changer) error {
			for _, id := range part {
				if err := i.enforce(ctx, c, id, byID); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("bring policies into force: %w", err)
		}
	}
	return nil
}

// registerBatch is how many policies come into force in one transaction: a
// configuration of thousands would else take a sync for each.
const registerBatch = 256

// enforce brings one policy into force, or ends what no policy is for.
func (i Intake) enforce(ctx context.Context, c Changer, id fencepost.SourceID, policies map[fencepost.SourceID]Policy) error {
	p, ok := policies[id]
	if !ok {
		return c.Change(ctx, id, Lookup{}, func(s Snapshot) (Change, error) { return OnRemoval(s), nil })
	}
	run, err := fencepost.NewRunID(i.Random)
	if err != nil {
		return err
	}
	return c.Change(ctx, id, Lookup{}, func(s Snapshot) (Change, error) { return OnRevision(s, p, run), nil })
}
