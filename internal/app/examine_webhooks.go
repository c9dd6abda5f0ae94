package app

import (
	"context"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	remotegitea "github.com/fencepost/fencepost/internal/source/remote/gitea"
	remotegitlab "github.com/fencepost/fencepost/internal/source/remote/gitlab"
)

// A hookLook is what is found in one webhook: whether it leads to a path, and
// its flaw with the mend, "" for none.
type hookLook struct {
	leads      bool
	flaw, mend string
}

// hooksOf is how a provider of a source's webhooks is looked at.
type hooksOf struct {
	// want is what a webhook must be, reader whose token is shown webhooks, and
	// owner who may have one instead that is not shown.
	want, reader, owner string
	list                func(ctx context.Context, path string) ([]hookLook, error)
}

// examineWebhook looks at the webhook of a source's repository: at GitLab they
// switch themselves off after wrong answers. It is advice: the content is kept
// fresh without one.
func (a *App) examineWebhook(ctx context.Context, opening *sync.Mutex, c config.Source) []doctor.Check {
	check := doctor.Check{Subject: "source " + string(c.Route), Name: "webhook", Status: doctor.Skipped}
	opening.Lock()
	hooks, err := a.hooksOf(c)
	opening.Unlock()
	switch {
	case err != nil:
		check.Seen = "the repository can't be asked about"
		return []doctor.Check{check}
	case hooks.list == nil:
		return nil
	}
	path := "/hooks/" + string(c.Route)
	all, err := hooks.list(ctx, path)
	if err != nil {
		check.Seen = "the webhooks can't be read (" + string(fencepost.ReasonOf(err)) + "): a token of " + hooks.reader + " may"
		return []doctor.Check{check}
	}
	check.Status, check.Want = doctor.Warn, hooks.want
	check.Seen = "none of the repository's leads to " + path
	check.Mend = "make one whose URL is https://your.host" + path + "; if one of " + hooks.owner + " does it, this is no fault"
	for _, h := range all {
		if !h.leads {
			continue
		}
		if check.Seen, check.Mend = h.flaw, h.mend; h.flaw == "" {
			check.Status, check.Seen, check.Want = doctor.OK, hooks.want, ""
			break
		}
	}
	return []doctor.Check{check}
}

// hooksOf is without a list where a provider's webhooks are not looked at: an
// App's at GitHub are shown to nobody but the App, and belong to no repository.
func (a *App) hooksOf(c config.Source) (hooksOf, error) {
	switch c.Provider {
	case config.GitLab:
		project, err := a.gitlabProject(c)
		return hooksOf{"signed, for pushes, switched on", "a maintainer", "a group", func(ctx context.Context, path string) ([]hookLook, error) {
			hooks, err := project.Webhooks(ctx)
			return lookAt(hooks, path, remotegitlab.Webhook.LeadsTo, remotegitlab.Webhook.Flaw), err
		}}, err
	case config.Gitea, config.Forgejo:
		repository, err := a.giteaRepository(c)
		branch := strings.TrimPrefix(c.Ref, "refs/heads/")
		flaw := func(w remotegitea.Webhook) (string, string) { return w.Flaw(branch) }
		return hooksOf{"JSON, for pushes, switched on", "an administrator", "the organization", func(ctx context.Context, path string) ([]hookLook, error) {
			hooks, err := repository.Webhooks(ctx)
			return lookAt(hooks, path, remotegitea.Webhook.LeadsTo, flaw), err
		}}, err
	}
	return hooksOf{}, nil
}

// lookAt looks at each of a provider's webhooks.
func lookAt[W any](hooks []W, path string, leads func(W, string) bool, flaw func(W) (string, string)) []hookLook {
	all := make([]hookLook, len(hooks))
	for i, h := range hooks {
		all[i].leads = leads(h, path)
		all[i].flaw, all[i].mend = flaw(h)
	}
	return all
}
