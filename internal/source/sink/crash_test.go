package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/source"
)

const (
	crashName = "served"
	crashDir  = ".served.fencepost"
)

// crashTree is the content of application n; each has files of its own.
func crashTree(n uint64) files {
	return files{"a": fmt.Sprintf("a of %d", n), "d/b": fmt.Sprintf("b of %d", n), fmt.Sprintf("only-%d", n): ""}
}

// crashApply does with a place what Directory.apply does, on a disk that
// crashes: there, checkouts come from a fetch.
func crashApply(fsys durable.Linker, n uint64, guard func() error) (err error) {
	h, err := openHolding(fsys, crashName, testSource(), func(name string) error { return removeOn(fsys, name) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	from := path.Join(crashDir, ".gitfetch-0", fmt.Sprint(n))
	if err := crashCheckout(fsys, from, n); err != nil {
		return err
	}
	unlock, err := h.lock(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	l, err := h.list()
	if err != nil {
		return err
	}
	if _, err := raiseFence(h.root, testSource(), n, l.fence()); err != nil {
		return err
	}
	current, err := h.current()
	if err != nil {
		return err
	}
	if err := h.tidy(l, nil, current); err != nil {
		return err
	}
	next := kept{id: fmt.Sprintf("%016x-00000000", n), at: time.Unix(int64(n), 0), record: record{Fence: n}}
	if _, ok := l.find(next.id); ok {
		return nil // an attempt before this one did it
	}
	if err := h.adopt(from, next, func() error { return nil }); err != nil {
		return errors.Join(err, h.discard(next))
	}
	if err := h.publish(next.id, "", guard); err != nil {
		return err
	}
	if l, err = h.list(); err != nil {
		return err
	}
	_, gone := retention{keep: 1, now: time.Unix(int64(n), 0)}.split(l, next.id)
	return h.tidy(l, gone, next.id)
}

// crashCheckout writes files as a fetch does: nothing is synced.
func crashCheckout(fsys durable.FS, dir string, n uint64) error {
	if err := removeOn(fsys, dir); err != nil {
		return err
	}
	for _, d := range []string{path.Dir(dir), dir, path.Join(dir, "d")} {
		if err := fsys.Mkdir(d, durable.DirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for name, content := range crashTree(n) {
		f, err := fsys.OpenFile(path.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte(content), 0)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// removeOn is removeAll on such a disk, which has no link below trees.
func removeOn(fsys durable.FS, name string) error { return durable.RemoveAll(fsys, name) }

// newCrashDisk has the place, as makePlace makes it.
func newCrashDisk(t testing.TB) *crashfs.Disk {
	t.Helper()
	disk := crashfs.New(crashfs.Options{})
	p := disk.Process()
	must(t, durable.MkdirAll(p, path.Join(crashDir, treesName)))
	h, err := openHolding(p, crashName, testSource(), nil)
	must(t, err)
	must(t, h.close())
	return disk
}

// wantWhole requires that a reader finds all of one application's tree, of one
// from least to most, or nothing if least is 0.
func wantWhole(t testing.TB, what string, fsys durable.Linker, least, most uint64) {
	t.Helper()
	text, err := fsys.Readlink(crashName)
	if errors.Is(err, fs.ErrNotExist) && least == 0 {
		return
	}
	if err != nil {
		t.Fatalf("%s: read link: %v", what, err)
	}
	var n, zero uint64
	if _, err := fmt.Sscanf(path.Base(text), "%x-%x", &n, &zero); err != nil || n < least || n > most {
		t.Fatalf("%s: %s is served, want %d to %d", what, text, least, most)
	}
	want := crashTree(n)
	for name, content := range want {
		got, err := durable.ReadFile(fsys, path.Join(text, name), 1<<10)
		if err != nil || string(got) != content {
			t.Fatalf("%s: %s of %d is %q, %v, want %q", what, name, n, got, err, content)
		}
	}
	infos, err := fsys.ReadDir(text)
	must(t, err)
	if len(infos) != 3 {
		t.Fatalf("%s: %v is served, want 3 names", what, infos)
	}
}

// wantTrue requires that every record is of a tree that is there whole.
func wantTrue(t testing.TB, what string, fsys durable.Linker) {
	t.Helper()
	h, err := openHolding(fsys, crashName, testSource(), nil)
	must(t, err)
	l, err := h.list()
	must(t, err)
	for _, tree := range l.trees {
		for name, content := range crashTree(tree.Fence) {
			got, err := durable.ReadFile(fsys, path.Join(crashDir, treesName, tree.id, name), 1<<10)
			if err != nil || string(got) != content {
				t.Fatalf("%s: %s has a record, and %s is %q, %v", what, tree.id, name, got, err)
			}
		}
	}
	must(t, h.close())
}

// recovers requires that a later application goes well, and leaves nothing of
// what was before.
func recovers(t testing.TB, what string, disk *crashfs.Disk) {
	t.Helper()
	p := disk.Process()
	if err := crashApply(p, 9, func() error { return nil }); err != nil {
		t.Fatalf("%s: the next application: %v", what, err)
	}
	wantWhole(t, what+", next", p, 9, 9)
	infos, err := p.ReadDir(path.Join(crashDir, treesName))
	must(t, err)
	if len(infos) != 2 {
		t.Fatalf("%s: %v is left among the trees, want one tree with its record", what, infos)
	}
	if err := crashApply(p, 8, func() error { return nil }); !errors.Is(err, source.ErrLost) {
		t.Fatalf("%s: an older one: %v, want ErrLost", what, err)
	}
}

// run applies 1 to 3 and returns the last one that was acknowledged, and the
// last that was begun.
func run(fsys durable.Linker) (done, begun uint64) {
	for n := uint64(1); n <= 3; n++ {
		begun = n
		if crashApply(fsys, n, func() error { return nil }) != nil {
			return done, begun
		}
		done = n
	}
	return done, begun
}

// changingCalls are the calls of three applications after which something else
// may be found than before; between them nothing happens.
func changingCalls(t testing.TB) []int {
	t.Helper()
	disk := newCrashDisk(t)
	var calls []int
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op.Changes() {
			calls = append(calls, c.N)
		}
		return crashfs.Fault{}
	})
	if done, _ := run(disk.Process()); done != 3 {
		t.Fatal("without a crash not all was applied")
	}
	if len(calls) < 80 {
		t.Fatalf("only %d calls change something", len(calls))
	}
	return calls
}

// TestACrashAtAnyCallLeavesAWholeTree crashes the machine after each call of
// three applications that changes something, and looks at what may be on the
// disk.
func TestACrashAtAnyCallLeavesAWholeTree(t *testing.T) {
	t.Parallel()
	for _, call := range changingCalls(t) {
		disk := newCrashDisk(t)
		disk.Plan(crashfs.CrashAt(call, crashfs.After, 0))
		done, begun := run(disk.Process())
		policies := map[string]crashfs.Policy{"lost": crashfs.LoseAll, "kept": crashfs.KeepAll}
		for i := range 3 {
			policies[fmt.Sprintf("random %d", i)] = crashfs.Random(uint64(call*8 + i))
		}
		for i := range min(disk.Unsynced(), 8) {
			policies[fmt.Sprintf("all but %d", i)] = crashfs.LoseOne(i)
			policies[fmt.Sprintf("only %d", i)] = crashfs.KeepOne(i)
		}
		for name, policy := range policies {
			what := fmt.Sprintf("crash after call %d, %s", call, name)
			after := disk.After(policy)
			wantWhole(t, what, after.Process(), done, begun)
			wantTrue(t, what, after.Process())
			recovers(t, what, after)
		}
	}
}

// TestADeathAtAnyCallLeavesAWholeTree kills the process after each such call.
func TestADeathAtAnyCallLeavesAWholeTree(t *testing.T) {
	t.Parallel()
	for _, call := range changingCalls(t) {
		disk := newCrashDisk(t)
		disk.Plan(crashfs.KillAt(call, crashfs.After, 0))
		done, begun := run(disk.Process())
		disk.Plan(nil)
		what := fmt.Sprintf("death after call %d", call)
		wantWhole(t, what, disk.Process(), done, begun)
		wantTrue(t, what, disk.Process())
		recovers(t, what, disk)
	}
}

// TestAFailureAtAnyCallLeavesAWholeTree fails each call once, also where it
// happened all the same. After a failed sync of state, records or link the
// place takes no change; after any other failure it goes on.
func TestAFailureAtAnyCallLeavesAWholeTree(t *testing.T) {
	t.Parallel()
	injected := errors.New("input/output error")
	dry := newCrashDisk(t)
	first := dry.Calls()
	run(dry.Process())
	for call := first + 1; call <= dry.Calls(); call++ {
		for _, happened := range []bool{false, true} {
			disk := newCrashDisk(t)
			var op crashfs.Op
			disk.Plan(func(c crashfs.Call) crashfs.Fault {
				if c.N != call {
					return crashfs.Fault{}
				}
				op = c.Op
				return crashfs.Fault{Err: injected, Done: happened}
			})
			p := disk.Process()
			done, begun := run(p)
			disk.Plan(nil)
			p.Kill() // it may hold the lock: its file could not be closed
			what := fmt.Sprintf("call %d (%s) fails, happened %v", call, op, happened)
			wantWhole(t, what, disk.Process(), done, begun)
			wantWhole(t, what+", then a crash", disk.After(crashfs.LoseAll).Process(), done, begun)
			err := crashApply(disk.Process(), 9, func() error { return nil })
			switch {
			case errors.Is(err, durable.ErrPoisoned) && (op == crashfs.OpSync || op == crashfs.OpSyncDir || op == crashfs.OpRead || op == crashfs.OpVolume):
				must(t, durable.ClearPoison(durable.Sub(disk.Process(), crashDir)))
			case err != nil:
				t.Fatalf("%s: the next application: %v", what, err)
			}
			wantWhole(t, what+", and the next", disk.Process(), done, 9)
		}
	}
}

func TestALostHoldSwitchesNothingOnDisk(t *testing.T) {
	t.Parallel()
	disk := newCrashDisk(t)
	p := disk.Process()
	must(t, crashApply(p, 1, func() error { return nil }))
	if err := crashApply(p, 2, func() error { return source.ErrLost }); !errors.Is(err, source.ErrLost) {
		t.Fatalf("err = %v, want ErrLost", err)
	}
	wantWhole(t, "after a lost hold", p, 1, 1)
}
