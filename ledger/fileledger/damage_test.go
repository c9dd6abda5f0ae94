package fileledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
)

// stored is a disk with a closed ledger of one shard that holds a snapshot
// and frames behind it, and the rows that it says.
type stored struct {
	p    *play
	disk *crashfs.Disk
	rows map[fencepost.DeliveryKey]ledger.Row
}

func store(tb testing.TB) stored {
	tb.Helper()
	p, disk := newPlay(tb), crashfs.New(crashfs.Options{})
	s := stored{p: p, disk: disk, rows: map[fencepost.DeliveryKey]ledger.Row{}}
	l, err := openIn(tb.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		tb.Fatal(err)
	}
	for n, upTo := range []string{"done", "done", "stage", "claim", "done"} {
		if n == 4 {
			if err := l.Compact(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
		if err := p.take(l, p.permanent(n), "result", upTo); err != nil {
			tb.Fatal(err)
		}
	}
	for r, err := range l.Rows(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		s.rows[r.Key] = r
	}
	if len(s.rows) != 5 {
		tb.Fatalf("%d rows, want 5", len(s.rows))
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// files lists all files of the ledger.
func (s stored) files(tb testing.TB) map[string]int64 {
	tb.Helper()
	all := map[string]int64{}
	fsys := s.disk.Process()
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			tb.Fatal(err)
		}
		for _, e := range entries {
			if name := path.Join(dir, e.Name); e.Dir {
				walk(name)
			} else {
				all[name] = e.Size
			}
		}
	}
	walk(testName)
	return all
}

// TestEveryFlippedBitIsDetectedOrHarmless flips one bit of each byte of each
// file: the ledger says what it said before, or that something is wrong.
func TestEveryFlippedBitIsDetectedOrHarmless(t *testing.T) {
	t.Parallel()
	s := store(t)
	detected, harmless := 0, 0
	for name, size := range s.files(t) {
		step := int64(1)
		if size > 512 {
			step = 7 // of pages mostly full of zeros
		}
		if strings.HasSuffix(name, spareName) || size > 8192 {
			step = 61
		}
		if !exhaustive {
			step *= 5
		}
		for off := int64(0); off < size; off += step {
			disk := s.disk.After(crashfs.KeepAll)
			fsys := disk.Process()
			b := readFile(t, fsys, name)
			b[off] ^= 1 << (off % 8)
			writeAt(t, fsys, name, b[off:off+1], off)
			found, err := s.readBack(t, fsys)
			if err != nil {
				t.Fatalf("%s, bit %d of byte %d: %v", name, off%8, off, err)
			}
			if found {
				detected++
			} else {
				harmless++
			}
		}
	}
	t.Logf("%d flips detected, %d harmless", detected, harmless)
	if detected < 50 {
		t.Errorf("%d flips detected: too few to have looked", detected)
	}
}

// readBack opens the ledger and compares its rows. found: an error said that
// something is wrong. err: what it says is wrong, or the error is another.
func (s stored) readBack(t *testing.T, fsys durable.FS) (found bool, err error) {
	report, verr := verifyIn(t.Context(), durable.Sub(fsys, testName))
	if verr == nil {
		verr = report.Err()
	}
	l, err := openIn(t.Context(), s.p.cfg, fsys, testName)
	if err != nil {
		return true, expectedDamage(err)
	}
	defer l.Close()
	for key, want := range s.rows {
		got, _, err := l.Lookup(t.Context(), key)
		if err != nil {
			if verr == nil && !errors.Is(err, durable.ErrPoisoned) {
				return true, fmt.Errorf("verify says nothing of %w", err)
			}
			return true, expectedDamage(err)
		}
		if !got.Equal(want) {
			return false, fmt.Errorf("row %s is another: %+v", key, got)
		}
	}
	return verr != nil, nil
}

func expectedDamage(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) || errors.Is(err, durable.ErrPoisoned) {
		return nil
	}
	return err
}

// TestDamageStopsItsShardAlone: the error names file and offset, the other
// shards go on, and health says so.
func TestDamageStopsItsShardAlone(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	p := &play{tb: t, cfg: f.cfg, clock: f.clock}
	l := f.ledger()
	const rows = 20
	for n := range rows {
		if err := p.take(l, p.permanent(n), "result", "claim"); err != nil {
			t.Fatal(err)
		}
	}
	f.crash()
	f.clock.Restart()
	fsys := f.process()
	const name = "shard-01/000000000001.seg"
	writeAt(t, fsys, testName+"/"+name, []byte{0xff}, 4096+100)
	l = f.ledger()
	served := 0
	for n := range rows {
		c, err := l.Claim(t.Context(), p.permanent(n))
		if l.owner(p.permanent(n).Key()) == 0 {
			if _, ok := c.(fencepost.Acquired); !ok {
				t.Errorf("the other shard: %T, %v", c, err)
			}
			served++
			continue
		}
		corrupt, ok := errors.AsType[*CorruptError](err)
		if !ok || corrupt.File != name || corrupt.Offset != 4096 || fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
			t.Errorf("the damaged shard: %T, %v; want %s corrupt at offset 4096", c, err, name)
		}
	}
	if served == 0 || served == rows {
		t.Fatalf("%d of %d deliveries are in the other shard", served, rows)
	}
	if h := l.Health(); h.OK() || len(h.Corrupt) != 1 || h.Corrupt[1] == nil || !errors.Is(h.Err(), ErrCorrupt) {
		t.Errorf("health = %+v, want shard 1 corrupt", h)
	}
	if err := l.Health().Maintenance; err == nil || strings.Contains(err.Error(), "shard-01/shard-01") {
		t.Errorf("maintenance = %v, want one that names %s", err, name)
	}
	st, err := l.Stat(t.Context())
	if !errors.Is(err, ErrCorrupt) || st.Leased != served {
		t.Errorf("stat: %d leased, %v; want %d, ErrCorrupt", st.Leased, err, served)
	}
	var seen int
	var rowErrs []error
	for _, err := range l.Rows(t.Context()) {
		if err != nil {
			rowErrs = append(rowErrs, err)
		} else {
			seen++
		}
	}
	if seen != served || len(rowErrs) != 1 {
		t.Errorf("rows: %d and errors %v; want %d and one", seen, rowErrs, served)
	}
}

