package gitea

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
)

// hooksLooked is how many webhooks of a repository are looked at, which is what
// servers give in one answer.
const hooksLooked = 50

// A Webhook is one of a repository's, as far as a source looks at it.
type Webhook struct {
	kind, url, media, filter string
	active                   bool
	events                   []string
}

// Webhooks lists those of the repository, which its administrators may read: the
// error of others has [fencepost.ReasonCredential]. An organization's are not
// among them.
func (r *Repository) Webhooks(ctx context.Context) ([]Webhook, error) {
	const op = "list webhooks"
	a, err := r.client.Get(ctx, op, r.byName+"/hooks?limit="+strconv.Itoa(hooksLooked), "")
	if err == nil && a.Status != http.StatusOK {
		err = forge.Fail(op, fencepost.ReasonCredential, errors.New("the token is not shown the repository's webhooks"))
	}
	var got []struct {
		Type   string `json:"type"`
		Active bool   `json:"active"`
		Filter string `json:"branch_filter"`
		Config struct {
			URL         string `json:"url"`
			ContentType string `json:"content_type"`
		} `json:"config"`
		Events []string `json:"events"`
	}
	if err == nil {
		err = forge.Decode(op, a.Body, &got)
	}
	if err != nil {
		return nil, err
	}
	all := make([]Webhook, len(got))
	for i, h := range got {
		all[i] = Webhook{h.Type, h.Config.URL, h.Config.ContentType, h.Filter, h.Active, h.Events}
	}
	return all, nil
}

// LeadsTo reports whether the webhook's URL ends in a path.
func (w Webhook) LeadsTo(path string) bool {
	address, _, _ := strings.Cut(w.url, "?")
	return strings.HasSuffix(strings.TrimSuffix(address, "/"), path)
}

// Flaw says what keeps the webhook from being of use to a source of a branch,
// and the mend; "" for nothing. What signs is never shown. contracts/gitea.md §1
func (w Webhook) Flaw(branch string) (seen, mend string) {
	switch {
	case w.kind != "gitea" && w.kind != "forgejo":
		return "it is of another type", "make one of the server's own type: others have other payloads"
	case !w.active:
		return "it is switched off", "switch it on"
	case w.media != "json":
		return "its content type is not application/json", "set it to application/json: others are answered 415"
	case !slices.Contains(w.events, "push"):
		return "it is not told of pushes", "turn its trigger Push on"
	case w.filter != "" && w.filter != "*" && !strings.Contains(w.filter, branch):
		return "its branch filter does not name " + branch, "see that its branch filter lets " + branch + " through"
	}
	return "", ""
}
