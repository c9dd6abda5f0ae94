package crashfs_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sector = crashfs.SectorSize

// fill is a sector's worth of one byte.
func fill(b byte) []byte { return slices.Repeat([]byte{b}, sector) }

func create(t testing.TB, fsys durable.FS, name string, data []byte) durable.File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f, data, 0)
	return f
}

func write(t testing.TB, f durable.File, data []byte, off int64) {
	t.Helper()
	if _, err := f.WriteAt(data, off); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content is what a new process reads after a crash; "-" for no such file.
func content(t testing.TB, d *crashfs.Disk, name string) string {
	t.Helper()
	b, err := durable.ReadFile(d.Process(), name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(b)
}

func TestWhatACrashLeaves(t *testing.T) {
	t.Parallel()
	all := map[string]crashfs.Policy{"lose": crashfs.LoseAll, "keep": crashfs.KeepAll}
	tests := []struct {
		name string
		work func(t *testing.T, p *crashfs.Process)
		file string
		want map[string]string
	}{
		{
			name: "a file and its name, neither synced",
			work: func(t *testing.T, p *crashfs.Process) { create(t, p, "a", []byte("one")) },
			file: "a",
			want: map[string]string{"lose": "-", "keep": "one"},
		},
		{
			name: "bytes synced, name not",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, create(t, p, "a", []byte("one")).Sync())
			},
			file: "a",
			want: map[string]string{"lose": "-", "keep": "one"},
		},
		{
			name: "name synced, bytes not",
			work: func(t *testing.T, p *crashfs.Process) {
				create(t, p, "a", []byte("one"))
				must(t, p.SyncDir("."))
			},
			file: "a",
			want: map[string]string{"lose": "", "keep": "one"},
		},
		{
			name: "both synced",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, create(t, p, "a", []byte("one")).Sync())
				must(t, p.SyncDir("."))
			},
			file: "a",
			want: map[string]string{"lose": "one", "keep": "one"},
		},
		{
			name: "overwritten after the sync",
			work: func(t *testing.T, p *crashfs.Process) {
				f := create(t, p, "a", []byte("one"))
				must(t, f.Sync())
				must(t, p.SyncDir("."))
				write(t, f, []byte("two"), 0)
			},
			file: "a",
			want: map[string]string{"lose": "one", "keep": "two"},
		},
		{
			name: "a synced rename took its source with it",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, p.Mkdir("d", durable.DirPerm))
				must(t, create(t, p, "d/a.tmp", []byte("one")).Sync())
				must(t, p.SyncDir("."))
				must(t, p.Rename("d/a.tmp", "d/a"))
				must(t, p.SyncDir("d"))
			},
			file: "d/a.tmp",
			want: map[string]string{"lose": "-", "keep": "-"},
		},
		{
			name: "a rename that was not synced",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, create(t, p, "a", []byte("one")).Sync())
				must(t, create(t, p, "b", []byte("two")).Sync())
				must(t, p.SyncDir("."))
				must(t, p.Rename("b", "a"))
			},
			file: "a",
			want: map[string]string{"lose": "one", "keep": "two"},
		},
		{
			name: "a removal that was not synced",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, create(t, p, "a", []byte("one")).Sync())
				must(t, p.SyncDir("."))
				must(t, p.Remove("a"))
			},
			file: "a",
			want: map[string]string{"lose": "one", "keep": "-"},
		},
		{
			name: "a file in a directory whose own name was not synced",
			work: func(t *testing.T, p *crashfs.Process) {
				must(t, p.Mkdir("d", durable.DirPerm))
				must(t, create(t, p, "d/a", []byte("one")).Sync())
				must(t, p.SyncDir("d"))
			},
			file: "d/a",
			want: map[string]string{"lose": "-", "keep": "one"},
		},
		{
			name: "allocated and synced",
			work: func(t *testing.T, p *crashfs.Process) {
				f := create(t, p, "a", nil)
				must(t, f.Allocate(3))
				must(t, f.Sync())
				must(t, p.SyncDir("."))
				write(t, f, []byte("xyz"), 0)
			},
			file: "a",
			want: map[string]string{"lose": "\x00\x00\x00", "keep": "xyz"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := crashfs.New(crashfs.Options{})
			tt.work(t, d.Process())
			d.Crash()
			for name, policy := range all {
				if got := content(t, d.After(policy), tt.file); got != tt.want[name] {
					t.Errorf("%s: %s holds %q, want %q", name, tt.file, got, tt.want[name])
				}
			}
		})
	}
}

