package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/powercut"
)

const (
	// storiesPerCut are told on one volume before its power is cut; each has
	// a directory and a double of its own.
	storiesPerCut = 12
	// storySteps bounds one story, and with it the names that are not
	// durable at its end: all of their subsets are tried.
	storySteps = 22
)

// The test of the tester: the same calls on the double and on ext4, XFS and
// btrfs, whose power is cut. What is found there must be something that the
// double may leave.
func TestRealDisksLeaveWhatTheDoubleAllows(t *testing.T) {
	t.Parallel()
	rounds := 2
	if text := os.Getenv("FENCEPOST_CUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = max(n/10, rounds)
	}
	for _, kind := range []powercut.Kind{powercut.Ext4, powercut.XFS, powercut.Btrfs} {
		t.Run(string(kind), func(t *testing.T) {
			v := powercut.Make(t, t.TempDir(), kind, "")
			defer v.Close()
			told, unsynced, lost := 0, 0, 0
			for round := range rounds {
				seed := rand.Uint64()
				var stories []*story
				for n := range storiesPerCut {
					stories = append(stories, tell(t, v, fmt.Sprintf("%d-%d", round, n), rand.New(rand.NewPCG(seed, uint64(n)))))
				}
				v.Cut()
				for _, s := range stories {
					s.double.Crash()
					s.closeFiles()
				}
				v.Restart()
				for n, s := range stories {
					found := read(t, filepath.Join(v.Path(), s.dir))
					if err := s.double.allows(found); err != nil {
						t.Errorf("seed %d, story %d: %v\n%v", seed, n, err, s.steps)
					}
					told++
					if n := s.double.Unsynced(); n > 0 {
						unsynced += n
						if !maps.EqualFunc(found, s.seen, bytes.Equal) {
							lost++
						}
					}
				}
			}
			t.Logf("%d stories, %d unsynced changes at their cuts; %d of the stories lost some", told, unsynced, lost)
			if lost == 0 {
				t.Error("nothing was ever lost: these cuts show nothing")
			}
		})
	}
}

