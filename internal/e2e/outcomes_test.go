package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// Whatever the program does, the gate gets one Check Run, and only a true
// pass lets the request merge (DESIGN §7, §8).
func TestEveryBehaviourEndsInOneCheckRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Wall: 5 * time.Second, YAML: "work: {attempts: 2, backoff: 100ms}\n"})
	for _, tc := range []struct {
		behaviour  string
		conclusion string
		reason     fencepost.Reason
	}{
		{"pass", "success", ""},
		{"block", "failure", ""},
		{"crash", "failure", fencepost.ReasonUnavailable},
		{"nothing", "failure", fencepost.ReasonMissingOutput},
		{"hang", "failure", fencepost.ReasonTimeout},
		{"bomb", "failure", fencepost.ReasonTimeout},
		{"oversized", "failure", fencepost.ReasonOversizedOutput},
		{"malformed", "failure", fencepost.ReasonMalformedOutput},
		{"disagree", "failure", fencepost.ReasonMismatch},
		{"foreign", "failure", fencepost.ReasonMismatch},
		{"replace", "failure", fencepost.ReasonRuntimeTampered},
		{"linger", "success", ""},
	} {
		t.Run(tc.behaviour, func(t *testing.T) {
			pr := open(t, w, tc.behaviour)
			r := ended(t, w, pr)
			run := wantRun(t, w, pr.Head(), tc.conclusion)
			wantMergeable(t, pr, tc.conclusion == "success")
			ran, ok := world.Find(r, receipt.Ran)
			if tc.behaviour == "bomb" && ran.Reason == fencepost.ReasonMissingOutput {
				// Its own runtime found no room for a thread and gave up first.
				tc.reason = ran.Reason
			}
			if !ok || ran.Reason != tc.reason {
				t.Errorf("ran with reason %q, want %q; receipt: %v", ran.Reason, tc.reason, kinds(r))
			}
			if tc.reason != "" && !strings.Contains(run.Title+run.Summary, string(tc.reason)) {
				t.Errorf("the Check Run does not name %s: %q %q", tc.reason, run.Title, run.Summary)
			}
			wantNothingAlive(t)
		})
	}
}

func TestAnotherProgramThanThePinnedOneNeverRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{SHA256: strings.Repeat("ab", 32)})
	pr := open(t, w, "pass")
	r := ended(t, w, pr)
	wantRun(t, w, pr.Head(), "failure")
	if ran, _ := world.Find(r, receipt.Ran); ran.Reason != fencepost.ReasonProgramDigest {
		t.Errorf("ran with reason %q, want %q; receipt: %v", ran.Reason, fencepost.ReasonProgramDigest, kinds(r))
	}
}

// Invariant 9: a head that moves during the run leaves nothing on either
// commit of the old evaluation, and the new head gets its own.
func TestAHeadThatMovesDuringTheRunSupersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	pr := open(t, w, "slow 1s")
	old := pr.Head()
	waitFor(t, w, pr, receipt.Fetched)
	if _, err := pr.Push(t.Context(), forgesim.Change{Files: behave("block")}); err != nil {
		t.Fatal(err)
	}
	r := ended(t, w, pr)
	if end, _ := world.Find(r, receipt.Ended); end.Reason != fencepost.ReasonSuperseded {
		t.Errorf("ended with %q, want superseded; receipt: %v", end.Reason, kinds(r))
	}
	wantNoRun(t, w, old)
	awaitRuns(t, w, pr.Head(), 1)
	wantRun(t, w, pr.Head(), "failure")
}

func TestAClosedRequestEndsWithoutAWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	pr := open(t, w, "slow 1s")
	waitFor(t, w, pr, receipt.Fetched)
	if err := pr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := ended(t, w, pr)
	if end, _ := world.Find(r, receipt.Ended); end.Reason != fencepost.ReasonClosed {
		t.Errorf("ended with %q, want closed; receipt: %v", end.Reason, kinds(r))
	}
	wantNoRun(t, w, pr.Head())
}

// Two events for one head are two evaluations; each publishes its own, or the
// older one is superseded. None is published twice.
func TestTwoEvaluationsOfOneHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	pr := open(t, w, "pass")
	ended(t, w, pr)
	if err := pr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pr.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitRuns(t, w, pr.Head(), 2)
	ids := map[string]bool{}
	for _, run := range w.Repository.CheckRuns(pr.Head()) {
		if ids[run.ExternalID] || run.Conclusion != "success" {
			t.Errorf("Check Run %+v: want two passes with ids of their own", run)
		}
		ids[run.ExternalID] = true
	}
	wantMergeable(t, pr, true)
}

// Two runs under one evaluation id are nobody's doing that could be undone:
// nothing is written any more, and an alert stands.
func TestVisibleDuplicatesFailClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	duplicated := make(chan error, 1)
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.After{Do: func(ctx context.Context) error {
		made := w.Repository.CheckRuns("")[0]
		_, err := w.Repository.CreateCheckRun(ctx, forgesim.NewCheckRun{
			Name: made.Name, HeadSHA: made.HeadSHA, ExternalID: made.ExternalID, Conclusion: "success",
		})
		duplicated <- err
		return err
	}}})
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.DropAnswer{}})
	pr := open(t, w, "pass")
	if err := <-duplicated; err != nil {
		t.Fatal(err)
	}
	e := waitFor(t, w, pr, receipt.Published)
	if e.Reason != fencepost.ReasonPublishConflict {
		t.Errorf("the attempt to publish ended with %q, want publish_conflict", e.Reason)
	}
	wantAlert(t, w, "publish_conflict")
	if got := len(w.Repository.CheckRuns(pr.Head())); got != 2 {
		t.Errorf("%d Check Runs, want the two and no third", got)
	}
}

func TestALostAnswerIsLookedUpAndNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.DropAnswer{}})
	pr := open(t, w, "pass")
	ended(t, w, pr)
	wantRun(t, w, pr.Head(), "success")
	if n := w.Forge.Count(createRun); n != 1 {
		t.Errorf("%d create calls, want 1: the answer was lost, not the write", n)
	}
}

const createRun = "POST /repos/{owner}/{repo}/check-runs"
