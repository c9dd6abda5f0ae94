package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/runner/internal/procs"
)

func TestStagesAreListedWhileTheyLive(t *testing.T) {
	t.Parallel()
	ws, _ := openScratch(t, filepath.Join(t.TempDir(), "scratch"))
	defer ws.close()
	list, err := ws.openStages()
	if err != nil {
		t.Fatal(err)
	}
	defer list.file.Close()
	boot := "01234567-89ab-cdef-0123-456789abcdef"
	ids := []procs.Identity{{PID: 1, Start: 2, Boot: boot}, {PID: 4194304, Start: 1 << 63, Boot: boot}, {PID: 3, Start: 4, Boot: boot}}
	var slots []*slot
	for _, id := range ids {
		s, err := list.enter(id)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	path := filepath.Join(ws.dir, stagesFile)
	want := func(ids ...procs.Identity) {
		t.Helper()
		got, err := readStages(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Errorf("listed (-want +got):\n%s", diff)
		}
	}
	want(ids...)
	if err := slots[1].leave(); err != nil {
		t.Fatal(err)
	}
	want(ids[0], ids[2])
	// The line is used again.
	if _, err := list.enter(ids[1]); err != nil {
		t.Fatal(err)
	}
	want(ids...)
	// A torn line names nothing.
	if err := os.Truncate(path, 3*stageLine-30); err != nil {
		t.Fatal(err)
	}
	want(ids[0], ids[1])
}

// A stage that is alive although its runner is dead is waited for and then
// killed; one whose number was used again is not.
func TestSweepKillsByIdentity(t *testing.T) {
	t.Parallel()
	boot, err := procs.BootID()
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, procs.Identity) {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := procs.Identify(cmd.Process.Pid, boot)
		if err != nil {
			t.Fatal(err)
		}
		return cmd, id
	}
	left, leftID := start()
	spared, sparedID := start()
	sparedID.Start++
	otherBoot := leftID
	otherBoot.PID, otherBoot.Boot = spared.Process.Pid, strings.Repeat("0", 36)

	scratch := filepath.Join(t.TempDir(), "scratch")
	dead, _ := openScratch(t, scratch)
	list, err := dead.openStages()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []procs.Identity{leftID, sparedID, otherBoot} {
		if _, err := list.enter(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	next, swept := openScratch(t, scratch)
	defer next.close()
	if swept.Runs != 3 || swept.Killed != 1 || swept.Err != nil {
		t.Errorf("swept %+v, want 3 runs and 1 killed", swept)
	}
	if err := left.Wait(); err == nil {
		t.Error("the leftover ended by itself")
	}
	if err := spared.Process.Kill(); err != nil {
		t.Errorf("the other process was killed too: %v", err)
	}
	_ = spared.Wait()
}
