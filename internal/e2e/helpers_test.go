package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// wantNothingAlive looks through every process of the machine for one of the
// hostile check's. The runner's programs have the name of the copy they were
// started from, so their memory maps tell: the digest of the mapped file is
// the program's.
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
