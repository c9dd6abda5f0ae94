package webhook

import (
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// Bounds of keys and of the documents that hold them.
const (
	// MinRSABits and MaxRSABits bound the modulus of a key.
	MinRSABits = 2048
	MaxRSABits = 4096
	// MinRSAExponent is the least public exponent; it is odd, and at most
	// MaxRSAExponent.
	MinRSAExponent = 65537
	MaxRSAExponent = 1<<31 - 1
	// MaxJWKBytes bounds the text of one key, MaxJWKSBytes that of a set.
	MaxJWKBytes  = 16 << 10
	MaxJWKSBytes = 256 << 10
	// MaxJWKSKeys bounds the keys of a set, of whatever type.
	MaxJWKSKeys = 64
	// MaxKeyIDBytes bounds a key id ("kid").
	MaxKeyIDBytes = 256
)

// A Thumbprint is the SHA-256 of a key's required members in their one
// canonical form (RFC 7638): a name that only this key has.
type Thumbprint [sha256.Size]byte

// ThumbprintOf is the thumbprint of an RSA key. The key must have a modulus
// and an exponent, as those of [ParseJWK] do.
func ThumbprintOf(key *rsa.PublicKey) Thumbprint {
	// The members in their lexical order, without white space; neither value
	// holds a character that JSON would escape (RFC 7638 §3).
	canonical := `{"e":"` + encodeInteger(big.NewInt(int64(key.E))) + `","kty":"RSA","n":"` + encodeInteger(key.N) + `"}`
	return sha256.Sum256([]byte(canonical))
}

// ParseThumbprint reads a thumbprint as [Thumbprint.String] writes it: 43
// characters of unpadded base64url. Its error matches
// [fencepost.ErrMalformed].
func ParseThumbprint(text string) (Thumbprint, error) {
	raw, ok := decodeBase64URL(text)
	if !ok || len(raw) != len(Thumbprint{}) {
		return Thumbprint{}, fmt.Errorf("webhook: a thumbprint has 43 characters of base64url: %w", fencepost.ErrMalformed)
	}
	return Thumbprint(raw), nil
}

// String is the thumbprint in unpadded base64url.
func (t Thumbprint) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// A JWK is a public RSA key for RS256 signatures as a JSON Web Key states it
// (RFC 7517; RFC 7518 §6.3).
type JWK struct {
	// KeyID is what tokens call the key ("kid"); empty where the text has
	// none.
	KeyID string
	// Key is the key itself.
	Key *rsa.PublicKey
	// Thumbprint is the key's.
	Thumbprint Thumbprint
}

// jwkText is a key as it is written. Members that say nothing of what the
// key is or may be used for are passed over.
type jwkText struct {
	Type      string  `json:"kty"`
	Modulus   *string `json:"n"`
	Exponent  *string `json:"e"`
	KeyID     *string `json:"kid"`
	Use       *string `json:"use"`
	Algorithm *string `json:"alg"`
	// Members of private and of symmetric keys, which have no place here.
	D       *strictjson.Raw `json:"d"`
	P       *strictjson.Raw `json:"p"`
	Q       *strictjson.Raw `json:"q"`
	DP      *strictjson.Raw `json:"dp"`
	DQ      *strictjson.Raw `json:"dq"`
	QI      *strictjson.Raw `json:"qi"`
	Primes  *strictjson.Raw `json:"oth"`
	Sharing *strictjson.Raw `json:"k"`
}

type jwksText struct {
	Keys []jwkText `json:"keys"`
}

var (
	jwkDecoder  = strictjson.NewDecoder[jwkText](strictjson.Limits{Depth: 4, Values: 256, StringBytes: 8 << 10})
	jwksDecoder = strictjson.NewDecoder[jwksText](strictjson.Limits{Depth: 6, Values: 64 * MaxJWKSKeys, StringBytes: 8 << 10})
)

var errPrivateKey = errors.New("it holds a private or a shared key, which nobody else may have")

// ParseJWK reads the text of one public RSA key. A key that says it is for
// something else than RS256 signatures is refused, and so is a private one.
// Its error matches [fencepost.ErrMalformed].
func ParseJWK(text []byte) (JWK, error) {
	if len(text) > MaxJWKBytes {
		return JWK{}, fmt.Errorf("webhook: key of more than %d bytes: %w", MaxJWKBytes, fencepost.ErrMalformed)
	}
	t, err := jwkDecoder.Decode(text)
	if err != nil {
		return JWK{}, fmt.Errorf("webhook: key is not a JSON Web Key: %w: %w", err, fencepost.ErrMalformed)
	}
	if !t.signsRS256() {
		return JWK{}, fmt.Errorf("webhook: key is not one for RS256 signatures: %w", fencepost.ErrMalformed)
	}
	k, err := t.key()
	if err != nil {
		return JWK{}, fmt.Errorf("webhook: key: %w: %w", err, fencepost.ErrMalformed)
	}
	return k, nil
}

// ParseJWKS reads a set of keys, such as an issuer publishes. It returns the
// RSA keys for RS256 signatures, in their order; keys of other types and for
// other uses are passed over. One that claims to be for them and is not a key
// that we would take spoils the set, and so do two of one key id. Its error
// matches [fencepost.ErrMalformed].
func ParseJWKS(text []byte) ([]JWK, error) {
	if len(text) > MaxJWKSBytes {
		return nil, fmt.Errorf("webhook: key set of more than %d bytes: %w", MaxJWKSBytes, fencepost.ErrMalformed)
	}
	t, err := jwksDecoder.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("webhook: not a set of JSON Web Keys: %w: %w", err, fencepost.ErrMalformed)
	}
	if len(t.Keys) > MaxJWKSKeys {
		return nil, fmt.Errorf("webhook: set of more than %d keys: %w", MaxJWKSKeys, fencepost.ErrMalformed)
	}
	var keys []JWK
	ids := map[string]bool{}
	for i, one := range t.Keys {
		if !one.signsRS256() {
			continue
		}
		k, err := one.key()
		if err != nil {
			return nil, fmt.Errorf("webhook: key %d of the set: %w: %w", i+1, err, fencepost.ErrMalformed)
		}
		if k.KeyID != "" && ids[k.KeyID] {
			return nil, fmt.Errorf("webhook: key %d of the set: another has its id: %w", i+1, fencepost.ErrMalformed)
		}
		ids[k.KeyID] = true
		keys = append(keys, k)
	}
	return keys, nil
}

