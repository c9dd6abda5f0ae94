package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
)

// An answer is what ingress says (DESIGN §4).
type answer struct {
	Outcome  string               `json:"outcome"`
	Reason   fencepost.Reason     `json:"reason"`
	Delivery fencepost.DeliveryID `json:"delivery"`
}

func readAnswer(body []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("%w: the answer is not JSON: %w", ErrStory, err)
	}
	return a, nil
}

// String joins what is set.
func (a answer) String() string {
	parts := []string{a.Outcome}
	for _, p := range []string{string(a.Reason), string(a.Delivery)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

// await looks until look finds something, fails, or takes too long.
func await[T any](ctx context.Context, look func() (T, bool, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, resultWithin,
		fmt.Errorf("%w: nothing came within %s", ErrStory, resultWithin))
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		found, ok, err := look()
		if ok || err != nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// delivery finds a request's first pull_request delivery, or its redelivery,
// in the forge's log.
func (t *trial) delivery(pr *forgesim.PullRequest, redelivery bool) (forgesim.Delivery, bool) {
	for _, d := range t.forge.Deliveries() {
		var body struct {
			Number int `json:"number"`
		}
		if d.Event == "pull_request" && d.Redelivery == redelivery &&
			json.Unmarshal(d.Body, &body) == nil && body.Number == pr.Number() {
			return d, true
		}
	}
	return forgesim.Delivery{}, false
}

func (t *trial) firstDelivery() (forgesim.Delivery, error) {
	d, ok := t.delivery(t.repository.PullRequest(1), false)
	if !ok {
		return d, fmt.Errorf("%w: the first delivery is not in the forge's log", ErrStory)
	}
	return d, nil
}

// evaluate opens a request and waits for its one Check Run.
func (t *trial) evaluate(ctx context.Context, o forgesim.OpenPull) (*forgesim.PullRequest, forgesim.CheckRun, error) {
	pr, err := t.repository.OpenPullRequest(ctx, o)
	if err != nil {
		return nil, forgesim.CheckRun{}, err
	}
	run, err := t.result(ctx, pr)
	return pr, run, err
}

// result waits until the request's delivery has ended, and returns the one
// Check Run on its head.
func (t *trial) result(ctx context.Context, pr *forgesim.PullRequest) (forgesim.CheckRun, error) {
	_, err := await(ctx, func() (receipt.Receipt, bool, error) {
		r, err := t.receipt(ctx, pr)
		return r, err == nil && has(r, receipt.Ended), err
	})
	if err != nil {
		return forgesim.CheckRun{}, fmt.Errorf("request #%d: %w", pr.Number(), err)
	}
	runs := t.repository.CheckRuns(pr.Head())
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

// receipt reads what the controller wrote down of a request's delivery; it is
// empty while there is nothing.
func (t *trial) receipt(ctx context.Context, pr *forgesim.PullRequest) (receipt.Receipt, error) {
	d, ok := t.delivery(pr, false)
	if !ok {
		return receipt.Receipt{}, nil
	}
	a, err := readAnswer(d.ResponseBody)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if a.Outcome != "accepted" {
		return receipt.Receipt{}, fmt.Errorf("%w: the delivery was answered %d %s", ErrStory, d.StatusCode, a)
	}
	r, damages, err := receipt.Show(ctx, t.receipts(), a.Delivery)
	if errors.Is(err, receipt.ErrNotFound) {
		return receipt.Receipt{}, nil
	}
	if err == nil && len(damages) > 0 {
		err = fmt.Errorf("%w: the journal is damaged: %w", ErrStory, damages[0])
	}
	return r, err
}

func (t *trial) receipts() durable.FS { return durable.OS(filepath.Join(t.Dir, "data", "receipts")) }

func has(r receipt.Receipt, kind receipt.Kind) bool {
	for _, e := range r.Events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// receiptLines tells a receipt in short.
func (t *trial) receiptLines(ctx context.Context, pr *forgesim.PullRequest) ([]string, error) {
	r, err := t.receipt(ctx, pr)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range r.Events {
		line := fmt.Sprintf("%8s  %s", "+"+round(e.At.Sub(r.Events[0].At)).String(), e.Kind)
		if e.Took > 0 {
			line += fmt.Sprintf(" in %s", round(e.Took))
		}
		for _, d := range e.Details {
			line += fmt.Sprintf(", %s %s", d.Name, clip(d.Value))
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// count fills the summary from what the forge and the receipts say.
func (t *trial) count(ctx context.Context) error {
	for _, d := range t.forge.Deliveries() {
		if a, err := readAnswer(d.ResponseBody); err == nil && a.Outcome == "accepted" {
			t.summary.Deliveries++
		}
	}
	for _, pr := range t.repository.PullRequests() {
		r, err := t.receipt(ctx, pr)
		if err != nil {
			return err
		}
		for _, e := range r.Events {
			if e.Kind == receipt.Ran {
				t.summary.Runs++
			}
		}
	}
	t.summary.CheckRuns = len(t.repository.CheckRuns(""))
	t.summary.BytesFetched = t.forge.GitBytes()
	t.summary.Took = t.Now().Sub(t.start)
	if want := len(t.repository.PullRequests()); t.summary.CheckRuns != want || t.summary.Deliveries != want || t.summary.Runs != want {
		return fmt.Errorf("%w: %d requests made %d deliveries, %d runs and %d Check Runs, want %d of each",
			ErrStory, want, t.summary.Deliveries, t.summary.Runs, t.summary.CheckRuns, want)
	}
	t.summary.OK = true
	return nil
}

func short(commit string) string { return commit[:min(7, len(commit))] }

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
