package jobkeys_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/jobkeys"
	"github.com/fencepost/fencepost/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const issuer, audience = "https://gitlab.example.com", "https://fencepost.example.com"

var keys = sync.OnceValue(func() (all [3]*rsa.PrivateKey) {
	for i := range all {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		all[i] = key
	}
	return all
})

// jwk is the public half of a key, as its issuer publishes it.
func jwk(i int) webhook.JWK {
	pub := &keys()[i].PublicKey
	t := webhook.ThumbprintOf(pub)
	return webhook.JWK{KeyID: t.String(), Key: pub, Thumbprint: t}
}

func written(id string, i int) jobkeys.Anchor {
	return jobkeys.Anchor{ID: fencepost.AnchorID(id), JWK: jwk(i)}
}

func pinned(id string, i int) jobkeys.Anchor {
	return jobkeys.Anchor{ID: fencepost.AnchorID(id), Thumbprint: jwk(i).Thumbprint}
}

// token is a job's, signed by a key at a time.
func token(t *testing.T, i int, at time.Time) fencepost.Headers {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64(fmt.Appendf(nil, `{"alg":"RS256","kid":%q}`, jwk(i).KeyID)) + "." + b64(fmt.Appendf(nil,
		`{"iss":%q,"aud":%q,"jti":"a","runner_id":1,"iat":%d,"nbf":%d,"exp":%d}`, issuer, audience, at.Unix(), at.Unix()-5, at.Unix()+300))
	digest := sha256.Sum256([]byte(text))
	s, err := rsa.SignPKCS1v15(nil, keys()[i], crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return fencepost.NewHeaders([]fencepost.Header{{Name: "authorization", Value: "Bearer " + text + "." + b64(s)}})
}

func newSet(t *testing.T, anchors ...jobkeys.Anchor) *jobkeys.Set {
	t.Helper()
	s := jobkeys.NewSet("gitlab")
	if err := s.Exchange(anchors); err != nil {
		t.Fatal(err)
	}
	return s
}

func verifier(s *jobkeys.Set) jobkeys.Verifier {
	return jobkeys.Verifier{Set: s, Issuer: issuer, Audience: audience, Work: func() int { return 3 }}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

var at = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func TestASetVerifiesWithWhatItKnows(t *testing.T) {
	t.Parallel()
	s := newSet(t, written("a", 0), pinned("b", 1))
	verify := func(i int) (fencepost.AnchorID, error) {
		ev, err := verifier(s).Verify(token(t, i, at), nil, at)
		if r, ok := errors.AsType[*webhook.Refusal](err); ok && r.Verifications != 3 {
			t.Errorf("%d verifications for a refusal, want 3", r.Verifications)
		}
		return ev.Anchor, err
	}
	if id, err := verify(0); id != "a" || err != nil {
		t.Errorf("the written key: %q, %v", id, err)
	}
	if _, err := verify(1); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("a key that is not known: %v", err)
	}
	if !s.Has("a") || !s.Has("b") || s.Has("c") || s.Size() != 2 {
		t.Error("its anchors are not those that it was given")
	}
	// Of what is found, only what is pinned counts.
	if fresh, err := s.Learn([]webhook.JWK{jwk(2), jwk(0), jwk(1), {}}); err != nil || len(fresh) != 1 || fresh[0].Thumbprint != jwk(1).Thumbprint {
		t.Fatalf("learnt %d, err = %v", len(fresh), err)
	}
	if fresh, err := s.Learn([]webhook.JWK{jwk(1)}); err != nil || fresh != nil {
		t.Errorf("learnt again: %d, err = %v", len(fresh), err)
	}
	if id, err := verify(1); id != "b" || err != nil {
		t.Errorf("the found key: %q, %v", id, err)
	}
	if _, err := verify(2); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("a key that is not pinned: %v", err)
	}
	// A key keeps being known through an exchange, and is gone with its pin.
	if err := s.Exchange([]jobkeys.Anchor{pinned("c", 1)}); err != nil {
		t.Fatal(err)
	}
	if id, err := verify(1); id != "c" || err != nil || s.Has("a") {
		t.Errorf("after the exchange: %q, %v", id, err)
	}
	if _, err := verify(0); !errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("a revoked key: %v", err)
	}
	for range 2 {
		if err := s.Exchange([]jobkeys.Anchor{written("a", 0)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Exchange([]jobkeys.Anchor{pinned("c", 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := verify(1); !errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("a key whose pin was taken out and put back: %v", err)
		}
	}
}

func TestExchangeChangesAllOrNothing(t *testing.T) {
	t.Parallel()
	s := newSet(t, written("a", 0))
	same := written("b", 1)
	same.JWK.KeyID = jwk(0).KeyID
	for name, anchors := range map[string][]jobkeys.Anchor{
		"an id twice": {written("a", 1), pinned("a", 2)}, "a key twice": {written("a", 1), pinned("b", 1)},
		"a key id twice": {written("a", 0), same}, "no id": {written("", 1)},
	} {
		if err := s.Exchange(anchors); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: err = %v", name, err)
		}
		if ev, err := verifier(s).Verify(token(t, 0, at), nil, at); err != nil || ev.Anchor != "a" {
			t.Errorf("%s: %+v, err = %v", name, ev, err)
		}
	}
	// A key that is published under the id of another is not taken.
	s = newSet(t, written("a", 0), pinned("b", 1))
	if fresh, err := s.Learn([]webhook.JWK{same.JWK}); !errors.Is(err, fencepost.ErrMalformed) || fresh != nil {
		t.Errorf("learnt %d, err = %v", len(fresh), err)
	}
	if ev, err := verifier(s).Verify(token(t, 0, at), nil, at); err != nil || ev.Anchor != "a" {
		t.Errorf("%+v, err = %v", ev, err)
	}
}

func TestAnEmptySetRefusesAtTheSameCost(t *testing.T) {
	t.Parallel()
	for _, s := range []*jobkeys.Set{jobkeys.NewSet("gitlab"), newSet(t, pinned("a", 0))} {
		_, err := verifier(s).Verify(token(t, 0, at), nil, at)
		if r, ok := errors.AsType[*webhook.Refusal](err); !ok || r.Verifications != 3 {
			t.Errorf("err = %v (%+v)", err, r)
		}
	}
}

func TestStateCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	later := pinned("later", 2)
	later.From = at.Add(time.Hour)
	s := newSet(t, written("a", 0), pinned("b", 1), later)
	if got, want := s.State(at), (jobkeys.State{Pinned: 2, Missing: 2, Live: 1, LiveMissing: 1}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	if _, err := s.Learn([]webhook.JWK{jwk(1)}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.State(at), (jobkeys.State{Pinned: 2, Missing: 1, Live: 2}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	if got := s.State(at.Add(time.Hour)); got.LiveMissing != 1 {
		t.Errorf("state %+v an hour later", got)
	}
}

// An issuer is a fetch that counts.
type source struct {
	mu    sync.Mutex
	has   []webhook.JWK
	err   error
	times []time.Time
}

func (i *source) fetch(context.Context) ([]webhook.JWK, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.times = append(i.times, time.Now())
	return i.has, i.err
}

func (i *source) set(err error, has ...webhook.JWK) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.has, i.err = has, err
}

func (i *source) looks() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.times)
}

type kept struct {
	mu   sync.Mutex
	keys []webhook.JWK
	err  error
}

func (k *kept) Keep(key webhook.JWK) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, key)
	return k.err
}