// TestTheDoubleDoesNotAllowEverything is the negative control.
func TestTheDoubleDoesNotAllowEverything(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	p := d.Process()
	if err := errors.Join(durable.WriteFile(p, "kept", []byte("kept")), p.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile("kept", os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("more"), 4)
	}
	if err = errors.Join(err, p.Mkdir("new", durable.DirPerm)); err != nil {
		t.Fatal(err)
	}
	file := func(text string) map[string][]byte { return map[string][]byte{"kept": []byte(text)} }
	with := func(m map[string][]byte, name string, b []byte) map[string][]byte { m[name] = b; return m }
	for _, good := range []map[string][]byte{
		file("kept"), file("keptmore"), file("kept\x00\x00\x00\x00"), with(file("kept"), "new", nil),
	} {
		if err := d.allows(good); err != nil {
			t.Errorf("%q is not allowed: %v", good, err)
		}
	}
	for _, bad := range []map[string][]byte{
		{}, file(""), file("kep"), file("keptmor"), file("Kept"), file("keptmor\x00"), with(file("kept"), "other", nil),
		with(file("kept"), "new", []byte("a file")),
	} {
		if d.allows(bad) == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}

// A story is what happened in one directory, there and on the double.
type story struct {
	dir    string
	steps  []string
	double *Disk
	// seen is what processes saw at the end.
	seen map[string][]byte
	// files are open, each on both.
	files []pair
}

type pair struct{ real, double durable.File }

func (s *story) closeFiles() {
	for _, f := range s.files {
		_ = f.real.Close() // the disk is gone
	}
}

// tell makes a directory and has things happen in it. Both sides must answer
// alike.
func tell(t *testing.T, v *powercut.Volume, dir string, random *rand.Rand) *story {
	t.Helper()
	s := &story{dir: dir, double: New(Options{})}
	volume, p := durable.OS(v.Path()), s.double.Process()
	if err := durable.MkdirAll(volume, dir); err != nil {
		t.Fatal(err)
	}
	sides := [2]durable.FS{durable.Sub(volume, dir), p}
	syncs := random.IntN(3) > 0 // else all is lost, where nobody else syncs
	for range 4 + random.IntN(storySteps-4) {
		step := s.draw(random, syncs)
		s.steps = append(s.steps, step.text)
		real, double := step.do(sides[0], 0), step.do(sides[1], 1)
		if class(real) != class(double) {
			t.Fatalf("%v: the real disk says %v, the double %v", s.steps, real, double)
		}
	}
	s.seen = read(t, filepath.Join(v.Path(), dir))
	return s
}

// A drawn step works on side 0, the real one, or 1.
type drawn struct {
	text string
	do   func(fsys durable.FS, side int) error
}

func (s *story) draw(random *rand.Rand, syncs bool) drawn {
	names := []string{"a", "b", "c", "d/a", "d/b"}
	a, b := names[random.IntN(len(names))], names[random.IntN(len(names))]
	off := []int64{0, 100, 511, 512, 1024, 4000}[random.IntN(6)]
	data := bytes.Repeat([]byte{byte(1 + random.IntN(250))}, []int{1, 300, 512, 1500}[random.IntN(4)])
	onFile := func(text string, f func(durable.File) error) drawn {
		if len(s.files) == 0 {
			return s.create(a)
		}
		n := random.IntN(len(s.files))
		return drawn{fmt.Sprintf("%s of file %d", text, n), func(_ durable.FS, side int) error {
			if side == 0 {
				return f(s.files[n].real)
			}
			return f(s.files[n].double)
		}}
	}
	onNames := func(text string, f func(durable.FS) error) drawn {
		return drawn{text, func(fsys durable.FS, _ int) error { return f(fsys) }}
	}
	most := 12
	if !syncs {
		most = 9
	}
	switch random.IntN(most) {
	case 0, 1:
		return s.create(a)
	case 2:
		return onNames("mkdir d", func(f durable.FS) error { return f.Mkdir("d", durable.DirPerm) })
	case 3:
		return onNames("rename "+a+" "+b, func(f durable.FS) error { return f.Rename(a, b) })
	case 4:
		return onNames("link "+a+" "+b, func(f durable.FS) error { return f.Link(a, b) })
	case 5:
		return onNames("remove "+a, func(f durable.FS) error { return f.Remove(a) })
	case 6:
		return onFile(fmt.Sprintf("truncate to %d", off), func(f durable.File) error { return f.Truncate(off) })
	case 7, 8:
		return onFile(fmt.Sprintf("%d bytes %d at %d", len(data), data[0], off), func(f durable.File) error {
			_, err := f.WriteAt(data, off)
			return err
		})
	case 9, 10:
		return onFile("sync", durable.File.Sync)
	}
	return onNames("syncdir", func(f durable.FS) error { return f.SyncDir(".") })
}

// create opens a file, or makes it, on both sides.
func (s *story) create(name string) drawn {
	return drawn{"create " + name, func(fsys durable.FS, side int) error {
		f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		if side == 0 {
			s.files = append(s.files, pair{real: f})
		} else {
			s.files[len(s.files)-1].double = f
		}
		return nil
	}}
}

// class is what both sides must agree on.
func class(err error) string {
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return ""
}

// read lists a directory: nil for directories, the bytes of files.
func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		short, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if found[short] = nil; e.IsDir() {
			return nil
		}
		b, err := os.ReadFile(name)
		found[short] = append([]byte{}, b...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// allows says why no policy of a crash now leaves what was found; nil if one
// does.
func (d *Disk) allows(found map[string][]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var closest error
	for mask := range 1 << len(d.pending) {
		n := -1
		names := d.namesAfter(func(int) int { n++; return mask >> n & 1 })
		tree := map[string]*inode{}
		treeOf(names, d.root, "", tree)
		same := slices.Equal(slices.Sorted(maps.Keys(tree)), slices.Sorted(maps.Keys(found)))
		if !same {
			continue
		}
		closest = nil
		for name, n := range tree {
			if why := n.allows(found[name]); why != "" {
				closest = fmt.Errorf("%s: %s", name, why)
			}
		}
		if closest == nil {
			return nil
		}
	}
	if closest != nil {
		return closest
	}
	return fmt.Errorf("no crash leaves the names %v", slices.Sorted(maps.Keys(found)))
}

func treeOf(names map[*inode]map[string]*inode, dir *inode, at string, tree map[string]*inode) {
	for base, n := range names[dir] {
		tree[at+base] = n
		if n.dir {
			treeOf(names, n, at+base+"/", tree)
		}
	}
}

// allows says why an inode can't be found with b in it, which is nil for a
// directory.
func (n *inode) allows(b []byte) string {
	if n.dir || b == nil {
		if n.dir != (b == nil) {
			return "a file for a directory, or the reverse"
		}
		return ""
	}
	size := int64(len(b))
	if size != n.durableSize && !slices.Contains(n.sizes, size) {
		return fmt.Sprintf("%d bytes; it had %d when it was synced, and %v since", size, n.durableSize, n.sizes)
	}
	for i := range sectorsFor(size) {
		got := b[i*SectorSize : min((i+1)*SectorSize, len(b))]
		versions := append([]*sector{nil}, n.dirty[i]...)
		if i < len(n.durable) {
			versions[0] = n.durable[i]
		}
		if !slices.ContainsFunc(versions, func(s *sector) bool {
			if s == nil {
				s = &zeros
			}
			return bytes.Equal(got, s[:len(got)])
		}) {
			return fmt.Sprintf("sector %d of %d bytes is none of %d versions", i, size, len(versions))
		}
	}
	return ""
}
