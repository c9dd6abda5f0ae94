package crashfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestSameAsTheRealThing holds the double against the operating system: what
// a program sees without a crash is the same, call by call.
func TestSameAsTheRealThing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := fmt.Sprintf("%s/%d", base, n)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		osSide := &side{fsys: durable.OS(dir)}
		simSide := &side{fsys: crashfs.New(crashfs.Options{}).Process()}
		defer osSide.closeAll()
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {},
			"step": func(t *rapid.T) {
				step := drawStep(t)
				if diff := cmp.Diff(osSide.do(step), simSide.do(step)); diff != "" {
					t.Fatalf("%+v differs (-os +double):\n%s", step, diff)
				}
			},
		})
		if diff := cmp.Diff(osSide.tree("."), simSide.tree(".")); diff != "" {
			t.Fatalf("trees differ (-os +double):\n%s", diff)
		}
	})
}

type step struct {
	op   string
	a, b string
	file int
	off  int64
	len  int
}

func drawStep(t *rapid.T) step {
	name := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/f", ".", "a/x", "../up"})
	return step{
		op: rapid.SampledFrom([]string{
			"create", "create", "open", "excl", "readonly", "mkdir", "mkdir", "rename", "link", "remove", "readdir",
			"stat", "syncdir", "write", "write", "writevec", "read", "allocate", "truncate", "sync", "size",
			"lock", "unlock", "close", "writefile", "publish", "initdir", "removeall",
		}).Draw(t, "op"),
		a:    name.Draw(t, "a"),
		b:    name.Draw(t, "b"),
		file: rapid.IntRange(0, 3).Draw(t, "file"),
		off:  rapid.SampledFrom([]int64{0, 1, 511, 512, 513, 1500}).Draw(t, "off"),
		len:  rapid.SampledFrom([]int{0, 1, 2, 512, 513, 1024}).Draw(t, "len"),
	}
}

// side runs steps on one file system and notes what it saw.
type side struct {
	fsys  durable.FS
	files []durable.File
}

func (s *side) closeAll() {
	for _, f := range s.files {
		_ = f.Close() // some are closed already
	}
}

func (s *side) do(st step) string {
	switch st.op {
	case "create":
		return s.open(st.a, os.O_RDWR|os.O_CREATE)
	case "open":
		return s.open(st.a, os.O_RDWR)
	case "excl":
		return s.open(st.a, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	case "readonly":
		return s.open(st.a, os.O_RDONLY)
	case "mkdir":
		return class(s.fsys.Mkdir(st.a, durable.DirPerm))
	case "rename":
		return class(s.fsys.Rename(st.a, st.b))
	case "link":
		return class(s.fsys.Link(st.a, st.b))
	case "remove":
		return class(s.fsys.Remove(st.a))
	case "readdir":
		infos, err := s.fsys.ReadDir(st.a)
		return fmt.Sprint(infos, class(err))
	case "stat":
		info, err := s.fsys.Stat(st.a)
		return fmt.Sprint(info.Size, info.Dir, class(err))
	case "syncdir":
		return class(s.fsys.SyncDir(st.a))
	case "writefile":
		return class(durable.WriteFile(s.fsys, st.a, pattern(st.len)))
	case "publish":
		return class(durable.PublishFile(s.fsys, "p.tmp", st.a, pattern(st.len)))
	case "initdir":
		return class(durable.InitDir(s.fsys, st.a, func(d durable.FS) error { return d.Mkdir("e", durable.DirPerm) }))
	case "removeall":
		if st.a == "." {
			return ""
		}
		return class(durable.RemoveAll(s.fsys, st.a))
	}
	if len(s.files) == 0 {
		return "no file"
	}
	return s.doFile(s.files[st.file%len(s.files)], st)
}

func (s *side) open(name string, flag int) string {
	if info, err := s.fsys.Stat(name); err == nil && info.Dir && flag == os.O_RDONLY {
		return "directory" // not for this package
	}
	f, err := s.fsys.OpenFile(name, flag, durable.FilePerm)
	if err == nil {
		s.files = append(s.files, f)
	}
	return class(err)
}

func (s *side) doFile(f durable.File, st step) string {
	switch st.op {
	case "write":
		n, err := f.WriteAt(pattern(st.len), st.off)
		return fmt.Sprint(n, class(err))
	case "writevec":
		n, err := f.WriteVecAt([][]byte{pattern(st.len), nil, pattern(3)}, st.off)
		return fmt.Sprint(n, class(err))
	case "read":
		b := make([]byte, st.len)
		n, err := f.ReadAt(b, st.off)
		return fmt.Sprint(n, b[:n], class(err))
	case "allocate":
		return class(f.Allocate(st.off))
	case "truncate":
		return class(f.Truncate(st.off))
	case "sync":
		return class(f.Sync())
	case "size":
		n, err := f.Size()
		return fmt.Sprint(n, class(err))
	case "lock":
		ok, err := f.TryLock(durable.Exclusive)
		return fmt.Sprint(ok, class(err))
	case "unlock":
		err := f.Unlock()
		if errors.Is(err, fs.ErrClosed) {
			err = durable.ErrNotLocked // both are true
		}
		return class(err)
	case "close":
		return class(f.Close())
	}
	panic("no such step: " + st.op)
}

// pattern is bytes that differ by place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i%250) + 1
	}
	return b
}

// class is what a program may rely on of an error.
func class(err error) string {
	for _, known := range []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, durable.ErrNotLocked, durable.ErrLockReplaced, io.EOF,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

// tree lists all names with their content.
func (s *side) tree(dir string) map[string]string {
	out := map[string]string{}
	var walk func(at string)
	walk = func(at string) {
		infos, err := s.fsys.ReadDir(at)
		if err != nil {
			out[at] = class(err)
			return
		}
		for _, info := range infos {
			name := info.Name
			if at != "." {
				name = at + "/" + name
			}
			if info.Dir {
				out[name] = "dir"
				walk(name)
				continue
			}
			b, err := durable.ReadFile(s.fsys, name, 1<<20)
			out[name] = fmt.Sprint(b, class(err))
		}
	}
	walk(dir)
	return out
}
