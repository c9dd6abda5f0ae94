package fencepost

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// base32Lower is RFC 4648 base32 in lower case without padding: safe in
// URLs, file names and logs.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A DeliveryKey names a delivery for ever: the digest of domain, route and
// replay identity (DESIGN §1). The zero key names none.
type DeliveryKey [32]byte

// ParseDeliveryKey reads 64 lower-case hexadecimal digits that are not all
// zero. Its error matches [ErrMalformed].
func ParseDeliveryKey(s string) (DeliveryKey, error) {
	var k DeliveryKey
	if len(s) != hex.EncodedLen(len(k)) || !isLowerHex(s) {
		return DeliveryKey{}, fmt.Errorf("delivery key: %w", ErrMalformed)
	}
	if _, err := hex.Decode(k[:], []byte(s)); err != nil || k.IsZero() {
		return DeliveryKey{}, fmt.Errorf("delivery key: %w", ErrMalformed)
	}
	return k, nil
}

// IsZero reports whether k names no delivery.
func (k DeliveryKey) IsZero() bool { return k == DeliveryKey{} }

// Hex returns the whole key as 64 lower-case hexadecimal digits.
func (k DeliveryKey) Hex() string { return hex.EncodeToString(k[:]) }

// ID returns the opaque public name of the delivery: "dlv_" and 26 base32
// characters of the key's first 128 bits.
func (k DeliveryKey) ID() DeliveryID {
	return DeliveryID("dlv_" + base32Lower.EncodeToString(k[:16]))
}

// String returns [DeliveryKey.ID].
func (k DeliveryKey) String() string { return string(k.ID()) }

// A DeliveryID is the opaque public name of a delivery, safe to log.
type DeliveryID string

// ParseDeliveryID checks the form "dlv_" and 26 base32 characters. Its error
// matches [ErrMalformed].
func ParseDeliveryID(s string) (DeliveryID, error) {
	rest, ok := strings.CutPrefix(s, "dlv_")
	raw, err := base32Lower.DecodeString(rest)
	// The decoder skips line ends and ignores spare bits: only the spelling
	// that comes out again is the one legal form.
	if !ok || err != nil || len(raw) != 16 || base32Lower.EncodeToString(raw) != rest {
		return "", fmt.Errorf("delivery id: want dlv_ and 26 characters of a-z and 2-7: %w", ErrMalformed)
	}
	return DeliveryID(s), nil
}

// A Binding is the digest of domain, route, replay identity and exact body;
// never of time, anchor or headers. The same key with another binding is a
// conflict (DESIGN §1).
type Binding [32]byte

// A ReplayWindow holds the two fixed ceilings of bounded replay lifetimes.
type ReplayWindow struct {
	// MaxSignedAge is how old a signed issue time may be at receipt, and how
	// far ahead; 1 s to 1 h, default 5 min.
	MaxSignedAge time.Duration
	// MaxQueueAge is how long a recorded delivery may wait to become work;
	// 1 min to 30 days, default 24 h.
	MaxQueueAge time.Duration
}

// DefaultReplayWindow holds the defaults of DESIGN §11.
var DefaultReplayWindow = ReplayWindow{MaxSignedAge: 5 * time.Minute, MaxQueueAge: 24 * time.Hour}

// Validate reports values out of range; its error matches [ErrMalformed].
func (w ReplayWindow) Validate() error {
	if w.MaxSignedAge < time.Second || w.MaxSignedAge > time.Hour {
		return fmt.Errorf("max signed age must be 1s to 1h, is %v: %w", w.MaxSignedAge, ErrMalformed)
	}
	if w.MaxQueueAge < time.Minute || w.MaxQueueAge > 30*24*time.Hour {
		return fmt.Errorf("max queue age must be 1m to 720h, is %v: %w", w.MaxQueueAge, ErrMalformed)
	}
	return nil
}

