package fencepost_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

var receipt = time.Date(2026, 11, 5, 12, 0, 0, 123456789, time.UTC)

// verifier answers with what it holds and counts how often it is asked.
type verifier struct {
	evidence fencepost.Evidence
	err      error

	mu    sync.Mutex
	asked int
}

func (v *verifier) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.evidence, v.err
}

// vouching completes ev with an anchor and a trust set.
func vouching(ev fencepost.Evidence) *verifier {
	ev.Anchor, ev.TrustSet = "2026-q4", "acme"
	return &verifier{evidence: ev}
}

type accepted struct {
	proof    fencepost.Proof
	delivery fencepost.AcceptedDelivery
}

// acceptance carries a request on route docs all the way.
func acceptance(t *testing.T, pairs []fencepost.Header, body string, ev fencepost.Evidence) accepted {
	t.Helper()
	h := fencepost.NewHeaders(pairs)
	p, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", h, []byte(body), receipt), vouching(ev))
	if err != nil {
		t.Fatal(err)
	}
	rule := fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone,
		Window: fencepost.DefaultReplayWindow}
	if !ev.SignedAt.IsZero() {
		rule.SignedTime = fencepost.SignedTimeRequired
	}
	d, err := fencepost.Accept(p, rule, h, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return accepted{p, d}
}

func TestAuthenticateRefuses(t *testing.T) {
	t.Parallel()
	refusal := errors.New("no")
	check := func() *fencepost.IngressCheck {
		return fencepost.NewIngressCheck("docs", fencepost.Headers{}, []byte("{}"), receipt)
	}
	full := fencepost.Evidence{Anchor: "a", TrustSet: "t", Replay: fencepost.ReplayBody{}}
	without := func(change func(*fencepost.Evidence)) *verifier {
		ev := full
		change(&ev)
		return &verifier{evidence: ev}
	}
	tests := map[string]struct {
		check    *fencepost.IngressCheck
		verifier fencepost.Verifier
		want     error
	}{
		"no check":          {nil, &verifier{evidence: full}, fencepost.ErrZeroValue},
		"zero check":        {&fencepost.IngressCheck{}, &verifier{evidence: full}, fencepost.ErrZeroValue},
		"check of no time":  {fencepost.NewIngressCheck("docs", fencepost.Headers{}, nil, time.Time{}), &verifier{evidence: full}, fencepost.ErrZeroValue},
		"check of no route": {fencepost.NewIngressCheck("", fencepost.Headers{}, nil, receipt), &verifier{evidence: full}, fencepost.ErrZeroValue},
		"no verifier":       {check(), nil, fencepost.ErrZeroValue},
		"verifier's error":  {check(), &verifier{evidence: full, err: refusal}, refusal},
		"no anchor":         {check(), without(func(ev *fencepost.Evidence) { ev.Anchor = "" }), fencepost.ErrZeroValue},
		"no trust set":      {check(), without(func(ev *fencepost.Evidence) { ev.TrustSet = "" }), fencepost.ErrZeroValue},
		"no replay":         {check(), without(func(ev *fencepost.Evidence) { ev.Replay = nil }), fencepost.ErrZeroValue},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := fencepost.Authenticate(test.check, test.verifier)
			if !errors.Is(err, test.want) {
				t.Errorf("err = %v, want %v", err, test.want)
			}
			if p.Valid() || p != (fencepost.Proof{}) {
				t.Errorf("a refused check left a proof: %v", p)
			}
		})
	}
}

func TestACheckAuthenticatesOnce(t *testing.T) {
	t.Parallel()
	check := fencepost.NewIngressCheck("docs", fencepost.Headers{}, []byte("{}"), receipt)
	v := vouching(fencepost.Evidence{Replay: fencepost.ReplayBody{}})
	const workers = 16
	errs := make(chan error, workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			_, err := fencepost.Authenticate(check, v)
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	made := 0
	for err := range errs {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, fencepost.ErrCheckUsed):
			t.Errorf("err = %v, want ErrCheckUsed", err)
		}
	}
	if made != 1 || v.asked != 1 {
		t.Errorf("%d proofs from one check, verifier asked %d times; want 1, 1", made, v.asked)
	}
}

func TestARefusedCheckStaysUsed(t *testing.T) {
	t.Parallel()
	check := fencepost.NewIngressCheck("docs", fencepost.Headers{}, []byte("{}"), receipt)
	if _, err := fencepost.Authenticate(check, &verifier{err: fencepost.ErrUnauthenticated}); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Fatalf("err = %v, want ErrUnauthenticated", err)
	}
	v := vouching(fencepost.Evidence{Replay: fencepost.ReplayBody{}})
	if _, err := fencepost.Authenticate(check, v); !errors.Is(err, fencepost.ErrCheckUsed) {
		t.Errorf("err = %v, want ErrCheckUsed", err)
	}
}

