package e2e

import (
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
	w := newWorld(t, world.Config{Wall: 5 * time.Second})
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
			staged, ok := world.Find(r, receipt.Staged)
			if !ok || staged.Reason != tc.reason {
				t.Errorf("staged with reason %q, want %q; receipt: %v", staged.Reason, tc.reason, kinds(r))
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
	if staged, _ := world.Find(r, receipt.Staged); staged.Reason != fencepost.ReasonProgramDigest {
		t.Errorf("staged with reason %q, want %q; receipt: %v", staged.Reason, fencepost.ReasonProgramDigest, kinds(r))
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

func TestVisibleDuplicatesFailClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	// The forge took two writes of one evaluation: the answer to the first is
	// lost, and somebody's retry made a second.
	var made []forgesim.CheckRun
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.DropAnswer{}})
	pr := open(t, w, "pass")
	made = awaitRuns(t, w, pr.Head(), 1)
	if _, err := w.Repository.CreateCheckRun(t.Context(), forgesim.NewCheckRun{
		Name: made[0].Name, HeadSHA: made[0].HeadSHA, ExternalID: made[0].ExternalID, Conclusion: "success",
	}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w, pr, receipt.Published)
	r, err := w.ReceiptOf(t.Context(), pr)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range r.Events {
		found = found || e.Reason == fencepost.ReasonPublishConflict
	}
	if !found {
		t.Skip("the look-up was faster than the duplicate")
	}
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
