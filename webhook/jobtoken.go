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

// A knownHeader is a header that has been read: the tokens of one key all have
// the same.
type knownHeader struct{ text, keyID string }

// A jobToken is a JSON Web Token in its compact form (RFC 7515 §7.1), taken
// apart. Nothing of the payload has been looked at.
type jobToken struct {
	signed    string // header and payload as they were sent: what is signed
	header    string // in base64url
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
// signed is what costs time to look at. A header that is known is not read
// again; known may be nil.
func jobTokenOf(h fencepost.Headers, known *knownHeader) jobToken {
	value, cause := only(h, authorizationHeader)
	if cause != 0 {
		return jobToken{cause: cause}
	}
	token, ok := strings.CutPrefix(value, bearer)
	if !ok || len(token) > MaxTokenBytes {
		return jobToken{cause: CauseMalformed}
	}
	t, ok := splitToken(token, known)
	if !ok {
		return jobToken{signed: token, cause: CauseMalformed}
	}
	return t
}

func splitToken(token string, known *knownHeader) (t jobToken, ok bool) {
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, two := strings.Cut(rest, ".")
	if !two || payload == "" || len(header) > encodedBytes(MaxTokenHeaderBytes) || len(signature) > encodedBytes(MaxRSABits/8) {
		return jobToken{}, false
	}
	t.signed, t.header, t.payload = token[:len(header)+1+len(payload)], header, payload
	if known != nil && known.text == header {
		t.keyID = known.keyID
	} else if t.keyID, ok = parseTokenHeader(header); !ok {
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
