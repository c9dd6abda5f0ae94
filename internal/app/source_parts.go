package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/push"
	"github.com/fencepost/fencepost/internal/source/remote"
	remotegitea "github.com/fencepost/fencepost/internal/source/remote/gitea"
	"github.com/fencepost/fencepost/webhook"
)

// sourceRemote is the provider's and Git's side of a source.
func (a *App) sourceRemote(s *sourcing, c config.Source) (source.Remote, error) {
	identity, compare, credential, err := a.sourceProvider(c)
	if err != nil {
		return nil, err
	}
	// Sinks sync what they keep, all of it at once.
	return remote.New(remote.Config{
		Repository: remote.Repository{
			ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, FullName: c.Repository.FullName(),
			Visibility: remote.Visibility(c.Visibility),
		},
		Ref: c.Ref, Git: c.Git, AllowHTTP: c.AllowHTTP, AllowPrivate: c.AllowPrivate,
		Credential: credential, Anonymous: c.Credential.Anonymous,
		RedirectOrigins: origins(c.Hosts), Identity: identity, Ancestries: []remote.Ancestry{compare},
		Policy: policy(c.Content), Budgets: sourceBudgets(c), Sync: gitfetch.SyncNone, Transport: s.conns, Now: a.Now,
	})
}

func origins(hosts []*url.URL) []string {
	texts := make([]string, len(hosts))
	for i, h := range hosts {
		texts[i] = h.String()
	}
	return texts
}

// sourceBudgets are those of the fetch, within the time for a checkout.
func sourceBudgets(c config.Source) gitfetch.Budgets {
	b := budgets(c.Fetch)
	b.Total = min(b.Total, c.Timings.Checkout)
	return b
}

// sourceProvider is the provider's API with the source's own credential.
func (a *App) sourceProvider(c config.Source) (remote.Identity, remote.Ancestry, gitfetch.Credential, error) {
	switch c.Provider {
	case config.GitHub:
		return a.githubSource(c)
	case config.GitLab:
		return a.gitlabSource(c)
	}
	repository, err := a.giteaRepository(c)
	if err != nil {
		return nil, nil, nil, err
	}
	return repository, repository, a.gitCredential(c), nil
}

func (a *App) giteaRepository(c config.Source) (*remotegitea.Repository, error) {
	client, err := a.giteaClient(c)
	if err != nil {
		return nil, err
	}
	return remotegitea.New(client, c.Repository.ID, c.Repository.FullName())
}

// giteaClient is the one client of an instance and a credential: sources share
// its connections.
func (a *App) giteaClient(c config.Source) (*gitea.Client, error) {
	id, limits := a.sourceAccount(c)
	return a.giteaSources.of(a, id, func() (*gitea.Client, error) {
		return gitea.New(gitea.Config{
			API: c.API, AllowHTTP: c.AllowHTTP, Token: a.sourceToken(c), Anonymous: c.Credential.Anonymous,
			UserAgent: a.userAgent(), Now: a.Now, Limits: limits,
		})
	})
}

// sourceAccount is what sources share a client by, at an instance of Gitea,
// Forgejo or GitLab, and what bounds its requests.
func (a *App) sourceAccount(c config.Source) (id string, limits forge.Limits) {
	limits = a.forgeLimits()
	limits.RequestTimeout = min(limits.RequestTimeout, c.Timings.Observe)
	return fmt.Sprintf("%s %s %v %t %s", c.API, c.Credential.Basic.Token, c.Credential.Anonymous, c.AllowHTTP, limits.RequestTimeout), limits
}

// sourceToken reads the source's token at each use; nil where it has none.
func (a *App) sourceToken(c config.Source) func(context.Context) (fencepost.Secret, error) {
	if c.Credential.Anonymous {
		return nil
	}
	token := c.Credential.Basic.Token
	return func(context.Context) (fencepost.Secret, error) { return token.Resolve(a.LookupEnv) }
}

// gitCredential is the source's own for Git; nil where it has none.
func (a *App) gitCredential(c config.Source) gitfetch.Credential {
	if c.Credential.Anonymous {
		return nil
	}
	basic := c.Credential.Basic
	return func(context.Context) (string, fencepost.Secret, error) {
		secret, err := basic.Token.Resolve(a.LookupEnv)
		return basic.Username, secret, err
	}
}

// A githubRepository is GitHub's side of one source.
type githubRepository struct {
	client     *github.Client
	repository github.Repository
}

// Identity implements [remote.Identity].
func (g githubRepository) Identity(ctx context.Context) (remote.Facts, error) {
	f, err := g.client.RepositoryFacts(ctx, g.repository)
	return remote.Facts{ID: f.ID, OwnerID: f.OwnerID, FullName: f.FullName, Private: f.Private}, err
}

// Ancestry implements [remote.Ancestry].
func (g githubRepository) Ancestry(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	how, err := g.client.Compare(ctx, g.repository, head, other)
	if err != nil {
		return 0, err
	}
	switch how {
	case github.Identical:
		return source.Same, nil
	case github.Ahead:
		return source.Ahead, nil
	case github.Behind:
		return source.Behind, nil
	case github.Diverged:
		return source.Apart, nil
	case github.NotComparable:
		return source.Unknown, nil
	}
	return source.Unknown, nil
}