func TestEachUnsyncedSectorIsLostOrKeptByItself(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	f := create(t, p, "a", slices.Concat(fill('.'), fill('.'), fill('.')))
	must(t, f.Sync())
	must(t, p.SyncDir("."))
	write(t, f, slices.Concat(fill('x'), fill('x'), fill('x')), 0)
	if got := d.Unsynced(); got != 3 {
		t.Fatalf("Unsynced() = %d, want 3", got)
	}
	for i := range 3 {
		lost, kept := []byte("xxx"), []byte("...")
		lost[i], kept[i] = '.', 'x'
		if got := firsts(content(t, d.After(crashfs.LoseOne(i)), "a")); got != string(lost) {
			t.Errorf("LoseOne(%d): %q, want %q", i, got, lost)
		}
		if got := firsts(content(t, d.After(crashfs.KeepOne(i)), "a")); got != string(kept) {
			t.Errorf("KeepOne(%d): %q, want %q", i, got, kept)
		}
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		seen[firsts(content(t, d.After(crashfs.Random(seed)), "a"))] = true
	}
	if len(seen) != 8 {
		t.Errorf("200 random crashes gave %d of the 8 subsets", len(seen))
	}
	if got := firsts(content(t, d, "a")); got != "xxx" {
		t.Errorf("After changed the disk itself: %q", got)
	}
}

// firsts is the first byte of each sector.
func firsts(s string) string {
	var b []byte
	for i := 0; i < len(s); i += sector {
		b = append(b, s[i])
	}
	return string(b)
}

func TestAFailedSyncLeavesPagesCleanAndLost(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	f := create(t, p, "a", fill('.'))
	must(t, f.Sync())
	must(t, p.SyncDir("."))
	write(t, f, fill('x'), 0)
	eio := errors.New("input/output error")
	d.Plan(crashfs.FailAt(d.Calls()+1, eio))
	if err := f.Sync(); !errors.Is(err, eio) {
		t.Fatalf("Sync = %v, want the injected error", err)
	}
	if err := f.Sync(); err != nil {
		t.Fatalf("second Sync = %v, want the false success of the kernel", err)
	}
	if got := firsts(content(t, d, "a")); got != "x" {
		t.Errorf("page cache holds %q, want x", got)
	}
	if got := firsts(content(t, d.After(crashfs.KeepAll), "a")); got != "." {
		t.Errorf("after a crash %q, want the bytes of before", got)
	}
	must(t, durable.Redo(f, 0, sector))
	if got := firsts(content(t, d.After(crashfs.LoseAll), "a")); got != "x" {
		t.Errorf("after Redo and a crash %q, want x", got)
	}
}

func TestCrashAtACall(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*crashfs.Disk, durable.File) {
		d := crashfs.New(crashfs.Options{})
		p := d.Process()
		f := create(t, p, "a", []byte("......"))
		must(t, f.Sync())
		must(t, p.SyncDir("."))
		return d, f
	}
	tests := []struct {
		name string
		when crashfs.When
		want string
	}{
		{"before", crashfs.Before, "......"},
		{"inside", crashfs.Inside, "xx...."},
		{"after", crashfs.After, "xxxxxx"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			d.Plan(crashfs.CrashAt(d.Calls()+1, tt.when, 2))
			if _, err := f.WriteAt([]byte("xxxxxx"), 0); !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("WriteAt = %v, want ErrCrashed", err)
			}
			if err := f.Sync(); !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("Sync after the crash = %v, want ErrCrashed", err)
			}
			if !d.Crashed() {
				t.Error("Crashed() = false")
			}
			if got := content(t, d.After(crashfs.KeepAll), "a"); got != tt.want {
				t.Errorf("after the crash %q, want %q", got, tt.want)
			}
		})
	}
}

func TestShortWrite(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	f := create(t, d.Process(), "a", nil)
	at := d.Calls() + 1
	eio := errors.New("input/output error")
	d.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.N == at {
			return crashfs.Fault{Err: eio, Keep: 2}
		}
		return crashfs.Fault{}
	})
	n, err := f.WriteAt([]byte("abcd"), 0)
	if n != 2 || !errors.Is(err, eio) {
		t.Errorf("WriteAt = %d, %v; want 2 and the injected error", n, err)
	}
	if got := content(t, d, "a"); got != "ab" {
		t.Errorf("file holds %q, want ab", got)
	}
}

