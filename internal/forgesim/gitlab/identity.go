package gitlab

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

const (
	// keyBits are those of a signing key.
	keyBits = 2048
	// tokenLife is that of a token whose job has no timeout, backdated how far
	// before its issue it is valid.
	tokenLife, backdated = 5 * time.Minute, 5 * time.Second
	// runnerID is that of the one runner.
	runnerID = 1
)

// A signingKey signs ID tokens. Guarded by Forge.mu.
type signingKey struct {
	key *rsa.PrivateKey
	kid string
}

// A JWK is a public key as the issuer publishes it.
type JWK struct {
	KeyType string `json:"kty"`
	ID      string `json:"kid"`
	Use     string `json:"use"`
	Alg     string `json:"alg"`
	N       string `json:"n"`
	E       string `json:"e"`
}

// RotateKey makes a key that signs from now on, and returns its kid, which is
// its thumbprint. Those before stay published.
func (f *Forge) RotateKey() (kid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.needKey()
	return f.addKey(newKey())
}

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		panic("gitlab: signing key: " + err.Error()) // there is always chance
	}
	return key
}

// needKey makes the first key, where there is none. Called with mu held.
func (f *Forge) needKey() {
	if len(f.keys) == 0 {
		f.addKey(newKey())
	}
}

// addKey is called with mu held.
func (f *Forge) addKey(key *rsa.PrivateKey) (kid string) {
	k := &signingKey{key: key, kid: thumbprint(&key.PublicKey)}
	f.keys = append(f.keys, k)
	return k.kid
}

// RetireKey takes a key out of what is published. The newest signs.
func (f *Forge) RetireKey(kid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = slices.DeleteFunc(f.keys, func(k *signingKey) bool { return k.kid == kid && len(f.keys) > 1 })
}

// Keys returns what the issuer publishes, oldest first.
func (f *Forge) Keys() []JWK {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.needKey()
	var out []JWK
	for _, k := range f.keys {
		n, e := numbers(&k.key.PublicKey)
		out = append(out, JWK{KeyType: "RSA", ID: k.kid, Use: "sig", Alg: "RS256", N: n, E: e})
	}
	return out
}

// numbers are modulus and exponent in the spelling of JWKs.
func numbers(k *rsa.PublicKey) (n, e string) {
	text := func(i *big.Int) string { return base64.RawURLEncoding.EncodeToString(i.Bytes()) }
	return text(k.N), text(big.NewInt(int64(k.E)))
}

// thumbprint is the key's name. RFC 7638
func thumbprint(k *rsa.PublicKey) string {
	n, e := numbers(k)
	sum := sha256.Sum256([]byte(`{"e":"` + e + `","kty":"RSA","n":"` + n + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Token is the job's ID token of an audience, the same at every call. Its error
// matches [forgesim.ErrState] where the job has ended.
func (j *Job) Token(audience string) (string, error) {
	f := j.pipeline.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return j.token(audience)
}

// token is called with mu held.
func (j *Job) token(audience string) (string, error) {
	if j.ended {
		return "", fmt.Errorf("gitlab: token of job %d, which has ended: %w", j.id, forgesim.ErrState)
	}
	if text, ok := j.tokens[audience]; ok {
		return text, nil
	}
	text, err := j.pipeline.project.forge.sign(j.claims(audience))
	j.tokens[audience] = text
	return text, err
}

// Claims are those of a token of the job that is made now.
func (j *Job) Claims(audience string) map[string]any {
	f := j.pipeline.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return j.claims(audience)
}

// Sign signs claims, whatever they say, with the present key.
func (f *Forge) Sign(claims map[string]any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sign(claims)
}

// sign is called with mu held.
func (f *Forge) sign(claims map[string]any) (string, error) {
	f.needKey()
	k := f.keys[len(f.keys)-1]
	part := func(v any) string { return base64.RawURLEncoding.EncodeToString(encode(v)) }
	text := part(object{"alg": "RS256", "kid": k.kid, "typ": "JWT"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, k.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("gitlab: sign: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// claims are those of contracts/gitlab.md §5, with their JSON types. Called with
// mu held.
func (j *Job) claims(audience string) map[string]any {
	pipe := j.pipeline
	p, m := pipe.project, pipe.request
	f := p.forge
	version := f.config.Version
	now := f.config.Now()
	life := j.spec.Timeout
	if life == 0 {
		life = tokenLife
	}
	id := func(n int64) string { return strconv.FormatInt(n, 10) }
	user := f.account(j.user)
	from := m.from // since 18.2.2, in merge request pipelines
	c := object{
		"iss": f.base, "sub": "project_path:" + from.path() + ":ref_type:branch:ref:" + m.source, "aud": audience, "jti": f.uuid(),
		"iat": now.Unix(), "nbf": now.Add(-backdated).Unix(), "exp": now.Add(life).Unix(),
		"namespace_id": id(from.namespace.id), "namespace_path": from.namespace.path,
		"project_id": id(from.id), "project_path": from.path(),
		"user_id": id(user.ID), "user_login": user.Login, "user_email": user.Login + "@example.invalid", "user_access_level": "developer",
		"pipeline_id": id(pipe.id), "pipeline_source": "merge_request_event", "job_id": id(j.id),
		"ref": m.source, "ref_type": "branch", "ref_path": "refs/heads/" + m.source,
		"ref_protected": strconv.FormatBool(from.protects(m.source)),
		"runner_id":     runnerID, "runner_environment": "self-hosted", "sha": pipe.sha, "project_visibility": from.visibility,
		"ci_config_ref_uri": nil, "ci_config_sha": nil,
	}
	if j.spec.Policy == nil {
		host := f.base[len("http://"):]
		c["ci_config_ref_uri"] = host + "/" + p.path() + "//.gitlab-ci.yml@refs/heads/" + m.source
		c["ci_config_sha"] = pipe.sha
	}
	if !version.before(18, 3) {
		c["job_project_id"], c["job_project_path"] = id(p.id), p.path()
		c["job_namespace_id"], c["job_namespace_path"] = id(p.namespace.id), p.namespace.path
	}
	if !version.before(18, 9) {
		c["job_source"] = "merge_request_event"
		if policy := j.spec.Policy; policy != nil {
			c["job_source"] = policy.Source
			c["job_config"] = object{"url": policy.Project.web() + "/-/blob/" + j.policy + "/" + policy.Path, "sha": j.policy}
		}
	}
	if !version.before(19, 4) {
		c["source_project_id"], c["source_project_path"] = id(from.id), from.path()
		c["source_namespace_id"], c["source_namespace_path"] = id(from.namespace.id), from.namespace.path
	}
	return c
}

// keySet serves /oauth/discovery/keys.
func (f *Forge) keySet(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string][]JWK{"keys": f.Keys()})
}

// discovery serves /.well-known/openid-configuration.
func (f *Forge) discovery(w http.ResponseWriter, _ *http.Request) {
	base := f.URL()
	reply(w, http.StatusOK, object{
		"issuer": base, "jwks_uri": base + "/oauth/discovery/keys", "authorization_endpoint": base + "/oauth/authorize",
		"token_endpoint": base + "/oauth/token", "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
}

// decode reads a JSON body.
func decode(r *http.Request, into any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequestBody)).Decode(into)
}