// A ReplayLifetime says how long a repeat of a delivery is recognised:
// until an inclusive end, or for ever. The zero value is permanent.
type ReplayLifetime struct{ end time.Time }

// BoundedUntil is a lifetime with an inclusive end.
func BoundedUntil(end time.Time) ReplayLifetime { return ReplayLifetime{end: end.UTC().Round(0)} }

// Permanent is a lifetime without end.
func Permanent() ReplayLifetime { return ReplayLifetime{} }

// End is the inclusive end; ok is false for a permanent lifetime.
func (l ReplayLifetime) End() (end time.Time, ok bool) { return l.end, !l.end.IsZero() }

// Passed reports whether the lifetime is bounded and its end lies before now.
func (l ReplayLifetime) Passed(now time.Time) bool { return !l.end.IsZero() && now.After(l.end) }

// Later returns whichever of l and m ends later; permanent is latest.
func (l ReplayLifetime) Later(m ReplayLifetime) ReplayLifetime {
	if l.end.IsZero() || (!m.end.IsZero() && m.end.Before(l.end)) {
		return l
	}
	return m
}

// A SignedTimeRule says whether a route's proofs must or must not carry a
// signed issue time.
type SignedTimeRule uint8

// The signed-time rules. The zero rule is refused by [Accept].
const (
	// SignedTimeNone refuses a proof that carries a signed time; lifetimes
	// are permanent.
	SignedTimeNone SignedTimeRule = iota + 1
	// SignedTimeRequired refuses a proof that carries none; lifetimes are
	// bounded.
	SignedTimeRequired
)

// A RouteRule is what [Accept] holds a proof against.
type RouteRule struct {
	// Route must be the proof's.
	Route RouteName
	// TrustSet must be the proof's.
	TrustSet TrustSetName
	// SignedTime must be set.
	SignedTime SignedTimeRule
	// SignedAge is the route's own ceiling on signed age; zero means the
	// window's. It may only be shorter.
	SignedAge time.Duration
	// Window holds the two fixed ceilings; the ledger must have the same.
	Window ReplayWindow
}

// An AcceptedDelivery is an authenticated request under its delivery key.
// [Accept] and [Receive] are its only makers; the zero value is refused by
// every ledger.
// It is a small value without the body.
type AcceptedDelivery struct {
	key      DeliveryKey
	binding  Binding
	route    RouteName
	trustSet TrustSetName
	anchor   AnchorID
	received time.Time
	lifetime ReplayLifetime
	window   ReplayWindow
}

// Accept checks that p binds exactly these headers and this body, applies
// the signed-time rule, picks the replay lifetime and derives delivery key
// and binding (DESIGN §4). Signed age is judged at the proof's receipt time.
// Its error matches [ErrZeroValue], [ErrSignedTime] or [ErrUnauthenticated].
func Accept(p Proof, rule RouteRule, h Headers, body []byte) (AcceptedDelivery, error) {
	d, err := p.accept(rule)
	if err != nil {
		return AcceptedDelivery{}, err
	}
	if !p.Binds(h, body) {
		return AcceptedDelivery{}, fmt.Errorf("accept: proof of another request: %w", ErrUnauthenticated)
	}
	return d, nil
}

// Receive is [Authenticate] and [Accept] in one: the proof never leaves it, so
// the headers and the body that it binds are check's, and are digested once.
// Its error is one of theirs. A refusal takes as long for a signature as for a
// signed time.
func Receive(check *IngressCheck, v Verifier, rule RouteRule) (AcceptedDelivery, error) {
	p, err := Authenticate(check, v)
	if err != nil {
		return AcceptedDelivery{}, err
	}
	return p.accept(rule)
}

