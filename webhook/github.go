package webhook

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

const (
	githubHeader  = "x-hub-signature-256"
	giteaHeader   = "x-gitea-signature"
	forgejoHeader = "x-forgejo-signature"
	gogsHeader    = "x-gogs-signature"
)

// A Message is what a sender signs.
type Message struct {
	// Body is the exact body.
	Body []byte
	// At is when it is signed: the anchor is one that is live then.
	At time.Time
	// ID is the message id, for schemes that sign one; others ignore it.
	ID string
}

// GitHub is GitHub's scheme: X-Hub-Signature-256 holds "sha256=" and the
// lower-case hexadecimal HMAC-SHA256 of the body. The older X-Hub-Signature
// (SHA-1) is never looked at. Nothing but the body is signed, so the body is
// the replay identity.
//
// GitHub Docs, "Validating webhook deliveries"; DESIGN §4.
type GitHub struct {
	// Keys are the keys that may have signed.
	Keys *Keyring
	// Work is how many MACs a refusal costs at least; the number of anchors
	// if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (GitHub) Headers() []string { return []string{githubHeader} }

// Verify implements [fencepost.Verifier]. Its error is a *[Refusal], or
// matches [fencepost.ErrZeroValue] without a usable keyring.
func (g GitHub) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return verifyHex(h, githubHeader, "sha256=", body, received, g.Keys, g.Work)
}

// Sign returns the header that makes Verify accept m. Its error matches
// [ErrNoLiveAnchor], or [fencepost.ErrZeroValue] without a usable keyring.
func (g GitHub) Sign(m Message) ([]fencepost.Header, error) {
	return signHex(githubHeader, "sha256=", m, g.Keys)
}

// Gitea is the scheme of Gitea's own header: X-Gitea-Signature holds the
// lower-case hexadecimal HMAC-SHA256 of the body. The other signature headers
// that Gitea sends are not looked at. DESIGN §4.
type Gitea struct {
	// Keys are the keys that may have signed.
	Keys *Keyring
	// Work is how many MACs a refusal costs at least; the number of anchors
	// if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (Gitea) Headers() []string { return []string{giteaHeader} }

// Verify implements [fencepost.Verifier] as [GitHub.Verify] does.
func (g Gitea) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return verifyHex(h, giteaHeader, "", body, received, g.Keys, g.Work)
}

// Sign returns the header that makes Verify accept m, as [GitHub.Sign] does.
func (g Gitea) Sign(m Message) ([]fencepost.Header, error) {
	return signHex(giteaHeader, "", m, g.Keys)
}

// Forgejo is [Gitea] with Forgejo's own header, X-Forgejo-Signature.
type Forgejo struct {
	// Keys are the keys that may have signed.
	Keys *Keyring
	// Work is how many MACs a refusal costs at least; the number of anchors
	// if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (Forgejo) Headers() []string { return []string{forgejoHeader} }

// Verify implements [fencepost.Verifier] as [GitHub.Verify] does.
func (f Forgejo) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return verifyHex(h, forgejoHeader, "", body, received, f.Keys, f.Work)
}

// Sign returns the header that makes Verify accept m, as [GitHub.Sign] does.
func (f Forgejo) Sign(m Message) ([]fencepost.Header, error) {
	return signHex(forgejoHeader, "", m, f.Keys)
}

// Gogs is [Gitea] with the header of their common ancestor,
// X-Gogs-Signature.
type Gogs struct {
	// Keys are the keys that may have signed.
	Keys *Keyring
	// Work is how many MACs a refusal costs at least; the number of anchors
	// if that is more.
	Work int
}

// Headers returns the names of the headers that Verify reads.
func (Gogs) Headers() []string { return []string{gogsHeader} }

// Verify implements [fencepost.Verifier] as [GitHub.Verify] does.
func (g Gogs) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return verifyHex(h, gogsHeader, "", body, received, g.Keys, g.Work)
}

// Sign returns the header that makes Verify accept m, as [GitHub.Sign] does.
func (g Gogs) Sign(m Message) ([]fencepost.Header, error) {
	return signHex(gogsHeader, "", m, g.Keys)
}

// verifyHex is the scheme that all of this file share: one header, a fixed
// prefix, and the hexadecimal MAC of the body.
func verifyHex(h fencepost.Headers, name, prefix string, body []byte, received time.Time,
	keys *Keyring, work int,
) (fencepost.Evidence, error) {
	value, cause := only(h, name)
	c := claim{parts: [3][]byte{body}, offer: make([]mac, 1), cause: cause}
	if cause == 0 && !parseHex(value, prefix, &c.offer[0]) {
		c.cause = CauseMalformed
	}
	anchor, _, err := keys.match(c, received, work, false)
	if err != nil {
		return fencepost.Evidence{}, err
	}
	return fencepost.Evidence{Anchor: anchor, TrustSet: keys.Name(), Replay: fencepost.ReplayBody{}}, nil
}

func signHex(name, prefix string, m Message, keys *Keyring) ([]fencepost.Header, error) {
	sum, err := keys.sign(claim{parts: [3][]byte{m.Body}}, m.At)
	if err != nil {
		return nil, err
	}
	return []fencepost.Header{{Name: name, Value: prefix + hex.EncodeToString(sum[:])}}, nil
}

// only returns the value of a header that stands exactly once and is not
// empty.
func only(h fencepost.Headers, name string) (string, Cause) {
	value, ok := h.Only(name)
	switch {
	case !ok && len(h.Values(name)) > 1:
		return "", CauseAmbiguous
	case value == "":
		return "", CauseMissing
	}
	return value, 0
}

// parseHex reads prefix and exactly 64 lower-case hexadecimal digits.
func parseHex(value, prefix string, into *mac) bool {
	digits, ok := strings.CutPrefix(value, prefix)
	if !ok || len(digits) != hex.EncodedLen(len(into)) {
		return false
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	var ascii [2 * len(into)]byte
	copy(ascii[:], digits)
	_, err := hex.Decode(into[:], ascii[:])
	return err == nil
}