// TestMissingAndForeignFiles: what is gone or does not belong there is named,
// with the mend, and nothing is changed.
func TestMissingAndForeignFiles(t *testing.T) {
	t.Parallel()
	s := store(t)
	for _, tt := range []struct {
		name  string
		spoil func(fsys durable.FS) error
		is    error
		says  []string
	}{
		{"a segment is missing", func(fsys durable.FS) error {
			return fsys.Remove(testName + "/shard-00/000000000001.seg")
		}, ErrCorrupt, []string{"shard-00/000000000001.seg", "missing", "put the file back"}},
		{"a foreign file", func(fsys durable.FS) error {
			return durable.WriteFile(fsys, testName+"/shard-00/notes.txt", []byte("hello"))
		}, ErrCorrupt, []string{"shard-00/notes.txt", "move it out"}},
		{"a segment without a number", func(fsys durable.FS) error {
			return durable.WriteFile(fsys, testName+"/shard-00/x.seg", []byte("hello"))
		}, ErrCorrupt, []string{"shard-00/x.seg", "move it out"}},
		{"a segment of another number", func(fsys durable.FS) error {
			return fsys.Rename(testName+"/shard-00/000000000001.seg", testName+"/shard-00/000000000002.seg")
		}, ErrCorrupt, []string{"shard-00/000000000001.seg", "put the file back"}},
		{"a superblock too long", func(fsys durable.FS) error {
			return durable.WriteFile(fsys, testName+"/"+formatName, make([]byte, superSize+1))
		}, ErrCorrupt, []string{formatName, "any copy"}},
		{"no superblock", func(fsys durable.FS) error {
			return fsys.Remove(testName + "/" + formatName)
		}, fs.ErrNotExist, []string{formatName, "name the directory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fsys := s.disk.After(crashfs.KeepAll).Process()
			if err := tt.spoil(fsys); err != nil {
				t.Fatal(err)
			}
			before := contents(t, fsys, testName)
			l, err := openIn(t.Context(), s.p.cfg, fsys, testName)
			if err == nil {
				_, _, err = l.Lookup(t.Context(), s.p.permanent(0).Key())
				err = errors.Join(err, l.Close())
			}
			if !errors.Is(err, tt.is) {
				t.Fatalf("error = %v, want one that matches %v", err, tt.is)
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it says %q, which does not name %q", err, want)
				}
			}
			after := contents(t, fsys, testName)
			// A slot counts its owners.
			delete(before, testName+"/"+slotName(0))
			delete(after, testName+"/"+slotName(0))
			if !maps.Equal(before, after) {
				t.Error("something was changed")
			}
		})
	}
}

