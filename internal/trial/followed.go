package trial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A following is a world in which a source follows a repository.
type following interface {
	// Served is where readers find the content.
	Served() string
	// Applied reports whether a commit is, and nothing is open.
	Applied(ctx context.Context, commit string) (bool, error)
	// State is what the controller knows of the source, with its runs.
	State(ctx context.Context) (sourcedb.State, []source.RunRow, error)
}

// A followed is a repository that a source follows.
type followed struct {
	following
	push func(context.Context, forgesim.Push) (string, error)
	// ref returns a ref's commit.
	ref func(name string) string
	now func() time.Time
}

// firstEdition is what a followed repository begins with.
func firstEdition() map[string]string { return map[string]string{handbook: edition("First edition.")} }

func edition(text string) string { return "# Handbook\n\n" + text + "\n" }

// serve pushes a text and waits until readers see it. It returns how long that
// took.
func (f followed) serve(ctx context.Context, text string) (commit string, took time.Duration, err error) {
	want, began := edition(text), f.now()
	commit, err = f.push(ctx, forgesim.Push{Change: forgesim.Change{Files: map[string]string{handbook: want}}})
	if err != nil {
		return "", 0, err
	}
	if _, err = world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		got, err := os.ReadFile(filepath.Join(f.Served(), handbook))
		if os.IsNotExist(err) {
			return struct{}{}, false, nil
		}
		return struct{}{}, string(got) == want, err
	}); err != nil {
		return "", 0, fmt.Errorf("readers of %s: %w", f.Served(), err)
	}
	took = f.now().Sub(began)
	return commit, took, f.settle(ctx)
}

// settle waits until the branch's tip is applied, and nothing is open.
func (f followed) settle(ctx context.Context) error {
	tip := f.ref("refs/heads/main")
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		done, err := f.Applied(ctx, tip)
		return struct{}{}, done, err
	})
	return err
}

// asked holds the source's last run against what set it off.
func (f followed) asked(ctx context.Context, want source.TriggerKind) error {
	_, runs, err := f.State(ctx)
	if err != nil {
		return err
	}
	if r := runs[0]; r.Status != source.Complete || r.Trigger.Kind != want {
		return fmt.Errorf("%w: the last run is %s, asked for by %s; want complete, by %s", ErrStory, r.Status, r.Trigger.Kind, want)
	}
	return nil
}

// told pushes a text of which the controller is told.
func (f followed) told(ctx context.Context, repository, text string) (string, error) {
	// What was killed in the first sync is recovered by a run of its own, which
	// would take the push with it.
	if err := f.settle(ctx); err != nil {
		return "", err
	}
	commit, took, err := f.serve(ctx, text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("pushed %s to %s; readers of served/%s see it after %s", short(commit), repository, world.SourceName, round(took)),
		f.asked(ctx, source.ByPush)
}

// untold pushes a text of which the controller is not told.
func (f followed) untold(ctx context.Context, text string) (string, error) {
	commit, took, err := f.serve(ctx, text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("pushed %s, and its webhook was lost; found by looking, served after %s", short(commit), round(took)),
		f.asked(ctx, source.ByReconciler)
}

// completed is how many of the source's runs ended complete.
func (f followed) completed(ctx context.Context) (n int, err error) {
	_, runs, err := f.State(ctx)
	for _, r := range runs {
		if r.Status == source.Complete {
			n++
		}
	}
	return n, err
}
