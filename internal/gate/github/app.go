package github

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost"
)

// An App is a GitHub App on one account, and how its key is got at.
type App struct {
	// ID is the App's id: issuer of its tokens and integration_id of rules.
	ID int64
	// Installation is the id of the App on the account.
	Installation int64
	// Key returns the private key, PKCS#1 or PKCS#8 PEM, 2048 bits or more. It
	// is asked for at each use, every few minutes, so that a changed file
	// counts. The caller zeroes what it returns.
	Key func(ctx context.Context) (fencepost.Secret, error)
}

// Times of the App's own token. GitHub refuses one whose end is more than ten
// minutes ahead of its own clock, so both ends allow a minute of drift.
// contracts/github.md §4
const (
	jwtBackdated = time.Minute
	jwtLife      = 9 * time.Minute
	jwtMargin    = time.Minute // replaced this long before its end
	minKeyBits   = 2048
	// maxApart bounds by how much GitHub's clock may differ from ours to date
	// tokens in place of it.
	maxApart = 24 * time.Hour
)

// A signer makes the token by which we speak as the App itself.
type signer struct {
	app App
	now func() time.Time

	mu sync.Mutex
	// Guarded by mu:
	token   fencepost.Secret
	expires time.Time
	// ahead is by how much our clock was ahead of GitHub's when a token was
	// refused; 0 where they agreed about the minute that both ends allow.
	ahead time.Duration
}

// time is GitHub's, as far as it is known.
func (s *signer) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Add(-s.ahead)
}

// bearer returns a token that is good for at least [jwtMargin].
func (s *signer) bearer(ctx context.Context) (fencepost.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().Add(-s.ahead)
	if s.token.Len() > 0 && now.Add(jwtMargin).Before(s.expires) {
		return s.token, nil
	}
	key, err := s.app.privateKey(ctx)
	if err != nil {
		return fencepost.Secret{}, err
	}
	expires := now.Add(jwtLife)
	signed, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer:    strconv.FormatInt(s.app.ID, 10),
		IssuedAt:  jwt.NewNumericDate(now.Add(-jwtBackdated)),
		ExpiresAt: jwt.NewNumericDate(expires),
	}).SignedString(key)
	if err != nil {
		return fencepost.Secret{}, credentialError("sign App token", errors.New("the key can't sign"))
	}
	s.token, s.expires = fencepost.NewSecret([]byte(signed)), expires
	return s.token, nil
}

// refused makes the next call sign anew, dated by GitHub's clock where the
// refusal's Date shows another than ours. Ours may be wrong, and stay so for
// hours after it was set right: one that never goes back works a wrong step
// forward off.
func (s *signer) refused(date string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expires, s.ahead = time.Time{}, 0
	theirs, err := http.ParseTime(date)
	if err != nil {
		return
	}
	if apart := s.now().Sub(theirs); apart.Abs() > jwtBackdated/2 && apart.Abs() <= maxApart {
		s.ahead = apart
	}
}

// privateKey reads the key. Its errors say nothing of what was read.
func (a App) privateKey(ctx context.Context) (*rsa.PrivateKey, error) {
	secret, err := a.Key(ctx)
	if err != nil {
		return nil, credentialError("read App key", errors.New("the secret could not be resolved"))
	}
	defer secret.Zero()
	key, err := ParseKey(secret)
	if err != nil {
		return nil, credentialError("read App key", err)
	}
	return key, nil
}

// ParseKey reads an RSA private key of 2048 bits or more from one PEM block,
// PKCS#1 or PKCS#8. Its error matches [fencepost.ErrMalformed], names the mend
// and nothing of the key.
func ParseKey(secret fencepost.Secret) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(secret.Reveal())
	if block == nil {
		return nil, fmt.Errorf("the App key is not PEM; download it from the App's settings: %w", fencepost.ErrMalformed)
	}
	defer clear(block.Bytes)
	key, err := parseDER(block.Bytes)
	if err != nil {
		return nil, err
	}
	if key.N.BitLen() < minKeyBits {
		return nil, fmt.Errorf("the App key has %d bits, want %d or more: %w", key.N.BitLen(), minKeyBits, fencepost.ErrMalformed)
	}
	return key, nil
}

func parseDER(der []byte) (*rsa.PrivateKey, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("the App key is neither PKCS#1 nor PKCS#8: %w", fencepost.ErrMalformed)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the App key is not an RSA key: %w", fencepost.ErrMalformed)
	}
	return key, nil
}

func credentialError(op string, err error) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonCredential, Err: err}
}
