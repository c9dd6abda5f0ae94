package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/trial"
)

// doclinks builds the check beside fencepost, as an installed pair stands. It
// returns where.
var doclinks = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(fencepostBinary), "doclinks")
	build := exec.Command("go", "build", "-o", program, "github.com/fencepost/fencepost/examples/checks/doclinks")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	if err != nil {
		return "", errors.New(string(text))
	}
	return program, nil
})

// try runs `fencepost try --json` and returns its steps and its summary. What
// it makes lies below the directory that it returns.
func try(t *testing.T, args ...string) (steps []trial.Step, summary trial.Summary, temp string) {
	t.Helper()
	if _, err := doclinks(); err != nil {
		t.Fatal(err)
	}
	temp = t.TempDir()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), fencepostBinary, append([]string{"try", "--json"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("try %v: %v\n%s%s", args, err, &errs, &out)
	}
	if errs.Len() > 0 {
		t.Errorf("try %v says on stderr: %s", args, &errs)
	}
	lines := json.NewDecoder(&out)
	for {
		var raw json.RawMessage
		err := lines.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return steps, summary, temp
		}
		if err != nil {
			t.Fatal(err)
		}
		var step trial.Step
		if err := json.Unmarshal(raw, &step); err != nil {
			t.Fatal(err)
		}
		if step.Name != "" {
			steps = append(steps, step)
			continue
		}
		if err := json.Unmarshal(raw, &summary); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTryTellsOfGiteaAndForgejo runs their story, which holds each of its steps
// against what the simulated instance shows and what its rule makes of that.
func TestTryTellsOfGiteaAndForgejo(t *testing.T) {
	for _, forge := range []trial.Forge{trial.ForgeGitea, trial.ForgeForgejo} {
		t.Run(string(forge), func(t *testing.T) {
			steps, got, temp := try(t, "--forge", string(forge))
			for _, step := range steps {
				if !step.OK {
					t.Errorf("step %s: %v", step.Name, step.Lines)
				}
			}
			got.Took = 0
			// Syncs: the first tree, the push, and what was missed.
			want := trial.Summary{OK: true, Forge: forge, Deliveries: 4, Replays: 2, ForgedRefused: 1, CheckRuns: 4, Kills: 2, SourceRuns: 3}
			if diff := cmp.Diff(want, got); diff != "" || len(steps) != 9 {
				t.Errorf("%d steps; summary (-want +got):\n%s", len(steps), diff)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestTryTellsOfGitLab runs its story, in which the real job waits for the real
// controller.
func TestTryTellsOfGitLab(t *testing.T) {
	t.Parallel()
	steps, got, temp := try(t, "--forge", string(trial.ForgeGitLab))
	for _, step := range steps {
		if !step.OK {
			t.Errorf("step %s: %v", step.Name, step.Lines)
		}
	}
	got.Took = 0
	// Jobs: passed, ahead, behind, behind again, blocked, through the crashes.
	// Syncs: the first tree, the push, and what was missed.
	want := trial.Summary{OK: true, Forge: trial.ForgeGitLab, Deliveries: 6, Replays: 2, ForgedRefused: 1, CheckRuns: 4, Kills: 2, SourceRuns: 3}
	if diff := cmp.Diff(want, got); diff != "" || len(steps) != 9 {
		t.Errorf("%d steps; summary (-want +got):\n%s", len(steps), diff)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// wantWholeTrial demands every step, and what they come to.
func wantWholeTrial(t *testing.T, steps []trial.Step, s trial.Summary) {
	t.Helper()
	var names []string
	for _, step := range steps {
		if !step.OK {
			t.Errorf("step %s failed: %v", step.Name, step.Lines)
		}
		names = append(names, step.Name)
	}
	if diff := cmp.Diff("forge serve gate replay forged block crash source burst missed outage", strings.Join(names, " ")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if s.BytesFetched == 0 || s.Took == 0 {
		t.Errorf("%d bytes fetched in %s, want some", s.BytesFetched, s.Took)
	}
	// The first tree, the push, the burst, what was missed, and what moved in
	// the outage; how many runs a burst is depends on the moment.
	if s.SourceRuns < 5 {
		t.Errorf("%d syncs of the source, want 5 or more", s.SourceRuns)
	}
	s.BytesFetched, s.Took, s.Kept, s.SourceRuns = 0, 0, "", 0
	want := trial.Summary{OK: true, Deliveries: 3, Replays: 1, ForgedRefused: 1, Runs: 3, CheckRuns: 3, Kills: 2}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestTryLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	steps, summary, temp := try(t)
	wantWholeTrial(t, steps, summary)
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 || summary.Kept != "" {
		t.Errorf("left %v, kept %q, %v; want nothing", left, summary.Kept, err)
	}
}

// With --repo another's repository is gated, and only read; with --keep all
// stays, and the other commands can look at it.
func TestTryOnARepositoryKept(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	if err := os.WriteFile(filepath.Join(repo, "README.md"), []byte("# Ours\n\nSee [below](#ours).\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "-q", "-b", "trunk")
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "one")
	before := git(t, repo, "rev-parse", "HEAD") + git(t, repo, "for-each-ref") + git(t, repo, "status", "--porcelain")

	steps, summary, temp := try(t, "--repo", repo, "--keep")
	wantWholeTrial(t, steps, summary)
	if after := git(t, repo, "rev-parse", "HEAD") + git(t, repo, "for-each-ref") + git(t, repo, "status", "--porcelain"); after != before {
		t.Errorf("the repository was changed: %s, before %s", after, before)
	}
	if filepath.Dir(summary.Kept) != temp {
		t.Fatalf("kept in %q, want a directory of %s", summary.Kept, temp)
	}
	out, err := exec.CommandContext(t.Context(), fencepostBinary, "deliveries", "list", "--config", filepath.Join(summary.Kept, "fencepost.yaml")).CombinedOutput()
	if n := strings.Count(string(out), "dlv_"); err != nil || n != summary.Deliveries {
		t.Errorf("%d deliveries are listed of what was kept, %v, want %d:\n%s", n, err, summary.Deliveries, out)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}
