package app

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/forge"
	giteaforge "github.com/fencepost/fencepost/internal/forge/gitea"
	gitlabforge "github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/gate/gitlab"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/webhook"
)

// A lane is a provider's side of a gate, with what finds missed deliveries. One
// whose provider keeps a log of deliveries is a [gate.DeliveryLog] as well.
type lane interface {
	gate.Lane
	gate.Watcher
}

// lanes makes the lanes of all gates, which share clients.
type lanes struct {
	app *App
	// installations has one client each, since GitHub counts by installation;
	// accounts and readers have one for each instance and token.
	installations clients[*github.Client]
	accounts      clients[*giteaforge.Client]
	readers       clients[*gitlabforge.Client]
}

// open makes the lane of a gate. It sends nothing.
func (l *lanes) open(g config.Gate) (lane, error) {
	switch g.Provider {
	case config.GitHub:
		return l.github(g)
	case config.GitLab:
		return l.gitlab(g)
	}
	return l.gitea(g)
}

func (l *lanes) github(g config.Gate) (lane, error) {
	client, err := l.installation(g)
	if err != nil {
		return nil, err
	}
	return github.NewLane(client, github.LaneConfig{
		Gate:       gate.Name(g.Route),
		Repository: github.Repository{ID: g.Repository.ID, OwnerID: g.Repository.OwnerID, Name: g.Repository.FullName()},
		BaseRef:    g.Base, Check: g.Check, Git: g.Git, AllowHTTP: g.AllowHTTP, AllowPrivate: g.AllowPrivate, JSON: l.app.jsonLimits(),
	})
}

func (l *lanes) installation(g config.Gate) (*github.Client, error) {
	id := fmt.Sprintf("%s %d %d", g.API, g.App.ID, g.App.Installation)
	a, key := l.app, g.App.Key
	return l.installations.of(a, id, func() (*github.Client, error) {
		return github.NewClient(github.ClientConfig{
			API: g.API, AllowHTTP: g.AllowHTTP, Now: a.Now,
			UserAgent: a.userAgent(),
			App: github.App{
				ID: g.App.ID, Installation: g.App.Installation,
				Key: func(context.Context) (fencepost.Secret, error) { return key.Resolve(a.LookupEnv) },
			},
			Limits: a.githubLimits(),
		})
	})
}

func (a *App) githubLimits() github.Limits {
	p := a.Config.Provider
	return github.Limits{
		RequestTimeout: p.Timeout, MaxAnswer: int64(p.MaxAnswer), MaxPages: p.Pages,
		NotYetVisible: p.NotYetVisible, MaxRateLimitWait: orNegative(p.MaxRateLimitWait),
		WriteInterval: orNegative(p.WriteInterval),
	}
}

// orNegative says "none" where zero would say "default".
func orNegative[T ~int64](d T) T {
	if d == 0 {
		return -1
	}
	return d
}

func (l *lanes) gitea(g config.Gate) (lane, error) {
	reviews, err := l.account(g, g.Reviewer.Token)
	if err != nil {
		return nil, err
	}
	rules, err := l.account(g, g.RuleToken)
	if err != nil {
		return nil, err
	}
	return gitea.New(gitea.LaneConfig{
		Gate: gate.Name(g.Route), Kind: gitea.Kind(g.Provider),
		Repository: gitea.Repository{ID: g.Repository.ID, OwnerID: g.Repository.OwnerID, Name: g.Repository.FullName()},
		BaseRef:    g.Base, Check: g.Check, Reviewer: gitea.Reviewer{ID: g.Reviewer.ID, Login: g.Reviewer.Login},
		Reviews: reviews, Rules: rules, Git: g.Git, AllowHTTP: g.AllowHTTP, AllowPrivate: g.AllowPrivate,
		Budgets: budgets(l.app.Config.Fetch), JSON: l.app.jsonLimits(),
	})
}

// account returns the one client of an instance and a token.
func (l *lanes) account(g config.Gate, token config.SecretRef) (*giteaforge.Client, error) {
	id := fmt.Sprintf("%s %v %t", g.API, token, g.AllowHTTP)
	a := l.app
	return l.accounts.of(a, id, func() (*giteaforge.Client, error) {
		return giteaforge.New(forge.Config{
			API: g.API, AllowHTTP: g.AllowHTTP, Now: a.Now, UserAgent: a.userAgent(),
			Token:  func(context.Context) (fencepost.Secret, error) { return token.Resolve(a.LookupEnv) },
			Limits: a.forgeLimits(),
		})
	})
}

