package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// waitFor waits until a request's delivery has come to an event.
func waitFor(t *testing.T, w *world.World, pr *forgesim.PullRequest, kind receipt.Kind) receipt.Event {
	t.Helper()
	e, err := world.Await(t.Context(), endWithin, func() (receipt.Event, bool, error) {
		r, err := w.ReceiptOf(t.Context(), pr)
		e, ok := world.Find(r, kind)
		return e, ok, err
	})
	if err != nil {
		t.Fatalf("%s of request #%d: %v", kind, pr.Number(), err)
	}
	return e
}

// settled waits until the controller has looked for missed deliveries, as it
// does at each start: its requests are not the evaluation's.
func settled(t *testing.T, w *world.World, looks int) {
	t.Helper()
	if _, err := world.Await(t.Context(), endWithin, func() (struct{}, bool, error) {
		return struct{}{}, w.Forge.Count("GET /repos/{owner}/{repo}/pulls") >= looks, nil
	}); err != nil {
		t.Fatalf("look %d for missed deliveries: %v", looks, err)
	}
}

// awaitRuns waits until a commit has n Check Runs.
func awaitRuns(t *testing.T, w *world.World, head string, n int) []forgesim.CheckRun {
	t.Helper()
	runs, err := world.Await(t.Context(), endWithin, func() ([]forgesim.CheckRun, bool, error) {
		runs := w.Repository.CheckRuns(head)
		return runs, len(runs) >= n, nil
	})
	if err != nil {
		t.Fatalf("%d Check Runs on %.7s: %v", n, head, err)
	}
	return runs
}

// get reads a page of the operations listener.
func get(t *testing.T, w *world.World, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.OpsURL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(resp.Body, 8<<20)); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

// wantAlert waits for an open alert of a code.
func wantAlert(t *testing.T, w *world.World, code string) {
	t.Helper()
	want := fmt.Sprintf("fencepost_alerts_open{code=%q} 1", code)
	if _, err := world.Await(t.Context(), endWithin, func() (struct{}, bool, error) {
		_, body := get(t, w, "/metrics")
		return struct{}{}, strings.Contains(body, want), nil
	}); err != nil {
		t.Errorf("alert %s is not open: %v", code, err)
	}
}

// wantNothingAlive looks through every process of the machine for one of the
// hostile check's: they have "linger" as an argument.
func wantNothingAlive(t *testing.T) {
	t.Helper()
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes: %v, %v", pids, err)
	}
	for _, dir := range pids {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it ended meanwhile
		}
		if bytes.Contains(args, []byte("linger")) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			t.Errorf("process %d of a run is still alive: %s (%v)", pid, printable(args), err)
		}
	}
}

func printable(args []byte) string {
	return fmt.Sprintf("%q", bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
}
