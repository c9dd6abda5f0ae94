package trial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// timings are those of the trial's source: everything that takes minutes in
// earnest takes seconds here, so that the story is one of seconds.
const timings = "{target: 30s, alert_after: 6s, reconcile: 2s, observe: 1s, queue_age: 1s, lease: 3s, renew: 1s, " +
	"checkout: 5s, sink: 5s, attempts: 2, backoff: 500ms, evaluate: 1s}"

// handbook is the page that the source's pushes change.
const handbook = "handbook.md"

func sourceConfig() *world.SourceConfig {
	return &world.SourceConfig{
		Timings: timings,
		Repository: forgesim.Import{Files: map[string]string{
			handbook:          "# Handbook\n\nFirst edition.\n",
			"docs/welcome.md": "# Welcome\n",
		}},
	}
}

// pushPage pushes a new text of the page.
func (t *trial) pushPage(ctx context.Context, text string) (string, error) {
	return t.Handbook.Push(ctx, forgesim.Push{
		Change: forgesim.Change{Files: map[string]string{handbook: "# Handbook\n\n" + text + "\n"}},
	})
}

// reads waits until readers of the served directory see a text, and says how
// long that took.
func (t *trial) reads(ctx context.Context, text string) (time.Duration, error) {
	began := t.config.Now()
	want := "# Handbook\n\n" + text + "\n"
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		got, err := os.ReadFile(filepath.Join(t.Served(), handbook))
		if os.IsNotExist(err) {
			return struct{}{}, false, nil
		}
		return struct{}{}, string(got) == want, err
	})
	if err != nil {
		err = fmt.Errorf("readers of %s: %w", t.Served(), err)
	}
	return t.config.Now().Sub(began), err
}

// settled waits until the controller has a commit on record.
func (t *trial) settled(ctx context.Context, commit string) error {
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		done, err := t.Applied(ctx, commit)
		return struct{}{}, done, err
	})
	return err
}

// source pushes a change and reads it where it is served.
func (t *trial) source(ctx context.Context) ([]string, error) {
	if _, err := t.reads(ctx, "First edition."); err != nil {
		return nil, err
	}
	commit, err := t.pushPage(ctx, "Second edition.")
	if err != nil {
		return nil, err
	}
	took, err := t.reads(ctx, "Second edition.")
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("pushed %s to %s; readers of served/%s see it after %s",
		short(commit), t.Handbook.FullName(), world.SourceName, round(took))}
	if err := t.settled(ctx, commit); err != nil {
		return lines, err
	}
	_, runs, err := t.State(ctx)
	if err != nil {
		return lines, err
	}
	if r := runs[0]; r.Status != source.Complete || r.Trigger.Kind != source.ByPush {
		return lines, fmt.Errorf("%w: the last run is %s, asked for by %s; want complete, by push", ErrStory, r.Status, r.Trigger.Kind)
	}
	target, err := os.Readlink(t.Served())
	if err != nil {
		return lines, err
	}
	return append(lines, fmt.Sprintf("run %s: complete; %d files, %d changed; one switch of a link, to %s",
		runs[0].ID, runs[0].Counts.Files, runs[0].Counts.Changed, clip(filepath.Base(target)))), nil
}

// burst pushes many times while the source is being synced.
func (t *trial) burst(ctx context.Context) ([]string, error) {
	const pushes = 8
	_, before, err := t.State(ctx)
	if err != nil {
		return nil, err
	}
	var commit string
	for i := range pushes {
		if commit, err = t.pushPage(ctx, fmt.Sprintf("Draft %d.", i+1)); err != nil {
			return nil, err
		}
	}
	took, err := t.reads(ctx, fmt.Sprintf("Draft %d.", pushes))
	if err != nil {
		return nil, err
	}
	if err := t.settled(ctx, commit); err != nil {
		return nil, err
	}
	_, after, err := t.State(ctx)
	if err != nil {
		return nil, err
	}
	runs := len(after) - len(before)
	lines := []string{fmt.Sprintf("%d pushes in a row: %d runs, and readers see the last one after %s", pushes, runs, round(took))}
	if runs < 1 || runs > pushes {
		return lines, fmt.Errorf("%w: %d runs of %d pushes", ErrStory, runs, pushes)
	}
	return lines, nil
}

// missed pushes while no webhook comes through.
func (t *trial) missed(ctx context.Context) ([]string, error) {
	// Without an address the forge would keep the delivery, and send it when
	// there is one again.
	t.SourceHook.Set(t.SourceURL+"-nowhere", []byte(t.Secret))
	commit, err := t.pushPage(ctx, "Third edition, of which nobody was told.")
	if err != nil {
		return nil, err
	}
	took, err := t.reads(ctx, "Third edition, of which nobody was told.")
	if err != nil {
		return nil, err
	}
	t.SourceHook.Set(t.SourceURL, []byte(t.Secret))
	lines := []string{fmt.Sprintf("pushed %s, and its webhook was lost; found by looking, served after %s", short(commit), round(took))}
	if err := t.settled(ctx, commit); err != nil {
		return lines, err
	}
	_, runs, err := t.State(ctx)
	if err != nil {
		return lines, err
	}
	if k := runs[0].Trigger.Kind; k != source.ByReconciler {
		return lines, fmt.Errorf("%w: the last run was asked for by %s, want the reconciler", ErrStory, k)
	}
	return append(lines, "it looks every 2 s here, every 2 minutes in earnest"), nil
}

// outage takes the forge away while the head moves.
func (t *trial) outage(ctx context.Context) ([]string, error) {
	began := t.config.Now()
	t.Forge.SetDown(true)
	defer t.Forge.SetDown(false)
	commit, err := t.pushPage(ctx, "Fourth edition.")
	if err != nil {
		return nil, err
	}
	if err := t.freshnessAlert(ctx, true); err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("the forge is down and the head moved: freshness alert after %s (13 minutes in earnest)", round(t.config.Now().Sub(began)))}
	if _, err := t.reads(ctx, "Third edition, of which nobody was told."); err != nil {
		return lines, err
	}
	lines = append(lines, "meanwhile readers see the last good content")
	began = t.config.Now()
	t.Forge.SetDown(false)
	if _, err := t.reads(ctx, "Fourth edition."); err != nil {
		return lines, err
	}
	if err := t.settled(ctx, commit); err != nil {
		return lines, err
	}
	if err := t.freshnessAlert(ctx, false); err != nil {
		return lines, err
	}
	return append(lines, fmt.Sprintf("the forge is back: served and resolved by itself after %s", round(t.config.Now().Sub(began)))), nil
}

func (t *trial) freshnessAlert(ctx context.Context, want bool) error {
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		s, _, err := t.State(ctx)
		open := false
		for _, a := range s.Alerts {
			open = open || a.Code == source.AlertFreshness
		}
		return struct{}{}, open == want, err
	})
	if err != nil {
		return fmt.Errorf("freshness alert open: %t: %w", want, err)
	}
	return nil
}

// countSource fills the summary's part of the source.
func (t *trial) countSource(ctx context.Context) error {
	_, runs, err := t.State(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		switch {
		case r.Status == source.Complete:
			t.summary.SourceRuns++
		case !r.Status.Ended():
			return fmt.Errorf("%w: run %s is %s at the end", ErrStory, r.ID, r.Status)
		}
	}
	return nil
}
