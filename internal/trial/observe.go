package trial

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

func (t *trial) firstDelivery() (forgesim.Delivery, error) {
	d, ok := t.Delivery(t.Repository.PullRequest(1), false)
	if !ok {
		return d, fmt.Errorf("%w: the first delivery is not in the forge's log", ErrStory)
	}
	return d, nil
}

// evaluate opens a request and waits for its one Check Run.
func (t *trial) evaluate(ctx context.Context, o forgesim.OpenPull) (*forgesim.PullRequest, forgesim.CheckRun, error) {
	pr, err := t.Repository.OpenPullRequest(ctx, o)
	if err != nil {
		return nil, forgesim.CheckRun{}, err
	}
	run, err := t.result(ctx, pr)
	return pr, run, err
}

// result waits until the request's delivery has ended, and returns the one
// Check Run on its head.
func (t *trial) result(ctx context.Context, pr *forgesim.PullRequest) (forgesim.CheckRun, error) {
	if _, err := t.Ended(ctx, pr, resultWithin); err != nil {
		return forgesim.CheckRun{}, err
	}
	runs := t.Repository.CheckRuns(pr.Head())
	if len(runs) != 1 {
		return forgesim.CheckRun{}, fmt.Errorf("%w: %d Check Runs on %s, want exactly one", ErrStory, len(runs), short(pr.Head()))
	}
	return runs[0], nil
}

// outcome tells of a Check Run and holds it against what the forge's merge
// gate makes of it.
func (t *trial) outcome(ctx context.Context, pr *forgesim.PullRequest, run forgesim.CheckRun) ([]string, error) {
	lines := []string{fmt.Sprintf("#%d %s at %s: one Check Run, %s: %s",
		pr.Number(), run.Name, short(run.HeadSHA), run.Conclusion, run.Title)}
	state, err := pr.MergeState(ctx)
	if err != nil {
		return lines, err
	}
	if pass := run.Conclusion == "success"; state.Allowed != pass {
		return lines, fmt.Errorf("%w: conclusion %q, but the forge allows the merge: %t (%s)",
			ErrStory, run.Conclusion, state.Allowed, strings.Join(state.Reasons, "; "))
	}
	if state.Allowed {
		return append(lines, "the forge's rule now lets it merge"), nil
	}
	return append(lines, "the forge's rule keeps it from merging"), nil
}

// receiptLines tells a receipt in short.
func (t *trial) receiptLines(ctx context.Context, pr *forgesim.PullRequest) ([]string, error) {
	r, err := t.ReceiptOf(ctx, pr)
	if err != nil {
		return nil, err
	}
	lines := []string{"its receipt (fencepost deliveries show " + string(r.Delivery) + "):"}
	for _, e := range r.Events {
		line := fmt.Sprintf("  %10s  %-9s", "+"+round(e.At.Sub(r.Events[0].At)).String(), e.Kind)
		if e.Took > 0 {
			line += fmt.Sprintf(" in %s", round(e.Took))
		}
		lines = append(lines, strings.TrimRight(line+facts(e), " "))
	}
	return lines, nil
}

// facts are an event's details, those of one family counted.
func facts(e receipt.Event) string {
	var parts []string
	on, all := 0, 0
	for _, d := range e.Details {
		if strings.HasPrefix(d.Name, "protection.") {
			all++
			if d.Value == "on" {
				on++
			}
			continue
		}
		parts = append(parts, d.Name+" "+clip(d.Value))
	}
	if all > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d protections on", on, all))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// count fills the summary from what the forge and the receipts say.
func (t *trial) count(ctx context.Context) error {
	for _, d := range t.Forge.Deliveries() {
		if d.Event != "pull_request" {
			continue
		}
		if a, err := world.ReadAnswer(d.ResponseBody); err == nil && a.Outcome == "accepted" {
			t.summary.Deliveries++
		}
	}
	for _, pr := range t.Repository.PullRequests() {
		r, err := t.ReceiptOf(ctx, pr)
		if err != nil {
			return err
		}
		for _, e := range r.Events {
			if e.Kind == receipt.Ran {
				t.summary.Runs++
			}
		}
	}
	t.summary.CheckRuns = len(t.Repository.CheckRuns(""))
	t.summary.BytesFetched = t.Forge.GitBytes()
	t.summary.Took = t.config.Now().Sub(t.start)
	if want := len(t.Repository.PullRequests()); t.summary.CheckRuns != want || t.summary.Deliveries != want || t.summary.Runs != want {
		return fmt.Errorf("%w: %d requests made %d deliveries, %d runs and %d Check Runs, want %d of each",
			ErrStory, want, t.summary.Deliveries, t.summary.Runs, t.summary.CheckRuns, want)
	}
	if err := t.countSource(ctx); err != nil {
		return err
	}
	t.summary.OK = true
	return nil
}

func short(commit string) string { return commit[:min(7, len(commit))] }

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// clip shortens ids.
func clip(s string) string {
	const most = 16
	if len(s) <= most {
		return s
	}
	return s[:7] + "…"
}
