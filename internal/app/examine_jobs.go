package app

import (
	"context"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/jobkeys"
)

// examineIssuers holds the keys that the instances of GitLab gates publish now
// against the pinned ones, once for each trust set, which is one instance's.
func (a *App) examineIssuers(ctx context.Context) (all []doctor.Check) {
	seen := map[fencepost.TrustSetName]bool{}
	for _, g := range a.Config.Gates {
		if g.Provider == config.GitLab && !seen[g.Trust] {
			seen[g.Trust] = true
			all = append(all, a.examineIssuer(ctx, g)...)
		}
	}
	return all
}

func (a *App) examineIssuer(ctx context.Context, g config.Gate) []doctor.Check {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	subject := "trust " + string(g.Trust)
	client, err := a.issuerClient(g)
	if err != nil {
		return []doctor.Check{{Subject: subject, Name: "issuer.keys", Status: doctor.Fail, Seen: err.Error(), Mend: "correct the gate's section"}}
	}
	keys, err := jobkeys.Fetch(ctx, client)
	if err != nil {
		return []doctor.Check{{
			Subject: subject, Name: "issuer.keys", Status: doctor.Fail,
			Seen: "the keys at " + g.GitLab.Issuer.Host + " can't be read (" + string(fencepost.ReasonOf(err)) + ")",
			Mend: "see that issuer is the instance's own URL, and that it can be reached from here",
		}}
	}
	set, _ := a.Config.TrustSet(g.Trust)
	return doctor.JobKeys(subject, keys, a.pins(set), a.Now())
}

// pins are the public keys of a trust set. What can't be read is told of by the
// check of its secret.
func (a *App) pins(set config.TrustSet) (pins []doctor.Pin) {
	for _, k := range set.Anchors {
		if anchor, err := jobAnchor(k, a.LookupEnv); err == nil {
			pins = append(pins, doctor.Pin{ID: string(k.ID), Thumbprint: anchor.Thumbprint, From: k.From, Until: k.Until})
		}
	}
	return pins
}