// find runs a finder of a set around what a test does.
func find(t *testing.T, anchors []jobkeys.Anchor, do func(s *jobkeys.Set, from *source, store *kept, reports func() []jobkeys.State)) {
	t.Helper()
	keys() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, anchors...)
		from, store := &source{}, &kept{}
		var mu sync.Mutex
		var states []jobkeys.State
		f := jobkeys.Finder{Set: s, Fetch: from.fetch, Store: store, Now: time.Now, Log: quiet(), Report: func(st jobkeys.State, _ error) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, st)
		}}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		from.set(errors.New("not yet up"))
		wg.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		do(s, from, store, func() []jobkeys.State { mu.Lock(); defer mu.Unlock(); return states })
		stop()
		wg.Wait()
	})
}

func TestAFinderLooksUntilItFound(t *testing.T) {
	t.Parallel()
	find(t, []jobkeys.Anchor{pinned("a", 0), pinned("b", 1)}, func(s *jobkeys.Set, from *source, store *kept, reports func() []jobkeys.State) {
		synctest.Wait()
		if from.looks() != 1 || s.State(time.Now()).Missing != 2 {
			t.Fatalf("%d looks, %+v", from.looks(), s.State(time.Now()))
		}
		// It fails: once a minute.
		time.Sleep(10*jobkeys.Retry + time.Second)
		if from.looks() != 11 {
			t.Errorf("%d looks after ten minutes of failures", from.looks())
		}
		// One of two is there: still once a minute.
		from.set(nil, jwk(2), jwk(0))
		time.Sleep(2 * jobkeys.Retry)
		if got := s.State(time.Now()); from.looks() != 13 || got.Missing != 1 || got.Live != 1 {
			t.Errorf("%d looks, %+v", from.looks(), got)
		}
		from.set(nil, jwk(1))
		time.Sleep(jobkeys.Retry)
		if got := s.State(time.Now()); from.looks() != 14 || got.Missing != 0 || got.Live != 2 {
			t.Errorf("%d looks, %+v: what is no longer published was known", from.looks(), got)
		}
		time.Sleep(3*jobkeys.Interval - time.Minute)
		if from.looks() != 16 {
			t.Errorf("%d looks with nothing missing", from.looks())
		}
		if len(store.keys) != 2 || store.keys[0].Thumbprint != jwk(0).Thumbprint {
			t.Errorf("kept %d keys", len(store.keys))
		}
		if all := reports(); len(all) != 16 || all[0].LiveMissing != 2 || all[15].LiveMissing != 0 {
			t.Errorf("reports %+v", all)
		}
	})
}

