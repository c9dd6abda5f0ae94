package fencepost_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

func TestAcceptRefuses(t *testing.T) {
	t.Parallel()
	h := fencepost.NewHeaders([]fencepost.Header{{Name: "A", Value: "1"}})
	body := []byte("body")
	proof := func(signedAt time.Time) fencepost.Proof {
		p, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", h, body, receipt),
			vouching(fencepost.Evidence{Replay: fencepost.ReplayBody{}, SignedAt: signedAt}))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	rule := func(change func(*fencepost.RouteRule)) fencepost.RouteRule {
		r := fencepost.RouteRule{Route: "docs", TrustSet: "acme",
			SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow}
		if change != nil {
			change(&r)
		}
		return r
	}
	required := rule(func(r *fencepost.RouteRule) { r.SignedTime = fencepost.SignedTimeRequired })
	shorter := required
	shorter.SignedAge = time.Minute
	longer := required
	longer.SignedAge = time.Hour
	unsigned := time.Time{}
	tests := map[string]struct {
		proof fencepost.Proof
		rule  fencepost.RouteRule
		h     fencepost.Headers
		body  string
		want  error
	}{
		"nothing wrong":            {proof(unsigned), rule(nil), h, "body", nil},
		"zero proof":               {fencepost.Proof{}, rule(nil), h, "body", fencepost.ErrZeroValue},
		"rule without route":       {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.Route = "" }), h, "body", fencepost.ErrZeroValue},
		"rule without trust set":   {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.TrustSet = "" }), h, "body", fencepost.ErrZeroValue},
		"rule without signed time": {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.SignedTime = 0 }), h, "body", fencepost.ErrZeroValue},
		"rule without window":      {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.Window = fencepost.ReplayWindow{} }), h, "body", fencepost.ErrMalformed},
		"another route":            {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.Route = "other" }), h, "body", fencepost.ErrUnauthenticated},
		"another trust set":        {proof(unsigned), rule(func(r *fencepost.RouteRule) { r.TrustSet = "other" }), h, "body", fencepost.ErrUnauthenticated},
		"another body":             {proof(unsigned), rule(nil), h, "b0dy", fencepost.ErrUnauthenticated},
		"other headers":            {proof(unsigned), rule(nil), fencepost.Headers{}, "body", fencepost.ErrUnauthenticated},

		"signed time where none may be": {proof(receipt), rule(nil), h, "body", fencepost.ErrSignedTime},
		"no signed time where one must": {proof(unsigned), required, h, "body", fencepost.ErrSignedTime},
		"at the ceiling":                {proof(receipt.Add(-5 * time.Minute)), required, h, "body", nil},
		"over the ceiling":              {proof(receipt.Add(-5*time.Minute - 1)), required, h, "body", fencepost.ErrSignedTime},
		"ahead at the ceiling":          {proof(receipt.Add(5 * time.Minute)), required, h, "body", nil},
		"ahead over the ceiling":        {proof(receipt.Add(5*time.Minute + 1)), required, h, "body", fencepost.ErrSignedTime},
		"the route's shorter ceiling":   {proof(receipt.Add(-time.Minute - 1)), shorter, h, "body", fencepost.ErrSignedTime},
		"a route can't lengthen it":     {proof(receipt.Add(-6 * time.Minute)), longer, h, "body", fencepost.ErrSignedTime},
		"the end of time":               {proof(time.Unix(math.MaxInt64/2, 0)), required, h, "body", fencepost.ErrSignedTime},
		"the beginning of time":         {proof(time.Unix(math.MinInt64/2, 0)), required, h, "body", fencepost.ErrSignedTime},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := fencepost.Accept(test.proof, test.rule, test.h, []byte(test.body))
			if !errors.Is(err, test.want) {
				t.Fatalf("err = %v, want %v", err, test.want)
			}
			if d.Valid() != (test.want == nil) {
				t.Errorf("delivery valid: %v", d.Valid())
			}
		})
	}
}

