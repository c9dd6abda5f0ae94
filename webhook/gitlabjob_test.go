package webhook_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

const (
	issuer   = "https://gitlab.example.com"
	audience = "https://fencepost.example.com"
)

// Issued at now less ten seconds, for an hour.
const jobPayload = `{"iss":"https://gitlab.example.com","sub":"project_path:a/b:ref_type:branch:ref:x","aud":"https://fencepost.example.com",` +
	`"jti":"235b3a54-b797-45c7-ae9a-f72d7bc6ef5b","iat":1793879990,"nbf":1793879985,"exp":1793883590,` +
	`"namespace_id":"72","project_id":"21","pipeline_id":"574","pipeline_source":"merge_request_event","job_id":"302",` +
	`"ref":"feature-1","ref_type":"branch","ref_path":"refs/heads/feature-1","ref_protected":"false",` +
	`"runner_id":1,"runner_environment":"self-hosted","sha":"714a629c0b401fdce83e847fc9589983fc6f46bc","ci_config_sha":null,` +
	`"job_project_id":"20","job_project_path":"a/b","job_source":"pipeline_execution_policy",` +
	`"job_config":{"url":"https://gitlab.example.com/a/p/-/blob/0/policy.yml","sha":"0123456789abcdef0123456789abcdef01234567"}}`

// jobKeys are the keys of the tests, which are nobody's.
var jobKeys = sync.OnceValue(func() (keys [3]*rsa.PrivateKey) {
	for i, bits := range []int{2048, 2048, 3072} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			panic(err)
		}
		keys[i] = key
	}
	return keys
})

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func kidOf(key *rsa.PrivateKey) string { return webhook.ThumbprintOf(&key.PublicKey).String() }

func rs256(t testing.TB, key *rsa.PrivateKey, text string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(text))
	s, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return string(s)
}

// token signs a header and a payload.
func token(t testing.TB, key *rsa.PrivateKey, header, payload string) string {
	t.Helper()
	text := b64(header) + "." + b64(payload)
	return text + "." + b64(rs256(t, key, text))
}

func header(key *rsa.PrivateKey) string {
	return `{"alg":"RS256","kid":"` + kidOf(key) + `","typ":"JWT"}`
}

// jobToken signs a payload as GitLab does.
func jobToken(t testing.TB, key *rsa.PrivateKey, payload string) string {
	t.Helper()
	return token(t, key, header(key), payload)
}

// with replaces a part of a text, which must be there.
func with(t testing.TB, text, old, replacement string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q stands %d times", old, strings.Count(text, old))
	}
	return strings.Replace(text, old, replacement, 1)
}

func authorization(values ...string) fencepost.Headers {
	var pairs []fencepost.Header
	for _, v := range values {
		pairs = append(pairs, fencepost.Header{Name: "Authorization", Value: v})
	}
	return fencepost.NewHeaders(pairs)
}

