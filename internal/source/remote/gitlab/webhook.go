package gitlab

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
)

// A Webhook is one of a project's, as far as a source looks at it.
type Webhook struct {
	url           string
	pushes        bool
	status        string
	until         time.Time // where it is off for a while
	signs, legacy *bool
}

// Webhooks lists those of the project, which maintainers may read: the error of
// others has [fencepost.ReasonCredential]. A group's are not among them.
func (p *Project) Webhooks(ctx context.Context) ([]Webhook, error) {
	const op = "list webhooks"
	var all []Webhook
	type answer struct {
		URL    string     `json:"url"`
		Pushes bool       `json:"push_events"`
		Status string     `json:"alert_status"`
		Until  *time.Time `json:"disabled_until"`
		Signs  *bool      `json:"signing_token_present"`
		Legacy *bool      `json:"token_present"`
	}
	found, err := gitlab.Pages(ctx, p.client, op, p.byID+"/hooks?per_page="+strconv.Itoa(gitlab.PageSize), func(a answer) {
		w := Webhook{url: a.URL, pushes: a.Pushes, status: a.Status, signs: a.Signs, legacy: a.Legacy}
		if a.Until != nil {
			w.until = *a.Until
		}
		all = append(all, w)
	})
	if err == nil && !found {
		err = forge.Fail(op, fencepost.ReasonCredential, errors.New("the token is not shown the project's webhooks"))
	}
	return all, err
}

// LeadsTo reports whether the webhook's URL ends in a path.
func (w Webhook) LeadsTo(path string) bool {
	address, _, _ := strings.Cut(w.url, "?")
	return strings.HasSuffix(address, path)
}

// Flaw says what keeps the webhook from being of use to a source, and the mend;
// "" for nothing. contracts/gitlab.md §1 and §3, traps 15, 16 and 19
func (w Webhook) Flaw() (seen, mend string) {
	switch {
	case w.signs == nil:
		return "the instance is older than 19.0, and signs nothing", "upgrade it: what is not signed is answered 401"
	case !*w.signs:
		return "it has no signing token", "give it a signing token, and put that where the trust set's secret refers to"
	case w.legacy != nil && *w.legacy:
		return "it has a secret token beside the signing token", "take the secret token out: it is sent in plain text, and nothing here reads it"
	case !w.pushes:
		return "it is not told of pushes", "turn its trigger Push events on"
	case w.status == "temporarily_disabled":
		return "it is switched off " + w.while() + ", after answers that were none of 200 and 201", "see what it is answered in its recent events; a test that succeeds switches it on"
	case w.status != "executable":
		return "it is switched off", "see what it is answered in its recent events; a test that succeeds switches it on"
	}
	return "", ""
}

// while says for how long the webhook is off.
func (w Webhook) while() string {
	if w.until.IsZero() {
		return "for a while"
	}
	return "until " + w.until.UTC().Format(time.RFC3339)
}
