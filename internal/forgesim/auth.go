package forgesim

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A token is an installation access token, or a person's. Guarded by Forge.mu.
type token struct {
	text         string
	installation *Installation // nil: a person's
	person       *account      // nil: an installation's
	owner        *account      // of a person's: whose repositories it is for
	permissions  Permissions
	repositories []int64 // nil: all of the installation
	expires      time.Time
}

// An identity is who a request comes from. At most one of app and token is
// set; neither: nobody.
type identity struct {
	app     *App
	token   *token
	invalid bool // a credential was given that is none
	reason  string
}

// String names the identity without its credential.
func (i identity) String() string {
	switch {
	case i.app != nil:
		return "app " + strconv.FormatInt(i.app.id, 10)
	case i.token != nil && i.token.person != nil:
		return "person " + strconv.FormatInt(i.token.person.id, 10)
	case i.token != nil:
		return "installation " + strconv.FormatInt(i.token.installation.id, 10)
	case i.invalid:
		return "invalid"
	}
	return "anonymous"
}

// identify reads the credential of a request. Called with mu held.
func (f *Forge) identify(r *http.Request) identity {
	header := r.Header.Get("Authorization")
	if header == "" {
		return identity{}
	}
	text, ok := credential(r, header)
	if !ok {
		return identity{invalid: true, reason: "Bad credentials"}
	}
	if strings.Count(text, ".") == 2 && !strings.HasPrefix(text, "ghs_") {
		app, err := f.verifyJWT(text)
		if err != nil {
			return identity{invalid: true, reason: err.Error()}
		}
		return identity{app: app}
	}
	t := f.tokens[text]
	if t == nil || !f.now().Before(t.expires) {
		return identity{invalid: true, reason: "Bad credentials"}
	}
	return identity{token: t}
}

// credential takes the secret out of an Authorization header: Bearer, token,
// or Basic with the user x-access-token.
func credential(r *http.Request, header string) (string, bool) {
	if user, password, ok := r.BasicAuth(); ok {
		return password, user == "x-access-token"
	}
	scheme, text, ok := strings.Cut(header, " ")
	scheme = strings.ToLower(scheme)
	return text, ok && (scheme == "bearer" || scheme == "token")
}

// Answers to a JWT that is none; they are shown to the client.
var (
	errJWTForm   = errors.New("the JSON web token can not be decoded")
	errJWTIssuer = errors.New("the JSON web token's iss names no App")
	errJWTIssued = errors.New("the JSON web token's iat must be a number of seconds that is not in the future")
	errJWTExpiry = errors.New("the JSON web token's exp must be a number of seconds in the future")
	errJWTLife   = errors.New("the JSON web token's exp is too far in the future")
)

// jwtClaims are the claims that GitHub looks at. Issuer is a client id or an
// App id, which may also be a number.
type jwtClaims struct {
	Issuer    any              `json:"iss"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
	ExpiresAt *jwt.NumericDate `json:"exp"`
}

// The methods of jwt.Claims. The rules are ours: the library's are laxer.
func (c jwtClaims) GetExpirationTime() (*jwt.NumericDate, error) { return c.ExpiresAt, nil }
func (c jwtClaims) GetIssuedAt() (*jwt.NumericDate, error)       { return c.IssuedAt, nil }
func (c jwtClaims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c jwtClaims) GetIssuer() (string, error)                   { return "", nil }
func (c jwtClaims) GetSubject() (string, error)                  { return "", nil }
func (c jwtClaims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

// verifyJWT finds the App that signed text. Called with mu held.
func (f *Forge) verifyJWT(text string) (*App, error) {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	var claims jwtClaims
	var app *App
	_, err := parser.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) {
		if app = f.appOf(claims.Issuer); app == nil {
			return nil, errJWTIssuer
		}
		return &app.key.PublicKey, nil
	})
	if errors.Is(err, errJWTIssuer) {
		return nil, errJWTIssuer
	}
	if err != nil {
		return nil, errJWTForm
	}
	now := f.now()
	switch {
	case claims.IssuedAt == nil || claims.IssuedAt.After(now):
		return nil, errJWTIssued
	case claims.ExpiresAt == nil || !claims.ExpiresAt.After(now):
		return nil, errJWTExpiry
	case claims.ExpiresAt.Sub(now) > maxJWTLife:
		return nil, errJWTLife
	}
	return app, nil
}

// appOf finds the App that an iss claim names.
func (f *Forge) appOf(issuer any) *App {
	var name string
	switch v := issuer.(type) {
	case string:
		name = v
	case float64:
		name = strconv.FormatInt(int64(v), 10)
	}
	for _, a := range f.apps {
		if name == a.clientID || name == strconv.FormatInt(a.id, 10) {
			return a
		}
	}
	return nil
}

// issueToken makes a token of random text. Called with mu held.
func (f *Forge) issueToken(i *Installation, permissions Permissions, repositories []int64) *token {
	size := 27
	if f.mood.LongTokens {
		size = 400
	}
	random := make([]byte, size)
	rand.Read(random) // never fails: crypto/rand
	text := "ghs_" + base64.RawURLEncoding.EncodeToString(random)
	if f.mood.LongTokens {
		text = fmt.Sprintf("ghs_%d_%s", i.app.id, base64.RawURLEncoding.EncodeToString(random))
	}
	t := &token{
		text: text, installation: i, permissions: permissions, repositories: repositories,
		expires: f.now().Add(f.config.TokenLife).UTC().Truncate(time.Second),
	}
	f.tokens[text] = t
	return t
}

// Token issues an installation token as a request for one would: for one
// repository (nil: all) with the installation's permissions.
func (i *Installation) Token(r *Repository) string {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	var repositories []int64
	if r != nil {
		repositories = []int64{r.id}
	}
	return i.forge.issueToken(i, maps.Clone(i.permissions), repositories).text
}

// RevokeTokens makes every token issued so far invalid.
func (f *Forge) RevokeTokens() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.tokens)
}

// reaches reports whether the token may know of r. Called with mu held.
func (t *token) reaches(r *Repository) bool {
	i := t.installation
	if i == nil {
		return t.owner == r.owner && slices.Contains(t.repositories, r.id)
	}
	return !i.suspended && !i.removed && i.account == r.owner && i.repositories[r.id] &&
		(t.repositories == nil || slices.Contains(t.repositories, r.id))
}

// allows reports whether the token grants a permission now: what it was issued
// with, as far as the installation still grants it. Called with mu held.
func (t *token) allows(name, level string) bool {
	return t.permissions.allows(name, level) && (t.installation == nil || t.installation.permissions.allows(name, level))
}
