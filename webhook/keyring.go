package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// Bounds of a keyring (DESIGN §1, §10).
const (
	// MaxAnchors is how many anchors a keyring holds at most; at least one.
	MaxAnchors = 8
	// MinSecretBytes is the length of the shortest secret.
	MinSecretBytes = 16
	// MaxNameBytes bounds anchor ids and trust set names.
	MaxNameBytes = 64
)

// ErrNoLiveAnchor: no anchor of the keyring is live at the time asked for.
var ErrNoLiveAnchor = errors.New("no live anchor")

// An Anchor is one HMAC key with its window.
type Anchor struct {
	// ID names the anchor: 1 to 64 of a-z, A-Z, 0-9, ".", "_" and "-". It is
	// safe to log.
	ID fencepost.AnchorID
	// Secret is the key: 16 bytes or more.
	Secret fencepost.Secret
	// From is when the window starts, inclusive; zero means always before.
	From time.Time
	// Until is when the window ends, exclusive; zero means never.
	Until time.Time
}

// Live reports whether t lies in the anchor's window.
func (a Anchor) Live(t time.Time) bool {
	return (a.From.IsZero() || !t.Before(a.From)) && (a.Until.IsZero() || t.Before(a.Until))
}

// A Keyring is a trust set: 1 to 8 anchors with unique ids and unique
// secrets. It never changes; a rotation is a new keyring. It is safe for
// concurrent use.
type Keyring struct {
	name fencepost.TrustSetName
	ids  []fencepost.AnchorID

	// Held for reading while secrets are in use, so that Zero waits.
	mu      sync.RWMutex
	anchors []Anchor // guarded by mu; nil after Zero
}

// NewKeyring takes the anchors' secrets over: nobody else may zero them. Its
// error lists every fault and matches [fencepost.ErrMalformed].
func NewKeyring(name fencepost.TrustSetName, anchors ...Anchor) (*Keyring, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("keyring: "+format+": %w", append(args, fencepost.ErrMalformed)...))
	}
	if !isName(string(name)) {
		fault("name of a trust set must be 1 to %d of a-z, A-Z, 0-9, dot, underscore and hyphen", MaxNameBytes)
	}
	if len(anchors) < 1 || len(anchors) > MaxAnchors {
		fault("must have 1 to %d anchors, has %d", MaxAnchors, len(anchors))
	}
	k := &Keyring{name: name}
	for i, a := range anchors {
		if !isName(string(a.ID)) {
			fault("anchor %d: id must be 1 to %d of a-z, A-Z, 0-9, dot, underscore and hyphen", i+1, MaxNameBytes)
			continue
		}
		if a.Secret.Len() < MinSecretBytes {
			fault("anchor %s: secret must have at least %d bytes, has %d", a.ID, MinSecretBytes, a.Secret.Len())
		}
		if !a.From.IsZero() && !a.Until.IsZero() && !a.From.Before(a.Until) {
			fault("anchor %s: window must start before it ends", a.ID)
		}
		for _, b := range k.anchors {
			if a.ID == b.ID {
				fault("anchor %s: id must be unique", a.ID)
			}
			if sameKey(a.Secret, b.Secret) {
				fault("anchors %s and %s: secrets must be unique", b.ID, a.ID)
			}
		}
		k.anchors = append(k.anchors, a)
		k.ids = append(k.ids, a.ID)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return k, nil
}

// Name is the trust set's name.
func (k *Keyring) Name() fencepost.TrustSetName { return k.name }

// Len is the number of anchors, live or not; 0 for a nil keyring.
func (k *Keyring) Len() int {
	if k == nil {
		return 0
	}
	return len(k.ids)
}

// Has reports whether the anchor is in the keyring, live or not. An anchor
// that a recorded delivery names and that is gone from the keyring was
// revoked (DESIGN §4).
func (k *Keyring) Has(id fencepost.AnchorID) bool {
	if k == nil {
		return false
	}
	for _, own := range k.ids {
		if own == id {
			return true
		}
	}
	return false
}

