package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

var errKilled = errors.New("the controller was killed")

// killAt kills the controller at its n-th request from now on: before the
// forge handles it, or after it handled it and before it answers. The channel
// gets the outcome.
func killAt(w *world.World, n int, after bool) <-chan error {
	killed := make(chan error, 1)
	do := func(context.Context) error {
		err := w.Controller.Kill()
		killed <- err
		return errors.Join(errKilled, err)
	}
	var effect forgesim.Effect = forgesim.Before{Do: do}
	if after {
		effect = forgesim.After{Do: do}
	}
	w.Forge.Inject(forgesim.Fault{Skip: n - 1, Effect: effect})
	return killed
}

// Whatever request the controller is killed at, one correct Check Run comes
// of it (invariants 3 to 9).
func TestKillAtEveryRequestOfAnEvaluation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	const points = 44
	kills := 0
	for n := 1; n <= points; n++ {
		settled(t, w, kills+1)
		after := n%2 == 0
		killed := killAt(w, n, after)
		pr := open(t, w, fmt.Sprintf("pass %d", n))
		select {
		case err := <-killed:
			if err != nil {
				t.Fatal(err)
			}
			kills++
			start(t, w)
		case <-ends(t, w, pr):
			// Fewer requests than that: the evaluation is over already.
		}
		r := ended(t, w, pr)
		wantRun(t, w, pr.Head(), "success")
		if t.Failed() {
			t.Fatalf("killed at request %d, after it was handled: %t; receipt: %v", n, after, kinds(r))
		}
		w.Forge.Calm()
	}
	if kills < 30 {
		t.Errorf("%d kills of %d points, want at least 30", kills, points)
	}
	wantNothingAlive(t)
}

// ends is closed when a request's delivery has ended.
func ends(t *testing.T, w *world.World, pr *forgesim.PullRequest) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// On an error the caller's own wait tells.
		_, _ = w.Ended(t.Context(), pr, endWithin)
	}()
	return done
}

func TestKillWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	pr := open(t, w, "slow 2s")
	waitFor(t, w, pr, receipt.Fetched)
	kill(t, w)
	start(t, w)
	wantNothingAlive(t)
	r := ended(t, w, pr)
	wantRun(t, w, pr.Head(), "success")
	if n := count(r, receipt.Claimed); n < 2 {
		t.Errorf("%d claims, want a second one after the kill; receipt: %v", n, kinds(r))
	}
}

// Invariant 9: what was staged for a head that has moved since is never sent.
func TestKillBetweenStagingAndPublicationWhileTheHeadMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	killed := make(chan error, 1)
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.Before{Do: func(context.Context) error {
		err := w.Controller.Kill()
		killed <- err
		return errors.Join(errKilled, err)
	}}})
	pr := open(t, w, "pass")
	old := pr.Head()
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if _, err := pr.Push(t.Context(), forgesim.Change{Files: behave("block")}); err != nil {
		t.Fatal(err)
	}
	start(t, w)
	r := ended(t, w, pr)
	if end, _ := world.Find(r, receipt.Ended); end.Reason != fencepost.ReasonSuperseded {
		t.Errorf("ended with %q, want superseded; receipt: %v", end.Reason, kinds(r))
	}
	wantNoRun(t, w, old)
	if n := count(r, receipt.Ran); n != 1 {
		t.Errorf("%d runs, want one: after staging there is never another (invariant 6)", n)
	}
	awaitNewHead(t, w, pr)
}

// awaitNewHead has the forge deliver what it could not while the controller
// was down, and waits for the new head's result.
func awaitNewHead(t *testing.T, w *world.World, pr *forgesim.PullRequest) {
	t.Helper()
	for _, d := range w.Forge.Deliveries() {
		if d.StatusCode/100 != 2 {
			if err := w.Forge.Redeliver(d.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitRuns(t, w, pr.Head(), 1)
	wantRun(t, w, pr.Head(), "failure")
}

// A key that is revoked between receipt and work: the delivery never becomes
// work, and the provider is asked for it again, signed with a key that holds.
func TestARevokedKeyBetweenReceiptAndWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{YAML: "healing: {interval: 1s, grace: 1s, patience: 1s}\n"})
	killed := make(chan error, 1)
	w.Forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/pulls/{pull_number}", Effect: forgesim.Before{Do: func(context.Context) error {
		err := w.Controller.Kill()
		killed <- err
		return errors.Join(errKilled, err)
	}}})
	pr := open(t, w, "pass")
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	w.Forge.Calm()
	const next = "another secret of enough bytes, for the next quarter"
	rewrite(t, w.ConfigFile, "{id: "+world.Anchor+",", "{id: next,")
	if err := os.WriteFile(strings.TrimSuffix(w.ConfigFile, "fencepost.yaml")+"secrets/webhook", []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Forge.App().SetHook(w.HookURL, []byte(next))
	start(t, w)
	refused := waitFor(t, w, pr, receipt.Refused)
	if refused.Reason != fencepost.ReasonRevoked {
		t.Errorf("refused with %q, want revoked", refused.Reason)
	}
	awaitRuns(t, w, pr.Head(), 1)
	wantRun(t, w, pr.Head(), "success")
}

func rewrite(t *testing.T, name, from, to string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(text), from, to)
	if changed == string(text) {
		t.Fatalf("%s holds no %q", name, from)
	}
	if err := os.WriteFile(name, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SIGHUP takes over keys while requests come in, and drops none of them.
func TestReloadOfKeysDropsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	const next = "another secret of enough bytes, for the next quarter"
	secrets := strings.TrimSuffix(w.ConfigFile, "fencepost.yaml") + "secrets/"
	if err := os.WriteFile(secrets+"next", []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	rewrite(t, w.ConfigFile, "  acme:\n", "  acme:\n    - {id: next, secret: \"file:secrets/next\"}\n")
	first := open(t, w, "pass 1")
	if err := w.Controller.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	ended(t, w, first)
	// From here on GitHub signs with the new secret alone.
	if _, err := world.Await(t.Context(), endWithin, func() (struct{}, bool, error) {
		text, err := os.ReadFile(w.Controller.Log)
		return struct{}{}, strings.Contains(string(text), "keys were reloaded"), err
	}); err != nil {
		t.Fatal(err)
	}
	w.Forge.App().SetHook(w.HookURL, []byte(next))
	second := open(t, w, "pass 2")
	r := ended(t, w, second)
	if received, _ := world.Find(r, receipt.Received); received.Anchor != "next" {
		t.Errorf("authenticated by %q, want next", received.Anchor)
	}
	for _, d := range w.Forge.Deliveries() {
		if d.StatusCode/100 != 2 {
			t.Errorf("a delivery was answered %d", d.StatusCode)
		}
	}
}

// SIGTERM in the middle: what is under way is finished within its drain time,
// and the controller ends with 0.
func TestSIGTERMFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	pr := open(t, w, "slow 1s")
	waitFor(t, w, pr, receipt.Fetched)
	began := time.Now()
	if err := w.Controller.Stop(); err != nil {
		t.Fatal(err)
	}
	wantRun(t, w, pr.Head(), "success")
	t.Logf("drained within %s", time.Since(began).Round(time.Millisecond))
}
