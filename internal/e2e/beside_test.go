package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// newPair is a world with two controllers over one data directory.
func newPair(t *testing.T) (*world.World, *world.Controller) {
	t.Helper()
	w := newWorld(t, world.Config{Manual: true, YAML: "provider: {write_interval: 0s}\n"})
	second, err := w.Beside(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			dumpLog(t, second.Log)
		}
	})
	return w, second
}

// held opens a request and keeps its delivery from being sent.
func held(t *testing.T, w *world.World, what string) signed {
	t.Helper()
	s := signed{pr: open(t, w, what)}
	for _, d := range w.Forge.TakeOutbox() {
		if d.Event == "pull_request" {
			s.delivery = d
		}
	}
	return s
}

// give sends a delivery to one controller and returns its answer.
func give(t *testing.T, w *world.World, to *world.Controller, d forgesim.Delivery) world.Answer {
	t.Helper()
	req, err := w.Forge.Request(t.Context(), d, to.HookURL)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := answerTo(t, w.Client, req)
	return a
}

// answerTo sends a request and returns what ingress answered.
func answerTo(t *testing.T, client *http.Client, req *http.Request) (a world.Answer, status int) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if a, err = world.ReadAnswer(text.Bytes()); err != nil {
		t.Fatal(err)
	}
	return a, resp.StatusCode
}

// untilEvent waits until a delivery has come to an event.
func untilEvent(t *testing.T, w *world.World, a world.Answer, kind receipt.Kind) receipt.Receipt {
	t.Helper()
	r, err := world.Await(t.Context(), endWithin, func() (receipt.Receipt, bool, error) {
		r, err := w.Receipt(t.Context(), a.Delivery)
		_, ok := world.Find(r, kind)
		return r, ok, err
	})
	if err != nil {
		t.Fatalf("%s of %s: %v; its receipt so far: %v", kind, a.Delivery, err, kinds(r))
	}
	return r
}

// DESIGN §5: several processes on one host share a data directory. Whichever
// takes a delivery, and however often it is sent to both, it has one result.
func TestTwoControllersOverOneDataDirectory(t *testing.T) {
	t.Parallel()
	w, second := newPair(t)
	both := []*world.Controller{w.Controller, second}
	const requests = 6
	for n := range requests {
		s := held(t, w, fmt.Sprintf("pass %d", n))
		first, other := both[n%2], both[1-n%2]
		a := give(t, w, first, s.delivery)
		if a.Outcome != "accepted" {
			t.Fatalf("answered %s, want accepted", a)
		}
		if n%3 == 0 {
			// The other one learns of it while it may still be under way.
			if b := give(t, w, other, s.delivery); b.Delivery != a.Delivery || b.Outcome != "accepted" && b.Outcome != "replayed" {
				t.Errorf("the other controller answered %s, want the same delivery as %s", b, a)
			}
		}
		untilEvent(t, w, a, receipt.Ended)
		if b := give(t, w, other, s.delivery); b.Outcome != "replayed" || b.Delivery != a.Delivery {
			t.Errorf("once it had ended the other controller answered %s, want replayed %s", b, a.Delivery)
		}
		wantRun(t, w, s.pr.Head(), "success")
	}
	if n := len(w.Repository.CheckRuns("")); n != requests {
		t.Errorf("%d Check Runs for %d requests", n, requests)
	}
}

// What a killed process had recorded, begun or not, the other one takes over,
// without a restart of anything.
func TestALivingControllerAdoptsTheWorkOfADeadOne(t *testing.T) {
	t.Parallel()
	w, second := newPair(t)
	// More than it works on at once: some are running, some only recorded.
	var all []signed
	var answers []world.Answer
	for range 6 {
		s := held(t, w, "slow 1s")
		a := give(t, w, second, s.delivery)
		if a.Outcome != "accepted" {
			t.Fatalf("answered %s, want accepted", a)
		}
		all, answers = append(all, s), append(answers, a)
	}
	untilEvent(t, w, answers[0], receipt.Claimed)
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		untilEvent(t, w, answers[i], receipt.Ended)
		wantRun(t, w, s.pr.Head(), "success")
	}
	if n := len(w.Repository.CheckRuns("")); n != len(all) {
		t.Errorf("%d Check Runs for %d requests", n, len(all))
	}
	wantNothingAlive(t)
}