func TestDoneButAnswerLost(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	lost := errors.New("answer lost")
	d.Plan(func(crashfs.Call) crashfs.Fault { return crashfs.Fault{Err: lost, Done: true} })
	if err := p.Mkdir("d", durable.DirPerm); !errors.Is(err, lost) {
		t.Fatalf("Mkdir = %v, want the injected error", err)
	}
	d.Plan(nil)
	if info, err := p.Stat("d"); err != nil || !info.Dir {
		t.Errorf("Stat = %+v, %v; want a directory", info, err)
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 4 * sector, Inodes: 3})
	p := d.Process()
	f := create(t, p, "a", fill('x'))
	n, err := f.WriteAt(slices.Repeat([]byte("y"), 4*sector), sector)
	if n != 3*sector || !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("WriteAt = %d, %v; want %d and no space", n, err, 3*sector)
	}
	write(t, f, fill('z'), 0) // overwriting needs no room
	g := create(t, p, "b", nil)
	if err := g.Allocate(sector); !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("Allocate = %v, want no space", err)
	}
	if _, err := p.OpenFile("c", os.O_CREATE|os.O_RDWR, 0); !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("third file = %v, want no space for a name", err)
	}
	must(t, p.Remove("a"))
	if got := d.Used(); got != 4*sector {
		t.Errorf("Used() = %d while the file is open, want %d", got, 4*sector)
	}
	must(t, f.Close())
	if got := d.Used(); got != 0 {
		t.Errorf("Used() = %d after the last close, want 0", got)
	}
	must(t, g.Allocate(4*sector))
	v, err := p.Volume()
	must(t, err)
	if v.Free != 0 || v.Total != 4*sector {
		t.Errorf("Volume() = %+v, want none of %d free", v, 4*sector)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	f := create(t, p, "a", []byte("x"))
	d.SetReadOnly(true)
	if _, err := f.WriteAt([]byte("y"), 0); !errors.Is(err, durable.ErrReadOnly) {
		t.Errorf("WriteAt = %v, want ErrReadOnly", err)
	}
	if _, err := p.OpenFile("b", os.O_CREATE|os.O_RDWR, 0); !errors.Is(err, durable.ErrReadOnly) {
		t.Errorf("OpenFile = %v, want ErrReadOnly", err)
	}
	if got := content(t, d, "a"); got != "x" {
		t.Errorf("a = %q, want x", got)
	}
}

func TestLocksBelongToOpenFilesAndDieWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		p, q := d.Process(), d.Process()
		a := create(t, p, "lock", nil)
		b, err := q.OpenFile("lock", os.O_RDWR, 0)
		must(t, err)
		must(t, a.Lock(t.Context(), durable.Exclusive))
		if ok, err := b.TryLock(durable.Exclusive); ok || err != nil {
			t.Fatalf("TryLock of a held lock = %v, %v", ok, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Lock(ctx, durable.Shared); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lock = %v, want the context's end", err)
		}
		got := make(chan error)
		go func() { got <- b.Lock(t.Context(), durable.Exclusive) }()
		synctest.Wait()
		p.Kill()
		must(t, <-got)
		if err := a.Unlock(); !errors.Is(err, crashfs.ErrKilled) {
			t.Errorf("Unlock in a killed process = %v, want ErrKilled", err)
		}
		go func() { got <- b.Lock(t.Context(), durable.Exclusive) }()
		synctest.Wait() // one open file, two users: the second waits
		must(t, b.Unlock())
		must(t, <-got)
		must(t, b.Unlock())
		if err := b.Unlock(); !errors.Is(err, durable.ErrNotLocked) {
			t.Errorf("second Unlock = %v, want ErrNotLocked", err)
		}
		go func() { got <- b.Lock(t.Context(), durable.Exclusive) }()
		must(t, <-got)
		go func() { got <- b.Lock(t.Context(), durable.Exclusive) }()
		synctest.Wait()
		d.Crash()
		if err := <-got; !errors.Is(err, crashfs.ErrCrashed) {
			t.Errorf("Lock over a crash = %v, want ErrCrashed", err)
		}
	})
}

func TestSharedLocks(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	a := create(t, d.Process(), "lock", nil)
	q := d.Process()
	b, err := q.OpenFile("lock", os.O_RDWR, 0)
	must(t, err)
	must(t, a.Lock(t.Context(), durable.Shared))
	if ok, err := b.TryLock(durable.Exclusive); ok || err != nil {
		t.Errorf("exclusive beside shared = %v, %v", ok, err)
	}
	if ok, err := b.TryLock(durable.Shared); !ok || err != nil {
		t.Errorf("shared beside shared = %v, %v", ok, err)
	}
}

