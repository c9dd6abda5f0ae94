package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// publicVector is one entry of testdata/vectors.yaml.
type publicVector struct {
	Name, Scheme, Secret, Body, Expect string
	Headers                            []fencepost.Header
}

func TestPublicVectors(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/vectors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []publicVector
	if err := yaml.UnmarshalWithOptions(file, &vectors, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	accepted := map[string]bool{}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			key := fencepost.NewSecret([]byte(v.Secret))
			if strings.HasPrefix(v.Secret, "whsec_") {
				if key, err = webhook.ParseStandardSecret([]byte(v.Secret)); err != nil {
					t.Fatal(err)
				}
			}
			// A published secret may be shorter than any that we would take.
			k := webhook.KeyringOfAnyLength("acme", webhook.Anchor{ID: "vector", Secret: key})
			ev, err := verifiers(k, 0)[v.Scheme].Verify(fencepost.NewHeaders(v.Headers), []byte(v.Body), now)
			switch v.Expect {
			case "accepted":
				accepted[v.Scheme] = true
				if err != nil || ev.Anchor != "vector" {
					t.Errorf("evidence %+v, err = %v", ev, err)
				}
			case "refused":
				if !errors.Is(err, fencepost.ErrUnauthenticated) {
					t.Errorf("err = %v, want ErrUnauthenticated", err)
				}
			default:
				t.Errorf("expect: %q", v.Expect)
			}
		})
	}
	for scheme := range verifiers(nil, 0) {
		if !accepted[scheme] {
			t.Errorf("no vector of %s is accepted", scheme)
		}
	}
}

// hexSchemes are the schemes of one header and a hexadecimal MAC of the body.
func hexSchemes(k *webhook.Keyring) map[string]struct {
	header, prefix string
	verifier       fencepost.Verifier
} {
	type scheme = struct {
		header, prefix string
		verifier       fencepost.Verifier
	}
	return map[string]scheme{
		"github":  {"X-Hub-Signature-256", "sha256=", webhook.GitHub{Keys: k}},
		"gitea":   {"X-Gitea-Signature", "", webhook.Gitea{Keys: k}},
		"forgejo": {"X-Forgejo-Signature", "", webhook.Forgejo{Keys: k}},
		"gogs":    {"X-Gogs-Signature", "", webhook.Gogs{Keys: k}},
	}
}

func hexMAC(key, body string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(body))
	return hex.EncodeToString(h.Sum(nil))
}

