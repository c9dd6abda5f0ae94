package webhook

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

const (
	standardID        = "webhook-id"
	standardTimestamp = "webhook-timestamp"
	standardSignature = "webhook-signature"

	// standardDomain tells these message ids from identities of other
	// schemes; docs/encoding.md.
	standardDomain = "standard-webhooks"
)

// Bounds of Standard Webhooks headers and keys.
const (
	// MaxMessageIDBytes bounds a message id.
	MaxMessageIDBytes = 256
	// MaxSignatures bounds the entries of one signature header, of known
	// versions or not. A sender that rotates has two.
	MaxSignatures = 16
	// MinStandardKeyBytes and MaxStandardKeyBytes bound a decoded key.
	MinStandardKeyBytes = 24
	MaxStandardKeyBytes = 64
)

// StandardWebhooks is the symmetric scheme of the Standard Webhooks
// specification, which GitLab's signing tokens use: webhook-signature holds a
// list, separated by single spaces, of "v1," and the base64 HMAC-SHA256 of
// "id.timestamp.body". Any one matching entry suffices, entries of other
// versions are passed over, and a v1 entry that is not one MAC spoils the
// list.
//
// The message id is the replay identity, and the timestamp the signed issue
// time. Its age is not judged here but by [fencepost.Accept].
//
// Standard Webhooks, "Signature scheme"; DESIGN §4.
type StandardWebhooks struct {
	// Keys are the keys that may have signed: the bytes that
	// [ParseStandardSecret] gives, not their text.
	Keys *Keyring
	// Work is how many MACs a refusal costs at least; the number of anchors
	// if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (StandardWebhooks) Headers() []string {
	return []string{standardID, standardTimestamp, standardSignature}
}

// Verify implements [fencepost.Verifier]. Its error is a *[Refusal], or
// matches [fencepost.ErrZeroValue] without a usable keyring. It costs as much
// as a refusal also when it accepts, since the signed time is judged later.
func (s StandardWebhooks) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	ev, _, err := s.verify(h, body, received)
	return ev, err
}

func (s StandardWebhooks) verify(h fencepost.Headers, body []byte, received time.Time) (_ fencepost.Evidence, macs int, _ error) {
	c, id, signedAt := standardClaim(h, body)
	anchor, macs, err := s.Keys.match(c, received, s.Work, true)
	if err != nil {
		return fencepost.Evidence{}, macs, err
	}
	return fencepost.Evidence{
		Anchor: anchor, TrustSet: s.Keys.Name(), SignedAt: signedAt,
		Replay: fencepost.ReplaySigned{Domain: standardDomain, Values: []string{id}},
	}, macs, nil
}

// Sign returns the three headers that make Verify accept m, whose id must be
// a message id. Its error matches [fencepost.ErrMalformed] for another id or
// a time before 1970, [ErrNoLiveAnchor], or [fencepost.ErrZeroValue] without
// a usable keyring.
func (s StandardWebhooks) Sign(m Message) ([]fencepost.Header, error) {
	stamp := strconv.FormatInt(m.At.Unix(), 10)
	if !isMessageID(m.ID) {
		return nil, fmt.Errorf("webhook: sign message id of %d bytes: %w", len(m.ID), fencepost.ErrMalformed)
	}
	if _, ok := parseTimestamp(stamp); !ok {
		return nil, fmt.Errorf("webhook: sign time out of range: %w", fencepost.ErrMalformed)
	}
	sum, err := s.Keys.sign(claim{parts: standardParts(m.ID, stamp, m.Body)}, m.At)
	if err != nil {
		return nil, err
	}
	return []fencepost.Header{
		{Name: standardID, Value: m.ID},
		{Name: standardTimestamp, Value: stamp},
		{Name: standardSignature, Value: "v1," + base64.StdEncoding.EncodeToString(sum[:])},
	}, nil
}

