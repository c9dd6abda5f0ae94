package ledgertest

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

// A Spec describes a delivery to make.
type Spec struct {
	// ID is the replay identity: the same ID is the same delivery key.
	ID string
	// Body makes the binding: the same ID with another Body is a conflict.
	Body string
	// TrustSet is the set that authenticates it; empty means "test".
	TrustSet fencepost.TrustSetName
	// Signed is the signed issue time; zero makes a permanent delivery.
	Signed time.Time
	// Window is what a bounded delivery is accepted under; zero means
	// [fencepost.DefaultReplayWindow].
	Window fencepost.ReplayWindow
}

// specVerifier vouches for whatever the spec says.
type specVerifier Spec

// Verify implements [fencepost.Verifier].
func (s specVerifier) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	return fencepost.Evidence{
		Anchor: "test", TrustSet: s.TrustSet, SignedAt: s.Signed,
		Replay: fencepost.ReplaySigned{Domain: "ledgertest", Values: []string{s.ID}},
	}, nil
}

// Deliver takes s through authentication and acceptance, as a request would.
func Deliver(tb testing.TB, s Spec) fencepost.AcceptedDelivery {
	tb.Helper()
	if s.Window == (fencepost.ReplayWindow{}) {
		s.Window = fencepost.DefaultReplayWindow
	}
	if s.TrustSet == "" {
		s.TrustSet = "test"
	}
	received, rule := s.Signed, fencepost.SignedTimeRequired
	if s.Signed.IsZero() {
		received, rule = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), fencepost.SignedTimeNone
	}
	body := []byte(s.Body)
	p, err := fencepost.Authenticate(fencepost.NewIngressCheck("test", fencepost.Headers{}, body, received), specVerifier(s))
	if err != nil {
		tb.Fatalf("authenticate %q: %v", s.ID, err)
	}
	d, err := fencepost.Accept(p, fencepost.RouteRule{
		Route: "test", TrustSet: s.TrustSet, SignedTime: rule, Window: s.Window,
	}, fencepost.Headers{}, body)
	if err != nil {
		tb.Fatalf("accept %q: %v", s.ID, err)
	}
	return d
}
