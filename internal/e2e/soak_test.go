package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// fromEnv is a number that a longer round sets, as `make soak` does.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number above 0", name, text)
	}
	return n
}

// Invariants 3 and 7, for real: deliveries come in from many senders while the
// controller is killed again and again. Each one that was answered accepted or
// replayed ends in its one result; none is published twice.
func TestNothingAcknowledgedIsLostAndNothingIsPublishedTwice(t *testing.T) {
	t.Parallel()
	deliveries, kills := fromEnv(t, "FENCEPOST_SOAK_DELIVERIES", 40), fromEnv(t, "FENCEPOST_SOAK_KILLS", 3)
	// An evaluation costs about a dozen requests: at GitHub's 5,000 an hour, the
	// longer round would wait for the next hour, and rightly.
	w := newWorld(t, world.Config{Manual: true, RateLimit: 100 * deliveries, YAML: "provider: {write_interval: 0s}\nwork: {workers: 8}\nrunner: {concurrent: 4}\n"})
	requests := openMany(t, w, deliveries)

	var answered atomic.Int64
	acknowledged := make([]bool, len(requests))
	next := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for i := range next {
				acknowledged[i] = send(t, w, requests[i].delivery)
				answered.Add(1)
			}
		})
	}
	for i := range requests {
		if due := (i + 1) * (kills + 1) / len(requests); due > i*(kills+1)/len(requests) && due <= kills {
			killAndStart(t, w)
		}
		next <- i
	}
	close(next)
	senders.Wait()

	lost, twice, taken := 0, 0, 0
	for i, r := range requests {
		if acknowledged[i] {
			taken++
			if _, err := world.Await(t.Context(), 10*time.Minute, func() (struct{}, bool, error) {
				return struct{}{}, len(w.Repository.CheckRuns(r.pr.Head())) > 0, nil
			}); err != nil {
				lost++
				t.Errorf("request #%d was acknowledged and has no result: %v", r.pr.Number(), err)
			}
		}
	}
	for _, r := range requests {
		if n := len(w.Repository.CheckRuns(r.pr.Head())); n > 1 {
			twice++
			t.Errorf("request #%d has %d Check Runs", r.pr.Number(), n)
		}
	}
	if taken == 0 {
		t.Error("no delivery was acknowledged at all")
	}
	t.Logf("%d deliveries, %d kills: %d acknowledged, %d of them lost, %d published twice; %d create calls",
		len(requests), kills, taken, lost, twice, w.Forge.Count(createRun))
}

// killAndStart lets no sender notice more than a closed port.
func killAndStart(t *testing.T, w *world.World) {
	kill(t, w)
	start(t, w)
}

// A signed request and the pull request that it is about.
type signed struct {
	pr       *forgesim.PullRequest
	delivery forgesim.Delivery
}

// openMany opens requests and keeps their deliveries from being sent.
func openMany(t *testing.T, w *world.World, n int) []signed {
	t.Helper()
	all := make([]signed, n)
	for i := range all {
		pr, err := w.Repository.OpenPullRequest(t.Context(), forgesim.OpenPull{
			Head:   fmt.Sprintf("soak-%d", i),
			Change: forgesim.Change{Files: map[string]string{"behaviour": "pass\n", "n": strconv.Itoa(i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		all[i].pr = pr
		for _, d := range w.Forge.TakeOutbox() {
			if d.Event == "pull_request" {
				all[i].delivery = d
			}
		}
	}
	return all
}

// send posts a delivery until it is answered, a few times, and reports whether
// it was answered 2xx. Between two controllers there is none to answer.
func send(t *testing.T, w *world.World, d forgesim.Delivery) bool {
	for try := range 200 {
		ok, final := sendOnce(t.Context(), t, w, d)
		if ok || final {
			return ok
		}
		if try > 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.Context().Done():
				return false
			}
		}
	}
	return false
}

// sendOnce reports whether a delivery was answered 2xx, and whether it was
// answered otherwise for good.
func sendOnce(ctx context.Context, t *testing.T, w *world.World, d forgesim.Delivery) (ok, final bool) {
	return sendOnceTo(ctx, t, w, w.HookURL, d)
}

// sendOnceTo is sendOnce to the controller of a URL.
func sendOnceTo(ctx context.Context, t *testing.T, w *world.World, url string, d forgesim.Delivery) (ok, final bool) {
	req, err := w.Forge.Request(ctx, d, url)
	if err != nil {
		t.Error(err)
		return false, true
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return false, false // the controller is down, or went down
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		// The status was the promise: what follows it is lost with the process.
		return resp.StatusCode/100 == 2, false
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return false, false
	}
	if resp.StatusCode/100 != 2 {
		t.Errorf("a delivery was answered %d %s", resp.StatusCode, body.String())
		return false, true
	}
	return true, true
}
