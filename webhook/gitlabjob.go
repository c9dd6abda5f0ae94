package webhook

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// gitlabJobDomain tells these identities from those of other schemes;
// docs/encoding.md.
const gitlabJobDomain = "gitlab-job"

// JobClockSkew is how far the issuer's clock may be ahead of ours: a token
// that was issued later than that is refused.
const JobClockSkew = 5 * time.Second

// GitLabJob is the scheme of a GitLab job that proves itself by an ID token:
// the Authorization header holds "Bearer " and a JSON Web Token, signed with
// RS256 by one of the issuer's keys that were pinned beforehand. No key is
// ever fetched, and none is taken from the token.
//
// The token is for us, now: its issuer is Issuer, its audience is Audience or
// a list in which that stands once, and the receipt time lies before its
// expiry and not before its start. Issuer, runner and token id are the replay
// identity, and the issue time is the signed time, whose age is judged by
// [fencepost.Accept]. Nothing of the body is signed: it can only be a hint,
// and the same token with another body is a conflict. What the token says of
// the job, [JobClaimsOf] reads.
//
// GitLab Docs, "OpenID Connect (OIDC) Authentication Using ID Tokens"; RFC
// 7515; RFC 7519; RFC 8725; DESIGN §4.
type GitLabJob struct {
	// Issuer is the instance's URL, as the token states it ("iss").
	Issuer string
	// Audience is what the job names as the receiver ("aud").
	Audience string
	// Keys are the keys that may have signed.
	Keys *JobKeyring
	// Work is how many RSA verifications a refusal costs at least; the number
	// of anchors if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (GitLabJob) Headers() []string { return []string{authorizationHeader} }

// Verify implements [fencepost.Verifier]. Its error is a *[Refusal], or
// matches [fencepost.ErrZeroValue] without a usable keyring, an issuer or an
// audience. It costs as much as a refusal also when it accepts, since the
// signed time is judged later.
func (g GitLabJob) Verify(h fencepost.Headers, _ []byte, received time.Time) (fencepost.Evidence, error) {
	ev, _, err := g.verify(h, received)
	return ev, err
}

func (g GitLabJob) verify(h fencepost.Headers, received time.Time) (_ fencepost.Evidence, verifications int, _ error) {
	if g.Keys.Len() == 0 || g.Issuer == "" || g.Audience == "" {
		return fencepost.Evidence{}, 0, fmt.Errorf("webhook: verify without keyring, issuer or audience: %w", fencepost.ErrZeroValue)
	}
	t := jobTokenOf(h, g.Keys.header.Load())
	anchor, verifications, cause := g.Keys.match(t, received, g.Work)
	if cause == 0 {
		var token registeredClaims
		if token, cause = t.registered(); cause == 0 {
			cause = g.judge(token, received)
		}
		if cause == 0 {
			return fencepost.Evidence{
				Anchor: anchor, TrustSet: g.Keys.Name(), SignedAt: time.Unix(token.IssuedAt, 0).UTC(),
				Replay: fencepost.ReplaySigned{
					Domain: gitlabJobDomain, Values: []string{token.Issuer, strconv.FormatInt(token.RunnerID, 10), token.ID},
				},
			}, verifications, nil
		}
	}
	return fencepost.Evidence{}, verifications, &Refusal{Cause: cause, Verifications: verifications}
}

// registeredClaims are the claims on which authenticity depends, in the types
// that GitLab gives them.
type registeredClaims struct {
	Issuer   string         `json:"iss"`
	Audience strictjson.Raw `json:"aud"`
	ID       string         `json:"jti"`
	IssuedAt int64          `json:"iat"`
	NotUntil int64          `json:"nbf"`
	Expires  int64          `json:"exp"`
	RunnerID int64          `json:"runner_id"`
}

// payloadLimits bound a payload, whose size the token's bounds.
var payloadLimits = strictjson.Limits{Depth: 8, Values: 1024, StringBytes: 4 << 10}

var registeredDecoder = strictjson.NewDecoder[registeredClaims](payloadLimits)

// registered reads the claims of a token whose signature was verified.
func (t jobToken) registered() (registeredClaims, Cause) {
	raw, ok := decodeBase64URL(t.payload)
	if !ok {
		return registeredClaims{}, CauseClaims
	}
	c, err := registeredDecoder.Decode(raw)
	if err != nil || len(c.ID) < 1 || len(c.ID) > MaxTokenIDBytes || c.RunnerID < 1 ||
		!isNumericDate(c.IssuedAt) || !isNumericDate(c.NotUntil) || !isNumericDate(c.Expires) {
		return registeredClaims{}, CauseClaims
	}
	return c, 0
}

// lastNumericDate is the last second of the year 9999.
const lastNumericDate = 253402300799

func isNumericDate(seconds int64) bool { return seconds > 0 && seconds <= lastNumericDate }

func (g GitLabJob) judge(c registeredClaims, received time.Time) Cause {
	audience, cause := g.isAudience(c.Audience)
	switch {
	case cause != 0:
		return cause
	case c.Issuer != g.Issuer:
		return CauseIssuer
	case !audience:
		return CauseAudience
	case !received.Before(time.Unix(c.Expires, 0)),
		received.Before(time.Unix(c.NotUntil, 0)),
		received.Add(JobClockSkew).Before(time.Unix(c.IssuedAt, 0)):
		return CauseTokenTime
	}
	return 0
}

// audienceText makes a list decodable: one value is no object.
type audienceText struct {
	One  *string  `json:"one" strict:"optional"`
	Many []string `json:"many" strict:"optional"`
}

var audienceDecoder = strictjson.NewDecoder[audienceText](strictjson.Limits{Depth: 2, Values: MaxAudiences + 2, StringBytes: 4 << 10})

// isAudience reports whether the claim is our name, or a list in which it
// stands exactly once.
func (g GitLabJob) isAudience(claim strictjson.Raw) (bool, Cause) {
	if inner := len(claim) - 2; inner == len(g.Audience) && claim[0] == '"' && string(claim[1:1+inner]) == g.Audience && strings.IndexByte(g.Audience, '\\') < 0 {
		return true, 0 // to the letter, without escapes
	}
	if claim[0] == '[' {
		list, err := audienceDecoder.Decode([]byte(`{"many":` + string(claim) + `}`))
		if err != nil || len(list.Many) > MaxAudiences {
			return false, CauseClaims
		}
		ours := 0
		for _, name := range list.Many {
			if name == g.Audience {
				ours++
			}
		}
		return ours == 1, 0
	}
	name, err := audienceDecoder.Decode([]byte(`{"one":` + string(claim) + `}`))
	if err != nil || name.One == nil {
		return false, CauseClaims
	}
	return *name.One == g.Audience, 0
}
