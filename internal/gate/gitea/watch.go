package gitea

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// Open implements [gate.Watcher]: the open requests against the gate's base,
// drafts left out. These providers deliver once and have no log that could be
// asked for again: what is unknown here becomes an alert. Trap 10
func (l *Lane) Open(ctx context.Context) ([]gate.OpenRequest, error) {
	const op = "list open pull requests"
	name, err := l.identity(ctx)
	if err != nil {
		return nil, err
	}
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
	var open []gate.OpenRequest
	broken := false
	err = pages(ctx, l, op, "/repos/"+name+"/pulls", url.Values{"state": {"open"}, "sort": {"recentupdate"}}, func(a openAnswer) {
		head, err := fencepost.ParseCommitID(a.Head.SHA)
		if err != nil || a.Number < 1 {
			broken = true
			return
		}
		if a.State == "open" && !a.Draft && a.Base.Ref == l.branch {
			s := gate.Subject{Number: a.Number, Head: head, BaseRef: l.config.BaseRef}
			open = append(open, gate.OpenRequest{Subject: s, Changed: a.UpdatedAt})
		}
	})
	switch {
	case errors.Is(err, forge.ErrTooManyPages):
		// The rest is looked at when these are closed.
		return open, nil
	case err == nil && broken:
		return nil, forge.Fail(op, fencepost.ReasonProvider, errLacks)
	}
	return open, err
}

// Shown implements [gate.Watcher]: whether the reviewer has a status of the
// check on a head.
func (l *Lane) Shown(ctx context.Context, s gate.Subject) (bool, error) {
	name, err := l.identity(ctx)
	if err != nil {
		return false, err
	}
	shown := false
	err = pages(ctx, l, "list statuses", "/repos/"+name+"/commits/"+s.Head.String()+"/statuses", nil, func(got status) {
		shown = shown || got.by(l.config.Reviewer.ID) && got.Context == l.config.Check
	})
	return shown, err
}
