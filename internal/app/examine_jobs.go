package app

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/webhook"
)

// examineIssuers holds the keys that the instances of GitLab gates publish now
// against the pinned ones, once for each instance and trust set.
func (a *App) examineIssuers(ctx context.Context, client *http.Client) (all []doctor.Check) {
	seen := map[string]bool{}
	for _, g := range a.Config.Gates {
		if g.Provider != config.GitLab {
			continue
		}
		set, _ := a.Config.TrustSet(g.Trust)
		id := g.GitLab.Issuer.String() + " " + string(set.Name)
		if seen[id] {
			continue
		}
		seen[id] = true
		all = append(all, doctor.JobKeys(ctx, client, "trust "+string(set.Name), g.GitLab.Issuer, a.pins(set), a.Now())...)
	}
	return all
}

// pins are the public keys of a trust set. What can't be read is told of by the
// check of its secret.
func (a *App) pins(set config.TrustSet) (pins []doctor.Pin) {
	for _, k := range set.Anchors {
		p := doctor.Pin{ID: string(k.ID), Thumbprint: k.Thumbprint, From: k.From, Until: k.Until}
		if !k.JWK.IsZero() {
			text, err := k.JWK.Resolve(a.LookupEnv)
			if err != nil {
				continue
			}
			key, err := webhook.ParseJWK(text.Reveal())
			text.Zero()
			if err != nil {
				continue
			}
			p.Thumbprint = key.Thumbprint
		}
		pins = append(pins, p)
	}
	return pins
}
