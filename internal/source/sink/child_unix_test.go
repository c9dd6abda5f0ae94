//go:build unix

package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
)

const childVariable = "FENCEPOST_TEST_SINK_CHILD"

// An errand is what a child of a test does: apply one commit, and die by kill -9
// before the step with that number; 0 for none.
type errand struct {
	Path, URL, Commit string
	Fence             uint64
	Step              int64
}

// runChild does the errand of a child.
func runChild() (code int, child bool) {
	text := os.Getenv(childVariable)
	if text == "" {
		return 0, false
	}
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		// Nothing must be left running when the parent is gone.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = e.do(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func (e errand) do(ctx context.Context) error {
	commit, err := fencepost.ParseCommitID(e.Commit)
	if err != nil {
		return err
	}
	d, err := NewDirectory(DirectoryOptions{Source: testSource(), Path: e.Path, Now: time.Now, Reserve: 1, AllowVolatile: true})
	if err != nil {
		return err
	}
	d.fsys = func(dir string) durable.Linker { return &dying{Linker: durable.OSLinks(dir), at: e.Step} }
	place, err := d.Place(ctx)
	if err != nil {
		return err
	}
	checkout, err := fetch(ctx, e.URL, commit, place)
	if err != nil {
		return err
	}
	applied, err := d.Apply(ctx, source.Application{
		Hold: source.Hold{Fence: e.Fence}, Revision: testRevision(), Checkout: checkout, Guard: granted,
	})
	return errors.Join(err, applied.Leftover, d.Close())
}

// A dying file system kills its process before a step that changes something.
type dying struct {
	durable.Linker
	steps atomic.Int64
	at    int64
}

func (d *dying) step() {
	if d.steps.Add(1) == d.at {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {} // until the signal is there
	}
}

func (d *dying) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if flag&os.O_CREATE != 0 {
		d.step()
	}
	return d.Linker.OpenFile(name, flag, perm)
}

func (d *dying) Mkdir(name string, perm fs.FileMode) error {
	d.step()
	return d.Linker.Mkdir(name, perm)
}
func (d *dying) Rename(from, to string) error    { d.step(); return d.Linker.Rename(from, to) }
func (d *dying) Remove(name string) error        { d.step(); return d.Linker.Remove(name) }
func (d *dying) SyncDir(name string) error       { d.step(); return d.Linker.SyncDir(name) }
func (d *dying) Symlink(text, name string) error { d.step(); return d.Linker.Symlink(text, name) }

func (d *dying) OpenTree(name string) (durable.Tree, error) {
	t, err := d.Linker.OpenTree(name)
	return dyingTree{t, d}, err
}

type dyingTree struct {
	durable.Tree
	d *dying
}

func (t dyingTree) Sync() error { t.d.step(); return t.Tree.Sync() }

// send starts a child, waits for it, and reports whether it was killed.
func send(t *testing.T, e errand) (killed bool) {
	t.Helper()
	text, err := json.Marshal(e)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if status, is := exit.Sys().(syscall.WaitStatus); ok && is && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true
	}
	t.Fatalf("child: %v\n%s", err, out)
	return false
}

// TestKilledProcessesAreSeenByNoReader kills a real process before each step of
// an application, one step further each time, while somebody reads all the
// time.
func TestKilledProcessesAreSeenByNoReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	trees := []files{}
	var commits []fencepost.CommitID
	for n := range 2 {
		tree := files{}
		for i := range 30 {
			tree[fmt.Sprintf("d%d/f%d", i%3, i)] = fmt.Sprintf("%d in %d", i, n)
		}
		trees = append(trees, tree)
		commits = append(commits, b.repo.commit(t, tree))
	}
	b.apply(commits[0], 1)
	must(t, b.sink.Close())
	stop := make(chan struct{})
	var reader sync.WaitGroup
	var looks atomic.Int64
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				looks.Add(1)
				if !readsOneOf(t, b.path, trees) {
					return
				}
			}
		}
	})
	now := 0
	kills := 0
	for step := int64(1); ; step++ {
		next := 1 - now
		killed := send(t, errand{b.path, b.repo.url, commits[next].String(), uint64(step) + 1, step})
		if killed {
			kills++
		}
		switch {
		case cmp.Equal(served(t, b.path), trees[next]):
			now = next
		case !killed:
			t.Fatalf("step %d: the application ended well, and its tree is not served", step)
		}
		if !killed {
			break
		}
	}
	close(stop)
	reader.Wait()
	if kills < 12 || looks.Load() < 10 {
		t.Errorf("%d kills, %d looks: too few to say anything", kills, looks.Load())
	}
	if entries, err := os.ReadDir(filepath.Join(filepath.Dir(b.path), ".served.fencepost")); err != nil || len(entries) != 4 {
		t.Errorf("the holding place has %v, %v; want health, lock, state.json and trees", entries, err)
	}
}

// readsOneOf reads as a reader does: it resolves the link once, and must then
// find one tree, whole.
func readsOneOf(t *testing.T, path string, trees []files) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Errorf("a reader finds nothing: %v", err)
		return false
	}
	got := files{}
	err = filepath.WalkDir(real, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(real, at)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(at)
		got[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Errorf("a reader lost its tree: %v", err)
		return false
	}
	for _, tree := range trees {
		if cmp.Equal(tree, got) {
			return true
		}
	}
	t.Errorf("a reader found a mixed tree of %d files", len(got))
	return false
}
