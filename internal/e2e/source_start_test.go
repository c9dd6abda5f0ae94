package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A sink that can't work is refused at start, with what is wrong and the mend,
// and without a path of the host.
func TestASinkThatCanNotWorkIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// place makes the place and returns the sink's path.
		place func(t *testing.T, f *world.Field) string
		want  string
	}{
		{"its directory is missing", func(_ *testing.T, f *world.Field) string {
			return filepath.Join(f.Dir, "served", "nowhere", "site")
		}, "does not exist: make it"},
		{"its directory is not writable", func(t *testing.T, f *world.Field) string {
			shut(t, filepath.Join(f.Dir, "served"))
			return f.Served("handbook")
		}, "is not writable: give it to the user of this process"},
		{"it is in the data directory", func(_ *testing.T, f *world.Field) string {
			return filepath.Join(f.DataDir(0), "site")
		}, "data_dir"},
		{"something else stands there", func(t *testing.T, f *world.Field) string {
			if err := os.WriteFile(f.Served("handbook"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			return f.Served("handbook")
		}, "something that Fencepost did not make stands at the sink's path: move it away"},
		{"its directory is a file", func(t *testing.T, f *world.Field) string {
			name := filepath.Join(f.Dir, "served", "file")
			if err := os.WriteFile(name, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(name, "site")
		}, "name a path in a directory"},
		{"its file system keeps nothing", func(_ *testing.T, _ *world.Field) string {
			return "/proc/site"
		}, "use a directory on a local"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := fallowField(t, handbook(world.FieldConfig{Attr: unprivileged()}))
			handOver(t, f)
			if path := tc.place(t, f); path != f.Served("handbook") {
				rewrite(t, f.ConfigFile(0), `"`+f.Served("handbook")+`"`, `"`+path+`"`)
			}
			code, said := refusedStart(t, f)
			if code == 0 || !strings.Contains(said, "handbook.sink") || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, said %q; want it to name the sink and to say %q", code, said, tc.want)
			}
			if line := lastLine(said); strings.Contains(line, f.Dir) && !strings.HasPrefix(line, f.ConfigFile(0)) {
				t.Errorf("a path of the host stands in %q", line)
			}
		})
	}
}

// The place of another source is not taken over.
func TestASinkOfAnotherSourceIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	f := newField(t, handbook(world.FieldConfig{}))
	l := lookInto(t, f)
	commit := f.Repositories["handbook"].Ref("refs/heads/main")
	l.awaitApplied("handbook", commit)
	if err := f.Controllers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	id := f.SourceID("handbook").String()
	rewrite(t, f.ConfigFile(0), id, strings.Replace(id, id[:8], "11111111", 1))
	code, said := refusedStart(t, f)
	if want := "belongs to another source: give each source a path of its own"; code == 0 || !strings.Contains(said, want) {
		t.Errorf("exit code %d, said %q; want %q", code, said, want)
	}
	wantServed(t, f, "handbook", commit)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// refusedStart runs serve until it gives up.
func refusedStart(t *testing.T, f *world.Field) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), convergeWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, fencepostBinary, "serve", "--config", f.ConfigFile(0))
	cmd.SysProcAttr = f.Attr
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), text.String()
}