func TestProofBindsExactHeadersAndBody(t *testing.T) {
	t.Parallel()
	pairs := []fencepost.Header{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "B", Value: "3"}}
	p := acceptance(t, pairs, "body", fencepost.Evidence{Replay: fencepost.ReplayBody{}}).proof
	tests := map[string]struct {
		pairs []fencepost.Header
		body  string
		want  bool
	}{
		"the request":                    {pairs, "body", true},
		"order between names":            {[]fencepost.Header{pairs[1], pairs[2], pairs[0]}, "body", true},
		"spelling of names":              {[]fencepost.Header{{Name: "a", Value: "1"}, pairs[1], pairs[2]}, "body", true},
		"order within a name":            {[]fencepost.Header{pairs[0], pairs[2], pairs[1]}, "body", false},
		"another value":                  {[]fencepost.Header{{Name: "A", Value: "2"}, pairs[1], pairs[2]}, "body", false},
		"a header less":                  {pairs[:2], "body", false},
		"a header more":                  {append(pairs[:3:3], fencepost.Header{Name: "C"}), "body", false},
		"values joined":                  {[]fencepost.Header{pairs[0], {Name: "B", Value: "2, 3"}}, "body", false},
		"another body":                   {pairs, "Body", false},
		"body with a byte more":          {pairs, "body\n", false},
		"bytes moved from name to value": {[]fencepost.Header{{Name: "", Value: "a1"}, pairs[1], pairs[2]}, "body", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := p.Binds(fencepost.NewHeaders(test.pairs), []byte(test.body)); got != test.want {
				t.Errorf("Binds = %v, want %v", got, test.want)
			}
		})
	}
	if (fencepost.Proof{}).Binds(fencepost.Headers{}, nil) {
		t.Error("the zero proof binds something")
	}
}

func TestProofKeepsReceiptAndSignedTimeAsUTC(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("east", 3600)
	check := fencepost.NewIngressCheck("docs", fencepost.Headers{}, nil, receipt.In(zone))
	p, err := fencepost.Authenticate(check, vouching(fencepost.Evidence{
		Replay: fencepost.ReplayBody{}, SignedAt: receipt.Add(-time.Second).In(zone)}))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Received(); got != receipt {
		t.Errorf("Received = %v, want %v", got, receipt)
	}
	if got, ok := p.SignedAt(); !ok || got != receipt.Add(-time.Second) {
		t.Errorf("SignedAt = %v, %v", got, ok)
	}
}

func TestReplayIdentitiesOfDifferentSchemesDiffer(t *testing.T) {
	t.Parallel()
	identity := func(body string, r fencepost.Replay) fencepost.ReplayIdentity {
		return acceptance(t, nil, body, fencepost.Evidence{Replay: r}).proof.Replay()
	}
	same := identity("x", fencepost.ReplaySigned{Domain: "d", Values: []string{"a", "b"}})
	if got := identity("y", fencepost.ReplaySigned{Domain: "d", Values: []string{"a", "b"}}); got != same {
		t.Error("a signed identity depends on the body")
	}
	if identity("x", fencepost.ReplayBody{}) == identity("y", fencepost.ReplayBody{}) {
		t.Error("two bodies have one identity")
	}
	for name, other := range map[string]fencepost.Replay{
		"another domain": fencepost.ReplaySigned{Domain: "e", Values: []string{"a", "b"}},
		"values joined":  fencepost.ReplaySigned{Domain: "d", Values: []string{"ab"}},
		"values moved":   fencepost.ReplaySigned{Domain: "d", Values: []string{"", "ab"}},
		"a value more":   fencepost.ReplaySigned{Domain: "d", Values: []string{"a", "b", ""}},
		"over the body":  fencepost.ReplayBody{},
	} {
		if identity("x", other) == same {
			t.Errorf("%s: the same identity", name)
		}
	}
}

func TestProofPrintsNothingOfTheRequest(t *testing.T) {
	t.Parallel()
	p := acceptance(t, []fencepost.Header{{Name: "X", Value: "canary-header"}}, "canary-body",
		fencepost.Evidence{Replay: fencepost.ReplayBody{}}).proof
	if got := p.String(); strings.Contains(got, "canary") || !strings.Contains(got, "docs") {
		t.Errorf("String = %q", got)
	}
	if got := (fencepost.Proof{}).String(); got != "proof(none)" {
		t.Errorf("String of the zero proof = %q", got)
	}
}
