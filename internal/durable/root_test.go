package durable_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

var errIO = errors.New("input/output error")

func openRoot(t testing.TB, p durable.FS) *durable.Root {
	t.Helper()
	r, err := durable.OpenRoot(p)
	must(t, err)
	return r
}

// failSync fails the syncs of one file, or of directories with "".
func failSync(name string) crashfs.Plan {
	return func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSync && c.Name == name || c.Op == crashfs.OpSyncDir && name == "" {
			return crashfs.Fault{Err: errIO}
		}
		return crashfs.Fault{}
	}
}

func TestAFailedSyncIsFinal(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"file", "directory"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := crashfs.New(crashfs.Options{})
			p, q := d.Process(), d.Process()
			r, other := openRoot(t, p), openRoot(t, q)
			f, err := r.OpenFile("f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
			must(t, err)
			_, err = f.WriteAt([]byte("x"), 0)
			must(t, err)
			theirs, err := other.OpenFile("g", os.O_CREATE|os.O_RDWR, durable.FilePerm)
			must(t, err)

			if what == "file" {
				d.Plan(failSync("f"))
				err = f.Sync()
			} else {
				d.Plan(failSync(""))
				err = r.SyncDir(".")
			}
			d.Plan(nil)
			if !errors.Is(err, durable.ErrPoisoned) || !errors.Is(err, errIO) {
				t.Fatalf("failed sync = %v, want ErrPoisoned with its cause", err)
			}
			calls := d.Calls()
			for name, err := range map[string]error{
				"Sync":     f.Sync(),
				"SyncDir":  r.SyncDir("."),
				"WriteAt":  second(f.WriteAt([]byte("y"), 0)),
				"WriteVec": second(f.WriteVecAt([][]byte{{1}}, 0)),
				"Allocate": f.Allocate(100),
				"Truncate": f.Truncate(0),
				"Create":   second(r.OpenFile("new", os.O_CREATE|os.O_RDWR, 0)),
				"Mkdir":    r.Mkdir("d", durable.DirPerm),
				"Rename":   r.Rename("f", "h"),
				"Link":     r.Link("f", "h"),
				"Remove":   r.Remove("f"),
				"Err":      r.Err(),
				"Check":    r.Check(),
			} {
				if !errors.Is(err, durable.ErrPoisoned) {
					t.Errorf("%s on a poisoned root = %v, want ErrPoisoned", name, err)
				}
			}
			if n := d.Calls() - calls; n != 0 {
				t.Errorf("%d calls reached the disk of a poisoned root", n)
			}
			if got := read(t, r, "f"); got != "x" {
				t.Errorf("reading a poisoned root gave %q, want x", got)
			}
			// The other process learns of it at its next sync, although the
			// kernel would let that succeed.
			if err := theirs.Sync(); !errors.Is(err, durable.ErrPoisoned) {
				t.Errorf("Sync in another process = %v, want ErrPoisoned", err)
			}
			if _, err := durable.OpenRoot(d.Process()); !errors.Is(err, durable.ErrPoisoned) {
				t.Errorf("OpenRoot = %v, want ErrPoisoned", err)
			}
			if text := read(t, p, durable.PoisonName); !strings.Contains(text, errIO.Error()) {
				t.Errorf("%s says %q, want the cause", durable.PoisonName, text)
			}
			must(t, durable.ClearPoison(d.Process()))
			must(t, openRoot(t, d.Process()).Close())
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestASyncThatEndsAfterAnothersFailureFails(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	r, other := openRoot(t, d.Process()), openRoot(t, d.Process())
	f, err := r.OpenFile("f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	g, err := other.OpenFile("g", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	// g's sync succeeds, but f's fails before g's is answered.
	raced := &hookFS{FS: nil, sync: func() error {
		err := g.Sync()
		must(t, err)
		d.Plan(failSync("f"))
		if err := f.Sync(); !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("f.Sync = %v, want ErrPoisoned", err)
		}
		d.Plan(nil)
		return nil
	}}
	raced.FS = d.Process()
	third := openRoot(t, raced)
	h, err := third.OpenFile("h", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	if err := h.Sync(); !errors.Is(err, durable.ErrPoisoned) {
		t.Errorf("Sync = %v, want ErrPoisoned", err)
	}
}

// hookFS runs a function in place of the syncs of file "h".
type hookFS struct {
	durable.FS
	sync func() error
}

func (h *hookFS) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil || name != "h" {
		return f, err
	}
	return hookFile{f, h.sync}, nil
}

type hookFile struct {
	durable.File
	sync func() error
}

func (h hookFile) Sync() error { return h.sync() }

func TestAReadOnlyFileSystemPoisons(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	r := openRoot(t, d.Process())
	f, err := r.OpenFile("f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	d.SetReadOnly(true)
	err = f.Sync()
	if !errors.Is(err, durable.ErrPoisoned) || !errors.Is(err, durable.ErrReadOnly) {
		t.Fatalf("Sync = %v, want ErrPoisoned for ErrReadOnly", err)
	}
	if p, ok := errors.AsType[*durable.PoisonedError](err); !ok || p.Mark == nil {
		t.Errorf("the error hides that no mark could be set: %v", err)
	}
	d.SetReadOnly(false)
	if err := f.Sync(); !errors.Is(err, durable.ErrPoisoned) {
		t.Errorf("Sync afterwards = %v, want ErrPoisoned for good", err)
	}
}

func TestTheMarkNeedsNoRoom(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 4096, Inodes: 3})
	r := openRoot(t, d.Process())
	f, err := r.OpenFile("f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	must(t, f.Allocate(4096-512))
	d.Plan(failSync("f"))
	err = f.Sync()
	if p, ok := errors.AsType[*durable.PoisonedError](err); !ok || p.Mark != nil {
		t.Fatalf("Sync = %v, want a PoisonedError whose mark was set", err)
	}
	d.Plan(nil)
	_, err = durable.OpenRoot(d.Process())
	if p, ok := errors.AsType[*durable.PoisonedError](err); !ok || p.Op != "mark" || !strings.Contains(err.Error(), errIO.Error()) {
		t.Errorf("OpenRoot = %v, want the mark with its cause", err)
	}
}

func TestASyncThatWasNotTriedDoesNotPoison(t *testing.T) {
	t.Parallel()
	r := openRoot(t, crashfs.New(crashfs.Options{}).Process())
	if err := r.SyncDir("missing"); !errors.Is(err, durable.ErrSyncNotTried) {
		t.Errorf("SyncDir of a missing directory = %v, want ErrSyncNotTried", err)
	}
	must(t, r.Err())
	must(t, r.SyncDir("."))
}

func TestNoSpaceDoesNotPoison(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 2048})
	r := openRoot(t, d.Process())
	if err := durable.WriteFile(r, "a", make([]byte, 4096)); !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("WriteFile = %v, want ErrNoSpace", err)
	}
	must(t, r.Check())
	must(t, durable.WriteFile(r, "a", make([]byte, 512)))
}

func TestAnswersLostAfterTheSync(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	r := openRoot(t, d.Process())
	f, err := r.OpenFile("f", os.O_CREATE|os.O_RDWR, durable.FilePerm)
	must(t, err)
	d.Plan(func(c crashfs.Call) crashfs.Fault {
		return crashfs.Fault{Err: errIO, Done: c.Op == crashfs.OpSync}
	})
	// Stored, error: the error counts.
	if err := f.Sync(); !errors.Is(err, durable.ErrPoisoned) {
		t.Errorf("Sync = %v, want ErrPoisoned", err)
	}
}
