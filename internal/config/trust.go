package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

var thumbprintPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$`)

// keyThumbprint names a public key.
type keyThumbprint webhook.Thumbprint

func (*keyThumbprint) describe() leaf {
	return leaf{"an RFC 7638 thumbprint: the SHA-256 of a key in 43 characters of base64url", thumbprintPattern}
}

func (k *keyThumbprint) UnmarshalText(text []byte) error {
	t, err := webhook.ParseThumbprint(string(text))
	if err != nil {
		return errors.New("must be " + k.describe().what)
	}
	*k = keyThumbprint(t)
	return nil
}

func (v *validator) trust(doc *document) {
	for _, set := range sortedKeys(doc.Trust) {
		t := TrustSet{Name: fencepost.TrustSetName(set)}
		lines := map[anchorID]int{}
		keys := map[string]int{}
		for i, a := range doc.Trust[set] {
			path := fmt.Sprintf("trust.%s[%d]", set, i)
			if line, twice := lines[a.ID]; twice && a.ID != "" {
				v.refuse(path+".id", "is the id of another anchor of this set too (line %d); give each its own", line)
			}
			lines[a.ID] = v.at(path + ".id").line
			if !a.Until.IsZero() && !a.From.Before(a.Until) {
				v.refuse(path+".until", "must be later than from, or no moment is left")
			}
			field, text := v.key(path, a)
			if line, twice := keys[text]; twice && field != "" {
				v.refuse(path+field, "is the %s of another anchor of this set too (line %d); give each its own", field[1:], line)
			}
			keys[text] = v.at(path + field).line
			anchor := Anchor{
				ID: fencepost.AnchorID(a.ID), From: a.From, Until: a.Until,
				Secret: v.use(path+".secret", a.Secret, asHMAC, string(set)), JWK: v.use(path+".jwk", a.JWK, asJWK, string(set)),
				Thumbprint: webhook.Thumbprint(a.Thumbprint),
			}
			if field == ".thumbprint" {
				v.pinned[pin{string(set), anchor.Thumbprint}] = path + field
			}
			if t.Anchors = append(t.Anchors, anchor); field != "" && anchor.Secret.IsZero() != t.Public() && !v.faultyWithin(fmt.Sprintf("trust.%s[0]", set)) {
				v.refuse(path+field, "is not of the kind of the set's first anchor: keys of webhooks (secret) and of jobs (jwk, thumbprint) stand in sets of their own")
			}
		}
		v.cfg.Trust = append(v.cfg.Trust, t)
	}
}

// A pin is a thumbprint in a trust set.
type pin struct {
	set        string
	thumbprint webhook.Thumbprint
}

// key says which field holds an anchor's key, and what stands there. The field
// is empty where it can't be said, which is reported.
func (v *validator) key(path string, a anchorSection) (field, text string) {
	found := 0
	for _, f := range []struct {
		field, text string
		zero        bool
	}{
		{".secret", a.Secret.String(), a.Secret.IsZero()},
		{".jwk", a.JWK.String(), a.JWK.IsZero()},
		{".thumbprint", webhook.Thumbprint(a.Thumbprint).String(), a.Thumbprint == keyThumbprint{}},
	} {
		switch {
		case f.zero && !v.given(path+f.field):
		case f.zero: // reported already
			found++
		case found > 0:
			v.refuse(path+f.field, "is a second key of this anchor; an anchor has one: secret, jwk or thumbprint")
			return "", ""
		default:
			found++
			field, text = f.field, f.text
		}
	}
	if found == 0 && !v.faultyWithin(path) {
		v.refuse(path, "has no key: add secret: file:… for webhooks, or jwk: file:… or thumbprint: … for the jobs of a GitLab instance")
	}
	return field, text
}

// trusts notes that a section uses a trust set, which must hold what it
// verifies with: public keys for the jobs of GitLab gates, else secrets.
func (v *validator) trusts(doc *document, path string, set name, jobs bool) {
	v.trusted[set] = true
	anchors, known := doc.Trust[set]
	if !known && set != "" {
		v.refuse(path+".trust", "names no trust set; known are: %s", cmp.Or(listed(sortedKeys(doc.Trust)), "none, so add one under trust"))
	}
	if len(anchors) == 0 || v.faultyWithin(fmt.Sprintf("trust.%s", set)) {
		return
	}
	switch public := anchors[0].Secret.IsZero(); {
	case jobs && !public:
		v.refuse(path+".trust", "names a set of secrets (line %d), and the jobs of a gitlab gate prove themselves with the instance's public keys: name a set of jwk or thumbprint anchors", v.at(fmt.Sprintf("trust.%s", set)).line)
	case !jobs && public:
		v.refuse(path+".trust", "names a set of public keys (line %d), with which no webhook is verified: name a set of secret anchors", v.at(fmt.Sprintf("trust.%s", set)).line)
	}
}

// issued holds a trust set to one issuer: with a set of two, either could sign
// tokens in the other's name.
func (v *validator) issued(path string, set name, g Gate) {
	if g.Provider != GitLab {
		return
	}
	issuer := g.GitLab.Issuer.String()
	if other, known := v.issuers[set]; known && other != issuer {
		v.refuse(path+".trust", "names a set that holds the keys of another gate's issuer, %s: give each instance a set of its own", other)
	}
	v.issuers[set] = issuer
}
