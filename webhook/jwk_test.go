package webhook_test

import (
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// RFC 7638 §3.1.
const (
	rfc7638Modulus    = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	rfc7638Thumbprint = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
	rfc7638Key        = `{"kty":"RSA","n":"` + rfc7638Modulus + `","e":"AQAB","alg":"RS256","kid":"2011-04-29"}`
)

func TestParseJWKOfRFC7638(t *testing.T) {
	t.Parallel()
	k, err := webhook.ParseJWK([]byte(rfc7638Key))
	if err != nil {
		t.Fatal(err)
	}
	if k.Thumbprint.String() != rfc7638Thumbprint || k.KeyID != "2011-04-29" || k.Key.E != 65537 || k.Key.N.BitLen() != 2048 {
		t.Errorf("thumbprint %s, key id %q, exponent %d", k.Thumbprint, k.KeyID, k.Key.E)
	}
	again, err := webhook.ParseThumbprint(rfc7638Thumbprint)
	if err != nil || again != k.Thumbprint {
		t.Errorf("parsed %s, err = %v", again, err)
	}
}

// RFC 7515 appendix A.2: its key signs its text to its signature, which
// verifies; and no scheme of ours takes a token that names no key.
func TestRS256OfRFC7515(t *testing.T) {
	t.Parallel()
	const (
		modulus = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
		private = "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ"
		header  = `{"alg":"RS256"}`
		payload = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}"
		token   = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
	)
	jwk, err := webhook.ParseJWK([]byte(`{"kty":"RSA","n":"` + modulus + `","e":"AQAB"}`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := base64.RawURLEncoding.DecodeString(private)
	if err != nil {
		t.Fatal(err)
	}
	text := b64(header) + "." + b64(payload)
	key := &rsa.PrivateKey{PublicKey: *jwk.Key, D: new(big.Int).SetBytes(d)}
	if again := text + "." + b64(rs256(t, key, text)); again != token {
		t.Fatalf("regenerated as\n%s", again)
	}
	scheme := webhook.GitLabJob{Issuer: "joe", Audience: audience, Keys: jobRing(t,
		webhook.JobAnchor{ID: "a", Key: jwk.Key, KeyID: "a"}, webhook.JobAnchor{ID: "b", Key: &jobKeys()[0].PublicKey})}
	ev, err := scheme.Verify(authorization("Bearer "+token), nil, now)
	wantJobCause(t, ev, err, webhook.CauseMalformed)
	// The same payload under the same key with a key id: the signature holds,
	// and the claims are not a job's.
	named := b64(`{"alg":"RS256","kid":"a"}`) + "." + b64(payload)
	ev, err = scheme.Verify(authorization("Bearer "+named+"."+b64(rs256(t, key, named))), nil, now)
	wantJobCause(t, ev, err, webhook.CauseClaims)
	// As is the job's own.
	named = b64(`{"alg":"RS256","kid":"a"}`) + "." + b64(with(t, jobPayload, `"iss":"https://gitlab.example.com"`, `"iss":"joe"`))
	if ev, err := scheme.Verify(authorization("Bearer "+named+"."+b64(rs256(t, key, named))), nil, now); err != nil || ev.Anchor != "a" {
		t.Errorf("evidence %+v, err = %v", ev, err)
	}
}

func TestParseJWKRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, replacement, want string }{
		"no type":                  {`"kty":"RSA",`, ``, "kty"},
		"another type":             {`"kty":"RSA"`, `"kty":"EC"`, "not one for RS256"},
		"type in lower case":       {`"kty":"RSA"`, `"kty":"rsa"`, "not one for RS256"},
		"another algorithm":        {`"alg":"RS256"`, `"alg":"RS384"`, "not one for RS256"},
		"for encryption":           {`"alg":"RS256"`, `"use":"enc"`, "not one for RS256"},
		"private":                  {`"e":"AQAB"`, `"e":"AQAB","d":"AQAB"`, "private or a shared key"},
		"private and null":         {`"e":"AQAB"`, `"e":"AQAB","d":null`, "private or a shared key"},
		"a prime":                  {`"e":"AQAB"`, `"e":"AQAB","p":1`, "private or a shared key"},
		"a shared key":             {`"e":"AQAB"`, `"e":"AQAB","k":"AQAB"`, "private or a shared key"},
		"no modulus":               {`"n":"` + rfc7638Modulus + `",`, ``, "missing"},
		"modulus null":             {`"n":"` + rfc7638Modulus + `"`, `"n":null`, "missing"},
		"no exponent":              {`"e":"AQAB",`, ``, "missing"},
		"modulus empty":            {`"n":"` + rfc7638Modulus + `"`, `"n":""`, "base64url"},
		"modulus with zeros":       {`"n":"` + rfc7638Modulus + `"`, `"n":"AA` + rfc7638Modulus + `"`, "base64url"},
		"modulus padded":           {rfc7638Modulus, rfc7638Modulus + "==", "base64url"},
		"modulus with a line end":  {rfc7638Modulus, rfc7638Modulus[:8] + `\n` + rfc7638Modulus[8:], "base64url"},
		"modulus in plain base64":  {"0vx7", "0v+/", "base64url"},
		"modulus even":             {"DKgw", "DKgg", "odd"},
		"modulus with spare bits":  {"DKgw", "DKgx", "base64url"},
		"modulus of 2040 bits":     {rfc7638Modulus, b64(strings.Repeat("\xff", 255)), "2048 to 4096 bits"},
		"modulus of 4104 bits":     {rfc7638Modulus, b64(strings.Repeat("\xff", 513)), "2048 to 4096 bits"},
		"exponent 3":               {`"e":"AQAB"`, `"e":"Aw"`, "exponent"},
		"exponent 1":               {`"e":"AQAB"`, `"e":"AQ"`, "exponent"},
		"exponent even":            {`"e":"AQAB"`, `"e":"AQAC"`, "exponent"},
		"exponent with zeros":      {`"e":"AQAB"`, `"e":"AAEAAQ"`, "base64url"},
		"exponent of 33 bits":      {`"e":"AQAB"`, `"e":"AQAAAAE"`, "exponent"},
		"exponent of 72 bits":      {`"e":"AQAB"`, `"e":"AQAAAAAAAAAB"`, "base64url"},
		"exponent a number":        {`"e":"AQAB"`, `"e":65537`, "type"},
		"modulus twice":            {`"e":"AQAB"`, `"e":"AQAB","n":"AQAB"`, "duplicate"},
		"key id with a space":      {`"kid":"2011-04-29"`, `"kid":"a b"`, "key id"},
		"key id empty":             {`"kid":"2011-04-29"`, `"kid":""`, "key id"},
		"bytes after":              {`"kid":"2011-04-29"}`, `"kid":"2011-04-29"}x`, "trailing"},
		"more than a key may have": {`"kid":"2011-04-29"`, `"kid":"2011-04-29","x":"` + strings.Repeat("x", webhook.MaxJWKBytes) + `"`, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := webhook.ParseJWK([]byte(with(t, rfc7638Key, test.old, test.replacement)))
			if !errors.Is(err, fencepost.ErrMalformed) || !strings.Contains(err.Error(), test.want) || k != (webhook.JWK{}) {
				t.Errorf("key %+v, err = %v, want one that says %q", k, err, test.want)
			}
		})
	}
	for name, replacement := range map[string]string{"no key id": ``, "key id null": `,"kid":null`, "with certificates": `,"x5c":["MIIB"],"x5t":"x","key_ops":["verify"],"use":"sig"`} {
		if _, err := webhook.ParseJWK([]byte(with(t, rfc7638Key, `,"kid":"2011-04-29"`, replacement))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseJWKS(t *testing.T) {
	t.Parallel()
	second := func(kid string) string {
		return fmt.Sprintf(`{"kty":"RSA","n":"%s","e":"AQAB","use":"sig","kid":%q}`, b64(string(jobKeys()[0].N.Bytes())), kid)
	}
	const others = `{"kty":"EC","crv":"P-256","x":"x","y":"y","kid":"ec"},{"kty":"oct","k":"AQAB"},{"kty":"RSA","use":"enc","n":"x","e":"x"},{"kty":"RSA","alg":"PS256","n":"x"}`
	keys, err := webhook.ParseJWKS([]byte(`{"keys":[` + others + `,` + second("two") + `,` + rfc7638Key + `],"more":1}`))
	if err != nil || len(keys) != 2 || keys[0].KeyID != "two" || keys[1].Thumbprint.String() != rfc7638Thumbprint {
		t.Errorf("keys %+v, err = %v", keys, err)
	}
	if keys, err := webhook.ParseJWKS([]byte(`{"keys":[]}`)); err != nil || len(keys) != 0 {
		t.Errorf("keys %+v, err = %v", keys, err)
	}
	many := strings.Repeat(`{"kty":"EC"},`, webhook.MaxJWKSKeys)
	for name, text := range map[string]string{
		"nothing": ``, "a list": `[` + rfc7638Key + `]`, "one key": rfc7638Key, "keys null": `{"keys":null}`, "keys an object": `{"keys":{}}`,
		"a number among the keys": `{"keys":[1]}`, "null among the keys": `{"keys":[null]}`,
		"a bad key":         `{"keys":[` + rfc7638Key + `,{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`,
		"a private key":     `{"keys":[{"kty":"RSA","n":"` + rfc7638Modulus + `","e":"AQAB","d":"AQAB"}]}`,
		"a key id twice":    `{"keys":[` + second("2011-04-29") + `,` + rfc7638Key + `]}`,
		"65 keys":           `{"keys":[` + many + `{"kty":"EC"}]}`,
		"keys twice":        `{"keys":[],"keys":[` + rfc7638Key + `]}`,
		"bytes after":       `{"keys":[]}` + "\x00",
		"more than a set's": `{"keys":[` + rfc7638Key + `],"x":"` + strings.Repeat("x", webhook.MaxJWKSBytes) + `"}`,
	} {
		if keys, err := webhook.ParseJWKS([]byte(text)); !errors.Is(err, fencepost.ErrMalformed) || keys != nil {
			t.Errorf("%s: keys %+v, err = %v", name, keys, err)
		}
	}
	if _, err := webhook.ParseJWKS([]byte(`{"keys":[` + strings.TrimSuffix(many, ",") + `]}`)); err != nil {
		t.Errorf("64 keys: %v", err)
	}
}

func TestParseThumbprintHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", rfc7638Thumbprint[1:], rfc7638Thumbprint + "A", rfc7638Thumbprint + "=", rfc7638Thumbprint[:42] + "t", rfc7638Thumbprint[:42] + "\n", rfc7638Thumbprint + "\n", "+" + rfc7638Thumbprint[1:], strings.Repeat("0", 64)} {
		if p, err := webhook.ParseThumbprint(text); !errors.Is(err, fencepost.ErrMalformed) || p != (webhook.Thumbprint{}) {
			t.Errorf("%q: %s, err = %v", text, p, err)
		}
	}
}

