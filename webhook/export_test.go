package webhook

import "github.com/fencepost/fencepost"

// KeyringOfAnyLength is a keyring whose secret may be shorter than
// [MinSecretBytes], as some published vectors' are.
func KeyringOfAnyLength(name fencepost.TrustSetName, a Anchor) *Keyring {
	return &Keyring{name: name, ids: []fencepost.AnchorID{a.ID}, anchors: []Anchor{a}}
}
