package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// A keeper keeps the checkouts of actions from one evaluation to the next:
// the commit is pinned, so what was fetched once is what would be fetched
// again. It is not believed for that: the runner hashes every byte of it anew
// before each launch (DESIGN §7), and one that did not lead to a conclusion is
// fetched again.
//
// It holds at most one checkout for each gate, beside those that were dropped
// and are still in use. Gates share none, also where they pin the same commit:
// each has its own credential, and what one may read is not the other's to run.
type keeper struct {
	fetch func(ctx context.Context, r gitfetch.Request) (Checkout, error)

	mu   sync.Mutex
	kept map[actionKey]*keptAction // guarded by mu
}

// An actionKey names a fetch that always has the same result, as one gate
// makes it.
type actionKey struct {
	gate   Name
	url    string
	commit fencepost.CommitID
	policy gitfetch.Policy
}

// A keptAction is a checkout and who uses it.
type keptAction struct {
	// one has room for the one who fetches.
	one chan struct{}
	// Owned by who holds one, until it is set.
	checkout Checkout

	// Guarded by keeper.mu:
	uses int
	// dropped ones are removed by their last user.
	dropped bool
}

func newKeeper(f Fetcher) *keeper {
	return &keeper{fetch: f.Fetch, kept: map[actionKey]*keptAction{}}
}

// get returns the checkout that is kept, or fetches it; fresh says which.
// While one caller fetches, others wait for it. The caller gives it back by
// Remove, which keeps it for the next.
func (k *keeper) get(ctx context.Context, g Name, r gitfetch.Request) (c *sharedAction, fresh bool, err error) {
	key := actionKey{g, r.URL, r.Commit, r.Policy}
	k.mu.Lock()
	a, ok := k.kept[key]
	if !ok {
		a = &keptAction{one: make(chan struct{}, 1)}
		k.kept[key] = a
	}
	a.uses++
	k.mu.Unlock()
	shared := &sharedAction{keeper: k, key: key, action: a}
	select {
	case a.one <- struct{}{}:
	case <-ctx.Done():
		return nil, false, errors.Join(context.Cause(ctx), shared.Remove())
	}
	defer func() { <-a.one }()
	if a.checkout == nil {
		if a.checkout, err = k.fetch(ctx, r); err != nil {
			a.checkout = nil
			return nil, false, errors.Join(err, shared.Remove())
		}
		fresh = true
	}
	shared.Checkout = a.checkout
	return shared, fresh, nil
}

// close removes what is kept. What somebody still uses is left to its last
// user, as if it had been dropped.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for key, a := range k.kept {
		delete(k.kept, key)
		if a.uses > 0 {
			a.dropped = true
			continue
		}
		if a.checkout != nil {
			errs = append(errs, a.checkout.Remove())
		}
	}
	return errors.Join(errs...)
}

// A sharedAction is one user's hold of a kept checkout.
type sharedAction struct {
	Checkout
	keeper *keeper
	key    actionKey
	action *keptAction
	over   bool
}

// drop makes the next user fetch anew, and the last one of this checkout
// remove it.
func (s *sharedAction) drop() {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.action.dropped = true
	if s.keeper.kept[s.key] == s.action {
		delete(s.keeper.kept, s.key)
	}
}

// Remove ends the hold. The files are removed with the last hold of a dropped
// checkout, and else stay.
func (s *sharedAction) Remove() error {
	if s.over {
		return nil
	}
	s.over = true
	s.keeper.mu.Lock()
	s.action.uses--
	last := s.action.uses == 0 && s.action.dropped
	s.keeper.mu.Unlock()
	if last && s.action.checkout != nil {
		return s.action.checkout.Remove()
	}
	return nil
}
