package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
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

// examineWebhook looks at the webhook of a source's project, which switches
// itself off after wrong answers. It is advice: the content is kept fresh
// without one.
func (a *App) examineWebhook(ctx context.Context, opening *sync.Mutex, c config.Source) doctor.Check {
	check := doctor.Check{Subject: "source " + string(c.Route), Name: "webhook", Status: doctor.Skipped}
	opening.Lock()
	project, err := a.gitlabProject(c)
	opening.Unlock()
	if err != nil {
		check.Seen = "the project can't be asked about"
		return check
	}
	hooks, err := project.Webhooks(ctx)
	if err != nil {
		check.Seen = "the webhooks can't be read (" + string(fencepost.ReasonOf(err)) + "): a token of a maintainer may"
		return check
	}
	path := "/hooks/" + string(c.Route)
	mine := slices.DeleteFunc(hooks, func(w remotegitlab.Webhook) bool { return !w.LeadsTo(path) })
	check.Status, check.Want = doctor.Warn, "signed, for pushes, switched on"
	if len(mine) == 0 {
		check.Seen, check.Mend = "none of the project's leads to "+path, "make one whose URL is https://your.host"+path+"; if a group's webhook does it, this is no fault"
		return check
	}
	for _, w := range mine {
		if check.Seen, check.Mend = w.Flaw(); check.Seen == "" {
			check.Status, check.Seen, check.Want = doctor.OK, "signed, for pushes, switched on", ""
			return check
		}
	}
	return check
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