// Work that was asked for under an old policy never applies: here of another
// branch, and it was waiting when the policy changed.
func TestQueuedWorkOfAnOldPolicyNeverApplies(t *testing.T) {
	t.Parallel()
	f := newField(t, handbook(world.FieldConfig{Timings: strings.Replace(swift, "backoff: 200ms", "backoff: 2s", 1)}))
	l := lookInto(t, f)
	first := f.Repositories["handbook"].Ref("refs/heads/main")
	l.awaitApplied("handbook", first)
	old := l.state("handbook").Revision
	release := pushTo(t, f, forgesim.Push{Branch: "release", Change: forgesim.Change{Files: map[string]string{"README.md": "released\n"}}})

	// The run of this push meets an outage, and waits for its next attempt.
	f.Forge.Inject(forgesim.Fault{Times: -1, Effect: forgesim.Fail{Code: 502}})
	began := time.Now()
	abandoned := pushEdition(t, f, 1)
	await(t, "a run that waits", func() bool {
		run := l.state("handbook").Run
		return run != nil && run.QueuedAt.After(began) && run.Status == source.Queued && run.Attempts == 1
	})
	waiting := l.state("handbook").Run.ID
	if err := f.Controllers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	rewrite(t, f.ConfigFile(0), "ref: refs/heads/main", "ref: refs/heads/release")
	f.Forge.Calm()
	if _, err := f.Controllers[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	state := l.awaitApplied("handbook", release)
	if state.Revision == old {
		t.Error("the revision is the old one")
	}
	for _, run := range l.runs("handbook") {
		switch {
		case run.ID == waiting && (run.Status != source.Coalesced || run.Reason != fencepost.ReasonSuperseded):
			t.Errorf("the run that waited ended %s (%s), want coalesced (superseded)", run.Status, run.Reason)
		case run.Revision == old && run.Head.String() == abandoned:
			t.Errorf("run %s of the old policy took %s", run.ID, abandoned)
		}
	}
	wantServed(t, f, "handbook", release)
	l.wantSound()
}

// A source that is switched off answers, and its content stays; switched on
// again it catches up.
func TestADisabledSourceStaysAsItIs(t *testing.T) {
	t.Parallel()
	f := newField(t, handbook(world.FieldConfig{Manual: true, Sources: []world.FieldSource{{
		Key: "handbook", Repository: "handbook", YAML: "    enabled: true\n",
	}}}))
	l := lookInto(t, f)
	first := f.Repositories["handbook"].Ref("refs/heads/main")
	l.awaitApplied("handbook", first)
	again := func(from, to string) {
		if err := f.Controllers[0].Stop(); err != nil {
			t.Fatal(err)
		}
		rewrite(t, f.ConfigFile(0), from, to)
		if _, err := f.Controllers[0].Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	again("enabled: true", "enabled: false")
	runs := len(l.runs("handbook"))
	second := pushEdition(t, f, 1)
	for _, a := range deliverTo(t, f, f.HookURL(0, "handbook")) {
		t.Logf("a disabled source answers %s", a)
		if a.Outcome == "rejected" {
			t.Errorf("answered %s", a)
		}
	}
	// Longer than looks and watchdog need to see it, if they looked.
	time.Sleep(3 * time.Second)
	for _, run := range l.runs("handbook")[:len(l.runs("handbook"))-runs] {
		if run.Status == source.Running || run.Status == source.Complete {
			t.Errorf("run %s is %s", run.ID, run.Status)
		}
	}
	wantServed(t, f, "handbook", first)
	again("enabled: false", "enabled: true")
	l.awaitApplied("handbook", second)
	wantServed(t, f, "handbook", second)
	l.wantSound()
}

// SIGTERM in the middle of a run: nothing is lost, and after the restart the
// run goes on at once; its lease would have held for longer than the test
// waits.
func TestARunGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	timings := strings.NewReplacer("lease: 4s", "lease: 5m", "observe: 5s", "observe: 60s", "reconcile: 2s", "reconcile: 5m", "target: 5m", "target: 14m",
		"alert_after: 30s", "alert_after: 8m").Replace(swift)
	f := newField(t, handbook(world.FieldConfig{Timings: timings, YAML: "source_work: {batch: 16, drain: 100ms}\n"}))
	l := lookInto(t, f)
	r := watchHandbook(t, f)
	l.awaitQuiet("handbook")
	held := make(chan struct{})
	f.Forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Effect: forgesim.Before{Do: func(ctx context.Context) error {
		close(held)
		<-ctx.Done() // until the controller gives the request up
		return ctx.Err()
	}}})
	commit := r.push(t, f, 1)
	<-held
	run := l.state("handbook").Run
	if run == nil {
		t.Fatalf("no run is open: %s", l.story("handbook"))
	}
	if err := f.Controllers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	s := l.state("handbook")
	if s.Run == nil || s.Run.ID != run.ID || s.Run.Status != source.Queued || !s.Lock.Free() {
		t.Fatalf("after the stop the run is %+v, the lock %+v; want the run queued and the lock free", s.Run, s.Lock)
	}
	if _, err := f.Controllers[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l.awaitApplied("handbook", commit)
	if runs := l.runs("handbook"); runs[0].ID != run.ID || runs[0].Status != source.Complete || runs[0].Attempts != 1 {
		t.Errorf("want the same run complete, with the stopped attempt not counted: %s", l.story("handbook"))
	}
	r.finish(t, f, commit)
	l.wantSound()
}
