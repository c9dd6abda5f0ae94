package app

import (
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/source/remote"
	remotegitlab "github.com/fencepost/fencepost/internal/source/remote/gitlab"
	"github.com/fencepost/fencepost/webhook"
)

// A standardTrust is a trust set whose keys sign by Standard Webhooks, as those
// of GitLab do.
type standardTrust struct{ *trust }

// Verify implements [fencepost.Verifier].
func (t standardTrust) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return webhook.StandardWebhooks{Keys: t.keys, Work: t.work.get()}.Verify(h, body, received)
}

func (a *App) gitlabSource(c config.Source) (remote.Identity, remote.Ancestry, gitfetch.Credential, error) {
	project, err := a.gitlabProject(c)
	if err != nil {
		return nil, nil, nil, err
	}
	return project, project, a.gitCredential(c), nil
}

func (a *App) gitlabProject(c config.Source) (*remotegitlab.Project, error) {
	client, err := a.gitlabClient(c)
	if err != nil {
		return nil, err
	}
	return remotegitlab.New(client, c.Repository.ID, c.Repository.FullName())
}

// gitlabClient is the one client of an instance and a credential: sources share
// its connections.
func (a *App) gitlabClient(c config.Source) (*gitlab.Client, error) {
	id, limits := a.sourceAccount(c)
	return a.gitlabSources.of(a, id, func() (*gitlab.Client, error) {
		return gitlab.New(gitlab.Config{
			API: c.API, AllowHTTP: c.AllowHTTP, Token: a.sourceToken(c), Anonymous: c.Credential.Anonymous,
			UserAgent: a.userAgent(), Now: a.Now, Limits: limits,
		})
	})
}
