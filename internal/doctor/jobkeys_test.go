package doctor

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/webhook"
)

func newKey(t *testing.T) *rsa.PublicKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

// issuer publishes keys.
func issuer(t *testing.T, status int, keys ...*rsa.PublicKey) *url.URL {
	t.Helper()
	var texts []string
	for i, k := range keys {
		texts = append(texts, fmt.Sprintf(`{"kty":"RSA","use":"sig","alg":"RS256","kid":"%d","e":"%s","n":"%s"}`, i,
			base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.E)).Bytes()), base64.RawURLEncoding.EncodeToString(k.N.Bytes())))
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/oauth/discovery/keys" || r.Header.Get("Authorization") != "" {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"keys":[%s]}`, strings.Join(texts, ","))
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTheKeysOfAnIssuerBesideThePinnedOnes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	one, two, gone := newKey(t), newKey(t), newKey(t)
	pin := func(id string, k *rsa.PublicKey) Pin { return Pin{ID: id, Thumbprint: webhook.ThumbprintOf(k)} }
	over := pin("over", one)
	over.Until = now
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for name, tc := range map[string]struct {
		status int
		keys   []*rsa.PublicKey
		pins   []Pin
		want   string
	}{
		"pinned":              {200, []*rsa.PublicKey{one}, []Pin{pin("a", one)}, "ok issuer.keys, ok issuer.key"},
		"rotating, one ahead": {200, []*rsa.PublicKey{one, two}, []Pin{pin("a", one)}, "ok issuer.keys, ok issuer.key, warn issuer.key"},
		"rotated":             {200, []*rsa.PublicKey{two}, []Pin{pin("a", two), pin("b", gone)}, "ok issuer.keys, ok issuer.key, warn issuer.pin b"},
		"none pinned":         {200, []*rsa.PublicKey{one}, nil, "ok issuer.keys, warn issuer.key, fail issuer.trust"},
		"out of its window":   {200, []*rsa.PublicKey{one}, []Pin{over}, "ok issuer.keys, warn issuer.key, fail issuer.trust"},
		"none published":      {200, nil, []Pin{pin("a", one)}, "fail issuer.keys, warn issuer.pin a"},
		"no such page":        {404, nil, []Pin{pin("a", one)}, "fail issuer.keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range JobKeys(t.Context(), client, "gate docs", issuer(t, tc.status, tc.keys...), tc.pins, now) {
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
