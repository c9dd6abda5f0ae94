package webhook

import (
	"time"

	"github.com/fencepost/fencepost"
)

// KeyringOfAnyLength is a keyring whose secret may be shorter than
// [MinSecretBytes], as some published vectors' are.
func KeyringOfAnyLength(name fencepost.TrustSetName, a Anchor) *Keyring {
	return &Keyring{name: name, ids: []fencepost.AnchorID{a.ID}, anchors: []Anchor{a}}
}

// MACs returns how many MACs verifying costs, also where it accepts.
func (s StandardWebhooks) MACs(h fencepost.Headers, body []byte, received time.Time) (int, error) {
	_, macs, err := s.verify(h, body, received)
	return macs, err
}

// Verifications returns how many RSA verifications verifying costs, also
// where it accepts.
func (g GitLabJob) Verifications(h fencepost.Headers, received time.Time) (int, error) {
	_, n, err := g.verify(h, received)
	return n, err
}
