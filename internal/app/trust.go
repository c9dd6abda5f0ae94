package app

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/webhook"
)

// A toil is how many MACs a refusal costs, on every route and on none. It
// changes with the keys, for all of them at once.
type toil struct{ macs atomic.Int64 }

func newToil(macs int) *toil {
	t := &toil{}
	t.set(macs)
	return t
}

func (t *toil) get() int     { return int(t.macs.Load()) }
func (t *toil) set(macs int) { t.macs.Store(int64(macs)) }

// A decoy refuses what has no route at the cost of every other refusal.
type decoy struct{ work *toil }

// Verify implements [fencepost.Verifier].
func (d decoy) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return webhook.Decoy{Work: d.work.get()}.Verify(h, body, received)
}

// A trust is a trust set whose keys can be exchanged while requests are being
// verified. It is the verifier of every route that names the set.
type trust struct {
	work *toil

	mu   sync.RWMutex
	keys *webhook.Keyring // guarded by mu
}

// Verify implements [fencepost.Verifier].
func (t *trust) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	// Held over the whole look, so that no key is zeroed under it.
	t.mu.RLock()
	defer t.mu.RUnlock()
	return webhook.GitHub{Keys: t.keys, Work: t.work.get()}.Verify(h, body, received)
}

// A giteaTrust is a trust set whose keys sign as Gitea and Forgejo do.
type giteaTrust struct{ *trust }

// Verify implements [fencepost.Verifier].
func (t giteaTrust) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return webhook.Gitea{Keys: t.keys, Work: t.work.get()}.Verify(h, body, received)
}

// Trusts implements [gate.Trust].
func (t *trust) Trusts(anchor fencepost.AnchorID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keys.Has(anchor)
}

// exchange puts new keys in the place of the old ones, which are zeroed.
func (t *trust) exchange(keys *webhook.Keyring) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys != nil {
		t.keys.Zero()
	}
	t.keys = keys
}

// keyrings resolves the secrets of every trust set that has some. On an error,
// what was resolved is zeroed.
func keyrings(c *config.Config, env config.Lookup) (_ map[fencepost.TrustSetName]*webhook.Keyring, err error) {
	rings := make(map[fencepost.TrustSetName]*webhook.Keyring, len(c.Trust))
	defer func() {
		if err != nil {
			for _, ring := range rings {
				ring.Zero()
			}
		}
	}()
	var faults []error
	for _, set := range c.Trust {
		if set.Public() {
			continue
		}
		anchors := make([]webhook.Anchor, 0, len(set.Anchors))
		for _, a := range set.Anchors {
			secret, err := set.Key(a, env)
			if err != nil {
				faults = append(faults, fmt.Errorf("trust.%s: key %s: %w", set.Name, a.ID, err))
				continue
			}
			anchors = append(anchors, webhook.Anchor{ID: a.ID, Secret: secret, From: a.From, Until: a.Until})
		}
		if len(anchors) < len(set.Anchors) {
			continue
		}
		ring, err := webhook.NewKeyring(set.Name, anchors...)
		if err != nil {
			faults = append(faults, fmt.Errorf("trust.%s: %w", set.Name, err))
			continue
		}
		rings[set.Name] = ring
	}
	return rings, errors.Join(faults...)
}

// mostAnchors is the size of the largest trust set of public keys, or else of
// secrets; 1 without one.
func mostAnchors(c *config.Config, public bool) int {
	most := 1
	for _, set := range c.Trust {
		if set.Public() == public {
			most = max(most, len(set.Anchors))
		}
	}
	return most
}