func TestAFinderLooksWhenAKeyIsWanted(t *testing.T) {
	t.Parallel()
	find(t, []jobkeys.Anchor{written("a", 0), pinned("b", 1)}, func(s *jobkeys.Set, from *source, _ *kept, _ func() []jobkeys.State) {
		from.set(nil, jwk(0))
		time.Sleep(5*jobkeys.Retry + jobkeys.Pause + time.Second)
		before := from.looks()
		// Tokens of a key that nobody has: one look, and none more often than
		// the pause allows, however many there are.
		unknown := token(t, 2, time.Now())
		for range 50 {
			if _, err := verifier(s).Verify(unknown, nil, time.Now()); !errors.Is(err, fencepost.ErrUnauthenticated) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if from.looks() != before+1 {
			t.Errorf("%d looks for fifty unknown keys", from.looks()-before)
		}
		for range 10 {
			_, _ = verifier(s).Verify(token(t, 2, time.Now()), nil, time.Now())
			time.Sleep(jobkeys.Pause / 10)
		}
		synctest.Wait()
		if n := from.looks() - before; n != 2 {
			t.Errorf("%d looks within the pause", n)
		}
		// A refusal of another cause wants none.
		time.Sleep(jobkeys.Pause + time.Second)
		before = from.looks()
		_, _ = verifier(s).Verify(fencepost.Headers{}, nil, time.Now())
		synctest.Wait()
		if from.looks() != before {
			t.Error("looked for a request without a token")
		}
		// Once all is known, unknown keys are nobody's business.
		from.set(nil, jwk(1))
		time.Sleep(jobkeys.Retry)
		before = from.looks()
		_, _ = verifier(s).Verify(token(t, 2, time.Now()), nil, time.Now())
		time.Sleep(10 * jobkeys.Retry)
		if from.looks() != before {
			t.Errorf("%d looks with nothing missing", from.looks()-before)
		}
		// New pins are looked for at once.
		if err := s.Exchange([]jobkeys.Anchor{pinned("c", 2)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if from.looks() != before+1 {
			t.Error("a new pin was not looked for")
		}
	})
}

func TestAFinderLeavesAnIssuerAloneOfWhichNothingIsWanted(t *testing.T) {
	t.Parallel()
	find(t, []jobkeys.Anchor{written("a", 0)}, func(_ *jobkeys.Set, from *source, _ *kept, reports func() []jobkeys.State) {
		time.Sleep(24 * time.Hour)
		if from.looks() != 0 || len(reports()) != 0 {
			t.Errorf("%d looks", from.looks())
		}
	})
}

// What was accepted before a restart waits for the key that it was signed
// with; what comes in doesn't.
func TestAPatientVerifierWaitsForTheFirstAnswer(t *testing.T) {
	t.Parallel()
	find(t, []jobkeys.Anchor{pinned("a", 0), pinned("never", 1)}, func(s *jobkeys.Set, from *source, store *kept, _ func() []jobkeys.State) {
		patient := verifier(s)
		patient.Patient = true
		store.err = errors.New("disk full")
		h, received := token(t, 0, time.Now()), time.Now()
		_, err := patient.Verify(h, nil, received)
		if !errors.Is(err, jobkeys.ErrPending) || errors.Is(err, fencepost.ErrUnauthenticated) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
			t.Fatalf("err = %v, want ErrPending", err)
		}
		if _, err := verifier(s).Verify(h, nil, received); !errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Fatalf("err = %v, want ErrUnauthenticated", err)
		}
		from.set(nil, jwk(0))
		time.Sleep(jobkeys.Retry)
		if ev, err := patient.Verify(h, nil, received); err != nil || ev.Anchor != "a" {
			t.Errorf("%+v, err = %v", ev, err)
		}
		// The issuer has answered: what is missing now is not there.
		if _, err := patient.Verify(token(t, 1, received), nil, received); !errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("err = %v, want ErrUnauthenticated", err)
		}
	})
}

func TestAStoreBelievesThumbprintsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := jobkeys.NewStore(durable.OS(dir))
	for range 2 {
		if err := store.Keep(jwk(0)); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := jwk(0).Thumbprint, jwk(1).Thumbprint, jwk(2).Thumbprint
	// Another key under the name of one that is pinned.
	text, err := jwk(2).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{b.String() + ".jwk": string(text), c.String() + ".jwk": "{", "x.tmp": "", "other": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := store.Find(a, b, c)
	if err != nil || len(found) != 1 || found[0].Thumbprint != a || found[0].KeyID != a.String() {
		t.Errorf("found %+v, err = %v", found, err)
	}
	// What was not the key makes way for it.
	if err := store.Keep(jwk(1)); err != nil {
		t.Fatal(err)
	}
	if found, err := store.Find(b, c); err != nil || len(found) != 1 || found[0].Thumbprint != b {
		t.Errorf("found %+v, err = %v", found, err)
	}
	if err := store.Clean(b); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name()+entries[1].Name() != b.String()+".jwk"+"other" && entries[1].Name()+entries[0].Name() != b.String()+".jwk"+"other" {
		t.Errorf("left %v, err = %v", entries, err)
	}
}

// transport answers without a network.
type transport func(*http.Request) (int, string)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestFetchReadsWhatAnIssuerPublishes(t *testing.T) {
	t.Parallel()
	one, err := jwk(0).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	set := `{"keys":[` + string(one) + `,{"kty":"EC"}]}`
	for name, test := range map[string]struct {
		status int
		body   string
		reason fencepost.Reason
	}{
		"keys":           {200, set, fencepost.ReasonNone},
		"not there":      {404, set, fencepost.ReasonProvider},
		"redirect":       {302, set, fencepost.ReasonIdentity},
		"not JSON":       {200, "<html>", fencepost.ReasonProvider},
		"keys twice":     {200, strings.Replace(set, "{", `{"keys":[],`, 1), fencepost.ReasonProvider},
		"a private key":  {200, strings.Replace(set, `"kty":"RSA"`, `"kty":"RSA","d":"AQAB"`, 1), fencepost.ReasonProvider},
		"more than much": {200, set + strings.Repeat(" ", 1<<20), fencepost.ReasonProvider},
	} {
		var asked []string
		base, err := url.Parse(issuer + "/gitlab")
		if err != nil {
			t.Fatal(err)
		}
		client, err := gitlab.New(gitlab.Config{
			API: base, Anonymous: true, Now: time.Now, Limits: forge.Limits{MaxAnswer: webhook.MaxJWKSBytes},
			Transport: transport(func(r *http.Request) (int, string) {
				var sent bytes.Buffer
				if err := r.Header.Write(&sent); err != nil || strings.Contains(strings.ToLower(sent.String()), "token") {
					t.Errorf("sent %s", sent.String())
				}
				asked = append(asked, r.Method+" "+r.URL.String())
				return test.status, test.body
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := jobkeys.Fetch(t.Context(), client)
		if fencepost.ReasonOf(err) != test.reason || (err == nil) != (len(got) == 1) {
			t.Errorf("%s: %d keys, err = %v (%s)", name, len(got), err, fencepost.ReasonOf(err))
		}
		if len(asked) != 1 || asked[0] != "GET https://gitlab.example.com/gitlab/oauth/discovery/keys" {
			t.Errorf("%s: asked %v", name, asked)
		}
	}
}
