package fencepost

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"
)

// A RouteName is the key of one configured entry point. Only the request
// path selects it (DESIGN §1).
type RouteName string

// An AnchorID names one key of a trust set. It is safe to log.
type AnchorID string

// A TrustSetName names a set of 1 to 8 anchors. It is safe to log.
type TrustSetName string

// A ReplayIdentity is what makes two deliveries of one route the same one:
// the digest of what the sender signed that repeats exactly when the
// delivery is a repeat (DESIGN §4).
type ReplayIdentity [32]byte

// A Replay says what a scheme takes as replay identity. Its implementations
// are [ReplayBody] and [ReplaySigned].
type Replay interface {
	identity(body [32]byte) ReplayIdentity
}

// ReplayBody takes the SHA-256 of the exact body: for schemes that sign
// nothing but the body.
type ReplayBody struct{}

func (ReplayBody) identity(body [32]byte) ReplayIdentity {
	return NewEncoder("fencepost.replay-identity/body/v1").Bytes(body[:]).Sum()
}

// ReplaySigned takes values that the sender signed, such as a message id, or
// issuer, runner and token id. Domain tells schemes apart; it is not empty.
type ReplaySigned struct {
	Domain string
	Values []string
}

func (r ReplaySigned) identity([32]byte) ReplayIdentity {
	e := NewEncoder("fencepost.replay-identity/signed/v1").Text(r.Domain).List(len(r.Values))
	for _, v := range r.Values {
		e.Text(v)
	}
	return e.Sum()
}

// Evidence is what a [Verifier] found. It vouches for nothing by itself:
// [Authenticate] seals it into a [Proof].
type Evidence struct {
	// Anchor is the key that matched; not empty.
	Anchor AnchorID
	// TrustSet is the set it belongs to; not empty.
	TrustSet TrustSetName
	// SignedAt is the signed issue time, or zero where nothing signed one.
	SignedAt time.Time
	// Replay is what identifies a repeat; not nil.
	Replay Replay
}

// A Verifier looks; it does not vouch. Schemes in package webhook implement
// it. Verify judges keys at received, never at the present; it does not
// retain or change body; its error matches [ErrUnauthenticated] and says
// nothing of why in its text. It is safe for concurrent use.
type Verifier interface {
	Verify(h Headers, body []byte, received time.Time) (Evidence, error)
}

// An IngressCheck holds one request for one authentication: route, headers,
// body and receipt time are fixed here, before any verifier sees them.
type IngressCheck struct {
	route    RouteName
	headers  Headers
	body     []byte
	received time.Time
	used     atomic.Bool
}

// NewIngressCheck fixes a request. The caller must not change body until the
// check is used. Received is our own clock's; it is kept in UTC without
// monotonic reading, to the nanosecond.
func NewIngressCheck(route RouteName, h Headers, body []byte, received time.Time) *IngressCheck {
	return &IngressCheck{route: route, headers: h, body: body, received: received.UTC().Round(0)}
}

// A Proof says that exactly these headers and this body, received at this
// time on this route, were signed by one anchor. [Authenticate] is its only
// maker; the zero Proof is refused by every consumer.
type Proof struct {
	route    RouteName
	anchor   AnchorID
	trustSet TrustSetName
	received time.Time
	signedAt time.Time
	replay   ReplayIdentity
	headers  [32]byte
	body     [32]byte
}

// Authenticate uses check up and is the only maker of a [Proof]. Its error
// matches [ErrUnauthenticated] when the verifier refused, [ErrCheckUsed] on
// a second use and [ErrZeroValue] for a nil check or verifier, a check
// without a route, or evidence that leaves something out.
func Authenticate(check *IngressCheck, v Verifier) (Proof, error) {
	if check == nil || check.route == "" || check.received.IsZero() || v == nil {
		return Proof{}, fmt.Errorf("authenticate: ingress check or verifier: %w", ErrZeroValue)
	}
	if check.used.Swap(true) {
		return Proof{}, ErrCheckUsed
	}
	// Digested before the verifier looks, so that a refusal takes as long
	// whatever it is for.
	body, headers := sha256.Sum256(check.body), check.headers.Digest()
	ev, err := v.Verify(check.headers, check.body, check.received)
	if err != nil {
		return Proof{}, err
	}
	if ev.Anchor == "" || ev.TrustSet == "" || ev.Replay == nil {
		return Proof{}, fmt.Errorf("authenticate: evidence: %w", ErrZeroValue)
	}
	signedAt := ev.SignedAt
	if !signedAt.IsZero() {
		signedAt = signedAt.UTC().Round(0)
	}
	return Proof{
		route:    check.route,
		anchor:   ev.Anchor,
		trustSet: ev.TrustSet,
		received: check.received,
		signedAt: signedAt,
		replay:   ev.Replay.identity(body),
		headers:  headers,
		body:     body,
	}, nil
}

// Valid reports whether [Authenticate] made p.
func (p Proof) Valid() bool { return p.route != "" }

// Route is the route the proof is bound to.
func (p Proof) Route() RouteName { return p.route }

// Anchor is the key that matched.
func (p Proof) Anchor() AnchorID { return p.anchor }

// TrustSet is the set the anchor belongs to.
func (p Proof) TrustSet() TrustSetName { return p.trustSet }

// Received is the receipt time, UTC, from our clock.
func (p Proof) Received() time.Time { return p.received }

// SignedAt is the signed issue time; ok is false where nothing signed one.
func (p Proof) SignedAt() (t time.Time, ok bool) { return p.signedAt, !p.signedAt.IsZero() }

// Replay is the replay identity.
func (p Proof) Replay() ReplayIdentity { return p.replay }

// Binds reports whether p was made over exactly these headers and this body.
func (p Proof) Binds(h Headers, body []byte) bool {
	return p.Valid() && p.body == sha256.Sum256(body) && p.headers == h.Digest()
}

// String names the proof without anything of the request.
func (p Proof) String() string {
	if !p.Valid() {
		return "proof(none)"
	}
	return fmt.Sprintf("proof(route %s, anchor %s)", p.route, p.anchor)
}
