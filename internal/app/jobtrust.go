package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/jobkeys"
	"github.com/fencepost/fencepost/webhook"
)

// A jobDecoy refuses what is below /jobs/ and has no route, at the cost of
// every other refusal there.
type jobDecoy struct{ work *toil }

// Verify implements [fencepost.Verifier].
func (d jobDecoy) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	return webhook.JobDecoy{Work: d.work.get()}.Verify(h, body, received)
}

// senderOf verifies what comes in for a gate.
func (a *App) senderOf(g config.Gate) gate.Trust {
	if g.Provider == config.GitLab {
		return a.jobVerifier(g)
	}
	return a.signedBy(g.Provider, g.Trust)
}

// recordedOf verifies what was accepted for a gate, and is taken up.
func (a *App) recordedOf(g config.Gate) gate.Trust {
	if g.Provider == config.GitLab {
		v := a.jobVerifier(g)
		v.Patient = true
		return v
	}
	return a.signedBy(g.Provider, g.Trust)
}

// jobVerifier verifies the tokens of a gate's jobs.
func (a *App) jobVerifier(g config.Gate) jobkeys.Verifier {
	return jobkeys.Verifier{
		Set: a.jobTrust[g.Trust], Issuer: g.GitLab.Issuer.String(), Audience: g.GitLab.Audience, Work: a.jobWork.get,
	}
}

// jobAnchors resolves the keys of every trust set of public ones.
func jobAnchors(c *config.Config, env config.Lookup) (map[fencepost.TrustSetName][]jobkeys.Anchor, error) {
	all := map[fencepost.TrustSetName][]jobkeys.Anchor{}
	var faults []error
	for _, set := range c.Trust {
		if !set.Public() {
			continue
		}
		anchors := make([]jobkeys.Anchor, 0, len(set.Anchors))
		for _, a := range set.Anchors {
			anchor, err := jobAnchor(a, env)
			if err != nil {
				faults = append(faults, fmt.Errorf("trust.%s: key %s: %w", set.Name, a.ID, err))
				continue
			}
			anchors = append(anchors, anchor)
		}
		all[set.Name] = anchors
	}
	return all, errors.Join(faults...)
}

// jobAnchor resolves the key of an anchor, if it has more than a thumbprint.
func jobAnchor(a config.Anchor, env config.Lookup) (jobkeys.Anchor, error) {
	anchor := jobkeys.Anchor{ID: a.ID, Thumbprint: a.Thumbprint, From: a.From, Until: a.Until}
	if a.JWK.IsZero() {
		return anchor, nil
	}
	text, err := a.JWK.Resolve(env)
	if err != nil {
		return jobkeys.Anchor{}, err
	}
	if anchor.JWK, err = webhook.ParseJWK(text.Reveal()); err != nil {
		return jobkeys.Anchor{}, err
	}
	anchor.Thumbprint = anchor.JWK.Thumbprint
	return anchor, nil
}

// openJobTrust makes the trust sets of public keys.
func (a *App) openJobTrust(context.Context) error {
	all, err := jobAnchors(a.Config, a.LookupEnv)
	if err != nil {
		return err
	}
	a.jobWork = newToil(mostAnchors(a.Config, true))
	a.jobTrust = map[fencepost.TrustSetName]*jobkeys.Set{}
	for name, anchors := range all {
		set := jobkeys.NewSet(name)
		if err := set.Exchange(anchors); err != nil {
			return fmt.Errorf("trust.%s: %w", name, err)
		}
		a.jobTrust[name] = set
	}
	return nil
}

// openJobKeys takes what earlier processes found, and makes what looks for the
// rest. It sends nothing.
func (a *App) openJobKeys(context.Context) error {
	if len(a.jobTrust) == 0 {
		return nil
	}
	store := jobkeys.NewStore(a.sub("keys"))
	var pinned []webhook.Thumbprint
	for _, set := range a.Config.Trust {
		for _, anchor := range set.Anchors {
			if set.Public() && anchor.JWK.IsZero() {
				pinned = append(pinned, anchor.Thumbprint)
			}
		}
	}
	if err := store.Clean(pinned...); err != nil {
		return fmt.Errorf("open keys: %w", err)
	}
	kept, err := store.Find(pinned...)
	if err != nil {
		return fmt.Errorf("open keys: %w", err)
	}
	gates := map[fencepost.TrustSetName][]config.Gate{}
	for _, g := range a.Config.Gates {
		if g.Provider == config.GitLab {
			gates[g.Trust] = append(gates[g.Trust], g)
		}
	}
	for name, set := range a.jobTrust {
		if _, err := set.Learn(kept); err != nil {
			return fmt.Errorf("trust.%s: %w", name, err)
		}
		if len(gates[name]) == 0 {
			continue
		}
		finder, err := a.keyFinder(set, store, gates[name])
		if err != nil {
			return fmt.Errorf("trust.%s: %w", name, err)
		}
		a.finders = append(a.finders, finder)
	}
	return nil
}

// keyFinder looks for the keys of a set, which are those of one issuer.
func (a *App) keyFinder(set *jobkeys.Set, store jobkeys.Store, gates []config.Gate) (*jobkeys.Finder, error) {
	client, err := a.issuerClient(gates[0])
	if err != nil {
		return nil, err
	}
	return &jobkeys.Finder{
		Set: set, Store: store, Now: a.Now, Log: a.Log,
		Fetch:  func(ctx context.Context) ([]webhook.JWK, error) { return jobkeys.Fetch(ctx, client) },
		Report: func(st jobkeys.State, _ error) { a.reportKeys(gates, st) },
	}, nil
}

// issuerClient asks the issuer of a gate's jobs, without a token.
func (a *App) issuerClient(g config.Gate) (*gitlab.Client, error) {
	client, err := gitlab.New(forge.Config{
		API: g.GitLab.Issuer, AllowHTTP: g.AllowHTTP, Anonymous: true, Now: a.Now, UserAgent: a.userAgent(),
		Limits: forge.Limits{RequestTimeout: a.Config.Provider.Timeout, MaxAnswer: webhook.MaxJWKSBytes},
	})
	if err != nil {
		return nil, err
	}
	a.opened(func() error { client.Close(); return nil })
	return client, nil
}

// reportKeys alerts for gates that can't accept anything since no key is
// known; where another key is live, its missing fellow may be one that is yet
// to come.
func (a *App) reportKeys(gates []config.Gate, st jobkeys.State) {
	for _, g := range gates {
		if st.Live == 0 && st.LiveMissing > 0 {
			alerts{a.alerts, a.Log}.Raise(gate.Alert{Code: gate.AlertCode(alert.Credential), Subject: string(g.Route), Reason: fencepost.ReasonCredential})
		} else {
			alerts{a.alerts, a.Log}.Resolve(gate.AlertCode(alert.Credential), string(g.Route))
		}
	}
}
