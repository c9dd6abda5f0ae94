package jobkeys

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// ErrPending: a key that is pinned has not been looked for with success yet,
// so that what it may have signed can't be refused.
var ErrPending = errors.New("a pinned key has not been found yet")

// An Anchor is one pinned key with its window.
type Anchor struct {
	ID fencepost.AnchorID
	// JWK is the key; its zero value where only the thumbprint is known.
	JWK webhook.JWK
	// Thumbprint is the key's; of a JWK it may be left out.
	Thumbprint webhook.Thumbprint
	// From is inclusive, Until exclusive; zero means no such end.
	From, Until time.Time
}

// A Set is a trust set of public keys, which can be exchanged while tokens are
// being verified. It is safe for concurrent use.
type Set struct {
	name fencepost.TrustSetName
	// wanted has a value when something may be there to be looked for.
	wanted chan struct{}

	mu sync.RWMutex
	// Guarded by mu.
	anchors []Anchor
	found   map[webhook.Thumbprint]webhook.JWK
	ring    *webhook.JobKeyring // of the keys that are known; nil for none
	asked   bool                // the issuer has answered since anchors are these
}

// NewSet makes a set without anchors, which refuses everything.
func NewSet(name fencepost.TrustSetName) *Set {
	return &Set{name: name, wanted: make(chan struct{}, 1), found: map[webhook.Thumbprint]webhook.JWK{}}
}

// Exchange puts anchors in the place of those before. Keys that were found
// stay known where they are still pinned. On an error, which matches
// [fencepost.ErrMalformed], nothing changes.
func (s *Set) Exchange(anchors []Anchor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := make([]Anchor, len(anchors))
	for i, a := range anchors {
		if a.JWK.Key != nil {
			a.Thumbprint = webhook.ThumbprintOf(a.JWK.Key)
		}
		own[i] = a
	}
	for i, a := range own {
		for _, b := range own[:i] {
			if a.ID == b.ID || a.Thumbprint == b.Thumbprint {
				return fmt.Errorf("anchors %s and %s: ids and keys must be unique: %w", b.ID, a.ID, fencepost.ErrMalformed)
			}
		}
	}
	ring, err := s.ringOf(own, s.found)
	if err != nil {
		return err
	}
	s.anchors, s.ring, s.asked = own, ring, false
	for t := range s.found {
		if !pins(own, t) {
			delete(s.found, t)
		}
	}
	s.want()
	return nil
}

// Learn takes keys that were found: those that the set pins are known from now
// on, others are passed over. It returns the ones that are new. Its error
// matches [fencepost.ErrMalformed].
func (s *Set) Learn(keys []webhook.JWK) (fresh []webhook.JWK, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := maps.Clone(s.found)
	for _, k := range keys {
		if k.Key == nil {
			continue
		}
		t := webhook.ThumbprintOf(k.Key)
		if _, known := found[t]; !known && s.lacks(t) {
			found[t] = k
			fresh = append(fresh, k)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	ring, err := s.ringOf(s.anchors, found)
	if err != nil {
		return nil, err
	}
	s.found, s.ring = found, ring
	return fresh, nil
}

// answered notes that the issuer has said which keys it has.
func (s *Set) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
}

// ringOf makes a keyring of the keys that are known; nil for none.
func (s *Set) ringOf(anchors []Anchor, found map[webhook.Thumbprint]webhook.JWK) (*webhook.JobKeyring, error) {
	var known []webhook.JobAnchor
	for _, a := range anchors {
		k := a.JWK
		if k.Key == nil {
			k = found[a.Thumbprint]
		}
		if k.Key != nil {
			known = append(known, webhook.JobAnchor{ID: a.ID, Key: k.Key, KeyID: k.KeyID, From: a.From, Until: a.Until})
		}
	}
	if len(known) == 0 {
		return nil, nil
	}
	return webhook.NewJobKeyring(s.name, known...)
}

// lacks reports whether the thumbprint is pinned and its key not written out.
func (s *Set) lacks(t webhook.Thumbprint) bool {
	return slices.ContainsFunc(s.anchors, func(a Anchor) bool { return a.Thumbprint == t && a.JWK.Key == nil })
}

func pins(anchors []Anchor, t webhook.Thumbprint) bool {
	return slices.ContainsFunc(anchors, func(a Anchor) bool { return a.Thumbprint == t })
}

// want has the set looked after; it never waits.
func (s *Set) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// Has reports whether the anchor is in the set, whether its key is known or
// not.
func (s *Set) Has(id fencepost.AnchorID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.anchors, func(a Anchor) bool { return a.ID == id })
}

// Size is the number of anchors.
func (s *Set) Size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.anchors)
}

// A State is what a set has at one moment.
type State struct {
	// Pinned are the anchors that are known by their thumbprint, Missing those
	// of them whose key was not found.
	Pinned, Missing int
	// Live is how many anchors have a known key, and a window that holds the
	// moment; LiveMissing how many have the window and no key.
	Live, LiveMissing int
}

// State describes the set at a moment.
func (s *Set) State(at time.Time) State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st State
	for _, a := range s.anchors {
		live := webhook.JobAnchor{From: a.From, Until: a.Until}.Live(at)
		known := s.knows(a)
		if a.JWK.Key == nil {
			st.Pinned++
		}
		if !known {
			st.Missing++
		}
		if live && known {
			st.Live++
		}
		if live && !known {
			st.LiveMissing++
		}
	}
	return st
}

// Unpinned counts the keys that no anchor pins.
func (s *Set) Unpinned(keys []webhook.JWK) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, k := range keys {
		if !pins(s.anchors, k.Thumbprint) {
			n++
		}
	}
	return n
}

// A Verifier verifies the tokens of one issuer's jobs with the keys of a set.
type Verifier struct {
	Set *Set
	// Issuer and Audience are the token's.
	Issuer, Audience string
	// Work says how many RSA verifications a refusal costs at least.
	Work func() int
	// Patient makes a refusal an error that matches [ErrPending] while a key
	// is missing that was not looked for yet: what was recorded is not
	// refused for good because the process has just begun.
	Patient bool
}

// Verify implements [fencepost.Verifier].
func (v Verifier) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	v.Set.mu.RLock()
	ring, asked, missing := v.Set.ring, v.Set.asked, v.Set.missing()
	v.Set.mu.RUnlock()
	var scheme fencepost.Verifier = webhook.GitLabJob{Issuer: v.Issuer, Audience: v.Audience, Keys: ring, Work: v.Work()}
	if ring == nil {
		scheme = webhook.JobDecoy{Work: v.Work()}
	}
	ev, err := scheme.Verify(h, body, received)
	if r, refused := errors.AsType[*webhook.Refusal](err); refused && missing {
		if r.Cause == webhook.CauseUnknownKey || r.Cause == webhook.CauseNoLiveAnchor {
			v.Set.want()
		}
		if v.Patient && !asked {
			return fencepost.Evidence{}, &fencepost.Error{Op: "jobkeys.verify", Reason: fencepost.ReasonUnavailable, Err: ErrPending}
		}
	}
	return ev, err
}

// missing reports whether a pinned key is not known. The caller holds mu.
func (s *Set) missing() bool {
	return slices.ContainsFunc(s.anchors, func(a Anchor) bool { return !s.knows(a) })
}

// knows reports whether the anchor's key is here, or was found. The caller
// holds mu.
func (s *Set) knows(a Anchor) bool {
	_, found := s.found[a.Thumbprint]
	return found || a.JWK.Key != nil
}

// Trusts reports whether the anchor is in the set.
func (v Verifier) Trusts(id fencepost.AnchorID) bool { return v.Set.Has(id) }