// Live returns the ids of the anchors whose window holds t.
func (k *Keyring) Live(t time.Time) []fencepost.AnchorID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var ids []fencepost.AnchorID
	for _, a := range k.anchors {
		if a.Live(t) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// Zero waits for verifications under way and zeroes every secret. What is
// verified or signed later fails with an error that matches
// [fencepost.ErrZeroValue], never as unauthenticated: a keyring that was
// dropped too early refuses nobody for good.
func (k *Keyring) Zero() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.anchors {
		a.Secret.Zero()
	}
	k.anchors = nil
}

// A mac is HMAC-SHA256 output.
type mac = [sha256.Size]byte

// A claim is what a request says of itself: what it wants verified, and the
// signatures it offers.
type claim struct {
	parts [3][]byte // signed one after the other
	offer []mac     // any one of them suffices
	cause Cause     // set ⇒ the request is refused whatever offer holds
}

// match finds the live anchor that made one of the offered signatures. Every
// live anchor is tried whatever is found, and a refusal computes exactly
// max(work, k.Len(), 1) MACs whatever it is for. So does, with even, what is
// accepted here and may yet be refused for its signed time. It returns the
// number of MACs.
func (k *Keyring) match(c claim, at time.Time, work int, even bool) (_ fencepost.AnchorID, macs int, _ error) {
	if k == nil {
		return "", 0, fmt.Errorf("webhook: verify without a keyring: %w", fencepost.ErrZeroValue)
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.anchors == nil {
		return "", 0, fmt.Errorf("webhook: verify with a zeroed keyring: %w", fencepost.ErrZeroValue)
	}
	found := -1
	for i, a := range k.anchors {
		if !a.Live(at) {
			continue
		}
		sum := c.sum(a.Secret.Reveal())
		macs++
		hit := 0
		for j := range c.offer {
			hit |= subtle.ConstantTimeCompare(sum[:], c.offer[j][:])
		}
		found = subtle.ConstantTimeSelect(hit, i, found)
	}
	if c.cause == 0 && macs == 0 {
		c.cause = CauseNoLiveAnchor
	} else if c.cause == 0 && found < 0 {
		c.cause = CauseMismatch
	}
	if c.cause != 0 || even {
		macs += c.idle(max(work, len(k.anchors), 1) - macs)
	}
	if c.cause != 0 {
		return "", macs, &Refusal{Cause: c.cause, MACs: macs}
	}
	return k.anchors[found].ID, macs, nil
}

// sum is the MAC of the signed parts.
func (c claim) sum(key []byte) mac {
	h := hmac.New(sha256.New, key)
	for _, p := range c.parts {
		h.Write(p)
	}
	var sum mac
	h.Sum(sum[:0])
	return sum
}

// idle computes n MACs that nobody looks at, and returns n.
func (c claim) idle(n int) int {
	var key [32]byte
	for range n {
		c.sum(key[:])
	}
	return max(n, 0)
}

// sign returns the MAC of c under the live anchor whose window started
// last.
func (k *Keyring) sign(c claim, at time.Time) (mac, error) {
	if k == nil {
		return mac{}, fmt.Errorf("webhook: sign without a keyring: %w", fencepost.ErrZeroValue)
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.anchors == nil {
		return mac{}, fmt.Errorf("webhook: sign with a zeroed keyring: %w", fencepost.ErrZeroValue)
	}
	var best *Anchor
	for i := range k.anchors {
		if a := &k.anchors[i]; a.Live(at) && (best == nil || !a.From.Before(best.From)) {
			best = a
		}
	}
	if best == nil {
		return mac{}, fmt.Errorf("webhook: sign with trust set %s: %w", k.name, ErrNoLiveAnchor)
	}
	return c.sum(best.Secret.Reveal()), nil
}

// sameKey reports whether HMAC-SHA256 can't tell a from b: a key longer than
// a block stands for its digest, and a shorter one is filled up with zeros
// (RFC 2104 §2).
func sameKey(a, b fencepost.Secret) bool {
	return bytes.Equal(blockKey(a), blockKey(b))
}

func blockKey(s fencepost.Secret) []byte {
	block := make([]byte, sha256.BlockSize)
	if s.Len() <= len(block) {
		copy(block, s.Reveal())
		return block
	}
	sum := sha256.Sum256(s.Reveal())
	copy(block, sum[:])
	return block
}

func isName(s string) bool {
	if len(s) < 1 || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
