package trial

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// source pushes a change to the project that a source follows, reads it where it
// is served, has GitLab send it again, and pushes one whose webhook is lost.
func (t *gitlabTrial) source(ctx context.Context) (lines []string, err error) {
	f := followed{t.GitLabWorld, t.Followed.Push, t.Followed.Ref, t.config.Now}
	for _, part := range []func() (string, error){
		func() (string, error) { return f.told(ctx, t.Followed.Path(), "Second edition.") },
		func() (string, error) { return t.resend(ctx) },
		func() (string, error) {
			if err := t.Hook.Set(t.HookURL+"-nowhere", t.SigningToken); err != nil {
				return "", err
			}
			return f.untold(ctx, "Third edition, of which nobody was told.")
		},
	} {
		line, err := part()
		if line != "" {
			lines = append(lines, line)
		}
		if err != nil {
			return lines, err
		}
	}
	if err := t.Hook.Set(t.HookURL, t.SigningToken); err != nil {
		return lines, err
	}
	t.summary.SourceRuns, err = f.completed(ctx)
	return lines, err
}

// resend has GitLab send the last delivery again, which changes nothing.
func (t *gitlabTrial) resend(ctx context.Context) (string, error) {
	_, before, err := t.State(ctx)
	if err != nil {
		return "", err
	}
	sent := t.Forge.Deliveries()
	last := sent[len(sent)-1]
	if err := t.Forge.Resend(last.ID); err != nil {
		return "", err
	}
	again, err := world.Await(ctx, resultWithin, func() (gitlab.Delivery, bool, error) {
		all := t.Forge.Deliveries()
		d := all[len(all)-1]
		return d, len(all) > len(sent) && d.StatusCode != 0, nil
	})
	if err != nil {
		return "", err
	}
	_, after, err := t.State(ctx)
	switch {
	case err != nil:
		return "", err
	case again.StatusCode != http.StatusOK || again.MessageID != last.MessageID || len(after) != len(before):
		return "", fmt.Errorf("%w: a resend is answered %d and made %d runs", ErrStory, again.StatusCode, len(after)-len(before))
	}
	t.summary.Replays++
	return fmt.Sprintf("sent again under the same id, at another time: %d; no new run", again.StatusCode), nil
}
