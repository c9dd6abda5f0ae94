package app

import (
	"fmt"
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
	client, err := a.gitlabClient(c)
	if err != nil {
		return nil, nil, nil, err
	}
	project, err := remotegitlab.New(client, c.Repository.ID, c.Repository.FullName())
	if err != nil {
		return nil, nil, nil, err
	}
	return project, project, a.gitCredential(c), nil
}

// gitlabClient is the one client of an instance and a credential: sources share
// its connections.
func (a *App) gitlabClient(c config.Source) (*gitlab.Client, error) {
	timeout := min(a.Config.Provider.Timeout, c.Timings.Observe)
	id := fmt.Sprintf("%s %s %v %t %s", c.API, c.Credential.Basic.Token, c.Credential.Anonymous, c.AllowHTTP, timeout)
	if client, ok := a.gitlabSources[id]; ok {
		return client, nil
	}
	client, err := gitlab.New(gitlab.Config{
		API: c.API, AllowHTTP: c.AllowHTTP, Token: a.sourceToken(c), Anonymous: c.Credential.Anonymous,
		UserAgent: a.userAgent(), Now: a.Now,
		Limits: gitlab.Limits{RequestTimeout: timeout, MaxAnswer: int64(a.Config.Provider.MaxAnswer), MaxPages: a.Config.Provider.Pages},
	})
	if err != nil {
		return nil, err
	}
	a.opened(func() error { client.Close(); return nil })
	if a.gitlabSources == nil {
		a.gitlabSources = map[string]*gitlab.Client{}
	}
	a.gitlabSources[id] = client
	return client, nil
}