func jobRing(t testing.TB, anchors ...webhook.JobAnchor) *webhook.JobKeyring {
	t.Helper()
	k, err := webhook.NewJobKeyring("instance", anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// jobScheme trusts the first two keys.
func jobScheme(t testing.TB) webhook.GitLabJob {
	t.Helper()
	keys := jobKeys()
	return webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: jobRing(t,
		webhook.JobAnchor{ID: "old", Key: &keys[0].PublicKey, Until: now.Add(time.Hour)},
		webhook.JobAnchor{ID: "new", Key: &keys[1].PublicKey},
	)}
}

func wantJobCause(t *testing.T, ev fencepost.Evidence, err error, want webhook.Cause) {
	t.Helper()
	refusal, ok := errors.AsType[*webhook.Refusal](err)
	if !ok || refusal.Cause != want {
		t.Fatalf("err = %v (%v), want cause %q", err, refusal, want)
	}
	if refusal.Verifications != 2 || refusal.MACs != 0 {
		t.Errorf("%d verifications and %d MACs, want 2 and 0", refusal.Verifications, refusal.MACs)
	}
	if !errors.Is(err, fencepost.ErrUnauthenticated) || err.Error() != "webhook: unauthenticated" {
		t.Errorf("err = %v", err)
	}
	if diff := cmp.Diff(fencepost.Evidence{}, ev); diff != "" {
		t.Errorf("a refusal has evidence:\n%s", diff)
	}
}

func TestGitLabJobAccepts(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	tests := map[string]struct {
		token  string
		anchor fencepost.AnchorID
		id     string
	}{
		"of one key":                 {jobToken(t, keys[0], jobPayload), "old", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"of the other":               {jobToken(t, keys[1], jobPayload), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"header without type":        {token(t, keys[1], `{"kid":"`+kidOf(keys[1])+`","alg":"RS256"}`, jobPayload), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"white space within JSON":    {token(t, keys[1], " "+header(keys[1])+"\n", jobPayload+"\n "), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"audience in a list":         {jobToken(t, keys[1], with(t, jobPayload, `"aud":"https://fencepost.example.com"`, `"aud":["https://fencepost.example.com"]`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"audience among others":      {jobToken(t, keys[1], with(t, jobPayload, `"aud":"https://fencepost.example.com"`, `"aud":["a","https://fencepost.example.com","b"]`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"escaped characters":         {jobToken(t, keys[1], with(t, jobPayload, `"jti":"2`, `"jt\u0069":"\u0032`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"issued a little ahead":      {jobToken(t, keys[1], with(t, jobPayload, `"iat":1793879990`, `"iat":1793880005`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"starts now":                 {jobToken(t, keys[1], with(t, jobPayload, `"nbf":1793879985`, `"nbf":1793880000`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"expires in a second":        {jobToken(t, keys[1], with(t, jobPayload, `"exp":1793883590`, `"exp":1793880001`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"unknown claims":             {jobToken(t, keys[1], with(t, jobPayload, `"runner_id":1`, `"runner_id":1,"groups_direct":["a","b"],"user_identities":[{"provider":"x"}]`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"claims of a job not proven": {jobToken(t, keys[1], with(t, jobPayload, `"pipeline_id":"574"`, `"pipeline_id":574`)), "new", "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"},
		"another token id":           {jobToken(t, keys[1], with(t, jobPayload, `235b3a54-b797-45c7-ae9a-f72d7bc6ef5b`, `another`)), "new", "another"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := jobScheme(t).Verify(authorization("Bearer "+test.token), []byte(`{"merge_request":7}`), now)
			if err != nil {
				t.Fatalf("err = %v (%+v)", err, err)
			}
			signedAt := now.Add(-10 * time.Second)
			if name == "issued a little ahead" {
				signedAt = now.Add(webhook.JobClockSkew)
			}
			want := fencepost.Evidence{
				Anchor: test.anchor, TrustSet: "instance", SignedAt: signedAt,
				Replay: fencepost.ReplaySigned{Domain: "gitlab-job", Values: []string{issuer, "1", test.id}},
			}
			if diff := cmp.Diff(want, ev); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGitLabJobRefusesTokensOfAnotherForm(t *testing.T) {
	t.Parallel()
	key := jobKeys()[1]
	good := jobToken(t, key, jobPayload)
	parts := strings.Split(good, ".")
	tests := map[string]struct {
		values []string
		cause  webhook.Cause
	}{
		"no header":                  {nil, webhook.CauseMissing},
		"empty":                      {[]string{""}, webhook.CauseMissing},
		"twice the same":             {[]string{"Bearer " + good, "Bearer " + good}, webhook.CauseAmbiguous},
		"right and empty":            {[]string{"Bearer " + good, ""}, webhook.CauseAmbiguous},
		"right and another scheme":   {[]string{"Basic YTpi", "Bearer " + good}, webhook.CauseAmbiguous},
		"joined by a comma":          {[]string{"Bearer " + good + ", Bearer " + good}, webhook.CauseMalformed},
		"scheme alone":               {[]string{"Bearer"}, webhook.CauseMalformed},
		"scheme and nothing":         {[]string{"Bearer "}, webhook.CauseMalformed},
		"no scheme":                  {[]string{good}, webhook.CauseMalformed},
		"scheme in lower case":       {[]string{"bearer " + good}, webhook.CauseMalformed},
		"scheme in capitals":         {[]string{"BEARER " + good}, webhook.CauseMalformed},
		"another scheme":             {[]string{"Token " + good}, webhook.CauseMalformed},
		"two spaces":                 {[]string{"Bearer  " + good}, webhook.CauseMalformed},
		"tab":                        {[]string{"Bearer\t" + good}, webhook.CauseMalformed},
		"space before":               {[]string{" Bearer " + good}, webhook.CauseMalformed},
		"space after":                {[]string{"Bearer " + good + " "}, webhook.CauseMalformed},
		"line end after":             {[]string{"Bearer " + good + "\n"}, webhook.CauseMalformed},
		"line end within signature":  {[]string{"Bearer " + good[:len(good)-4] + "\n" + good[len(good)-4:]}, webhook.CauseMalformed},
		"line end within header":     {[]string{"Bearer " + good[:4] + "\r\n" + good[4:]}, webhook.CauseMalformed},
		"line end within payload":    {[]string{"Bearer " + parts[0] + "." + parts[1][:8] + "\n" + parts[1][8:] + "." + parts[2]}, webhook.CauseMismatch},
		"one part":                   {[]string{"Bearer " + parts[0]}, webhook.CauseMalformed},
		"two parts":                  {[]string{"Bearer " + parts[0] + "." + parts[1]}, webhook.CauseMalformed},
		"no signature":               {[]string{"Bearer " + parts[0] + "." + parts[1] + "."}, webhook.CauseMismatch},
		"no payload":                 {[]string{"Bearer " + parts[0] + ".." + parts[2]}, webhook.CauseMalformed},
		"no header part":             {[]string{"Bearer ." + parts[1] + "." + parts[2]}, webhook.CauseMalformed},
		"four parts":                 {[]string{"Bearer " + good + "." + parts[2]}, webhook.CauseMalformed},
		"five parts":                 {[]string{"Bearer " + good + "." + parts[2] + "." + parts[2]}, webhook.CauseMalformed},
		"dot after":                  {[]string{"Bearer " + good + "."}, webhook.CauseMalformed},
		"dot before":                 {[]string{"Bearer ." + good}, webhook.CauseMalformed},
		"signature padded":           {[]string{"Bearer " + good + "=="}, webhook.CauseMalformed},
		"header padded":              {[]string{"Bearer " + parts[0] + "=." + parts[1] + "." + parts[2]}, webhook.CauseMalformed},
		"signature in plain base64":  {[]string{"Bearer " + parts[0] + "." + parts[1] + "." + strings.Repeat("+/", 171)}, webhook.CauseMalformed},
		"signature in bits too many": {[]string{"Bearer " + good[:len(good)-1] + nextBits(t, good)}, webhook.CauseMalformed},
		"signature of 513 bytes":     {[]string{"Bearer " + parts[0] + "." + parts[1] + "." + b64(strings.Repeat("\x01", 513))}, webhook.CauseMalformed},
		"signature of 512 bytes":     {[]string{"Bearer " + parts[0] + "." + parts[1] + "." + b64(strings.Repeat("\x01", 512))}, webhook.CauseMismatch},
		"signature of 255 bytes":     {[]string{"Bearer " + parts[0] + "." + parts[1] + "." + b64(strings.Repeat("\x01", 255))}, webhook.CauseMismatch},
		"header of 1025 bytes":       {[]string{"Bearer " + token(t, key, header(key)+strings.Repeat(" ", 1025-len(header(key))), jobPayload)}, webhook.CauseMalformed},
		"payload altered":            {[]string{"Bearer " + parts[0] + "." + b64(with(t, jobPayload, `"job_id":"302"`, `"job_id":"303"`)) + "." + parts[2]}, webhook.CauseMismatch},
		"header altered":             {[]string{"Bearer " + b64(`{"alg":"RS256","kid":"`+kidOf(key)+`"}`) + "." + parts[1] + "." + parts[2]}, webhook.CauseMismatch},
		"in the JSON serialization":  {[]string{`Bearer {"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`}, webhook.CauseMalformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := jobScheme(t).Verify(authorization(test.values...), nil, now)
			wantJobCause(t, ev, err, test.cause)
		})
	}
}

// nextBits returns the last character of a token with one of the bits set
// that no byte of the signature has.
func nextBits(t *testing.T, token string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	at := strings.IndexByte(alphabet, token[len(token)-1])
	if at < 0 || at%16 != 0 {
		t.Fatalf("a signature of 256 bytes ends with four bits of nothing, but at %d", at)
	}
	return alphabet[at+1 : at+2]
}

func TestGitLabJobBoundsTheToken(t *testing.T) {
	t.Parallel()
	key := jobKeys()[1]
	// fill makes the payload as long as a token of so many bytes allows.
	fill := func(size int) string {
		room := size - len(jobToken(t, key, jobPayload))
		payload := with(t, jobPayload, `"sub":"`, `"sub":"`+strings.Repeat("x", room*3/4-4))
		for len(jobToken(t, key, payload)) < size {
			payload = with(t, payload, `"sub":"`, `"sub":"x`)
		}
		return jobToken(t, key, payload)
	}
	for size, cause := range map[int]webhook.Cause{webhook.MaxTokenBytes: webhook.CauseClaims, webhook.MaxTokenBytes + 1: webhook.CauseMalformed, 60 << 10: webhook.CauseMalformed} {
		ev, err := jobScheme(t).Verify(authorization("Bearer "+fill(size)), nil, now)
		wantJobCause(t, ev, err, cause)
	}
	if _, err := jobScheme(t).Verify(authorization("Bearer "+fill(4<<10)), nil, now); err != nil {
		t.Errorf("a token of 4 KiB: %v", err)
	}
}

func TestGitLabJobRefusesOtherAlgorithmsAndKeys(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	key, kid := keys[1], kidOf(keys[1])
	head := func(members string) string { return `{` + members + `,"kid":"` + kid + `"}` }
	signed := func(header string, sign func(text string) []byte) string {
		text := b64(header) + "." + b64(jobPayload)
		return text + "." + b64(string(sign(text)))
	}
	hash := func(h crypto.Hash, text string) []byte { s := h.New(); s.Write([]byte(text)); return s.Sum(nil) }
	// RS384 and RS512 by the right key, and the same under the name of RS256.
	pkcs1 := func(h crypto.Hash) func(string) []byte {
		return func(text string) []byte {
			s, err := rsa.SignPKCS1v15(nil, key, h, hash(h, text))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	pss := func(text string) []byte {
		s, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, hash(crypto.SHA256, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	es256 := func(text string) []byte {
		r, s, err := ecdsa.Sign(rand.Reader, curve, hash(crypto.SHA256, text))
		if err != nil {
			t.Fatal(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	// The public key as the secret of an HMAC, in its usual forms.
	hs256 := func(secret []byte) func(string) []byte {
		return func(text string) []byte { h := hmac.New(sha256.New, secret); h.Write([]byte(text)); return h.Sum(nil) }
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(string) []byte { return nil }
	right := func(text string) []byte { return []byte(rs256(t, key, text)) }
	jwk := `{"kty":"RSA","e":"AQAB","n":"` + b64(string(keys[2].N.Bytes())) + `"}`
	foreign := func(text string) []byte { return []byte(rs256(t, keys[2], text)) }
	tests := map[string]struct {
		token string
		cause webhook.Cause
	}{
		"none":                         {signed(head(`"alg":"none"`), nothing), webhook.CauseMalformed},
		"None":                         {signed(head(`"alg":"None"`), nothing), webhook.CauseMalformed},
		"none with a signature":        {signed(head(`"alg":"none"`), right), webhook.CauseMalformed},
		"no algorithm":                 {signed(`{"kid":"`+kid+`"}`, right), webhook.CauseMalformed},
		"algorithm empty":              {signed(head(`"alg":""`), right), webhook.CauseMalformed},
		"algorithm null":               {signed(head(`"alg":null`), right), webhook.CauseMalformed},
		"algorithm in lower case":      {signed(head(`"alg":"rs256"`), right), webhook.CauseMalformed},
		"algorithm in a list":          {signed(head(`"alg":["RS256"]`), right), webhook.CauseMalformed},
		"algorithm twice":              {signed(head(`"alg":"none","alg":"RS256"`), right), webhook.CauseMalformed},
		"algorithm twice, escaped":     {signed(head(`"alg":"none","al\u0067":"RS256"`), right), webhook.CauseMalformed},
		"HS256 with the key's DER":     {signed(head(`"alg":"HS256"`), hs256(der)), webhook.CauseMalformed},
		"HS256 with the modulus":       {signed(head(`"alg":"HS256"`), hs256(key.N.Bytes())), webhook.CauseMalformed},
		"HS256 said to be RS256":       {signed(head(`"alg":"RS256"`), hs256(der)), webhook.CauseMismatch},
		"RS384":                        {signed(head(`"alg":"RS384"`), pkcs1(crypto.SHA384)), webhook.CauseMalformed},
		"RS512":                        {signed(head(`"alg":"RS512"`), pkcs1(crypto.SHA512)), webhook.CauseMalformed},
		"RS384 said to be RS256":       {signed(head(`"alg":"RS256"`), pkcs1(crypto.SHA384)), webhook.CauseMismatch},
		"SHA-1 said to be RS256":       {signed(head(`"alg":"RS256"`), pkcs1(crypto.SHA1)), webhook.CauseMismatch},
		"PS256":                        {signed(head(`"alg":"PS256"`), pss), webhook.CauseMalformed},
		"PS256 said to be RS256":       {signed(head(`"alg":"RS256"`), pss), webhook.CauseMismatch},
		"ES256":                        {signed(head(`"alg":"ES256"`), es256), webhook.CauseMalformed},
		"ES256 said to be RS256":       {signed(head(`"alg":"RS256"`), es256), webhook.CauseMismatch},
		"no key id":                    {signed(`{"alg":"RS256"}`, right), webhook.CauseMalformed},
		"key id empty":                 {signed(`{"alg":"RS256","kid":""}`, right), webhook.CauseMalformed},
		"key id a number":              {signed(`{"alg":"RS256","kid":1}`, right), webhook.CauseMalformed},
		"key id null":                  {signed(`{"alg":"RS256","kid":null}`, right), webhook.CauseMalformed},
		"key id with a space":          {signed(`{"alg":"RS256","kid":"a b"}`, right), webhook.CauseMalformed},
		"key id of 257 bytes":          {signed(`{"alg":"RS256","kid":"`+strings.Repeat("k", 257)+`"}`, right), webhook.CauseMalformed},
		"key id twice":                 {signed(`{"alg":"RS256","kid":"`+kidOf(keys[0])+`","kid":"`+kid+`"}`, right), webhook.CauseMalformed},
		"key id of nobody":             {signed(`{"alg":"RS256","kid":"nobody"}`, right), webhook.CauseUnknownKey},
		"key id a path":                {signed(`{"alg":"RS256","kid":"../../dev/null"}`, right), webhook.CauseUnknownKey},
		"key id of the other key":      {signed(`{"alg":"RS256","kid":"`+kidOf(keys[0])+`"}`, right), webhook.CauseMismatch},
		"foreign key under our key id": {signed(head(`"alg":"RS256"`), foreign), webhook.CauseMismatch},
		"foreign key":                  {signed(`{"alg":"RS256","kid":"`+kidOf(keys[2])+`"}`, foreign), webhook.CauseUnknownKey},
		"jwk":                          {signed(head(`"alg":"RS256","jwk":`+jwk), foreign), webhook.CauseMalformed},
		"jwk rightly signed":           {signed(head(`"alg":"RS256","jwk":`+jwk), right), webhook.CauseMalformed},
		"jwk null":                     {signed(head(`"alg":"RS256","jwk":null`), right), webhook.CauseMalformed},
		"jku":                          {signed(head(`"alg":"RS256","jku":"https://example.net/keys"`), right), webhook.CauseMalformed},
		"x5u":                          {signed(head(`"alg":"RS256","x5u":"https://example.net/cert"`), right), webhook.CauseMalformed},
		"x5c":                          {signed(head(`"alg":"RS256","x5c":["MIIB"]`), right), webhook.CauseMalformed},
		"x5t":                          {signed(head(`"alg":"RS256","x5t":"AAAA"`), right), webhook.CauseMalformed},
		"crit":                         {signed(head(`"alg":"RS256","crit":["exp"],"exp":1`), right), webhook.CauseMalformed},
		"crit empty":                   {signed(head(`"alg":"RS256","crit":[]`), right), webhook.CauseMalformed},
		"b64":                          {signed(head(`"alg":"RS256","b64":false`), right), webhook.CauseMalformed},
		"zip":                          {signed(head(`"alg":"RS256","zip":"DEF"`), right), webhook.CauseMalformed},
		"nested":                       {signed(head(`"alg":"RS256","cty":"JWT"`), right), webhook.CauseMalformed},
		"unknown member":               {signed(head(`"alg":"RS256","new":1`), right), webhook.CauseMalformed},
		"type of something else":       {signed(head(`"alg":"RS256","typ":"at+jwt"`), right), webhook.CauseMalformed},
		"header a list":                {signed(`["RS256"]`, right), webhook.CauseMalformed},
		"header not UTF-8":             {signed(head("\"alg\":\"RS256\",\"typ\":\"J\xff\""), right), webhook.CauseMalformed},
		"header with bytes after":      {signed(head(`"alg":"RS256"`)+"{}", right), webhook.CauseMalformed},
		"header not JSON":              {signed("RS256", right), webhook.CauseMalformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := jobScheme(t).Verify(authorization("Bearer "+test.token), nil, now)
			wantJobCause(t, ev, err, test.cause)
		})
	}
}

var _ = sha512.New384 // registers what the tests above sign with

// A signature is one number in one spelling: what is congruent to it, longer
// or shorter is none.
func TestGitLabJobSignaturesAreNotMalleable(t *testing.T) {
	t.Parallel()
	key := jobKeys()[1]
	good := jobToken(t, key, jobPayload)
	text, encoded := good[:strings.LastIndex(good, ".")], good[strings.LastIndex(good, ".")+1:]
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	s := new(big.Int).SetBytes(raw)
	beyond := new(big.Int).Add(s, key.N)
	tests := map[string][]byte{
		"plus the modulus, a byte longer": beyond.FillBytes(make([]byte, 257)),
		"the modulus":                     key.N.FillBytes(make([]byte, 256)),
		"all ones":                        new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 2048), big.NewInt(1)).Bytes(),
		"the negative":                    new(big.Int).Sub(key.N, s).FillBytes(make([]byte, 256)),
		"a zero before":                   append([]byte{0}, raw...),
		"a zero after":                    append(append([]byte{}, raw...), 0),
		"the last byte gone":              raw[:255],
		"zero":                            make([]byte, 256),
		"one":                             big.NewInt(1).FillBytes(make([]byte, 256)),
		"the modulus less one":            new(big.Int).Sub(key.N, big.NewInt(1)).Bytes(),
	}
	if beyond.BitLen() <= 2048 {
		tests["plus the modulus"] = beyond.Bytes()
	}
	for i := range 8 {
		flipped := append([]byte{}, raw...)
		flipped[i*36] ^= 1 << i
		tests["bit "+string(rune('0'+i))] = flipped
	}
	for name, signature := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := jobScheme(t).Verify(authorization("Bearer "+text+"."+b64(string(signature))), nil, now)
			wantJobCause(t, ev, err, webhook.CauseMismatch)
		})
	}
}

func TestGitLabJobRefusesClaims(t *testing.T) {
	t.Parallel()
	key := jobKeys()[1]
	const aud = `"aud":"https://fencepost.example.com"`
	alter := func(old, replacement string) string { return jobToken(t, key, with(t, jobPayload, old, replacement)) }
	tests := map[string]struct {
		token string
		cause webhook.Cause
	}{
		"another issuer":              {alter(`"iss":"https://gitlab.example.com"`, `"iss":"https://gitlab.example.net"`), webhook.CauseIssuer},
		"issuer with a slash":         {alter(`"iss":"https://gitlab.example.com"`, `"iss":"https://gitlab.example.com/"`), webhook.CauseIssuer},
		"issuer in capitals":          {alter(`"iss":"https://gitlab.example.com"`, `"iss":"HTTPS://gitlab.example.com"`), webhook.CauseIssuer},
		"issuer without scheme":       {alter(`"iss":"https://gitlab.example.com"`, `"iss":"gitlab.example.com"`), webhook.CauseIssuer},
		"issuer missing":              {alter(`"iss":"https://gitlab.example.com",`, ``), webhook.CauseClaims},
		"issuer in a list":            {alter(`"iss":"https://gitlab.example.com"`, `"iss":["https://gitlab.example.com"]`), webhook.CauseClaims},
		"issuer null":                 {alter(`"iss":"https://gitlab.example.com"`, `"iss":null`), webhook.CauseClaims},
		"audience missing":            {alter(aud+`,`, ``), webhook.CauseClaims},
		"another audience":            {alter(aud, `"aud":"https://vault.example.com"`), webhook.CauseAudience},
		"audience with a slash":       {alter(aud, `"aud":"https://fencepost.example.com/"`), webhook.CauseAudience},
		"audience a prefix":           {alter(aud, `"aud":"https://fencepost.example.co"`), webhook.CauseAudience},
		"audience empty":              {alter(aud, `"aud":""`), webhook.CauseAudience},
		"audience null":               {alter(aud, `"aud":null`), webhook.CauseClaims},
		"audience a number":           {alter(aud, `"aud":1`), webhook.CauseClaims},
		"audience true":               {alter(aud, `"aud":true`), webhook.CauseClaims},
		"audience an object":          {alter(aud, `"aud":{"aud":"https://fencepost.example.com"}`), webhook.CauseClaims},
		"no audience in the list":     {alter(aud, `"aud":[]`), webhook.CauseAudience},
		"others in the list":          {alter(aud, `"aud":["a","b"]`), webhook.CauseAudience},
		"ours twice in the list":      {alter(aud, `"aud":["https://fencepost.example.com","https://fencepost.example.com"]`), webhook.CauseAudience},
		"ours twice among others":     {alter(aud, `"aud":["a","https://fencepost.example.com","b","https://fencepost.example.com"]`), webhook.CauseAudience},
		"list in a list":              {alter(aud, `"aud":[["https://fencepost.example.com"]]`), webhook.CauseClaims},
		"number in the list":          {alter(aud, `"aud":["https://fencepost.example.com",1]`), webhook.CauseClaims},
		"null in the list":            {alter(aud, `"aud":["https://fencepost.example.com",null]`), webhook.CauseClaims},
		"object in the list":          {alter(aud, `"aud":[{"many":"https://fencepost.example.com"}]`), webhook.CauseClaims},
		"16 others and ours":          {alter(aud, `"aud":[`+strings.Repeat(`"a",`, 16)+`"https://fencepost.example.com"]`), webhook.CauseClaims},
		"expired now":                 {alter(`"exp":1793883590`, `"exp":1793880000`), webhook.CauseTokenTime},
		"expired":                     {alter(`"exp":1793883590`, `"exp":1793879999`), webhook.CauseTokenTime},
		"expiry missing":              {alter(`"exp":1793883590`, `"expires":1793883590`), webhook.CauseClaims},
		"expiry a string":             {alter(`"exp":1793883590`, `"exp":"1793883590"`), webhook.CauseClaims},
		"expiry a fraction":           {alter(`"exp":1793883590`, `"exp":1793883590.0`), webhook.CauseClaims},
		"expiry with an exponent":     {alter(`"exp":1793883590`, `"exp":2e9`), webhook.CauseClaims},
		"expiry negative":             {alter(`"exp":1793883590`, `"exp":-1`), webhook.CauseClaims},
		"expiry zero":                 {alter(`"exp":1793883590`, `"exp":0`), webhook.CauseClaims},
		"expiry null":                 {alter(`"exp":1793883590`, `"exp":null`), webhook.CauseClaims},
		"expiry beyond the calendar":  {alter(`"exp":1793883590`, `"exp":253402300800`), webhook.CauseClaims},
		"expiry beyond 64 bits":       {alter(`"exp":1793883590`, `"exp":18446744073709551616`), webhook.CauseClaims},
		"starts in a second":          {alter(`"nbf":1793879985`, `"nbf":1793880001`), webhook.CauseTokenTime},
		"start missing":               {alter(`"nbf":1793879985,`, ``), webhook.CauseClaims},
		"issued too far ahead":        {alter(`"iat":1793879990`, `"iat":1793880006`), webhook.CauseTokenTime},
		"issue time missing":          {alter(`"iat":1793879990,`, ``), webhook.CauseClaims},
		"issue time a string":         {alter(`"iat":1793879990`, `"iat":"1793879990"`), webhook.CauseClaims},
		"token id missing":            {alter(`"jti":"235b3a54-b797-45c7-ae9a-f72d7bc6ef5b",`, ``), webhook.CauseClaims},
		"token id empty":              {alter(`"jti":"235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"`, `"jti":""`), webhook.CauseClaims},
		"token id a number":           {alter(`"jti":"235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"`, `"jti":1`), webhook.CauseClaims},
		"token id of 257 bytes":       {alter(`"jti":"235b3a54-b797-45c7-ae9a-f72d7bc6ef5b"`, `"jti":"`+strings.Repeat("j", 257)+`"`), webhook.CauseClaims},
		"runner a string":             {alter(`"runner_id":1`, `"runner_id":"1"`), webhook.CauseClaims},
		"runner missing":              {alter(`"runner_id":1,`, ``), webhook.CauseClaims},
		"runner zero":                 {alter(`"runner_id":1`, `"runner_id":0`), webhook.CauseClaims},
		"runner a fraction":           {alter(`"runner_id":1`, `"runner_id":1.0`), webhook.CauseClaims},
		"issuer twice":                {alter(`"runner_id":1`, `"runner_id":1,"iss":"https://gitlab.example.com"`), webhook.CauseClaims},
		"unknown claim twice":         {alter(`"runner_id":1`, `"runner_id":1,"x":1,"x":1`), webhook.CauseClaims},
		"twice, once escaped":         {alter(`"runner_id":1`, `"runner_id":1,"\u0069ss":"https://gitlab.example.com"`), webhook.CauseClaims},
		"twice in an object":          {alter(`"job_config":{`, `"job_config":{"sha":"x",`), webhook.CauseClaims},
		"twice in an unknown object":  {alter(`"runner_id":1`, `"runner_id":1,"x":[{"a":1,"a":1}]`), webhook.CauseClaims},
		"twice deep down":             {alter(`"runner_id":1`, `"runner_id":1,"x":{"y":{"z":{"a":1,"b":2,"a":3}}}`), webhook.CauseClaims},
		"too deep":                    {alter(`"runner_id":1`, `"runner_id":1,"x":`+strings.Repeat("[", 8)+strings.Repeat("]", 8)), webhook.CauseClaims},
		"too many values":             {alter(`"runner_id":1`, `"runner_id":1,"x":[`+strings.Repeat("1,", 1024)+`1]`), webhook.CauseClaims},
		"lone surrogate":              {alter(`"runner_id":1`, `"runner_id":1,"x":"\ud800"`), webhook.CauseClaims},
		"not UTF-8":                   {alter(`"runner_id":1`, "\"runner_id\":1,\"x\":\"\xff\""), webhook.CauseClaims},
		"bytes after":                 {jobToken(t, key, jobPayload+"x"), webhook.CauseClaims},
		"a second object":             {jobToken(t, key, jobPayload+jobPayload), webhook.CauseClaims},
		"a list":                      {jobToken(t, key, "["+jobPayload+"]"), webhook.CauseClaims},
		"claims as a form":            {jobToken(t, key, "iss=https://gitlab.example.com"), webhook.CauseClaims},
		"another issuer and audience": {jobToken(t, key, with(t, with(t, jobPayload, aud, `"aud":"x"`), `"iss":"https://gitlab.example.com"`, `"iss":"x"`)), webhook.CauseIssuer},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := jobScheme(t).Verify(authorization("Bearer "+test.token), nil, now)
			wantJobCause(t, ev, err, test.cause)
		})
	}
	// What is signed may still be no base64url.
	text := b64(header(key)) + "." + b64(jobPayload) + "=="
	ev, err := jobScheme(t).Verify(authorization("Bearer "+text+"."+b64(rs256(t, key, text))), nil, now)
	wantJobCause(t, ev, err, webhook.CauseClaims)
}

func TestGitLabJobWorkIsTheSame(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	good := authorization("Bearer " + jobToken(t, keys[1], jobPayload))
	for _, test := range []struct{ anchors, work, want int }{{1, 0, 1}, {1, 1, 1}, {1, 5, 5}, {3, 0, 3}, {3, 2, 3}, {3, 8, 8}} {
		var anchors []webhook.JobAnchor
		for i, k := range []*rsa.PrivateKey{keys[1], keys[0], keys[2]}[:test.anchors] {
			anchors = append(anchors, webhook.JobAnchor{ID: fencepost.AnchorID("k" + string(rune('0'+i))), Key: &k.PublicKey})
		}
		g := webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: jobRing(t, anchors...), Work: test.work}
		n, err := g.Verifications(good, now)
		if err != nil || n != test.want {
			t.Errorf("%+v: accepted with %d verifications, err = %v", test, n, err)
		}
		for name, h := range map[string]fencepost.Headers{
			"nothing": {}, "malformed": authorization("Bearer x"), "unknown key": authorization("Bearer " + jobToken(t, keys[2], jobPayload)),
			"another audience": authorization("Bearer " + jobToken(t, keys[1], with(t, jobPayload, `"aud":"`, `"aud":"x`))),
		} {
			if _, err := g.Verify(h, nil, now); test.anchors == 3 && name == "unknown key" {
				if err != nil {
					t.Errorf("%+v: the third key: %v", test, err)
				}
			} else if r, ok := errors.AsType[*webhook.Refusal](err); !ok || r.Verifications != test.want {
				t.Errorf("%+v, %s: %+v", test, name, r)
			}
		}
		_, err = webhook.JobDecoy{Work: test.work}.Verify(good, nil, now)
		if r, ok := errors.AsType[*webhook.Refusal](err); !ok || r.Verifications != max(test.work, 1) || !errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("%+v: decoy: %+v", test, r)
		}
	}
}

// A header that was read before is not read again, which changes no verdict.
func TestGitLabJobRemembersNoVerdict(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	g := jobScheme(t)
	texts := map[string]webhook.Cause{
		jobToken(t, keys[0], jobPayload): 0, jobToken(t, keys[1], jobPayload): 0,
		jobToken(t, keys[2], jobPayload): webhook.CauseUnknownKey, token(t, keys[2], header(keys[1]), jobPayload): webhook.CauseMismatch,
		b64(header(keys[1])) + "." + b64(jobPayload) + ".AA":      webhook.CauseMismatch,
		b64(header(keys[1])) + "." + b64(jobPayload) + ".A":       webhook.CauseMalformed,
		token(t, keys[1], header(keys[1]), jobPayload+"x"):        webhook.CauseClaims,
		token(t, keys[1], `{"alg":"none","kid":"a"}`, jobPayload): webhook.CauseMalformed,
	}
	for range 3 {
		for text, cause := range texts { // in another order each time
			ev, err := g.Verify(authorization("Bearer "+text), nil, now)
			if cause != 0 {
				wantJobCause(t, ev, err, cause)
			} else if err != nil {
				t.Error(err)
			}
		}
	}
}

// DESIGN §1: a window's start is inclusive, its end exclusive.
func TestGitLabJobWindows(t *testing.T) {
	t.Parallel()
	keys := jobKeys()
	good := authorization("Bearer " + jobToken(t, keys[1], jobPayload))
	for name, test := range map[string]struct {
		from, until time.Time
		other       bool // another key is live
		cause       webhook.Cause
	}{
		"open":                   {},
		"starts now":             {from: now},
		"starts later":           {from: now.Add(1), cause: webhook.CauseNoLiveAnchor},
		"ends later":             {until: now.Add(1)},
		"ends now":               {until: now, cause: webhook.CauseNoLiveAnchor},
		"ended, another is live": {until: now, other: true, cause: webhook.CauseUnknownKey},
	} {
		anchors := []webhook.JobAnchor{
			{ID: "a", Key: &keys[1].PublicKey, From: test.from, Until: test.until},
			{ID: "b", Key: &keys[0].PublicKey, Until: now.AddDate(-1, 0, 0)},
		}
		if test.other {
			anchors[1].Until = time.Time{}
		}
		ev, err := webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: jobRing(t, anchors...)}.Verify(good, nil, now)
		t.Run(name, func(t *testing.T) {
			if test.cause != 0 {
				wantJobCause(t, ev, err, test.cause)
			} else if err != nil || ev.Anchor != "a" {
				t.Errorf("evidence %+v, err = %v", ev, err)
			}
		})
	}
}

// A scheme that lacks something is an error of the program, and nobody's
// request is refused for it.
func TestGitLabJobWithoutItsParts(t *testing.T) {
	t.Parallel()
	whole := jobScheme(t)
	for name, g := range map[string]webhook.GitLabJob{
		"nothing": {}, "no keys": {Issuer: issuer, Audience: audience},
		"no issuer": {Audience: audience, Keys: whole.Keys}, "no audience": {Issuer: issuer, Keys: whole.Keys},
	} {
		_, err := g.Verify(authorization("Bearer x"), nil, now)
		if !errors.Is(err, fencepost.ErrZeroValue) || errors.Is(err, fencepost.ErrUnauthenticated) {
			t.Errorf("%s: err = %v, want ErrZeroValue", name, err)
		}
	}
}

// The token alone is signed: the same one with another hint is the same
// delivery in another binding, and the repeat of a delivery is known by it.
func TestGitLabJobMakesDeliveries(t *testing.T) {
	t.Parallel()
	rule := fencepost.RouteRule{Route: "docs", TrustSet: "instance", SignedTime: fencepost.SignedTimeRequired, Window: fencepost.DefaultReplayWindow}
	key := jobKeys()[1]
	receive := func(payload, body string, at time.Time) (fencepost.AcceptedDelivery, error) {
		check := fencepost.NewIngressCheck("docs", authorization("Bearer "+jobToken(t, key, payload)), []byte(body), at)
		return fencepost.Receive(check, jobScheme(t), rule)
	}
	first, err := receive(jobPayload, `{"merge_request":7}`, now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := receive(jobPayload, `{"merge_request":7}`, now.Add(time.Minute))
	if err != nil || again.Key() != first.Key() || again.Binding() != first.Binding() {
		t.Errorf("a repeat has another identity, err = %v", err)
	}
	other, err := receive(jobPayload, `{"merge_request":8}`, now)
	if err != nil || other.Key() != first.Key() || other.Binding() == first.Binding() {
		t.Errorf("another hint is not the same delivery in another binding, err = %v", err)
	}
	// The identity is of issuer, runner and token id alone.
	for old, replacement := range map[string]string{`"runner_id":1`: `"runner_id":2`, `"jti":"2`: `"jti":"3`} {
		next, err := receive(with(t, jobPayload, old, replacement), `{"merge_request":7}`, now)
		if err != nil || next.Key() == first.Key() {
			t.Errorf("%s: the same delivery, err = %v", replacement, err)
		}
	}
	if end, ok := first.Lifetime().End(); !ok || !end.Equal(now.Add(-10*time.Second+5*time.Minute+24*time.Hour)) {
		t.Errorf("lifetime ends %v, %v", end, ok)
	}
	// Still valid, but older than any delivery may be.
	if _, err := receive(jobPayload, `{}`, now.Add(5*time.Minute)); !errors.Is(err, fencepost.ErrSignedTime) {
		t.Errorf("err = %v, want ErrSignedTime", err)
	}
}

// TestGitLabJobVector holds the scheme to a token that other programs made.
func TestGitLabJobVector(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		JWK, Thumbprint, Token string
		Received               time.Time
	}
	if err := yaml.UnmarshalWithOptions(file, &v, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	key, err := webhook.ParseJWK([]byte(v.JWK))
	if err != nil || key.Thumbprint.String() != v.Thumbprint || key.KeyID != v.Thumbprint {
		t.Fatalf("key %s of %s, err = %v", key.Thumbprint, key.KeyID, err)
	}
	h := authorization("Bearer " + v.Token)
	ev, err := webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: jobRing(t, webhook.JobAnchor{ID: "a", Key: key.Key})}.Verify(h, nil, v.Received)
	if err != nil || ev.Anchor != "a" {
		t.Fatalf("evidence %+v, err = %v", ev, err)
	}
	claims, err := webhook.JobClaimsOf(h)
	want := webhook.JobClaims{
		Issuer: issuer, TokenID: "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b", IssuedAt: now.Add(-10 * time.Second), Expires: now.Add(3590 * time.Second),
		RunnerID: 1, RunnerEnvironment: "self-hosted", ProjectID: 20, ProjectPath: "my-group/my-project", PipelineID: 574, JobID: 302,
		PipelineSource: "merge_request_event", SHA: "714a629c0b401fdce83e847fc9589983fc6f46bc", Ref: "feature-1", RefPath: "refs/heads/feature-1",
		Source:    "pipeline_execution_policy",
		ConfigURL: "https://gitlab.example.com/my-group/my-policy-project/-/blob/0123456789abcdef0123456789abcdef01234567/.gitlab/security-policies/policy.yml",
		ConfigSHA: "0123456789abcdef0123456789abcdef01234567",
	}
	if diff := cmp.Diff(want, claims); err != nil || diff != "" {
		t.Errorf("err = %v, claims (-want +got):\n%s", err, diff)
	}
}