// Credential is an installation token for this repository alone.
func (g githubRepository) Credential(ctx context.Context) (string, fencepost.Secret, error) {
	return g.client.GitCredential(ctx, g.repository)
}

func (a *App) githubSource(c config.Source) (remote.Identity, remote.Ancestry, gitfetch.Credential, error) {
	limits := a.githubLimits()
	limits.RequestTimeout = min(limits.RequestTimeout, c.Timings.Observe)
	o := github.ClientConfig{
		API: c.API, AllowHTTP: c.AllowHTTP, Now: a.Now, UserAgent: a.userAgent(), Limits: limits,
	}
	id := ""
	switch app := c.Credential.App; {
	case app != nil:
		id = fmt.Sprintf("%s %d %d source", c.API, app.ID, app.Installation)
		o.App = github.App{
			ID: app.ID, Installation: app.Installation,
			Key: func(context.Context) (fencepost.Secret, error) { return app.Key.Resolve(a.LookupEnv) },
		}
	case c.Credential.Anonymous:
		return nil, nil, nil, errors.New("credential.anonymous: GitHub's API allows 60 anonymous requests an hour, too few to keep a source fresh; give it a token")
	default:
		id = fmt.Sprintf("%s %s source", c.API, c.Credential.Basic.Token)
		o.Token = a.sourceToken(c)
	}
	client, err := a.githubSources.of(a, id, func() (*github.Client, error) { return github.NewClient(o) })
	if err != nil {
		return nil, nil, nil, err
	}
	g := githubRepository{client: client, repository: github.Repository{
		ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, Name: c.Repository.FullName(),
	}}
	return g, g, g.Credential, nil
}

// A sourceRoute is a source's entry point.
type sourceRoute struct {
	// config is one of the configuration's own: it is not copied for each of
	// thousands.
	config *config.Source
	admit  *push.Admitter
	src    *source.Source
	// headers are those that the provider's deliveries have.
	headers []string
}

func (a *App) sourceRoute(s *sourcing, c *config.Source, src *source.Source) (r sourceRoute, err error) {
	p := push.Policy{
		RepositoryID: c.Repository.ID, OwnerID: c.Repository.OwnerID, FullName: c.Repository.FullName(),
		Ref: c.Ref, AnyWriter: c.AnyWriter, Decoders: s.decoders,
	}
	for _, sender := range c.Senders {
		p.Senders = append(p.Senders, push.Sender{ID: sender.ID, Login: sender.Login})
	}
	if app := c.Credential.App; app != nil {
		p.Installation = app.Installation
	}
	r = sourceRoute{config: c, src: src}
	switch c.Provider {
	case config.GitHub:
		r.headers = slices.Concat(webhook.GitHub{}.Headers(), push.GitHubHeaders())
		r.admit, err = push.GitHub(p)
	case config.GitLab:
		r.headers = slices.Concat(webhook.StandardWebhooks{}.Headers(), push.GitLabHeaders())
		r.admit, err = push.GitLab(p)
	default:
		r.headers = slices.Concat(webhook.Gitea{}.Headers(), push.GiteaHeaders())
		r.admit, err = push.Gitea(p)
	}
	return r, err
}

// pushRoute is the ingress route of a source.
func (a *App) pushRoute(r sourceRoute) ingress.Route {
	signed := fencepost.SignedTimeNone
	if r.config.Provider == config.GitLab {
		signed = fencepost.SignedTimeRequired
	}
	return ingress.Route{
		Rule: fencepost.RouteRule{
			Route: r.config.Route, TrustSet: r.config.Trust, SignedTime: signed, Window: a.Config.Replay,
		},
		Verifier: a.signedBy(r.config.Provider, r.config.Trust), Headers: r.headers, Admission: r,
		Recorder: pushRecorder{sourceRoute: r, intake: a.sourcing.intake}, PlainOK: r.config.Provider == config.GitLab,
	}
}

// Admit implements [ingress.Admission].
func (r sourceRoute) Admit(h fencepost.Headers, body []byte) error {
	_, err := r.admit.Admit(h, body)
	return err
}

// A pushRecorder records pushes of one source: no payload, in one transaction
// the delivery fence, the run and its job.
type pushRecorder struct {
	sourceRoute
	intake source.Intake
}

// Record implements [ingress.Recorder].
func (r pushRecorder) Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (ingress.Recording, error) {
	p, err := r.admit.Admit(h, body)
	if err != nil {
		return 0, err
	}
	answer, err := r.intake.Push(ctx, r.src.Policy, source.DeliveryRow{
		Namespace: d.Route(), ID: p.ID, Body: p.Body, Delivery: d.Key(), Source: r.src.ID, Commit: p.Commit,
	})
	switch {
	case fencepost.ReasonOf(err) == fencepost.ReasonDeliveryConflict:
		return ingress.Conflict, nil
	case err != nil:
		return 0, err
	}
	switch answer {
	case source.PushAccepted:
		return ingress.Accepted, nil
	case source.PushReplayed:
		return ingress.Replayed, nil
	case source.PushCoalesced:
		return ingress.Coalesced, nil
	}
	return 0, fmt.Errorf("record push: %w", fencepost.ErrZeroValue)
}
