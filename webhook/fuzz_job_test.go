package webhook_test

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// FuzzGitLabJob gives the scheme any header: only the token that was signed
// is accepted, to the letter, and every refusal costs the same.
func FuzzGitLabJob(f *testing.F) {
	keys := jobKeys()
	good := jobToken(f, keys[1], jobPayload)
	parts := strings.Split(good, ".")
	for _, v := range []string{
		"", "Bearer", "Bearer ", good, "Bearer " + good, "bearer " + good, "Bearer " + good + ".", "Bearer " + good + "=", "Bearer " + good + "\n",
		"Bearer ..", "Bearer " + parts[0] + "." + parts[1] + ".", "Bearer " + b64(`{"alg":"none"}`) + "." + parts[1] + ".",
		"Bearer " + b64(`{"alg":"RS256","kid":"a","kid":"b"}`) + "." + parts[1] + "." + parts[2],
		"Bearer " + b64(`{"alg":"RS256","kid":"`+kidOf(keys[0])+`"}`) + "." + parts[1] + "." + b64(strings.Repeat("\xff", 256)),
	} {
		f.Add(v)
	}
	g := jobScheme(f)
	f.Fuzz(func(t *testing.T, value string) {
		h := authorization(value)
		ev, err := g.Verify(h, nil, now)
		if (err == nil) != (value == "Bearer "+good) {
			t.Fatalf("err = %v for %q", err, value)
		}
		if err != nil {
			refusal, ok := errors.AsType[*webhook.Refusal](err)
			if !ok || refusal.Verifications != 2 || refusal.Cause == 0 || ev.Anchor != "" {
				t.Fatalf("refusal %+v with evidence %+v", refusal, ev)
			}
		}
		if c, err := webhook.JobClaimsOf(h); err != nil && (!errors.Is(err, fencepost.ErrMalformed) || c != (webhook.JobClaims{})) {
			t.Fatalf("claims %+v, err = %v", c, err)
		}
	})
}

// FuzzJobPayload signs any payload, and holds the verdict against another
// reader of JSON.
func FuzzJobPayload(f *testing.F) {
	f.Add([]byte(jobPayload))
	for _, change := range [][2]string{
		{`"aud":"https://fencepost.example.com"`, `"aud":["https://fencepost.example.com"]`},
		{`"aud":"https://fencepost.example.com"`, `"aud":["https://fencepost.example.com","https://fencepost.example.com"]`},
		{`"runner_id":1`, `"runner_id":1,"iss":"x"`}, {`"runner_id":1`, `"runner_id":1.0`}, {`"exp":1793883590`, `"exp":1793880000`},
		{`"job_config":{`, `"job_config":{"a":{"b":1,"b":2},`}, {`"jti":"2`, `"jt\u0069":"\u0032`}, {`"iat":1793879990`, `"iat":1793880006`},
	} {
		f.Add([]byte(with(f, jobPayload, change[0], change[1])))
	}
	key := jobKeys()[1]
	g := jobScheme(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 4<<10 || len(payload) == 0 {
			return
		}
		h := authorization("Bearer " + token(t, key, header(key), string(payload)))
		ev, err := g.Verify(h, nil, now)
		want := readPayload(payload)
		if (err == nil) != (want != nil) {
			t.Fatalf("err = %v (%+v), want accepted %v", err, err, want != nil)
		}
		if err != nil {
			return
		}
		signed, ok := ev.Replay.(fencepost.ReplaySigned)
		if !ok || signed.Values[1] != strconv.FormatInt(want.RunnerID, 10) || signed.Values[2] != want.ID || ev.SignedAt.Unix() != want.IssuedAt {
			t.Fatalf("evidence %+v of %+v", ev, want)
		}
		if c, err := webhook.JobClaimsOf(h); err == nil && (c.Issuer != issuer || c.TokenID != want.ID || c.RunnerID != want.RunnerID) {
			t.Fatalf("claims %+v of %+v", c, want)
		}
	})
}

type otherClaims struct {
	Issuer    *string        `json:"iss"`
	Audience  jsontext.Value `json:"aud"`
	ID        string         `json:"jti"`
	IssuedAt  int64          `json:"iat"`
	NotBefore int64          `json:"nbf"`
	Expires   int64          `json:"exp"`
	RunnerID  int64          `json:"runner_id"`
}

// readPayload is an independent reading of the rules for a payload; nil is
// refused.
func readPayload(payload []byte) *otherClaims {
	var c otherClaims
	err := jsonv2.Unmarshal(payload, &c)
	within := depth(payload) <= 8 && strings.Count(string(payload), ",") < 1000
	if err != nil || !within || c.Issuer == nil || *c.Issuer != issuer || c.ID == "" || len(c.ID) > 256 || c.RunnerID < 1 {
		return nil
	}
	const at, lastYear = 1793880000, 253402300799
	if c.Expires <= at || c.Expires > lastYear || c.NotBefore < 1 || c.NotBefore > at || c.IssuedAt < 1 || c.IssuedAt > at+5 {
		return nil
	}
	if c.Audience.Kind() == '"' {
		var one string
		if jsonv2.Unmarshal(c.Audience, &one) != nil || one != audience {
			return nil
		}
		return &c
	}
	var many []*string
	if c.Audience.Kind() != '[' || jsonv2.Unmarshal(c.Audience, &many) != nil || len(many) > 16 {
		return nil
	}
	ours := 0
	for _, name := range many {
		if name == nil {
			return nil
		}
		if *name == audience {
			ours++
		}
	}
	if ours != 1 {
		return nil
	}
	return &c
}

// depth is how deep the values of a valid text nest.
func depth(text []byte) (deepest int) {
	d, quoted, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			d++
			deepest = max(deepest, d)
		case c == '}' || c == ']':
			d--
		}
	}
	return deepest
}

func FuzzParseJWKS(f *testing.F) {
	f.Add([]byte(`{"keys":[` + rfc7638Key + `]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","n":null},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(rfc7638Key))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := webhook.ParseJWKS(text)
		if err != nil && (!errors.Is(err, fencepost.ErrMalformed) || keys != nil) {
			t.Fatalf("keys %+v, err = %v", keys, err)
		}
		if k, err := webhook.ParseJWK(text); err == nil {
			keys = append(keys, k)
		}
		for i, k := range keys {
			// What is read as a key makes a keyring, and is read the same again.
			ring, err := webhook.NewJobKeyring("a", webhook.JobAnchor{ID: "a", Key: k.Key, KeyID: k.KeyID})
			if err != nil || ring.Len() != 1 {
				t.Fatalf("key %d: %v", i, err)
			}
			again, err := webhook.ParseJWK([]byte(`{"kty":"RSA","e":"AQAB","n":"` + base64.RawURLEncoding.EncodeToString(k.Key.N.Bytes()) + `"}`))
			if err != nil || k.Key.E == 65537 && again.Thumbprint != k.Thumbprint {
				t.Fatalf("key %d read again: %+v, err = %v", i, again, err)
			}
		}
	})
}