func TestHexSchemes(t *testing.T) {
	t.Parallel()
	const key, body = "the one secret of a", `{"a":1}`
	for name, s := range hexSchemes(ring(t, webhook.Anchor{ID: "a", Secret: secret(key + ".")}, webhook.Anchor{ID: "b", Secret: secret(key + "!")})) {
		good := hexMAC(key+"!", body)
		pair := func(values ...string) (pairs []fencepost.Header) {
			for _, v := range values {
				pairs = append(pairs, fencepost.Header{Name: s.header, Value: v})
			}
			return pairs
		}
		tests := map[string]struct {
			pairs []fencepost.Header
			body  string
			cause webhook.Cause
		}{
			"right":                   {pair(s.prefix + good), body, 0},
			"no header":               {nil, body, webhook.CauseMissing},
			"empty":                   {pair(""), body, webhook.CauseMissing},
			"twice the same":          {pair(s.prefix+good, s.prefix+good), body, webhook.CauseAmbiguous},
			"right and wrong":         {pair(s.prefix+good, "x"), body, webhook.CauseAmbiguous},
			"two empty":               {pair("", ""), body, webhook.CauseAmbiguous},
			"joined by a comma":       {pair(s.prefix + good + ", " + s.prefix + good), body, webhook.CauseMalformed},
			"upper case":              {pair(s.prefix + strings.ToUpper(good)), body, webhook.CauseMalformed},
			"one digit upper case":    {pair(s.prefix + strings.Replace(good, "f", "F", 1)), body, webhook.CauseMalformed},
			"63 digits":               {pair(s.prefix + good[1:]), body, webhook.CauseMalformed},
			"65 digits":               {pair(s.prefix + good + "0"), body, webhook.CauseMalformed},
			"leading space":           {pair(" " + s.prefix + good), body, webhook.CauseMalformed},
			"trailing space":          {pair(s.prefix + good + " "), body, webhook.CauseMalformed},
			"not hexadecimal":         {pair(s.prefix + "g" + good[1:]), body, webhook.CauseMalformed},
			"not ASCII":               {pair(s.prefix + "é" + good[2:]), body, webhook.CauseMalformed},
			"another prefix":          {pair("sha1=" + good), body, webhook.CauseMalformed},
			"prefix in capitals":      {pair("SHA256=" + good), body, webhook.CauseMalformed},
			"prefix alone":            {pair("sha256="), body, webhook.CauseMalformed},
			"all zero":                {pair(s.prefix + strings.Repeat("0", 64)), body, webhook.CauseMismatch},
			"another body":            {pair(s.prefix + good), body + "\n", webhook.CauseMismatch},
			"no body":                 {pair(s.prefix + good), "", webhook.CauseMismatch},
			"another key":             {pair(s.prefix + hexMAC("another", body)), body, webhook.CauseMismatch},
			"digest without key":      {pair(s.prefix + hexMAC("", body)), body, webhook.CauseMismatch},
			"in another's header":     {[]fencepost.Header{{Name: "X-Hub-Signature", Value: s.prefix + good}}, body, webhook.CauseMissing},
			"with others around":      {append(pair(s.prefix+good), fencepost.Header{Name: "X-Hub-Signature", Value: "sha1=00"}), body, 0},
			"header in lower case":    {[]fencepost.Header{{Name: strings.ToLower(s.header), Value: s.prefix + good}}, body, 0},
			"one of each letter case": {append(pair(s.prefix+good), fencepost.Header{Name: strings.ToUpper(s.header), Value: s.prefix + good}), body, webhook.CauseAmbiguous},
		}
		if s.prefix != "" {
			tests["without prefix"] = struct {
				pairs []fencepost.Header
				body  string
				cause webhook.Cause
			}{pair(good), body, webhook.CauseMalformed}
		} else {
			tests["with prefix"] = struct {
				pairs []fencepost.Header
				body  string
				cause webhook.Cause
			}{pair("sha256=" + good), body, webhook.CauseMalformed}
		}
		for testName, test := range tests {
			t.Run(name+"/"+testName, func(t *testing.T) {
				t.Parallel()
				ev, err := s.verifier.Verify(fencepost.NewHeaders(test.pairs), []byte(test.body), now)
				if test.cause != 0 {
					wantCause(t, err, test.cause)
					if diff := cmp.Diff(fencepost.Evidence{}, ev); diff != "" {
						t.Errorf("a refusal has evidence:\n%s", diff)
					}
					return
				}
				want := fencepost.Evidence{Anchor: "b", TrustSet: "acme", Replay: fencepost.ReplayBody{}}
				if diff := cmp.Diff(want, ev); err != nil || diff != "" {
					t.Errorf("err = %v, evidence (-want +got):\n%s", err, diff)
				}
			})
		}
	}
}

// Each route verifies one fixed header and never falls back to another.
func TestNoSchemeReadsAnothersHeader(t *testing.T) {
	t.Parallel()
	const key, body = "sixteen bytes ok", "{}"
	schemes := hexSchemes(ring(t, webhook.Anchor{ID: "a", Secret: secret(key)}))
	for name, s := range schemes {
		var others []fencepost.Header
		for _, o := range schemes {
			if o.header != s.header {
				others = append(others, fencepost.Header{Name: o.header, Value: o.prefix + hexMAC(key, body)})
			}
		}
		_, err := s.verifier.Verify(fencepost.NewHeaders(others), []byte(body), now)
		t.Run(name, func(t *testing.T) { wantCause(t, err, webhook.CauseMissing) })
	}
}

