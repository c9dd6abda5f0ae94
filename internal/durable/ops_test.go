package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

const lockDir = "FENCEPOST_TEST_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockDir); dir != "" {
		lockMain(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns a file's content, or "-" for none.
func read(t testing.TB, fsys durable.FS, name string) string {
	t.Helper()
	b, err := durable.ReadFile(fsys, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(b)
}

var whens = []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After}

// crashEverywhere runs work on a disk that crashes at each of its calls, and
// check on what each of many policies leaves.
func crashEverywhere(t *testing.T, setup func(durable.FS), work func(durable.FS) error, check func(p durable.FS, done bool) error) {
	t.Helper()
	fresh := func() *crashfs.Disk {
		d := crashfs.New(crashfs.Options{})
		setup(d.Process())
		return d
	}
	dry := fresh()
	first := dry.Calls() + 1
	must(t, work(dry.Process()))
	last := dry.Calls()
	if last < first {
		t.Fatal("the work makes no calls")
	}
	if err := check(dry.After(crashfs.LoseAll).Process(), true); err != nil {
		t.Errorf("after all of it: %v", err)
	}
	for n := first; n <= last; n++ {
		for _, when := range whens {
			d := fresh()
			d.Plan(crashfs.CrashAt(n, when, 1))
			if err := work(d.Process()); !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("call %d: %v, want ErrCrashed", n, err)
			}
			policies := []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll}
			for i := range d.Unsynced() {
				policies = append(policies, crashfs.LoseOne(i), crashfs.KeepOne(i))
			}
			for seed := range uint64(8) {
				policies = append(policies, crashfs.Random(seed))
			}
			for i, policy := range policies {
				if err := check(d.After(policy).Process(), false); err != nil {
					t.Errorf("call %d, crash %d, policy %d: %v", n, when, i, err)
				}
			}
		}
	}
}

func TestWriteFileLeavesTheOldOrTheNew(t *testing.T) {
	t.Parallel()
	crashEverywhere(t,
		func(p durable.FS) { must(t, durable.WriteFile(p, "a", []byte("old"))) },
		func(p durable.FS) error { return durable.WriteFile(p, "a", []byte("newer")) },
		func(p durable.FS, done bool) error {
			got := read(t, p, "a")
			if got != "newer" && (done || got != "old") {
				return fmt.Errorf("a holds %q", got)
			}
			return nil
		})
}

func TestPublishFileLeavesTheWholeOrNothing(t *testing.T) {
	t.Parallel()
	crashEverywhere(t,
		func(durable.FS) {},
		func(p durable.FS) error { return durable.PublishFile(p, "mine.tmp", "a", []byte("whole")) },
		func(p durable.FS, done bool) error {
			got := read(t, p, "a")
			if got != "whole" && (done || got != "-") {
				return fmt.Errorf("a holds %q", got)
			}
			return nil
		})
}

func TestPublishFileYieldsToTheFirst(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.PublishFile(p, "1.tmp", "a", []byte("first")))
	if err := durable.PublishFile(p, "2.tmp", "a", []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second PublishFile = %v, want ErrExist", err)
	}
	if got := read(t, p, "a"); got != "first" {
		t.Errorf("a holds %q, want first", got)
	}
	if got := read(t, p, "2.tmp"); got != "-" {
		t.Errorf("the temporary file is left: %q", got)
	}
}

func buildTree(dir durable.FS) error {
	for _, d := range []string{"x", "x/y"} {
		if err := dir.Mkdir(d, durable.DirPerm); err != nil {
			return err
		}
	}
	f, err := dir.OpenFile("x/y/f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte("tree"), 0); err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func TestInitDirLeavesTheWholeOrNothing(t *testing.T) {
	t.Parallel()
	work := func(p durable.FS) error { return durable.InitDir(p, "root", buildTree) }
	crashEverywhere(t, func(durable.FS) {}, work,
		func(p durable.FS, done bool) error {
			got := read(t, p, "root/x/y/f")
			if _, err := p.Stat("root"); errors.Is(err, fs.ErrNotExist) && !done {
				// Whatever is left, the next start succeeds.
				if err := work(p); err != nil {
					return err
				}
				got = read(t, p, "root/x/y/f")
			}
			if got != "tree" {
				return fmt.Errorf("root/x/y/f holds %q", got)
			}
			return nil
		})
}

func TestInitDirRefusesWhatExists(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.InitDir(p, "root", buildTree))
	if err := durable.InitDir(p, "root", buildTree); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second InitDir = %v, want ErrExist", err)
	}
}