func TestNewJobKeyringNamesEveryFault(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	a := func(id string, key *rsa.PrivateKey) webhook.JobAnchor {
		return webhook.JobAnchor{ID: fencepost.AnchorID(id), Key: &key.PublicKey}
	}
	named := func(a webhook.JobAnchor, kid string) webhook.JobAnchor { a.KeyID = kid; return a }
	small := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2046, 1), E: 65537}
	tests := map[string]struct {
		name    string
		anchors []webhook.JobAnchor
		want    []string
	}{
		"nothing wrong":       {"acme", []webhook.JobAnchor{a("a", keys[0]), a("b", keys[1]), a("c", keys[2])}, nil},
		"own key ids":         {"acme", []webhook.JobAnchor{named(a("a", keys[0]), "x"), named(a("b", keys[1]), "y")}, nil},
		"no anchor":           {"acme", nil, []string{"must have 1 to 8 anchors, has 0"}},
		"nine anchors":        {"acme", make([]webhook.JobAnchor, 9), []string{"must have 1 to 8 anchors, has 9"}},
		"no name":             {"", []webhook.JobAnchor{a("a", keys[0])}, []string{"name of a trust set"}},
		"id with a space":     {"acme", []webhook.JobAnchor{a("a b", keys[0])}, []string{"anchor 1: id must be"}},
		"no key":              {"acme", []webhook.JobAnchor{{ID: "a"}}, []string{"anchor a: modulus must have 2048 to 4096 bits"}},
		"empty key":           {"acme", []webhook.JobAnchor{{ID: "a", Key: &rsa.PublicKey{}}}, []string{"anchor a: modulus"}},
		"short key":           {"acme", []webhook.JobAnchor{{ID: "a", Key: small}}, []string{"anchor a: modulus"}},
		"exponent 3":          {"acme", []webhook.JobAnchor{{ID: "a", Key: &rsa.PublicKey{N: keys[0].N, E: 3}}}, []string{"anchor a: exponent"}},
		"window of no length": {"acme", []webhook.JobAnchor{{ID: "a", Key: &keys[0].PublicKey, From: now, Until: now}}, []string{"must start before it ends"}},
		"an id twice":         {"acme", []webhook.JobAnchor{a("a", keys[0]), a("a", keys[1])}, []string{"anchor a: id must be unique"}},
		"a key twice":         {"acme", []webhook.JobAnchor{named(a("a", keys[0]), "x"), a("b", keys[0])}, []string{"anchors a and b: keys must be unique"}},
		"a key id twice":      {"acme", []webhook.JobAnchor{named(a("a", keys[0]), "x"), named(a("b", keys[1]), "x")}, []string{"anchors a and b: key ids must be unique"}},
		"another's thumbprint": {"acme", []webhook.JobAnchor{named(a("a", keys[0]), kidOf(keys[1])), a("b", keys[1])},
			[]string{"anchors a and b: key ids must be unique"}},
		"key id with a space": {"acme", []webhook.JobAnchor{named(a("a", keys[0]), "a b")}, []string{"anchor a: key id must be"}},
		"several faults":      {"", []webhook.JobAnchor{{ID: "a"}, named(a("b", keys[0]), "\n")}, []string{"name of a trust set", "modulus", "key id"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := webhook.NewJobKeyring(fencepost.TrustSetName(test.name), test.anchors...)
			if len(test.want) == 0 {
				if err != nil || k.Len() != len(test.anchors) || k.Name() != "acme" || !k.Has("a") || k.Has("z") || len(k.Live(now)) != k.Len() {
					t.Fatalf("keyring %v of %d, err = %v", k, k.Len(), err)
				}
				return
			}
			if !errors.Is(err, fencepost.ErrMalformed) || k != nil {
				t.Fatalf("err = %v, want ErrMalformed", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("err = %q lacks %q", err, want)
				}
			}
		})
	}
	var none *webhook.JobKeyring
	if none.Len() != 0 || none.Has("a") {
		t.Error("a nil keyring has anchors")
	}
}