func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	const body = `{"a":1}`
	k := ring(t, webhook.Anchor{ID: "a"}, webhook.Anchor{ID: "b", Until: now.Add(-time.Hour)}, webhook.Anchor{ID: "c", From: now})
	s := webhook.StandardWebhooks{Keys: k}
	const id = "msg_2b7Yx9Kq"
	signature := func(at time.Time, id, body string) string {
		pairs, err := s.Sign(webhook.Message{Body: []byte(body), ID: id, At: at})
		if err != nil {
			t.Fatal(err)
		}
		return pairs[2].Value
	}
	stamp, good := "1793880000", signature(now, id, body)
	byC, byA := good, signature(now.Add(-time.Second), id, body) // c is not live yet a second before
	if stamp != "1793880000" || byA == byC {
		t.Fatal("the anchors are not those that the test means")
	}
	wrong := "v1," + strings.Repeat("A", 43) + "="
	req := func(id, stamp string, signatures ...string) []fencepost.Header {
		pairs := []fencepost.Header{{Name: "Webhook-Id", Value: id}, {Name: "Webhook-Timestamp", Value: stamp}}
		for _, v := range signatures {
			pairs = append(pairs, fencepost.Header{Name: "Webhook-Signature", Value: v})
		}
		return pairs
	}
	long := strings.Repeat("i", 256)
	tests := map[string]struct {
		pairs []fencepost.Header
		body  string
		cause webhook.Cause
		want  fencepost.AnchorID
	}{
		"right":                          {req(id, stamp, good), body, 0, "c"},
		"second of a list":               {req(id, stamp, wrong+" "+good), body, 0, "c"},
		"first of a list":                {req(id, stamp, good+" "+wrong), body, 0, "c"},
		"other versions around":          {req(id, stamp, "v1a,AAA= "+good+" v2,x"), body, 0, "c"},
		"longest id":                     {req(long, stamp, signature(now, long, body)), body, 0, "c"},
		"sixteen entries":                {req(id, stamp, strings.Repeat("v9,x ", 15)+good), body, 0, "c"},
		"seventeen entries":              {req(id, stamp, strings.Repeat("v9,x ", 16)+good), body, webhook.CauseMalformed, ""},
		"no id":                          {req(id, stamp, good)[1:], body, webhook.CauseMissing, ""},
		"no timestamp":                   {[]fencepost.Header{req(id, stamp, good)[0], req(id, stamp, good)[2]}, body, webhook.CauseMissing, ""},
		"no signature":                   {req(id, stamp), body, webhook.CauseMissing, ""},
		"empty id":                       {req("", stamp, good), body, webhook.CauseMissing, ""},
		"two ids":                        {append(req(id, stamp, good), fencepost.Header{Name: "webhook-id", Value: id}), body, webhook.CauseAmbiguous, ""},
		"two timestamps":                 {append(req(id, stamp, good), fencepost.Header{Name: "webhook-timestamp", Value: stamp}), body, webhook.CauseAmbiguous, ""},
		"two signature headers":          {req(id, stamp, good, good), body, webhook.CauseAmbiguous, ""},
		"id with a dot":                  {req("msg.1", stamp, good), body, webhook.CauseMalformed, ""},
		"dot moved between id and time":  {req(id+".1793880000", stamp, good), body, webhook.CauseMalformed, ""},
		"id with a space":                {req("msg 1", stamp, good), body, webhook.CauseMalformed, ""},
		"id not ASCII":                   {req("msgé", stamp, good), body, webhook.CauseMalformed, ""},
		"id too long":                    {req(long+"i", stamp, good), body, webhook.CauseMalformed, ""},
		"timestamp with a sign":          {req(id, "+"+stamp, good), body, webhook.CauseMalformed, ""},
		"negative timestamp":             {req(id, "-1", good), body, webhook.CauseMalformed, ""},
		"timestamp with leading zero":    {req(id, "0"+stamp, good), body, webhook.CauseMalformed, ""},
		"timestamp of zero":              {req(id, "0", good), body, webhook.CauseMalformed, ""},
		"timestamp of 17 digits":         {req(id, strings.Repeat("9", 17), good), body, webhook.CauseMalformed, ""},
		"timestamp of 16 digits":         {req(id, strings.Repeat("9", 16), good), body, webhook.CauseMismatch, ""},
		"timestamp with fraction":        {req(id, stamp+".0", good), body, webhook.CauseMalformed, ""},
		"timestamp hexadecimal":          {req(id, "0x6aea", good), body, webhook.CauseMalformed, ""},
		"two spaces between":             {req(id, stamp, wrong+"  "+good), body, webhook.CauseMalformed, ""},
		"space after":                    {req(id, stamp, good+" "), body, webhook.CauseMalformed, ""},
		"tab between":                    {req(id, stamp, wrong+"\t"+good), body, webhook.CauseMalformed, ""},
		"comma between":                  {req(id, stamp, wrong+","+good), body, webhook.CauseMalformed, ""},
		"no version":                     {req(id, stamp, good[3:]), body, webhook.CauseMalformed, ""},
		"version alone":                  {req(id, stamp, "v1,"), body, webhook.CauseMalformed, ""},
		"version in capitals is unknown": {req(id, stamp, "V1"+good[2:]), body, webhook.CauseMalformed, ""},
		"other versions alone":           {req(id, stamp, "v1a"+good[2:]), body, webhook.CauseMalformed, ""},
		"a spoilt entry before":          {req(id, stamp, "v1,AAA= "+good), body, webhook.CauseMalformed, ""},
		"base64 without padding":         {req(id, stamp, strings.TrimRight(good, "=")), body, webhook.CauseMalformed, ""},
		"base64 for URLs":                {req(id, stamp, "v1,"+strings.Repeat("-", 43)+"="), body, webhook.CauseMalformed, ""},
		"base64 with spare bits":         {req(id, stamp, "v1,"+strings.Repeat("A", 42)+"B="), body, webhook.CauseMalformed, ""},
		"base64 with a line end":         {req(id, stamp, "v1,"+good[3:20]+"\n"+good[21:]), body, webhook.CauseMalformed, ""},
		"hexadecimal instead":            {req(id, stamp, "v1,"+strings.Repeat("0", 64)), body, webhook.CauseMalformed, ""},
		"wrong":                          {req(id, stamp, wrong), body, webhook.CauseMismatch, ""},
		"another id":                     {req(id+"x", stamp, good), body, webhook.CauseMismatch, ""},
		"another time":                   {req(id, "1793880001", good), body, webhook.CauseMismatch, ""},
		"another body":                   {req(id, stamp, good), body + " ", webhook.CauseMismatch, ""},
		"signature of the body alone":    {req(id, stamp, signature(now, id, "")), body, webhook.CauseMismatch, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := s.Verify(fencepost.NewHeaders(test.pairs), []byte(test.body), now)
			if test.cause != 0 {
				wantCause(t, err, test.cause)
				if diff := cmp.Diff(fencepost.Evidence{}, ev); diff != "" {
					t.Errorf("a refusal has evidence:\n%s", diff)
				}
				return
			}
			want := fencepost.Evidence{Anchor: test.want, TrustSet: "acme", SignedAt: now,
				Replay: fencepost.ReplaySigned{Domain: "standard-webhooks", Values: []string{test.pairs[0].Value}}}
			if diff := cmp.Diff(want, ev); err != nil || diff != "" {
				t.Errorf("err = %v, evidence (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A resend has the same id and body, a new time and signature; it is the same
// delivery.
func TestStandardWebhooksResendIsTheSameDelivery(t *testing.T) {
	t.Parallel()
	s := webhook.StandardWebhooks{Keys: ring(t, webhook.Anchor{ID: "a"})}
	accept := func(at time.Time) fencepost.AcceptedDelivery {
		pairs, err := s.Sign(webhook.Message{Body: []byte("{}"), ID: "msg_1", At: at})
		if err != nil {
			t.Fatal(err)
		}
		h := fencepost.NewHeaders(pairs)
		proof, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", h, []byte("{}"), at), s)
		if err != nil {
			t.Fatal(err)
		}
		d, err := fencepost.Accept(proof, fencepost.RouteRule{Route: "docs", TrustSet: "acme",
			SignedTime: fencepost.SignedTimeRequired, Window: fencepost.DefaultReplayWindow}, h, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, again := accept(now), accept(now.Add(time.Hour))
	if first.Key() != again.Key() || first.Binding() != again.Binding() {
		t.Error("a resend has another key or binding")
	}
	if later := first.Lifetime().Later(again.Lifetime()); later != again.Lifetime() || later == first.Lifetime() {
		t.Error("a resend does not last longer")
	}
}

func TestStandardWebhooksSignRefuses(t *testing.T) {
	t.Parallel()
	s := webhook.StandardWebhooks{Keys: ring(t, webhook.Anchor{ID: "a"})}
	for name, m := range map[string]webhook.Message{
		"no id": {At: now}, "id with a dot": {ID: "a.b", At: now}, "no time": {ID: "a"}, "the epoch": {ID: "a", At: time.Unix(0, 0)},
	} {
		if _, err := s.Sign(m); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: err = %v, want ErrMalformed", name, err)
		}
	}
}

func TestParseStandardSecret(t *testing.T) {
	t.Parallel()
	const good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	text := []byte(good)
	key, err := webhook.ParseStandardSecret(text)
	if err != nil || key.Len() != 24 {
		t.Fatalf("%d bytes, err = %v", key.Len(), err)
	}
	if strings.Trim(string(text), "\x00") != "" {
		t.Errorf("the text was left: %q", text)
	}
	for name, bad := range map[string]string{
		"empty": "", "prefix alone": "whsec_", "no prefix": good[6:], "another prefix": "whsk_" + good[6:],
		"prefix in capitals": "WHSEC_" + good[6:], "line end after": good + "\n", "line end inside": good[:12] + "\n" + good[12:],
		"23 bytes": "whsec_" + strings.Repeat("A", 28) + "AAA=", "65 bytes": "whsec_" + strings.Repeat("A", 84) + "AAA=",
		"no padding": "whsec_" + strings.Repeat("A", 35), "for URLs": "whsec_" + strings.Repeat("_", 32), "spare bits": "whsec_" + strings.Repeat("A", 34) + "B=",
	} {
		key, err := webhook.ParseStandardSecret([]byte(bad))
		if !errors.Is(err, fencepost.ErrMalformed) || key.Len() != 0 {
			t.Errorf("%s: %d bytes, err = %v; want ErrMalformed", name, key.Len(), err)
		} else if len(bad) > 20 && strings.Contains(err.Error(), bad[10:20]) {
			t.Errorf("%s: the error shows the text: %v", name, err)
		}
	}
}
