package github

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// GitHub never delivers again by itself (contracts/github.md, trap 10). What
// is here is what healing needs: the open requests, the App's delivery log, and
// the call that asks for one delivery again. All of it leaves the reserve of
// the hour to live work.

type openAnswer struct {
	Number    int64     `json:"number"`
	State     string    `json:"state"`
	Draft     bool      `json:"draft"`
	UpdatedAt time.Time `json:"updated_at"`
	Head      struct {
		SHA string `json:"sha"`
	} `json:"head"`
	Base struct {
		Ref string `json:"ref"`
	} `json:"base"`
}

// Open implements [gate.Watcher]: the open requests against the gate's base,
// most recently changed first, drafts left out. Of more than the page limit
// the least recently changed are left out too.
func (l *Lane) Open(ctx context.Context) ([]gate.OpenRequest, error) {
	const op = "list open pull requests"
	name, err := l.repository(ctx)
	if err != nil {
		return nil, err
	}
	k := l.call(op, name, "/pulls", url.Values{
		"state": {"open"}, "base": {l.branch}, "sort": {"updated"}, "direction": {"desc"}, "per_page": {"100"},
	})
	k.background = true
	var open []gate.OpenRequest
	err = pages(ctx, l.client, k, func(page []openAnswer) error {
		for _, a := range page {
			head, err := fencepost.ParseCommitID(a.Head.SHA)
			if err != nil || a.Number < 1 {
				return providerError(op, "a request without number or head")
			}
			if a.State == "open" && !a.Draft && a.Base.Ref == l.branch {
				s := gate.Subject{Number: a.Number, Head: head, BaseRef: l.config.BaseRef}
				open = append(open, gate.OpenRequest{Subject: s, Changed: a.UpdatedAt})
			}
		}
		return nil
	})
	if errors.Is(err, errTooManyPages) {
		err = nil
	}
	return open, err
}

// Shown implements [gate.Watcher]: whether our App has a run of the check on
// a head.
func (l *Lane) Shown(ctx context.Context, s gate.Subject) (bool, error) {
	name, err := l.repository(ctx)
	if err != nil {
		return false, err
	}
	k := l.listRuns(name, l.config.Check, s.Head)
	k.query.Set("app_id", strconv.FormatInt(l.client.app.ID, 10))
	k.background = true
	shown := false
	err = l.runs(ctx, k, func(run checkRun) error {
		shown = shown || (run.by(l.client.app.ID) && run.Name == l.config.Check)
		return nil
	})
	return shown, err
}

type deliveryAnswer struct {
	ID           int64     `json:"id"`
	GUID         string    `json:"guid"`
	DeliveredAt  time.Time `json:"delivered_at"`
	StatusCode   int       `json:"status_code"`
	Event        string    `json:"event"`
	Action       *string   `json:"action"`
	RepositoryID *int64    `json:"repository_id"`
}

// errOldEnough ends the walk through the log.
var errOldEnough = errors.New("the rest is older")

// Log implements [gate.DeliveryLog]: the deliveries of handled events of the
// gate's repository since a time, newest first. Failed ones are not asked for
// alone: GitHub's filter leaves out those that got no answer at all.
func (l *Lane) Log(ctx context.Context, since time.Time) ([]gate.LoggedDelivery, error) {
	k := call{
		op: "list deliveries", method: http.MethodGet, path: "/app/hook/deliveries", query: url.Values{"per_page": {"100"}},
		as: asApp, background: true, fresh: true,
	}
	var logged []gate.LoggedDelivery
	err := pages(ctx, l.client, k, func(page []deliveryAnswer) error {
		for _, d := range page {
			if d.DeliveredAt.Before(since) {
				return errOldEnough
			}
			if d.Event == "pull_request" && d.RepositoryID != nil && *d.RepositoryID == l.config.Repository.ID && listed(d.Action) {
				logged = append(logged, gate.LoggedDelivery{
					ID: strconv.FormatInt(d.ID, 10), Delivery: d.GUID, At: d.DeliveredAt,
					Taken: d.StatusCode >= 200 && d.StatusCode < 300,
				})
			}
		}
		return nil
	})
	if errors.Is(err, errOldEnough) || errors.Is(err, errTooManyPages) {
		err = nil
	}
	return logged, err
}

// listed reports whether an action may be one that is handled; whether an
// "edited" changed the base, only its payload tells.
func listed(action *string) bool {
	return action != nil && handled(*action, &eventChanges{Base: &struct{}{}})
}

// Named implements [gate.DeliveryLog]: what a logged delivery asked for, held
// against the policy as at its receipt. Nothing of it becomes work: GitHub
// gives the payload parsed, so the signed bytes are not in it.
func (l *Lane) Named(ctx context.Context, id string) (gate.Subject, error) {
	var got struct {
		Request struct {
			Payload jsontext.Value `json:"payload"`
		} `json:"request"`
	}
	k := call{
		op: "get delivery", method: http.MethodGet, path: "/app/hook/deliveries/" + url.PathEscape(id),
		as: asApp, background: true, fresh: true,
	}
	if _, err := l.client.do(ctx, k, &got); err != nil {
		return gate.Subject{}, err
	}
	return l.admitPull(got.Request.Payload)
}

// Redeliver implements [gate.DeliveryLog]. Asking twice is safe here: the
// second copy is replayed.
func (l *Lane) Redeliver(ctx context.Context, id string) error {
	_, err := l.client.do(ctx, call{
		op: "redeliver", method: http.MethodPost, path: "/app/hook/deliveries/" + url.PathEscape(id) + "/attempts",
		as: asApp, background: true, again: true,
	}, nil)
	return err
}