// signsRS256 reports whether the key says that it may be used for RS256
// signatures: what it leaves unsaid, it allows.
func (t jwkText) signsRS256() bool {
	return t.Type == "RSA" && (t.Use == nil || *t.Use == "sig") && (t.Algorithm == nil || *t.Algorithm == "RS256")
}

func (t jwkText) key() (JWK, error) {
	for _, private := range []*strictjson.Raw{t.D, t.P, t.Q, t.DP, t.DQ, t.QI, t.Primes, t.Sharing} {
		if private != nil {
			return JWK{}, errPrivateKey
		}
	}
	if t.Modulus == nil || t.Exponent == nil {
		return JWK{}, errors.New("modulus or exponent missing")
	}
	n, nok := decodeInteger(*t.Modulus)
	e, eok := decodeInteger(*t.Exponent)
	if !nok || !eok || !e.IsInt64() {
		return JWK{}, errors.New("modulus and exponent must be base64url of a number without leading zeros")
	}
	if e.Int64() > MaxRSAExponent {
		return JWK{}, errExponent
	}
	key := &rsa.PublicKey{N: n, E: int(e.Int64())}
	if err := checkKey(key); err != nil {
		return JWK{}, err
	}
	k := JWK{Key: key, Thumbprint: ThumbprintOf(key)}
	if t.KeyID != nil {
		if !isKeyID(*t.KeyID) {
			return JWK{}, errKeyID
		}
		k.KeyID = *t.KeyID
	}
	return k, nil
}

var (
	errExponent = fmt.Errorf("exponent must be odd and %d to %d", MinRSAExponent, MaxRSAExponent)
	errKeyID    = fmt.Errorf("key id must be 1 to %d visible ASCII characters", MaxKeyIDBytes)
)

// checkKey says what is the matter with a key that nothing may rest on.
func checkKey(key *rsa.PublicKey) error {
	switch {
	case key == nil || key.N == nil || key.N.Sign() <= 0 || key.N.BitLen() < MinRSABits || key.N.BitLen() > MaxRSABits:
		return fmt.Errorf("modulus must have %d to %d bits", MinRSABits, MaxRSABits)
	case key.N.Bit(0) == 0:
		return errors.New("modulus must be odd")
	case key.E < MinRSAExponent || key.E > MaxRSAExponent || key.E%2 == 0:
		return errExponent
	}
	return nil
}

// isKeyID accepts 1 to 256 visible ASCII characters.
func isKeyID(s string) bool {
	if len(s) < 1 || len(s) > MaxKeyIDBytes {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// encodeInteger is a number as a JWK holds it (RFC 7518 §2).
func encodeInteger(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

// decodeInteger reads a number in its one spelling, which has no leading
// zeros. The number zero has no place in a key.
func decodeInteger(text string) (*big.Int, bool) {
	raw, ok := decodeBase64URL(text)
	if !ok || len(raw) == 0 || raw[0] == 0 {
		return nil, false
	}
	return new(big.Int).SetBytes(raw), true
}

// decodeBase64URL reads unpadded base64url in its one spelling: the unused
// bits of the last character are zero, and nothing is passed over.
func decodeBase64URL(text string) ([]byte, bool) {
	// The decoder skips line ends.
	if strings.IndexByte(text, '\r') >= 0 || strings.IndexByte(text, '\n') >= 0 {
		return nil, false
	}
	raw, err := strictBase64URL.DecodeString(text)
	return raw, err == nil
}

var strictBase64URL = base64.RawURLEncoding.Strict()

// MarshalJSON is the key as [ParseJWK] reads it.
func (k JWK) MarshalJSON() ([]byte, error) {
	if err := checkKey(k.Key); err != nil {
		return nil, fmt.Errorf("webhook: key: %w: %w", err, fencepost.ErrMalformed)
	}
	return json.Marshal(struct {
		Type      string `json:"kty"`
		KeyID     string `json:"kid,omitempty"`
		Use       string `json:"use"`
		Algorithm string `json:"alg"`
		Exponent  string `json:"e"`
		Modulus   string `json:"n"`
	}{"RSA", k.KeyID, "sig", "RS256", encodeInteger(big.NewInt(int64(k.Key.E))), encodeInteger(k.Key.N)})
}
