package trial

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// source pushes a change to the project that a source follows, reads it where it
// is served, has GitLab send it again, and pushes one whose webhook is lost.
func (t *gitlabTrial) source(ctx context.Context) ([]string, error) {
	commit, took, err := t.serve(ctx, "Second edition.")
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("pushed %s to %s; readers of served/%s see it after %s",
		short(commit), t.Followed.Path(), world.SourceName, round(took))}
	if err := t.asked(ctx, source.ByPush); err != nil {
		return lines, err
	}
	again, err := t.resend(ctx)
	if err != nil {
		return lines, err
	}
	lines = append(lines, again)
	if err := t.Hook.Set(t.HookURL+"-nowhere", t.SigningToken); err != nil {
		return lines, err
	}
	commit, took, err = t.serve(ctx, "Third edition, of which nobody was told.")
	if err != nil {
		return lines, err
	}
	lines = append(lines, fmt.Sprintf("pushed %s, and its webhook was lost; found by looking, served after %s", short(commit), round(took)))
	if err := errors.Join(t.asked(ctx, source.ByReconciler), t.Hook.Set(t.HookURL, t.SigningToken)); err != nil {
		return lines, err
	}
	_, runs, err := t.State(ctx)
	for _, r := range runs {
		if r.Status == source.Complete {
			t.summary.SourceRuns++
		}
	}
	return lines, err
}

// serve pushes a text and waits until readers see it.
func (t *gitlabTrial) serve(ctx context.Context, text string) (commit string, took time.Duration, err error) {
	want := "# Handbook\n\n" + text + "\n"
	began := t.config.Now()
	commit, err = t.Followed.Push(ctx, forgesim.Push{Change: forgesim.Change{Files: map[string]string{handbook: want}}})
	if err != nil {
		return "", 0, err
	}
	if _, err = world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		got, err := os.ReadFile(filepath.Join(t.Served(), handbook))
		if os.IsNotExist(err) {
			return struct{}{}, false, nil
		}
		return struct{}{}, string(got) == want, err
	}); err != nil {
		return "", 0, fmt.Errorf("readers of %s: %w", t.Served(), err)
	}
	took = t.config.Now().Sub(began)
	_, err = world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		done, err := t.Applied(ctx, commit)
		return struct{}{}, done, err
	})
	return commit, took, err
}

// asked holds the source's last run against what set it off.
func (t *gitlabTrial) asked(ctx context.Context, want source.TriggerKind) error {
	_, runs, err := t.State(ctx)
	if err != nil {
		return err
	}
	if r := runs[0]; r.Status != source.Complete || r.Trigger.Kind != want {
		return fmt.Errorf("%w: the last run is %s, asked for by %s; want complete, by %s", ErrStory, r.Status, r.Trigger.Kind, want)
	}
	return nil
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