func TestMkdirAllIsDurable(t *testing.T) {
	t.Parallel()
	crashEverywhere(t, func(durable.FS) {},
		func(p durable.FS) error { return durable.MkdirAll(p, "a/b/c") },
		func(p durable.FS, done bool) error {
			if _, err := p.Stat("a/b/c"); err != nil && done {
				return err
			}
			return durable.MkdirAll(p, "a/b/c")
		})
	p := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.WriteFile(p, "file", nil))
	if err := durable.MkdirAll(p, "file"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("MkdirAll over a file = %v, want ErrExist", err)
	}
}

func TestReadFileKeepsItsLimit(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.WriteFile(p, "a", []byte("12345")))
	if _, err := durable.ReadFile(p, "a", 4); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("ReadFile over the limit = %v, want ErrTooLarge", err)
	}
	if b, err := durable.ReadFile(p, "a", 5); err != nil || string(b) != "12345" {
		t.Errorf("ReadFile = %q, %v", b, err)
	}
}

func TestWriteFileCleansUpOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 1024})
	p := d.Process()
	if err := durable.WriteFile(p, "a", make([]byte, 2000)); !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("WriteFile = %v, want ErrNoSpace", err)
	}
	if used := d.Used(); used != 0 {
		t.Errorf("%d bytes are left in use", used)
	}
	must(t, durable.WriteFile(p, "a", make([]byte, 1000)))
}

func TestZeroFillAndRedoReportShortRoom(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 3 << 20})
	p := d.Process()
	f, err := p.OpenFile("a", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	if err := durable.ZeroFill(f, 4<<20); !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("ZeroFill = %v, want ErrNoSpace", err)
	}
	d.SetCapacity(0)
	must(t, durable.ZeroFill(f, 4<<20))
	if err := durable.Redo(f, 0, 5<<20); err == nil {
		t.Error("Redo beyond the end succeeded")
	}
	must(t, durable.Redo(f, 4096, 4<<20))
}

func TestCheckVolume(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	tests := []struct {
		name     string
		volume   durable.Volume
		volatile bool
		want     error
	}{
		{"durable", durable.Volume{Durability: durable.Durable}, false, nil},
		{"volatile refused", durable.Volume{Durability: durable.Volatile}, false, durable.ErrUnsuitable},
		{"volatile allowed", durable.Volume{Durability: durable.Volatile}, true, nil},
		{"network", durable.Volume{Durability: durable.Unsuitable}, true, durable.ErrUnsuitable},
		{"not known", durable.Volume{}, true, durable.ErrUnsuitable},
		{"read-only", durable.Volume{Durability: durable.Durable, ReadOnly: true}, false, durable.ErrReadOnly},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := durable.CheckVolume(fixedVolume{p, tt.volume}, "data", tt.volatile)
			if !errors.Is(err, tt.want) || (tt.want == nil && err != nil) {
				t.Errorf("CheckVolume = %v, want %v", err, tt.want)
			}
		})
	}
}

type fixedVolume struct {
	durable.FS
	volume durable.Volume
}

func (f fixedVolume) Volume() (durable.Volume, error) { return f.volume, nil }

func TestSubStaysInside(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	must(t, durable.MkdirAll(p, "in"))
	must(t, durable.WriteFile(p, "out", []byte("secret")))
	sub := durable.Sub(p, "in")
	for _, name := range []string{"../out", "/out", "a/../../out", ""} {
		if _, err := durable.ReadFile(sub, name, 100); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("ReadFile(%q) = %v, want ErrInvalid", name, err)
		}
		if err := sub.Rename("a", name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Rename to %q = %v, want ErrInvalid", name, err)
		}
	}
	must(t, durable.WriteFile(sub, "a", []byte("x")))
	if got := read(t, p, "in/a"); got != "x" {
		t.Errorf("in/a holds %q, want x", got)
	}
}