// ParseStandardSecret reads a key as Standard Webhooks writes it: "whsec_"
// and the base64, with padding, of 24 to 64 bytes. It zeroes text. Its error
// matches [fencepost.ErrMalformed] and holds nothing of the text.
func ParseStandardSecret(text []byte) (fencepost.Secret, error) {
	defer clear(text)
	encoded, ok := bytes.CutPrefix(text, []byte("whsec_"))
	if !ok {
		return fencepost.Secret{}, fmt.Errorf(`webhook: signing secret does not start with "whsec_": %w`, fencepost.ErrMalformed)
	}
	key := make([]byte, base64.StdEncoding.DecodedLen(len(encoded)))
	n, err := base64.StdEncoding.Strict().Decode(key, encoded)
	defer clear(key)
	// The decoder skips line ends, which no key holds.
	if err != nil || bytes.ContainsAny(encoded, "\r\n") {
		return fencepost.Secret{}, fmt.Errorf("webhook: signing secret is not base64 after its prefix: %w", fencepost.ErrMalformed)
	}
	if n < MinStandardKeyBytes || n > MaxStandardKeyBytes {
		return fencepost.Secret{}, fmt.Errorf("webhook: signing secret holds %d bytes, want %d to %d: %w",
			n, MinStandardKeyBytes, MaxStandardKeyBytes, fencepost.ErrMalformed)
	}
	return fencepost.NewSecret(key[:n]), nil
}

// standardClaim reads the three headers. Whatever is wrong with them, the
// claim covers the body, so that refusing it costs the same.
func standardClaim(h fencepost.Headers, body []byte) (c claim, id string, signedAt time.Time) {
	var causes [3]Cause
	var stamp, list string
	id, causes[0] = only(h, standardID)
	stamp, causes[1] = only(h, standardTimestamp)
	list, causes[2] = only(h, standardSignature)
	c = claim{parts: standardParts(id, stamp, body), offer: make([]mac, 1)}
	for _, cause := range causes {
		if cause != 0 && (c.cause == 0 || cause < c.cause) {
			c.cause = cause
		}
	}
	if c.cause != 0 {
		return c, "", time.Time{}
	}
	signedAt, stamped := parseTimestamp(stamp)
	offer, listed := parseSignatures(list)
	if !stamped || !listed || !isMessageID(id) {
		c.cause = CauseMalformed
		return c, "", time.Time{}
	}
	c.offer = offer
	return c, id, signedAt
}

// standardParts is the signed text. Neither id nor timestamp holds a dot, so
// no two requests have the same text.
func standardParts(id, stamp string, body []byte) [3][]byte {
	head := make([]byte, 0, len(id)+len(stamp)+2)
	head = append(append(append(append(head, id...), '.'), stamp...), '.')
	return [3][]byte{head, body}
}

// isMessageID accepts 1 to 256 visible ASCII characters without a dot.
func isMessageID(s string) bool {
	if len(s) < 1 || len(s) > MaxMessageIDBytes {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '.' {
			return false
		}
	}
	return true
}

// parseTimestamp reads Unix seconds as ^[1-9][0-9]{0,15}$: the one spelling
// that signing the header's text and signing the number agree on.
func parseTimestamp(s string) (time.Time, bool) {
	if len(s) < 1 || len(s) > 16 || s[0] == '0' {
		return time.Time{}, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return time.Time{}, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return time.Unix(n, 0).UTC(), true
}

// parseSignatures reads the list. It has at least one v1 entry, or nothing
// in it can be verified.
func parseSignatures(list string) ([]mac, bool) {
	var offer []mac
	entries := 0
	for entry := range strings.SplitSeq(list, " ") {
		version, value, ok := strings.Cut(entry, ",")
		if entries++; !ok || version == "" || value == "" || entries > MaxSignatures {
			return nil, false
		}
		if version != "v1" {
			continue
		}
		sum, ok := parseBase64(value)
		if !ok {
			return nil, false
		}
		offer = append(offer, sum)
	}
	return offer, len(offer) > 0
}

func parseBase64(s string) (mac, bool) {
	var sum mac
	if len(s) != base64.StdEncoding.EncodedLen(len(sum)) || strings.ContainsAny(s, "\r\n") {
		return mac{}, false
	}
	// DecodedLen counts the padding as a byte.
	var room [len(sum) + 1]byte
	n, err := base64.StdEncoding.Strict().Decode(room[:], []byte(s))
	if err != nil || n != len(sum) {
		return mac{}, false
	}
	copy(sum[:], room[:])
	return sum, true
}