func (l *lanes) gitlab(g config.Gate) (lane, error) {
	client, err := l.reader(g)
	if err != nil {
		return nil, err
	}
	p := g.GitLab.Policy
	return gitlab.New(gitlab.LaneConfig{
		Gate:       gate.Name(g.Route),
		Repository: gitlab.Repository{ID: g.Repository.ID, OwnerID: g.Repository.OwnerID, Name: g.Repository.FullName()},
		BaseRef:    g.Base, Check: g.Check, Instance: g.GitLab.Issuer,
		Policy: gitlab.Policy{Project: p.Project, Path: p.Path, Commits: p.Commits, Job: p.Job},
		Client: client, Results: l.results(), Git: g.Git, AllowHTTP: g.AllowHTTP, AllowPrivate: g.AllowPrivate,
		Budgets: budgets(l.app.Config.Fetch), JSON: l.app.jsonLimits(),
	})
}

// results is where lanes put what jobs fetch. Where lanes are made only to look
// at providers, no shelf is open, and nothing is ever put.
func (l *lanes) results() gitlab.Results {
	if r := l.app.spine.results; r != nil {
		return r
	}
	return noResults{}
}

// noResults is no shelf.
type noResults struct{}

// Put implements [gitlab.Results].
func (noResults) Put(context.Context, fencepost.DeliveryID, []byte) error {
	return fmt.Errorf("put a result: %w", fencepost.ErrZeroValue)
}

// Get implements [gitlab.Results].
func (noResults) Get(context.Context, fencepost.DeliveryID) (shelf.Entry, bool, error) {
	return shelf.Entry{}, false, fmt.Errorf("get a result: %w", fencepost.ErrZeroValue)
}

// End implements [gitlab.Results].
func (noResults) End(context.Context, fencepost.DeliveryID, fencepost.Reason) error {
	return fmt.Errorf("end without a result: %w", fencepost.ErrZeroValue)
}

// reader returns the one client of a GitLab instance and a token.
func (l *lanes) reader(g config.Gate) (*gitlabforge.Client, error) {
	a, token := l.app, g.GitLab.Token
	id := fmt.Sprintf("%s %v %t", g.API, token, g.AllowHTTP)
	return l.readers.of(a, id, func() (*gitlabforge.Client, error) {
		return gitlabforge.New(forge.Config{
			API: g.API, AllowHTTP: g.AllowHTTP, Now: a.Now, UserAgent: a.userAgent(),
			Token:  func(context.Context) (fencepost.Secret, error) { return token.Resolve(a.LookupEnv) },
			Limits: a.forgeLimits(),
		})
	})
}

// forgeLimits are those of the clients of Gitea, Forgejo and GitLab.
func (a *App) forgeLimits() forge.Limits {
	p := a.Config.Provider
	return forge.Limits{RequestTimeout: p.Timeout, MaxAnswer: int64(p.MaxAnswer), MaxPages: p.Pages}
}

func (a *App) userAgent() string { return "fencepost/" + a.Build.Version }

// signedBy is a trust set as the verifier of what a provider signs.
func (a *App) signedBy(p config.ProviderKind, set fencepost.TrustSetName) gate.Trust {
	keys := a.trust[set]
	switch p {
	case config.GitHub:
		return keys
	case config.GitLab:
		return standardTrust{keys}
	}
	return giteaTrust{keys}
}

// The providers' own ids of a delivery. Nothing of a gate reads them, but one
// that stands twice is ambiguous (DESIGN §4).
const (
	githubDelivery = "x-github-delivery"
	giteaDelivery  = "x-gitea-delivery"
)

// headersOf are the headers of a gate's route.
func headersOf(p config.ProviderKind) []string {
	switch p {
	case config.GitHub:
		return append(webhook.GitHub{}.Headers(), github.EventHeader, githubDelivery)
	case config.GitLab:
		return webhook.GitLabJob{}.Headers()
	}
	return append(webhook.Gitea{}.Headers(), gitea.EventHeader, giteaDelivery)
}
