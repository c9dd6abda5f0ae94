package config

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// signs notes that a section's webhooks are signed with the secrets of a set.
// GitLab signs by Standard Webhooks, with keys of a form of their own; all
// others with a secret's text as it is. One set can't be both.
func (v *validator) signs(path string, set name, p ProviderKind) {
	if p == "" || set == "" {
		return
	}
	use := schemeUse{standard: p == GitLab, path: path}
	before, known := v.schemes[set]
	if known && before.standard != use.standard {
		v.refuse(path+".trust", "is the trust set of %s too, whose webhooks are signed otherwise: gitlab has signing tokens (whsec_…), the others have secrets; give each a set of its own", before.path)
		return
	}
	if !known {
		v.schemes[set] = use
	}
}

// A schemeUse says how a trust set is used, and where first.
type schemeUse struct {
	standard bool
	path     string
}

// schemed tells the trust sets what they are.
func (v *validator) schemed() {
	for i := range v.cfg.Trust {
		v.cfg.Trust[i].Standard = v.schemes[name(v.cfg.Trust[i].Name)].standard
	}
}

// errSigningToken says what a source at GitLab needs. The plaintext token that
// GitLab has sent for long proves nothing of what is sent beside it, and
// whoever reads it once can send anything. contracts/gitlab.md, traps 16
var errSigningToken = errors.New("is no signing token of GitLab (whsec_ and the base64 of 24 to 64 bytes); a secret token, which GitLab sends in plain text as X-Gitlab-Token, is not supported: give the webhook a signing token (GitLab 19.0 or later: Settings → Webhooks), and no secret token")

// signingKey reads a signing token as it is kept, and zeroes that.
func signingKey(text fencepost.Secret) (fencepost.Secret, error) {
	defer text.Zero()
	key, err := webhook.ParseStandardSecret(text.Reveal())
	if err != nil {
		return fencepost.Secret{}, errSigningToken
	}
	return key, nil
}

// Key resolves an anchor's secret into what verifies a signature: for a set of
// signing tokens the bytes that they spell. The caller owns the result and
// zeroes it. Its error matches [ErrSecret], or says what the secret should be.
func (t TrustSet) Key(a Anchor, env Lookup) (fencepost.Secret, error) {
	secret, err := a.Secret.Resolve(env)
	if err != nil || !t.Standard {
		return secret, err
	}
	key, err := signingKey(secret)
	if err != nil {
		return fencepost.Secret{}, fmt.Errorf("%s: %w", a.Secret, err)
	}
	return key, nil
}
