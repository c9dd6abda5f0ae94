package doctor

import (
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/webhook"
)

func newKey(t *testing.T) webhook.JWK {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.JWK{Key: &key.PublicKey, Thumbprint: webhook.ThumbprintOf(&key.PublicKey)}
}

func TestTheKeysOfAnIssuerBesideThePinnedOnes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	one, two, gone := newKey(t), newKey(t), newKey(t)
	pin := func(id string, k webhook.JWK) Pin { return Pin{ID: id, Thumbprint: k.Thumbprint} }
	over := pin("over", one)
	over.Until = now
	for name, tc := range map[string]struct {
		keys []webhook.JWK
		pins []Pin
		want string
	}{
		"pinned":              {[]webhook.JWK{one}, []Pin{pin("a", one)}, "ok issuer.keys, ok issuer.key"},
		"rotating, one ahead": {[]webhook.JWK{one, two}, []Pin{pin("a", one)}, "ok issuer.keys, ok issuer.key, warn issuer.key"},
		"rotated":             {[]webhook.JWK{two}, []Pin{pin("a", two), pin("b", gone)}, "ok issuer.keys, ok issuer.key, warn issuer.pin b"},
		"none pinned":         {[]webhook.JWK{one}, nil, "ok issuer.keys, warn issuer.key, fail issuer.trust"},
		"out of its window":   {[]webhook.JWK{one}, []Pin{over}, "ok issuer.keys, warn issuer.key, fail issuer.trust"},
		"none published":      {nil, []Pin{pin("a", one)}, "fail issuer.keys, warn issuer.pin a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range JobKeys("gate docs", tc.keys, tc.pins, now) {
				got = append(got, string(c.Status)+" "+c.Name)
				if (c.Mend == "") != (c.Status == OK) {
					t.Errorf("%+v", c)
				}
				if c.Name == "issuer.key" && strings.Contains(c.Seen, "not pinned") && !strings.Contains(c.Mend, "- {id: gitlab-2026-12-01, thumbprint: ") {
					t.Errorf("no line to pin it: %+v", c)
				}
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("got %s\nwant %s", text, tc.want)
			}
		})
	}
}