func TestOpenNamesTheParameterThatDiffers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := Config{Dir: filepath.Join(dir, "ledger"), Shards: 2, Capacity: 100, Volatile: true, Maintain: -1}
	l, err := Open(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"ledger.lease":          func(c *Config) { c.Lease = 30 * time.Second },
		"ledger.capacity":       func(c *Config) { c.Capacity = 101 },
		"ledger.shards":         func(c *Config) { c.Shards = 4 },
		"replay.max_signed_age": func(c *Config) { c.Window = fencepost.DefaultReplayWindow; c.Window.MaxSignedAge = time.Minute },
		"replay.max_queue_age":  func(c *Config) { c.Window = fencepost.DefaultReplayWindow; c.Window.MaxQueueAge = time.Hour },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			cfg := base
			change(&cfg)
			_, err := Open(t.Context(), cfg)
			p, ok := errors.AsType[*ParameterError](err)
			if !ok || p.Field != field || !errors.Is(err, ErrParameters) || fencepost.ReasonOf(err) != fencepost.ReasonParameters {
				t.Fatalf("error = %v, want a ParameterError of %s", err, field)
			}
		})
	}
}

func TestOpenRefusesAnotherVersion(t *testing.T) {
	t.Parallel()
	s := store(t)
	fsys := s.disk.After(crashfs.KeepAll).Process()
	b := readFile(t, fsys, testName+"/"+formatName)
	b[8]++
	putCRC(b)
	if err := durable.WriteFile(fsys, testName+"/"+formatName, b); err != nil {
		t.Fatal(err)
	}
	if _, err := openIn(t.Context(), s.p.cfg, fsys, testName); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 3") {
		t.Fatalf("error = %v, want ErrVersion that names version 3", err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{
		Dir: filepath.Join(t.TempDir(), "x"), Lease: time.Second, Capacity: MaxCapacity + 1, Shards: MaxShards + 1,
		SegmentBytes: 1, MaxBytes: 1, Window: fencepost.ReplayWindow{MaxSignedAge: 1},
	})
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("error = %v, want ErrConfig", err)
	}
	for _, field := range []string{"lease", "capacity", "shards", "segment", "max bytes", "replay window"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the error says nothing of %s: %v", field, err)
		}
	}
	if _, err := Open(t.Context(), Config{Dir: "/"}); !errors.Is(err, ErrConfig) {
		t.Errorf("dir /: %v, want ErrConfig", err)
	}
	if _, err := Open(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "no", "ledger"), Volatile: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory above that is missing: %v, want ErrNotExist", err)
	}
}

// putCRC makes a superblock's checksum right again.
func putCRC(b []byte) {
	binary.LittleEndian.PutUint32(b[superSize-4:], crc32.Checksum(b[:superSize-4], castagnoli))
}