// A keyring keeps its own copy of a key.
func TestJobKeyringIsNotItsCallers(t *testing.T) {
	t.Parallel()
	own := &rsa.PublicKey{N: new(big.Int).Set(jobKeys()[1].N), E: 65537}
	g := webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: jobRing(t, webhook.JobAnchor{ID: "a", Key: own})}
	own.N.SetInt64(1)
	own.E = 0
	if _, err := g.Verify(authorization("Bearer "+jobToken(t, jobKeys()[1], jobPayload)), nil, now); err != nil {
		t.Error(err)
	}
}

func TestJobClaimsOf(t *testing.T) {
	t.Parallel()
	key := jobKeys()[1]
	for name, test := range map[string]struct {
		old, replacement string
		differs          func(webhook.JobClaims) bool
	}{
		"before 18.3":              {`"job_project_id":"20",`, ``, func(c webhook.JobClaims) bool { return c.ProjectID == 0 && c.JobID == 302 }},
		"before 18.9":              {`"job_source":"pipeline_execution_policy",`, ``, func(c webhook.JobClaims) bool { return c.Source == "" }},
		"no policy's job":          {`"job_config":{`, `"config":{`, func(c webhook.JobClaims) bool { return c.ConfigURL == "" && c.ConfigSHA == "" }},
		"the source project":       {`"project_id":"21"`, `"project_id":21`, func(c webhook.JobClaims) bool { return c.ProjectID == 20 }},
		"protected":                {`"ref_protected":"false"`, `"ref_protected":"true"`, func(c webhook.JobClaims) bool { return c.RefProtected }},
		"protection not said":      {`"ref_protected":"false"`, `"ref_protected":""`, func(c webhook.JobClaims) bool { return !c.RefProtected }},
		"commit of the other kind": {`"sha":"714a`, `"sha":"` + strings.Repeat("0", 24) + `714a`, func(c webhook.JobClaims) bool { return len(c.SHA) == 64 }},
		"the greatest id":          {`"job_id":"302"`, `"job_id":"9223372036854775807"`, func(c webhook.JobClaims) bool { return c.JobID == 1<<63-1 }},
	} {
		c, err := webhook.JobClaimsOf(authorization("Bearer " + jobToken(t, key, with(t, jobPayload, test.old, test.replacement))))
		if err != nil || !test.differs(c) {
			t.Errorf("%s: %+v, err = %v", name, c, err)
		}
	}
	for name, test := range map[string][2]string{
		"pipeline a number":         {`"pipeline_id":"574"`, `"pipeline_id":574`},
		"pipeline missing":          {`"pipeline_id":"574",`, ``},
		"job with a zero before":    {`"job_id":"302"`, `"job_id":"0302"`},
		"job with a sign":           {`"job_id":"302"`, `"job_id":"+302"`},
		"job negative":              {`"job_id":"302"`, `"job_id":"-302"`},
		"job zero":                  {`"job_id":"302"`, `"job_id":"0"`},
		"job empty":                 {`"job_id":"302"`, `"job_id":""`},
		"job with a space":          {`"job_id":"302"`, `"job_id":" 302"`},
		"job beyond 63 bits":        {`"job_id":"302"`, `"job_id":"9223372036854775808"`},
		"project a number":          {`"job_project_id":"20"`, `"job_project_id":20`},
		"project null":              {`"job_project_id":"20"`, `"job_project_id":null`},
		"project twice":             {`"job_project_id":"20"`, `"job_project_id":"20","job_project_id":"21"`},
		"runner a string":           {`"runner_id":1`, `"runner_id":"1"`},
		"protected a boolean":       {`"ref_protected":"false"`, `"ref_protected":false`},
		"protected in capitals":     {`"ref_protected":"false"`, `"ref_protected":"True"`},
		"commit short":              {`"sha":"714a`, `"sha":"`},
		"commit in capitals":        {`"sha":"714a`, `"sha":"714A`},
		"commit of another digit":   {`"sha":"714a`, `"sha":"714g`},
		"config a string":           {`"job_config":{`, `"job_config":"x","other":{`},
		"config without its commit": {`,"sha":"0123456789abcdef0123456789abcdef01234567"}`, `}`},
		"source a list":             {`"job_source":"pipeline_execution_policy"`, `"job_source":["pipeline_execution_policy"]`},
		"source null":               {`"job_source":"pipeline_execution_policy"`, `"job_source":null`},
	} {
		c, err := webhook.JobClaimsOf(authorization("Bearer " + jobToken(t, key, with(t, jobPayload, test[0], test[1]))))
		if !errors.Is(err, fencepost.ErrMalformed) || c != (webhook.JobClaims{}) {
			t.Errorf("%s: %+v, err = %v", name, c, err)
		}
		if err != nil && (strings.Contains(err.Error(), "302") || strings.Contains(err.Error(), "714")) {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
	for _, h := range []fencepost.Headers{{}, authorization("Bearer x"), authorization("Bearer " + b64(header(key)) + ".e=.e")} {
		if _, err := webhook.JobClaimsOf(h); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("err = %v, want ErrMalformed", err)
		}
	}
}
