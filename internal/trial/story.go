package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// page is the file that every request of the story changes.
const page = "fencepost-try.md"

// gate opens a request that the check has nothing against.
func (t *trial) gate(ctx context.Context) ([]string, error) {
	pr, run, err := t.evaluate(ctx, forgesim.OpenPull{
		Head: "good", Title: "Add a page",
		Change: forgesim.Change{Files: map[string]string{page: "# A page\n\nBack to [the top](#a-page).\n"}},
	})
	if err != nil {
		return nil, err
	}
	lines, err := t.outcome(ctx, pr, run)
	if err != nil {
		return lines, err
	}
	// A repository of the reader's own may have broken links already.
	if t.config.Repo == "" && run.Conclusion != "success" {
		return lines, fmt.Errorf("%w: conclusion %q, want success", ErrStory, run.Conclusion)
	}
	receipt, err := t.receiptLines(ctx, pr)
	return append(lines, receipt...), err
}

// block opens a request with a link to nowhere.
func (t *trial) block(ctx context.Context) ([]string, error) {
	pr, run, err := t.evaluate(ctx, forgesim.OpenPull{
		Head: "bad", Title: "Add a broken link",
		Change: forgesim.Change{Files: map[string]string{page: "# A page\n\nRead [the rest](fencepost-nowhere.md).\n"}},
	})
	if err != nil {
		return nil, err
	}
	lines, err := t.outcome(ctx, pr, run)
	if err == nil && run.Conclusion != "failure" {
		err = fmt.Errorf("%w: conclusion %q, want failure", ErrStory, run.Conclusion)
	}
	return lines, err
}

// replay has the forge send the first delivery again.
func (t *trial) replay(ctx context.Context) ([]string, error) {
	first, err := t.firstDelivery()
	if err != nil {
		return nil, err
	}
	before := len(t.Repository.CheckRuns(""))
	if err := t.Forge.Redeliver(first.ID); err != nil {
		return nil, err
	}
	again, err := world.Await(ctx, resultWithin, func() (forgesim.Delivery, bool, error) {
		d, ok := t.Delivery(t.Repository.PullRequest(1), true)
		return d, ok, nil
	})
	if err != nil {
		return nil, fmt.Errorf("redelivery: %w", err)
	}
	one, err := world.ReadAnswer(first.ResponseBody)
	if err != nil {
		return nil, err
	}
	two, err := world.ReadAnswer(again.ResponseBody)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("the same bytes again: %d %s", again.StatusCode, two)}
	if again.StatusCode != http.StatusOK || two.Outcome != "replayed" || two.Delivery != one.Delivery {
		return lines, fmt.Errorf("%w: want 200 replayed with the id %s", ErrStory, one.Delivery)
	}
	if after := len(t.Repository.CheckRuns("")); after != before {
		return lines, fmt.Errorf("%w: %d Check Runs, before the replay %d", ErrStory, after, before)
	}
	t.summary.Replays++
	return append(lines, "no new run, no new Check Run"), nil
}

// forged changes one byte of a signed delivery.
func (t *trial) forged(ctx context.Context) ([]string, error) {
	first, err := t.firstDelivery()
	if err != nil {
		return nil, err
	}
	req, err := t.Forge.Request(ctx, first, first.URL)
	if err != nil {
		return nil, err
	}
	// The signature stays that of the true body.
	body := slices.Clone(first.Body)
	body[len(body)/2] ^= 1
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := t.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a, err := world.ReadAnswer(text.Bytes())
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("one bit changed under the same signature: %d %s", resp.StatusCode, a)}
	if resp.StatusCode != http.StatusUnauthorized || a.Reason != fencepost.ReasonUnauthenticated {
		return lines, fmt.Errorf("%w: want 401 unauthenticated", ErrStory)
	}
	t.summary.ForgedRefused++
	return append(lines, "nothing was parsed, nothing was recorded"), nil
}

const createRun = "POST /repos/{owner}/{repo}/check-runs"

var errKilled = errors.New("the controller was killed")

// crash kills the controller twice while it publishes one result: before the
// forge takes the write, and after it took it but before it answers.
func (t *trial) crash(ctx context.Context) ([]string, error) {
	killed := make(chan error, 2)
	kill := func(context.Context) error {
		err := t.Controller.Kill()
		killed <- err
		return errors.Join(errKilled, err)
	}
	t.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.Before{Do: kill}})
	t.Forge.Inject(forgesim.Fault{On: createRun, Skip: 1, Effect: forgesim.After{Do: kill}})
	pr, err := t.Repository.OpenPullRequest(ctx, forgesim.OpenPull{
		Head: "crash", Title: "Change a page while the controller is being killed",
		Change: forgesim.Change{Files: map[string]string{page: "# Another page\n"}},
	})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, what := range []string{
		"the result is staged; killed -9 before the forge takes it",
		"started again; killed -9 after the forge took it, before its answer",
	} {
		select {
		case err = <-killed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(resultWithin):
			err = fmt.Errorf("%w: nothing was published within %s", ErrStory, resultWithin)
		}
		if err != nil {
			return lines, err
		}
		t.summary.Kills++
		lines = append(lines, what)
		if _, err := t.Controller.Start(ctx); err != nil {
			return lines, err
		}
	}
	run, err := t.result(ctx, pr)
	if err != nil {
		return lines, err
	}
	lines = append(lines, "started again; the result was found under its evaluation id, and not sent a third time")
	more, err := t.outcome(ctx, pr, run)
	return append(lines, more...), err
}