func TestARenameAcrossDirectoriesIsOneStep(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	for _, dir := range []string{"x", "y"} {
		must(t, p.Mkdir(dir, durable.DirPerm))
		must(t, p.SyncDir("."))
	}
	must(t, create(t, p, "x/a", []byte("one")).Sync())
	must(t, p.SyncDir("x"))
	must(t, p.Rename("x/a", "y/a"))
	for seed := range uint64(50) {
		a := d.After(crashfs.Random(seed))
		x, y := content(t, a, "x/a"), content(t, a, "y/a")
		if (x == "one") == (y == "one") {
			t.Fatalf("seed %d: x/a is %q and y/a is %q, want one of them", seed, x, y)
		}
	}
	must(t, p.SyncDir("y"))
	a := d.After(crashfs.LoseAll)
	if x, y := content(t, a, "x/a"), content(t, a, "y/a"); x != "-" || y != "one" {
		t.Errorf("after SyncDir(y): x/a is %q, y/a is %q", x, y)
	}
}

func TestAKilledProcessLeavesItsWritesInThePageCache(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p, q := d.Process(), d.Process()
	f := create(t, p, "a", []byte("....."))
	must(t, f.Sync())
	must(t, p.SyncDir("."))
	d.Plan(crashfs.KillAt(d.Calls()+1, crashfs.Inside, 2))
	if _, err := f.WriteAt([]byte("xxxxx"), 0); !errors.Is(err, crashfs.ErrKilled) {
		t.Fatalf("WriteAt = %v, want ErrKilled", err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("the process is not dead")
	}
	if b, err := durable.ReadFile(q, "a", 10); err != nil || string(b) != "xx..." {
		t.Errorf("another process reads %q, %v; want xx...", b, err)
	}
	if got := content(t, d.After(crashfs.LoseAll), "a"); got != "....." {
		t.Errorf("after a crash %q, want what was synced", got)
	}
}

func TestASymbolicLinkIsItsName(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	must(t, p.Symlink("old", "here"))
	must(t, p.SyncDir("."))
	if err := p.Symlink("x", "here"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("symlink over a name: %v, want ErrExist", err)
	}
	must(t, p.Symlink("new", "next"))
	must(t, p.Rename("next", "here"))
	if text, err := p.Readlink("here"); err != nil || text != "new" {
		t.Fatalf("Readlink = %q, %v", text, err)
	}
	for policy, want := range map[string]string{"lost": "old", "kept": "new"} {
		keep := crashfs.LoseAll
		if policy == "kept" {
			keep = crashfs.KeepAll
		}
		if text, err := d.After(keep).Process().Readlink("here"); err != nil || text != want {
			t.Errorf("rename %s: Readlink = %q, %v, want %q", policy, text, err, want)
		}
	}
	create(t, p, "file", nil)
	if _, err := p.Readlink("file"); !errors.Is(err, durable.ErrNotLink) {
		t.Errorf("Readlink of a file: %v, want ErrNotLink", err)
	}
	if _, err := p.OpenFile("here", os.O_RDONLY, 0); err == nil {
		t.Error("a link was opened")
	}
}

func TestATreeIsSyncedWhole(t *testing.T) {
	t.Parallel()
	build := func(plan crashfs.Plan) (*crashfs.Disk, error) {
		d := crashfs.New(crashfs.Options{})
		p := d.Process()
		must(t, p.Mkdir("t", durable.DirPerm))
		must(t, p.SyncDir("."))
		tree, err := p.OpenTree("t")
		must(t, err)
		must(t, p.Mkdir("t/sub", durable.DirPerm))
		create(t, p, "t/sub/a", fill('a'))
		create(t, p, "t/b", fill('b'))
		create(t, p, "beside", fill('c'))
		d.Plan(plan)
		err = tree.Sync()
		d.Plan(nil)
		must(t, tree.Close())
		return d, err
	}
	d, err := build(nil)
	must(t, err)
	lost := d.After(crashfs.LoseAll)
	if got := content(t, lost, "t/sub/a") + content(t, lost, "t/b"); got != string(fill('a'))+string(fill('b')) {
		t.Error("a synced tree was not whole after a crash")
	}
	if got := content(t, lost, "beside"); got != "-" {
		t.Error("a file beside the tree was synced with it")
	}
	injected := errors.New("input/output error")
	d, err = build(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSyncTree {
			return crashfs.Fault{Err: injected}
		}
		return crashfs.Fault{}
	})
	if !errors.Is(err, injected) {
		t.Fatalf("Sync = %v, want the injected error", err)
	}
	// The bytes are clean and lost, whatever is kept of the names.
	if got := content(t, d.After(crashfs.KeepAll), "t/b"); got == string(fill('b')) {
		t.Error("a failed sync of a tree left its bytes on the disk")
	}
}
