package webhook

import "github.com/fencepost/fencepost"

// A Cause says what was the matter with a refused request, for those who run
// the receiver. It must not reach the sender. The zero Cause is none.
type Cause uint8

// The causes. Where several apply, the first of this list is given.
const (
	// CauseMissing: a header that the scheme needs is not there, or empty.
	CauseMissing Cause = iota + 1
	// CauseAmbiguous: a header that the scheme needs stands more than once.
	CauseAmbiguous
	// CauseMalformed: a header that the scheme needs does not have its form.
	CauseMalformed
	// CauseNoLiveAnchor: no anchor's window holds the receipt time.
	CauseNoLiveAnchor
	// CauseMismatch: no live anchor made the signature over these bytes.
	CauseMismatch
	// CauseUnknownKey: the token names a key that is no live anchor's.
	CauseUnknownKey
	// CauseClaims: the signed token lacks a claim that is needed, or has it in
	// another form.
	CauseClaims
	// CauseIssuer: the signed token is of another issuer.
	CauseIssuer
	// CauseAudience: the signed token is for somebody else, or names us twice.
	CauseAudience
	// CauseTokenTime: the signed token has expired, or is not valid yet.
	CauseTokenTime
)

// String returns the cause in words that say nothing of the request.
func (c Cause) String() string {
	switch c {
	case CauseMissing:
		return "signature header missing"
	case CauseAmbiguous:
		return "signature header more than once"
	case CauseMalformed:
		return "signature header malformed"
	case CauseNoLiveAnchor:
		return "no live anchor"
	case CauseMismatch:
		return "signature of no live anchor"
	case CauseUnknownKey:
		return "token of a key that is no live anchor's"
	case CauseClaims:
		return "token lacks a claim or has it in another form"
	case CauseIssuer:
		return "token of another issuer"
	case CauseAudience:
		return "token for another audience"
	case CauseTokenTime:
		return "token expired or not valid yet"
	}
	return "none"
}

// A Refusal is the error of every scheme that refuses. Its text is always the
// same; it matches [fencepost.ErrUnauthenticated].
type Refusal struct {
	// Cause is what was the matter.
	Cause Cause
	// MACs is how many MACs over the body were computed, and Verifications how
	// many signatures were verified; a scheme does one of them. It depends on
	// the scheme's Work and the size of its keyring alone.
	MACs, Verifications int
}

// Error returns the same text for every cause.
func (*Refusal) Error() string { return "webhook: unauthenticated" }

// Unwrap returns [fencepost.ErrUnauthenticated].
func (*Refusal) Unwrap() error { return fencepost.ErrUnauthenticated }