// Receive answers what Authenticate and Accept answer one after the other.
func TestReceiveIsAuthenticateAndAccept(t *testing.T) {
	t.Parallel()
	h, body := fencepost.NewHeaders([]fencepost.Header{{Name: "A", Value: "1"}}), []byte("body")
	check := func() *fencepost.IngressCheck { return fencepost.NewIngressCheck("docs", h, body, receipt) }
	for name, signedAt := range map[string]time.Time{"unsigned": {}, "signed": receipt, "old": receipt.Add(-time.Hour)} {
		for _, required := range []fencepost.SignedTimeRule{0, fencepost.SignedTimeNone, fencepost.SignedTimeRequired} {
			for _, route := range []fencepost.RouteName{"", "docs", "other"} {
				v := vouching(fencepost.Evidence{Replay: fencepost.ReplayBody{}, SignedAt: signedAt})
				rule := fencepost.RouteRule{Route: route, TrustSet: "acme", SignedTime: required, Window: fencepost.DefaultReplayWindow}
				p, err := fencepost.Authenticate(check(), v)
				if err != nil {
					t.Fatal(err)
				}
				want, wantErr := fencepost.Accept(p, rule, h, body)
				got, err := fencepost.Receive(check(), v, rule)
				if got != want || (err == nil) != (wantErr == nil) || (err != nil && err.Error() != wantErr.Error()) {
					t.Errorf("%s, rule %d, route %q: %v, %v; want %v, %v", name, required, route, got, err, want, wantErr)
				}
			}
		}
	}
	refusal := errors.New("no")
	if d, err := fencepost.Receive(check(), &verifier{err: refusal}, fencepost.RouteRule{}); !errors.Is(err, refusal) || d.Valid() {
		t.Errorf("Receive = %v, %v; want the verifier's error", d, err)
	}
}

func TestAcceptPicksTheLifetime(t *testing.T) {
	t.Parallel()
	unsigned := acceptance(t, nil, "body", fencepost.Evidence{Replay: fencepost.ReplayBody{}}).delivery
	if end, bounded := unsigned.Lifetime().End(); bounded {
		t.Errorf("nothing signed a time, but the lifetime ends %v", end)
	}
	signedAt := receipt.Add(-time.Minute)
	signed := acceptance(t, nil, "body", fencepost.Evidence{Replay: fencepost.ReplayBody{}, SignedAt: signedAt}).delivery
	want := signedAt.Add(24*time.Hour + 5*time.Minute)
	if end, bounded := signed.Lifetime().End(); !bounded || end != want {
		t.Errorf("lifetime ends %v (bounded %v), want %v", end, bounded, want)
	}
	if signed.Received() != receipt || signed.Route() != "docs" || signed.Anchor() != "2026-q4" ||
		signed.Window() != fencepost.DefaultReplayWindow {
		t.Errorf("delivery does not say what was accepted: %+v", signed)
	}
}