// accept is [Accept] without the check that p is of the request at hand.
func (p Proof) accept(rule RouteRule) (AcceptedDelivery, error) {
	if !p.Valid() || rule.Route == "" || rule.TrustSet == "" {
		return AcceptedDelivery{}, fmt.Errorf("accept: %w", ErrZeroValue)
	}
	if p.route != rule.Route || p.trustSet != rule.TrustSet {
		return AcceptedDelivery{}, fmt.Errorf("accept: proof of another route: %w", ErrUnauthenticated)
	}
	lifetime, err := rule.lifetime(p)
	if err != nil {
		return AcceptedDelivery{}, err
	}
	key := NewEncoder("fencepost.delivery-key/v1").Text(string(p.route)).Bytes(p.replay[:]).Sum()
	binding := NewEncoder("fencepost.binding/v1").
		Text(string(p.route)).Bytes(p.replay[:]).Bytes(p.body[:]).Sum()
	return AcceptedDelivery{
		key: key, binding: binding, route: p.route, trustSet: p.trustSet, anchor: p.anchor,
		received: p.received, lifetime: lifetime, window: rule.Window,
	}, nil
}

func (r RouteRule) lifetime(p Proof) (ReplayLifetime, error) {
	if err := r.Window.Validate(); err != nil {
		return ReplayLifetime{}, fmt.Errorf("accept: replay window: %w", err)
	}
	signed, ok := p.SignedAt()
	switch r.SignedTime {
	case SignedTimeNone:
		if ok {
			return ReplayLifetime{}, fmt.Errorf("accept: signed time on a route without one: %w", ErrSignedTime)
		}
		return Permanent(), nil
	case SignedTimeRequired:
		if !ok {
			return ReplayLifetime{}, fmt.Errorf("accept: no signed time: %w", ErrSignedTime)
		}
		ceiling := r.Window.MaxSignedAge
		if r.SignedAge > 0 {
			ceiling = min(ceiling, r.SignedAge)
		}
		if p.received.Sub(signed).Abs() > ceiling {
			return ReplayLifetime{}, fmt.Errorf("accept: signed time outside %v: %w", ceiling, ErrSignedTime)
		}
		return BoundedUntil(signed.Add(r.Window.MaxSignedAge + r.Window.MaxQueueAge)), nil
	default:
		return ReplayLifetime{}, fmt.Errorf("accept: signed-time rule: %w", ErrZeroValue)
	}
}

// Valid reports whether [Accept] or [Receive] made d.
func (d AcceptedDelivery) Valid() bool { return !d.key.IsZero() }

// Key names the delivery for ever.
func (d AcceptedDelivery) Key() DeliveryKey { return d.key }

// ID is the key's opaque public name.
func (d AcceptedDelivery) ID() DeliveryID { return d.key.ID() }

// Binding ties the key to the exact body.
func (d AcceptedDelivery) Binding() Binding { return d.binding }

// Route is the entry point it came by.
func (d AcceptedDelivery) Route() RouteName { return d.route }

// TrustSet is the set that the key which authenticated it belongs to.
func (d AcceptedDelivery) TrustSet() TrustSetName { return d.trustSet }

// Anchor is the key that authenticated it.
func (d AcceptedDelivery) Anchor() AnchorID { return d.anchor }

// Received is when it came, UTC, by our clock.
func (d AcceptedDelivery) Received() time.Time { return d.received }

// Lifetime is how long a repeat of it is recognised.
func (d AcceptedDelivery) Lifetime() ReplayLifetime { return d.lifetime }

// Window holds the ceilings it was accepted under.
func (d AcceptedDelivery) Window() ReplayWindow { return d.window }

// A GateRevision is the digest of what the provider said a gate is at one
// moment: repository, refs, commits, trees, rule, authorization (DESIGN §1).
// A lane makes it with an [Encoder] in the domain "fencepost.gate-revision/v1".
type GateRevision [32]byte

// String returns 64 lower-case hexadecimal digits.
func (g GateRevision) String() string { return hex.EncodeToString(g[:]) }

// IsZero reports whether g is not set.
func (g GateRevision) IsZero() bool { return g == GateRevision{} }
