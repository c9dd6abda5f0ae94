package trial

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// source pushes a change to the repository that a source follows, reads it
// where it is served, has the forge send it again, and pushes one whose webhook
// is lost.
func (t *giteaTrial) source(ctx context.Context) (lines []string, err error) {
	f := followed{t.GiteaWorld, t.Followed.Push, t.Followed.Ref, t.config.Now}
	for _, part := range []func() (string, error){
		func() (string, error) { return f.told(ctx, t.Followed.FullName(), "Second edition.") },
		func() (string, error) { return t.resend(ctx) },
		func() (string, error) {
			t.SourceHook.Set(t.SourceURL+"-nowhere", []byte(t.Secret))
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
	t.SourceHook.Set(t.SourceURL, []byte(t.Secret))
	t.summary.SourceRuns, err = f.completed(ctx)
	return lines, err
}

// resend has the forge send the last push again, which changes nothing.
func (t *giteaTrial) resend(ctx context.Context) (string, error) {
	_, before, err := t.State(ctx)
	if err != nil {
		return "", err
	}
	sent := t.pushes()
	last := sent[len(sent)-1]
	if err := t.Forge.Replay(last.UUID); err != nil {
		return "", err
	}
	again, err := world.Await(ctx, resultWithin, func() (gitea.Delivery, bool, error) {
		all := t.pushes()
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
	case again.StatusCode != http.StatusOK || !bytes.Equal(again.Body, last.Body) || again.UUID == last.UUID || len(after) != len(before):
		return "", fmt.Errorf("%w: a push that comes again is answered %d and made %d runs", ErrStory, again.StatusCode, len(after)-len(before))
	}
	t.summary.Replays++
	return fmt.Sprintf("the same bytes again, under another delivery id: %d; no new run", again.StatusCode), nil
}

// pushes are the deliveries of the source's webhook, oldest first.
func (t *giteaTrial) pushes() (all []gitea.Delivery) {
	for _, d := range t.Forge.Deliveries() {
		if d.Hook == t.SourceHook {
			all = append(all, d)
		}
	}
	return all
}
