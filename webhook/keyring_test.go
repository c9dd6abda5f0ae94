package webhook_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

var now = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func secret(s string) fencepost.Secret { return fencepost.NewSecret([]byte(s)) }

// ring makes a keyring whose anchors' secrets are "the one secret of " and the id.
func ring(t testing.TB, anchors ...webhook.Anchor) *webhook.Keyring {
	t.Helper()
	for i := range anchors {
		if anchors[i].Secret.Len() == 0 {
			anchors[i].Secret = secret("the one secret of " + string(anchors[i].ID))
		}
	}
	k, err := webhook.NewKeyring("acme", anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNewKeyringNamesEveryFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 100)
	digest := sha256.Sum256([]byte(long))
	nine := make([]webhook.Anchor, 9)
	for i := range nine {
		nine[i] = webhook.Anchor{ID: fencepost.AnchorID(fmt.Sprint("a", i)), Secret: secret(fmt.Sprint("sixteen bytes and ", i))}
	}
	a := func(id string, key fencepost.Secret) webhook.Anchor {
		return webhook.Anchor{ID: fencepost.AnchorID(id), Secret: key}
	}
	const good = "sixteen bytes ok"
	tests := map[string]struct {
		name    string
		anchors []webhook.Anchor
		want    []string
	}{
		"nothing wrong":           {"acme", []webhook.Anchor{a("a", secret(good))}, nil},
		"eight anchors":           {"acme", nine[:8], nil},
		"no anchor":               {"acme", nil, []string{"must have 1 to 8 anchors, has 0"}},
		"nine anchors":            {"acme", nine, []string{"must have 1 to 8 anchors, has 9"}},
		"no name":                 {"", []webhook.Anchor{a("a", secret(good))}, []string{"name of a trust set"}},
		"name with a line end":    {"ac\nme", []webhook.Anchor{a("a", secret(good))}, []string{"name of a trust set"}},
		"id of 65 bytes":          {"acme", []webhook.Anchor{a(strings.Repeat("a", 65), secret(good))}, []string{"anchor 1: id must be"}},
		"id with a space":         {"acme", []webhook.Anchor{a("a b", secret(good))}, []string{"anchor 1: id must be"}},
		"no secret":               {"acme", []webhook.Anchor{{ID: "a"}}, []string{"at least 16 bytes, has 0"}},
		"short secret":            {"acme", []webhook.Anchor{a("a", secret(good[1:]))}, []string{"at least 16 bytes, has 15"}},
		"window of no length":     {"acme", []webhook.Anchor{{ID: "a", Secret: secret(good), From: now, Until: now}}, []string{"must start before it ends"}},
		"window back to front":    {"acme", []webhook.Anchor{{ID: "a", Secret: secret(good), From: now.Add(1), Until: now}}, []string{"must start before it ends"}},
		"an id twice":             {"acme", []webhook.Anchor{a("a", secret(good)), a("a", secret(good+"2"))}, []string{"anchor a: id must be unique"}},
		"a secret twice":          {"acme", []webhook.Anchor{a("a", secret(good)), a("b", secret(good))}, []string{"anchors a and b: secrets must be unique"}},
		"a secret and zeros":      {"acme", []webhook.Anchor{a("a", secret(good)), a("b", secret(good+"\x00"))}, []string{"secrets must be unique"}},
		"a secret and its digest": {"acme", []webhook.Anchor{a("a", secret(long)), a("b", secret(string(digest[:])))}, []string{"secrets must be unique"}},
		"several faults": {"", []webhook.Anchor{{ID: "a"}, a("a", secret(good))},
			[]string{"name of a trust set", "has 0", "id must be unique"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := webhook.NewKeyring(fencepost.TrustSetName(test.name), test.anchors...)
			if len(test.want) == 0 {
				if err != nil || k.Len() != len(test.anchors) || k.Name() != fencepost.TrustSetName(test.name) {
					t.Fatalf("keyring %v of %d, err = %v", k.Name(), k.Len(), err)
				}
				return
			}
			if !errors.Is(err, fencepost.ErrMalformed) {
				t.Fatalf("err = %v, want ErrMalformed", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("err = %q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), good[:8]) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// DESIGN §1: a window's start is inclusive, its end exclusive, against
// receipt time.
func TestWindowAgainstReceiptTime(t *testing.T) {
	t.Parallel()
	body := []byte("body")
	windowed := ring(t, webhook.Anchor{ID: "a", From: now, Until: now.Add(time.Hour)})
	open := ring(t, webhook.Anchor{ID: "a"})
	from := ring(t, webhook.Anchor{ID: "a", From: now})
	until := ring(t, webhook.Anchor{ID: "a", Until: now})
	tests := []struct {
		keys *webhook.Keyring
		at   time.Time
		live bool
	}{
		{windowed, now.Add(-1), false}, {windowed, now, true}, {windowed, now.Add(time.Hour - 1), true}, {windowed, now.Add(time.Hour), false},
		{windowed, now.In(time.FixedZone("east", 7200)), true},
		{open, time.Time{}, true}, {open, now.AddDate(500, 0, 0), true},
		{from, now.Add(-1), false}, {from, now, true}, {until, now.Add(-1), true}, {until, now, false},
	}
	for i, test := range tests {
		signed, err := webhook.GitHub{Keys: open}.Sign(webhook.Message{Body: body, At: now})
		if err != nil {
			t.Fatal(err)
		}
		_, err = webhook.GitHub{Keys: test.keys}.Verify(fencepost.NewHeaders(signed), body, test.at)
		if test.live != (err == nil) {
			t.Errorf("row %d: live %v, err = %v", i, test.live, err)
		}
		if !test.live {
			wantCause(t, err, webhook.CauseNoLiveAnchor)
		}
		if got := test.keys.Live(test.at); (len(got) == 1) != test.live {
			t.Errorf("row %d: Live = %v", i, got)
		}
	}
}

func TestEvidenceNamesTheAnchorThatSigned(t *testing.T) {
	t.Parallel()
	var anchors []webhook.Anchor
	for i := range webhook.MaxAnchors {
		anchors = append(anchors, webhook.Anchor{ID: fencepost.AnchorID(fmt.Sprint("a", i)), Secret: secret(fmt.Sprint("sixteen bytes and ", i))})
	}
	all := ring(t, anchors...)
	for i := range anchors {
		one := ring(t, webhook.Anchor{ID: "other-name", Secret: secret(fmt.Sprint("sixteen bytes and ", i))})
		signed, err := webhook.GitHub{Keys: one}.Sign(webhook.Message{Body: []byte("body"), At: now})
		if err != nil {
			t.Fatal(err)
		}
		ev, err := webhook.GitHub{Keys: all}.Verify(fencepost.NewHeaders(signed), []byte("body"), now)
		if err != nil || ev.Anchor != anchors[i].ID || ev.TrustSet != "acme" {
			t.Errorf("anchor %d: evidence %+v, err = %v", i, ev, err)
		}
	}
}

func TestHasTellsRevocation(t *testing.T) {
	t.Parallel()
	k := ring(t, webhook.Anchor{ID: "a", Until: now}, webhook.Anchor{ID: "b"})
	for id, want := range map[fencepost.AnchorID]bool{"a": true, "b": true, "c": false, "": false} {
		if got := k.Has(id); got != want {
			t.Errorf("Has(%q) = %v", id, got)
		}
	}
	if (*webhook.Keyring)(nil).Has("a") || (*webhook.Keyring)(nil).Len() != 0 {
		t.Error("a nil keyring has an anchor")
	}
}

func TestSignTakesTheLiveAnchorThatStartedLast(t *testing.T) {
	t.Parallel()
	k := ring(t,
		webhook.Anchor{ID: "old", Until: now.Add(time.Hour)},
		webhook.Anchor{ID: "new", From: now},
		webhook.Anchor{ID: "next", From: now.Add(2 * time.Hour)})
	for _, test := range []struct {
		at   time.Time
		want fencepost.AnchorID
	}{{now.Add(-1), "old"}, {now, "new"}, {now.Add(time.Hour), "new"}, {now.Add(2 * time.Hour), "next"}} {
		g := webhook.GitHub{Keys: k}
		signed, err := g.Sign(webhook.Message{Body: []byte("body"), At: test.at})
		if err != nil {
			t.Fatal(err)
		}
		ev, err := g.Verify(fencepost.NewHeaders(signed), []byte("body"), test.at)
		if err != nil || ev.Anchor != test.want {
			t.Errorf("at %v signed by %q, err = %v; want %q", test.at, ev.Anchor, err, test.want)
		}
	}
	none := webhook.GitHub{Keys: ring(t, webhook.Anchor{ID: "a", Until: now})}
	if _, err := none.Sign(webhook.Message{At: now}); !errors.Is(err, webhook.ErrNoLiveAnchor) {
		t.Errorf("err = %v, want ErrNoLiveAnchor", err)
	}
}

func TestZeroedKeyringRefusesNobodyForGood(t *testing.T) {
	t.Parallel()
	key := secret("sixteen bytes ok")
	view := key.Reveal()
	k := ring(t, webhook.Anchor{ID: "a", Secret: key})
	g := webhook.GitHub{Keys: k}
	k.Zero()
	k.Zero()
	if !bytes.Equal(view, make([]byte, len(view))) {
		t.Error("the secret's bytes were left")
	}
	_, err := g.Verify(fencepost.Headers{}, nil, now)
	if !errors.Is(err, fencepost.ErrZeroValue) || errors.Is(err, fencepost.ErrUnauthenticated) {
		t.Errorf("Verify: err = %v, want ErrZeroValue alone", err)
	}
	if _, err := g.Sign(webhook.Message{At: now}); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("Sign: err = %v, want ErrZeroValue", err)
	}
	if !k.Has("a") || k.Len() != 1 || len(k.Live(now)) != 0 {
		t.Error("Zero changed more than the secrets")
	}
}

func TestZeroWaitsForVerifications(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("body"), 4096)
	k := ring(t, webhook.Anchor{ID: "a"})
	g := webhook.GitHub{Keys: k}
	signed, err := g.Sign(webhook.Message{Body: body, At: now})
	if err != nil {
		t.Fatal(err)
	}
	h := fencepost.NewHeaders(signed)
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			_, err := g.Verify(h, body, now)
			if i == 0 {
				close(started)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	<-started
	k.Zero()
	// A verification that Zero cut into would fail as unauthenticated.
	if err := <-ended; !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("err = %v, want ErrZeroValue", err)
	}
}

// verifiers are the schemes over one keyring.
func verifiers(k *webhook.Keyring, work int) map[string]fencepost.Verifier {
	return map[string]fencepost.Verifier{
		"github":   webhook.GitHub{Keys: k, Work: work},
		"gitea":    webhook.Gitea{Keys: k, Work: work},
		"forgejo":  webhook.Forgejo{Keys: k, Work: work},
		"gogs":     webhook.Gogs{Keys: k, Work: work},
		"standard": webhook.StandardWebhooks{Keys: k, Work: work},
	}
}

// Structure, not stopwatch: whatever a request is refused for, the same
// number of MACs is computed.
func TestEveryRefusalCostsTheSame(t *testing.T) {
	t.Parallel()
	rings := map[string]struct {
		keys       *webhook.Keyring
		work, want int
	}{
		"one live":           {ring(t, webhook.Anchor{ID: "a"}), 0, 1},
		"one live, work 3":   {ring(t, webhook.Anchor{ID: "a"}), 3, 3},
		"none live":          {ring(t, webhook.Anchor{ID: "a", Until: now}), 0, 1},
		"none of 2, work 3":  {ring(t, webhook.Anchor{ID: "a", Until: now}, webhook.Anchor{ID: "b", Until: now}), 3, 3},
		"one of three live":  {ring(t, webhook.Anchor{ID: "a", Until: now}, webhook.Anchor{ID: "b"}, webhook.Anchor{ID: "c", From: now.Add(1)}), 0, 3},
		"more than the work": {ring(t, webhook.Anchor{ID: "a"}, webhook.Anchor{ID: "b"}), 1, 2},
	}
	bad := fencepost.Header{Name: "x-hub-signature-256", Value: "sha256=" + strings.Repeat("0", 64)}
	requests := map[string][]fencepost.Header{
		"nothing":   nil,
		"wrong":     {bad},
		"ambiguous": {bad, bad},
		"malformed": {{Name: "x-hub-signature-256", Value: "sha1=00"}},
	}
	for ringName, r := range rings {
		for scheme, v := range verifiers(r.keys, r.work) {
			for request, headers := range requests {
				_, err := v.Verify(fencepost.NewHeaders(headers), []byte("body"), now)
				refusal, ok := errors.AsType[*webhook.Refusal](err)
				if !ok || refusal.MACs != r.want {
					t.Errorf("%s, %s, %s: %+v (err %v), want %d MACs", ringName, scheme, request, refusal, err, r.want)
				}
			}
		}
	}
	for work, want := range map[int]int{-1: 1, 0: 1, 1: 1, 8: 8} {
		_, err := webhook.Decoy{Work: work}.Verify(fencepost.Headers{}, []byte("body"), now)
		refusal, ok := errors.AsType[*webhook.Refusal](err)
		if !ok || refusal.MACs != want {
			t.Errorf("decoy of %d: %+v (err %v), want %d MACs", work, refusal, err, want)
		}
	}
}

// A signature that is right may come with a time that is not: that refusal,
// which is Accept's, shall have cost as much.
func TestStandardWebhooksCostTheSameWhenAccepted(t *testing.T) {
	t.Parallel()
	for work, want := range map[int]int{0: 2, 2: 2, 5: 5} {
		s := webhook.StandardWebhooks{Keys: ring(t, webhook.Anchor{ID: "a"}, webhook.Anchor{ID: "b", Until: now}), Work: work}
		signed, err := s.Sign(webhook.Message{Body: []byte("body"), ID: "msg_1", At: now})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.MACs(fencepost.NewHeaders(signed), []byte("body"), now); err != nil || got != want {
			t.Errorf("work %d: accepted for %d MACs, err = %v; want %d", work, got, err, want)
		}
		if got, err := s.MACs(fencepost.NewHeaders(signed), []byte("b0dy"), now); !errors.Is(err, fencepost.ErrUnauthenticated) || got != want {
			t.Errorf("work %d: refused for %d MACs, err = %v; want %d", work, got, err, want)
		}
	}
}

func TestSchemesWithoutKeyringFailAsZeroValue(t *testing.T) {
	t.Parallel()
	for name, v := range verifiers(nil, 0) {
		if _, err := v.Verify(fencepost.Headers{}, nil, now); !errors.Is(err, fencepost.ErrZeroValue) || errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("%s: err = %v, want ErrZeroValue alone", name, err)
		}
	}
	if _, err := (webhook.GitHub{}).Sign(webhook.Message{}); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("Sign: err = %v, want ErrZeroValue", err)
	}
}

func wantCause(t *testing.T, err error, want webhook.Cause) {
	t.Helper()
	refusal, ok := errors.AsType[*webhook.Refusal](err)
	switch {
	case !ok:
		t.Errorf("err = %v, want a refusal: %v", err, want)
	case refusal.Cause != want:
		t.Errorf("cause = %v, want %v", refusal.Cause, want)
	case !errors.Is(err, fencepost.ErrUnauthenticated):
		t.Errorf("err = %v does not match ErrUnauthenticated", err)
	case err.Error() != "webhook: unauthenticated":
		t.Errorf("the refusal's text says more: %q", err)
	}
}
