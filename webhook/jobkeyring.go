package webhook

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
)

// A JobAnchor is one public RSA key with its window.
type JobAnchor struct {
	// ID names the anchor: 1 to 64 of a-z, A-Z, 0-9, ".", "_" and "-". It is
	// safe to log.
	ID fencepost.AnchorID
	// Key is the key: 2,048 to 4,096 bits. See [ParseJWK].
	Key *rsa.PublicKey
	// KeyID is what tokens call the key; empty means its thumbprint, which is
	// what GitLab calls its keys.
	KeyID string
	// From is when the window starts, inclusive; zero means always before.
	From time.Time
	// Until is when the window ends, exclusive; zero means never.
	Until time.Time
}

// Live reports whether t lies in the anchor's window.
func (a JobAnchor) Live(t time.Time) bool { return Anchor{From: a.From, Until: a.Until}.Live(t) }

// A JobKeyring is a trust set of RSA keys: 1 to 8 anchors with unique ids,
// unique key ids and unique keys. It never changes; a rotation is a new
// keyring. It is safe for concurrent use.
type JobKeyring struct {
	name    fencepost.TrustSetName
	anchors []JobAnchor
	moduli  [][]byte // of the anchors' keys, big-endian
	// header is that of the last token that was one of the anchors'.
	header atomic.Pointer[knownHeader]
}

// NewJobKeyring makes a keyring of the anchors, whose keys it copies. Its
// error lists every fault and matches [fencepost.ErrMalformed].
func NewJobKeyring(name fencepost.TrustSetName, anchors ...JobAnchor) (*JobKeyring, error) {
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
	k := &JobKeyring{name: name}
	for i, a := range anchors {
		if !isName(string(a.ID)) {
			fault("anchor %d: id must be 1 to %d of a-z, A-Z, 0-9, dot, underscore and hyphen", i+1, MaxNameBytes)
			continue
		}
		if err := checkKey(a.Key); err != nil {
			fault("anchor %s: %w", a.ID, err)
			continue
		}
		if !a.From.IsZero() && !a.Until.IsZero() && !a.From.Before(a.Until) {
			fault("anchor %s: window must start before it ends", a.ID)
		}
		a.Key = &rsa.PublicKey{N: new(big.Int).Set(a.Key.N), E: a.Key.E}
		if a.KeyID == "" {
			a.KeyID = ThumbprintOf(a.Key).String()
		} else if !isKeyID(a.KeyID) {
			fault("anchor %s: %w", a.ID, errKeyID)
		}
		for _, b := range k.anchors {
			if a.ID == b.ID {
				fault("anchor %s: id must be unique", a.ID)
			}
			if a.Key.Equal(b.Key) {
				fault("anchors %s and %s: keys must be unique", b.ID, a.ID)
			}
			if a.KeyID == b.KeyID {
				fault("anchors %s and %s: key ids must be unique", b.ID, a.ID)
			}
		}
		k.anchors = append(k.anchors, a)
		k.moduli = append(k.moduli, a.Key.N.Bytes())
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return k, nil
}

// Name is the trust set's name.
func (k *JobKeyring) Name() fencepost.TrustSetName { return k.name }

// Len is the number of anchors, live or not; 0 for a nil keyring.
func (k *JobKeyring) Len() int {
	if k == nil {
		return 0
	}
	return len(k.anchors)
}

// Has reports whether the anchor is in the keyring, live or not, as
// [Keyring.Has] does.
func (k *JobKeyring) Has(id fencepost.AnchorID) bool {
	return k != nil && slices.ContainsFunc(k.anchors, func(a JobAnchor) bool { return a.ID == id })
}

// Live returns the ids of the anchors whose window holds t.
func (k *JobKeyring) Live(t time.Time) []fencepost.AnchorID {
	var ids []fencepost.AnchorID
	for _, a := range k.anchors {
		if a.Live(t) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// match verifies the token with the one live anchor that it names. Whatever
// is found, it computes exactly max(work, k.Len(), 1) verifications: one with
// each anchor, and the rest with a key of nobody's. It returns that number.
//
// The token's word for which key made it decides no more than which of our
// own is asked: a key that made no signature verifies none.
func (k *JobKeyring) match(t jobToken, at time.Time, work int) (_ fencepost.AnchorID, verifications int, cause Cause) {
	digest := sha256.Sum256([]byte(t.signed))
	found, live := -1, false
	for i, a := range k.anchors {
		if !a.Live(at) {
			continue
		}
		live = true
		if t.cause == 0 && a.KeyID == t.keyID {
			found = i
		}
	}
	matched := false
	for i, a := range k.anchors {
		// What has another length or is no number below the modulus would be
		// refused at once, so that the time would tell whose key it is for.
		signature, usable := t.signature, i == found && fits(k.moduli[i], t.signature)
		if !usable {
			signature = idleSignature(a.Key)
		}
		right := rsa.VerifyPKCS1v15(a.Key, crypto.SHA256, digest[:], signature) == nil
		matched = matched || usable && right
	}
	verifications = len(k.anchors) + idle(digest, max(work, 1)-len(k.anchors))
	switch {
	case t.cause != 0:
		return "", verifications, t.cause
	case !live:
		return "", verifications, CauseNoLiveAnchor
	case found < 0:
		return "", verifications, CauseUnknownKey
	case !matched:
		return "", verifications, CauseMismatch
	}
	if last := k.header.Load(); last == nil || last.text != t.header {
		k.header.Store(&knownHeader{strings.Clone(t.header), t.keyID})
	}
	return k.anchors[found].ID, verifications, 0
}

// fits reports whether a signature has the length of the modulus, and is a
// number below it: every number has one spelling (RFC 8017 §8.2.2).
func fits(modulus, signature []byte) bool {
	return len(signature) == len(modulus) && bytes.Compare(signature, modulus) < 0
}

// idleSignature is a number that costs as much to verify as any other of its
// length, and is no signature.
func idleSignature(key *rsa.PublicKey) []byte {
	s := make([]byte, key.Size())
	s[len(s)-1] = 2
	return s
}

// nobodysKey costs as much as a real one of the least size. Nobody has its
// other half, and what it verifies is not looked at: it is the least odd
// number above 2^2047.
var nobodysKey = &rsa.PublicKey{N: new(big.Int).SetBit(new(big.Int).SetBit(new(big.Int), MinRSABits-1, 1), 0, 1), E: MinRSAExponent}

// idle computes n verifications that nobody looks at, and returns n.
func idle(digest [sha256.Size]byte, n int) int {
	for range n {
		_ = rsa.VerifyPKCS1v15(nobodysKey, crypto.SHA256, digest[:], idleSignature(nobodysKey))
	}
	return max(n, 0)
}