// DESIGN §1: the key is of domain, route and replay identity; the binding of
// these and the exact body; neither of time, anchor or headers.
func TestKeyAndBindingDependOnNothingElse(t *testing.T) {
	t.Parallel()
	id := func(values ...string) fencepost.Evidence {
		return fencepost.Evidence{Replay: fencepost.ReplaySigned{Domain: "d", Values: values}}
	}
	first := acceptance(t, nil, "body", id("1")).delivery
	h := fencepost.NewHeaders([]fencepost.Header{{Name: "A", Value: "1"}})
	later := id("1")
	later.Anchor, later.TrustSet = "another", "acme"
	p, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", h, []byte("body"), receipt.Add(time.Hour)), &verifier{evidence: later})
	if err != nil {
		t.Fatal(err)
	}
	again, err := fencepost.Accept(p, fencepost.RouteRule{Route: "docs", TrustSet: "acme",
		SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow}, h, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Key() != first.Key() || again.Binding() != first.Binding() {
		t.Error("time, anchor or headers changed key or binding")
	}
	other := acceptance(t, nil, "other body", id("1")).delivery
	if other.Key() != first.Key() || other.Binding() == first.Binding() {
		t.Error("another body must keep the key and change the binding")
	}
	if acceptance(t, nil, "body", id("2")).delivery.Key() == first.Key() {
		t.Error("another identity has the same key")
	}
}

func TestReplayLifetime(t *testing.T) {
	t.Parallel()
	end := receipt
	bounded, later, permanent := fencepost.BoundedUntil(end), fencepost.BoundedUntil(end.Add(1)), fencepost.Permanent()
	if bounded.Passed(end) || !bounded.Passed(end.Add(1)) {
		t.Error("the end of a bounded lifetime is inclusive")
	}
	if permanent.Passed(end.AddDate(1000, 0, 0)) || permanent != (fencepost.ReplayLifetime{}) {
		t.Error("the zero lifetime is permanent and never passes")
	}
	for _, test := range []struct{ a, b, want fencepost.ReplayLifetime }{
		{bounded, later, later}, {later, bounded, later}, {bounded, bounded, bounded},
		{permanent, later, permanent}, {later, permanent, permanent}, {permanent, permanent, permanent},
	} {
		if got := test.a.Later(test.b); got != test.want {
			t.Errorf("Later(%v, %v) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

func TestReplayWindowBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		window fencepost.ReplayWindow
		ok     bool
	}{
		"default":         {fencepost.DefaultReplayWindow, true},
		"least":           {fencepost.ReplayWindow{MaxSignedAge: time.Second, MaxQueueAge: time.Minute}, true},
		"most":            {fencepost.ReplayWindow{MaxSignedAge: time.Hour, MaxQueueAge: 720 * time.Hour}, true},
		"zero":            {fencepost.ReplayWindow{}, false},
		"age too short":   {fencepost.ReplayWindow{MaxSignedAge: time.Second - 1, MaxQueueAge: time.Minute}, false},
		"age too long":    {fencepost.ReplayWindow{MaxSignedAge: time.Hour + 1, MaxQueueAge: time.Minute}, false},
		"queue too short": {fencepost.ReplayWindow{MaxSignedAge: time.Second, MaxQueueAge: time.Minute - 1}, false},
		"queue too long":  {fencepost.ReplayWindow{MaxSignedAge: time.Second, MaxQueueAge: 720*time.Hour + 1}, false},
	} {
		err := test.window.Validate()
		if (err == nil) != test.ok || (err != nil && !errors.Is(err, fencepost.ErrMalformed)) {
			t.Errorf("%s: err = %v, want ok %v or ErrMalformed", name, err, test.ok)
		}
	}
}

func TestDeliveryNamesHaveOneForm(t *testing.T) {
	t.Parallel()
	key := acceptance(t, nil, "body", fencepost.Evidence{Replay: fencepost.ReplayBody{}}).delivery.Key()
	if got, err := fencepost.ParseDeliveryKey(key.Hex()); err != nil || got != key {
		t.Errorf("ParseDeliveryKey(Hex) = %v, %v", got, err)
	}
	if got, err := fencepost.ParseDeliveryID(key.String()); err != nil || got != key.ID() {
		t.Errorf("ParseDeliveryID(String) = %q, %v", got, err)
	}
	for _, bad := range []string{"", strings.Repeat("0", 64), strings.ToUpper(key.Hex()), key.Hex()[1:], key.Hex() + "0", "0x" + key.Hex()[2:]} {
		if got, err := fencepost.ParseDeliveryKey(bad); !errors.Is(err, fencepost.ErrMalformed) || !got.IsZero() {
			t.Errorf("ParseDeliveryKey(%q) = %v, %v; want ErrMalformed", bad, got, err)
		}
	}
	id := key.String()
	for _, bad := range []string{"", "dlv_", id[4:], "evl_" + id[4:], strings.ToUpper(id), id + "a", id[:len(id)-1],
		id + "\n", id[:10] + "\n" + id[10:], id[:len(id)-1] + "b", id[:len(id)-1] + "1"} {
		if got, err := fencepost.ParseDeliveryID(bad); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("ParseDeliveryID(%q) = %q, %v; want ErrMalformed", bad, got, err)
		}
	}
}

func FuzzParseDeliveryID(f *testing.F) {
	f.Add("dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("dlv_aaaaaaaaaaaaaaaaaaaaaaaaab")
	f.Add("dlv_\naaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := fencepost.ParseDeliveryID(s)
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) || id != "" {
				t.Fatalf("ParseDeliveryID(%q) = %q, %v", s, id, err)
			}
			return
		}
		if string(id) != s || len(s) != 30 || strings.Trim(s[4:], "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Fatalf("ParseDeliveryID(%q) = %q", s, id)
		}
	})
}
