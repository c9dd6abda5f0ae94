package webhook

import (
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

const authorizationHeader = "authorization"

// bearer stands before the token. The name of an authentication scheme has no
// letter case (RFC 9110 §11.1), but the senders of these tokens are programs
// of ours, and one spelling leaves nothing to guess.
const bearer = "Bearer "

// Bounds of a job's token.
const (
	// MaxTokenBytes bounds a token with its signature.
	MaxTokenBytes = 8 << 10
	// MaxTokenHeaderBytes bounds its decoded header.
	MaxTokenHeaderBytes = 1 << 10
	// MaxTokenIDBytes bounds its id ("jti").
	MaxTokenIDBytes = 256
	// MaxAudiences bounds the list of those it is for.
	MaxAudiences = 16
)

// A jobToken is a JSON Web Token in its compact form (RFC 7515 §7.1), taken
// apart. Nothing of the payload has been looked at.
type jobToken struct {
	signed    string // header and payload as they were sent: what is signed
	payload   string // in base64url
	keyID     string
	signature []byte
	cause     Cause // set ⇒ the token is refused whatever else it holds
}

// tokenHeader is all that the header may hold. Whatever points to a key
// (jwk, jku, x5u, x5c), asks for more than RS256 (crit, b64, zip, enc) or is
// unknown is refused.
type tokenHeader struct {
	Algorithm string  `json:"alg"`
	KeyID     string  `json:"kid"`
	Type      *string `json:"typ"`
}

var headerDecoder = strictjson.NewClosedDecoder[tokenHeader](strictjson.Limits{Depth: 1, Values: 8, StringBytes: MaxTokenHeaderBytes})

// jobTokenOf takes the token of a request apart. Whatever is wrong with it,
// signed is what costs time to look at.
func jobTokenOf(h fencepost.Headers) jobToken {
	value, cause := only(h, authorizationHeader)
	if cause != 0 {
		return jobToken{cause: cause}
	}
	token, ok := strings.CutPrefix(value, bearer)
	if !ok || len(token) > MaxTokenBytes {
		return jobToken{cause: CauseMalformed}
	}
	t, ok := splitToken(token)
	if !ok {
		return jobToken{signed: token, cause: CauseMalformed}
	}
	return t
}

func splitToken(token string) (t jobToken, ok bool) {
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, two := strings.Cut(rest, ".")
	if !two || payload == "" || len(header) > encodedBytes(MaxTokenHeaderBytes) || len(signature) > encodedBytes(MaxRSABits/8) {
		return jobToken{}, false
	}
	t.signed, t.payload = token[:len(header)+1+len(payload)], payload
	if t.keyID, ok = parseTokenHeader(header); !ok {
		return jobToken{}, false
	}
	// A further dot is no character of base64url.
	t.signature, ok = decodeBase64URL(signature)
	return t, ok
}

// parseTokenHeader returns the key id of a header that says RS256.
func parseTokenHeader(text string) (keyID string, ok bool) {
	raw, ok := decodeBase64URL(text)
	if !ok {
		return "", false
	}
	h, err := headerDecoder.Decode(raw)
	if err != nil || h.Algorithm != "RS256" || h.Type != nil && *h.Type != "JWT" || !isKeyID(h.KeyID) {
		return "", false
	}
	return h.KeyID, true
}

// encodedBytes is the length of n bytes in unpadded base64.
func encodedBytes(n int) int { return (n*8 + 5) / 6 }
