package e2e

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// unprivileged is whom permissions hold for: root's processes run as nobody.
func unprivileged() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// handOver gives what the controllers of a field need to those whom they run
// as.
func handOver(t *testing.T, f *world.Field) {
	t.Helper()
	if f.Attr == nil || f.Attr.Credential == nil {
		return
	}
	uid, gid := int(f.Attr.Credential.Uid), int(f.Attr.Credential.Gid)
	// The test's directory, and that of all its directories, are the owner's.
	for _, dir := range []string{filepath.Dir(f.Dir), f.Dir} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for i := range f.Controllers {
		if err := os.Chown(f.ConfigFile(i), uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"secrets", "served"} {
		err := filepath.WalkDir(filepath.Join(f.Dir, name), func(name string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chown(name, uid, gid))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Invariant 14: through every failure that can be brought about, readers see
// the last good content, whole, and then the next.
func TestLastGoodContentStaysThroughEveryFailure(t *testing.T) {
	t.Parallel()
	f := fallowField(t, handbook(world.FieldConfig{
		Attr:    unprivileged(),
		Timings: strings.Replace(swift, "lease: 4s, renew: 1s", "lease: 2s, renew: 500ms", 1),
		Sources: []world.FieldSource{{
			Key: "handbook", Repository: "handbook", YAML: "    fetch: {file: 64KiB}\n",
		}},
	}))
	handOver(t, f)
	c := f.Controllers[0]
	restart := func(t *testing.T) {
		t.Helper()
		if _, err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	restart(t)
	l, r := lookInto(t, f), watchHandbook(t, f)
	repository := f.Repositories["handbook"]
	good := repository.Ref("refs/heads/main")
	l.awaitApplied("handbook", good)
	number := 0
	// next pushes the next edition and waits until it is served.
	next := func(t *testing.T) {
		t.Helper()
		number++
		good = r.push(t, f, number)
		l := ledger{t: t, db: l.db, rows: l.rows}
		l.awaitApplied("handbook", good)
	}

	for _, tc := range []struct {
		name string
		do   func(t *testing.T, l ledger)
	}{
		{"the provider is away while the head moves", func(t *testing.T, l ledger) {
			f.Forge.SetDown(true)
			number++
			good = r.push(t, f, number)
			l.awaitAlert("handbook", source.AlertProvider, true)
			f.Forge.SetDown(false)
			l.awaitApplied("handbook", good)
			l.awaitAlert("handbook", source.AlertProvider, false)
		}},
		{"a server answers with yesterday's head", func(t *testing.T, l ledger) {
			frozen := repository.FreezeRefs()
			began := time.Now()
			number++
			good = r.push(t, f, number)
			l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonHeadContradiction)
			l.awaitAlert("handbook", source.AlertHeadContradiction, true)
			frozen.End()
			l.awaitApplied("handbook", good)
			l.awaitAlert("handbook", source.AlertHeadContradiction, false)
		}},
		{"a forced push is refused", func(t *testing.T, l ledger) {
			began := time.Now()
			pushTo(t, f, forgesim.Push{Onto: parentOf(t, f, good), Change: forgesim.Change{Files: map[string]string{"README.md": "forced\n"}}})
			l.awaitAlert("handbook", source.AlertHeadContradiction, true)
			for _, run := range l.runs("handbook") {
				if run.QueuedAt.After(began) && run.Status == source.Complete {
					t.Errorf("run %s is complete", run.ID)
				}
			}
			back := pushTo(t, f, forgesim.Push{To: good})
			l.awaitApplied("handbook", back)
		}},
		{"the branch is deleted", func(t *testing.T, l ledger) {
			if err := repository.DeleteBranch(t.Context(), "main"); err != nil {
				t.Fatal(err)
			}
			l.awaitAlert("handbook", source.AlertProvider, true)
			l.awaitApplied("handbook", pushTo(t, f, forgesim.Push{Branch: "main", To: good}))
			l.awaitAlert("handbook", source.AlertProvider, false)
		}},
		{"a file is larger than the budget", func(t *testing.T, l ledger) {
			began := time.Now()
			pushTo(t, f, forgesim.Push{Change: forgesim.Change{Files: map[string]string{"large": strings.Repeat("0123456789abcde\n", 8<<10)}}})
			run := l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonContent)
			if run.Detail != "file_bytes" {
				t.Errorf("the run failed for %q, want the budget's name", run.Detail)
			}
			l.awaitAlert("handbook", source.AlertRunFailed, true)
			wantServed(t, f, "handbook", good)
			number++
			// The next one must not hold it any more.
			r.know(editionTree(number))
			good = pushTo(t, f, forgesim.Push{Change: forgesim.Change{
				Files: edition(number), Modes: map[string]string{"bin/run": "100755"}, Delete: []string{"large"},
			}})
			l.awaitApplied("handbook", good)
			l.awaitAlert("handbook", source.AlertRunFailed, false)
		}},
		{"the sink's directory is read-only", func(t *testing.T, l ledger) {
			parent := filepath.Dir(f.Served("handbook"))
			holding := filepath.Join(parent, ".handbook.fencepost")
			shut(t, holding, parent)
			began := time.Now()
			number++
			good = r.push(t, f, number)
			run := l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonUnavailable)
			if run.Detail == "" {
				t.Error("the run does not say what failed")
			}
			l.awaitAlert("handbook", source.AlertRetriesExhausted, true)
			ajar(t, holding, parent)
			l.awaitApplied("handbook", good)
			l.awaitAlert("handbook", source.AlertRetriesExhausted, false)
		}},
		{"the disk is nearly full", func(t *testing.T, l ledger) {
			if err := c.Stop(); err != nil {
				t.Fatal(err)
			}
			const fits, full = "path: ", "reserve: 16TiB, path: "
			rewrite(t, f.ConfigFile(0), fits, full)
			restart(t)
			began := time.Now()
			number++
			good = r.push(t, f, number)
			if run := l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonFull); run.Detail != "room" {
				t.Errorf("the run failed for %q, want room", run.Detail)
			}
			if err := c.Stop(); err != nil {
				t.Fatal(err)
			}
			rewrite(t, f.ConfigFile(0), full, fits)
			restart(t)
			l.awaitApplied("handbook", good)
		}},
		{"killed at each request of a run", func(t *testing.T, l ledger) {
			const requests = 4 // identity, look, capabilities and content
			for n := range 2 * requests {
				killed := make(chan error, 1)
				do := func(context.Context) error {
					err := c.Kill()
					killed <- err
					return errors.Join(errKilled, err)
				}
				var effect forgesim.Effect = forgesim.Before{Do: do}
				if n%2 == 1 {
					effect = forgesim.After{Do: do}
				}
				f.Forge.Inject(forgesim.Fault{Skip: n / 2, Effect: effect})
				number++
				good = r.push(t, f, number)
				if err := <-killed; err != nil {
					t.Fatal(err)
				}
				killedAt := time.Now()
				restart(t)
				l.awaitApplied("handbook", good)
				t.Logf("killed at request %d, applied %s later", n/2+1, time.Since(killedAt).Round(time.Millisecond))
			}
		}},
		{"killed while the sink takes it", func(t *testing.T, l ledger) {
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 4 {
				after := time.Duration(rng.Int64N(int64(60 * time.Millisecond)))
				fetched := make(chan struct{}, 8)
				f.Forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Times: 8, Effect: forgesim.After{Do: func(context.Context) error {
					fetched <- struct{}{}
					return nil
				}}})
				number++
				good = r.push(t, f, number)
				<-fetched // the look at the head
				<-fetched // the content, or a look by the reconciler
				time.Sleep(after)
				f.Forge.Calm()
				if err := c.Kill(); err != nil {
					t.Fatal(err)
				}
				restart(t)
				l.awaitApplied("handbook", good)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		}},
	} {
		if !t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			tc.do(t, ledger{t: t, db: l.db, rows: l.rows})
			wantServed(t, f, "handbook", good)
			t.Logf("%s", time.Since(began).Round(time.Millisecond))
		}) {
			break
		}
		next(t)
	}
	l.wantSound()
	r.finish(t, f, good)
}

func parentOf(t *testing.T, f *world.Field, commit string) string {
	t.Helper()
	return strings.TrimSpace(git(t, f.Repositories["handbook"].GitDir(), "rev-parse", commit+"^"))
}

// shut lets nobody write in directories; ajar lets their owner again.
func shut(t *testing.T, dirs ...string) { t.Helper(); chmod(t, 0o555, dirs) }
func ajar(t *testing.T, dirs ...string) { t.Helper(); chmod(t, 0o755, dirs) }
func chmod(t *testing.T, mode fs.FileMode, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
}
