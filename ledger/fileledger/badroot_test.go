package fileledger

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
)

// A crooked file system refuses, or locks without excluding.
type crooked struct {
	durable.FS
	deny     string // opening any name that holds it is refused
	denyList string // and listing one
	locks    string // "absent" or "idle"
	kind     durable.Durability
}

func (c crooked) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if c.deny != "" && strings.Contains(name, c.deny) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil || c.locks == "" {
		return f, err
	}
	return crookedFile{f, c.locks}, nil
}

func (c crooked) ReadDir(name string) ([]durable.Info, error) {
	if c.denyList != "" && strings.Contains(name, c.denyList) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return c.FS.ReadDir(name)
}

func (c crooked) Volume() (durable.Volume, error) {
	v, err := c.FS.Volume()
	if c.kind != 0 {
		v.Durability, v.Type = c.kind, "nfs"
	}
	return v, err
}

type crookedFile struct {
	durable.File
	how string
}

func (f crookedFile) TryLock(durable.LockMode) (bool, error) {
	if f.how == "absent" {
		return false, errors.New("function not implemented")
	}
	return true, nil
}

func (f crookedFile) Lock(context.Context, durable.LockMode) error { return nil }
func (f crookedFile) Unlock() error                                { return nil }

// contents are all files below a name, by name.
func contents(tb testing.TB, fsys durable.FS, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		name := dir + "/" + e.Name
		if !e.Dir {
			all[name] = string(readFile(tb, fsys, name))
			continue
		}
		all[name] = "directory"
		for k, v := range contents(tb, fsys, name) {
			all[k] = v
		}
	}
	return all
}

// TestABadRootIsNamedAndLeftAsItIs: each kind of directory that can't be
// opened has its own error, which says what, where and the mend, and neither
// opening nor verifying nor holding it has changed a byte.
func TestABadRootIsNamedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	s := store(t)
	at := func(name string) string { return testName + "/" + name }
	remove := func(name string) func(durable.FS) error {
		return func(fsys durable.FS) error { return fsys.Remove(at(name)) }
	}
	edit := func(name string, change func([]byte) []byte) func(durable.FS) error {
		return func(fsys durable.FS) error {
			b := change(readFile(t, fsys, at(name)))
			if err := fsys.Remove(at(name)); err != nil {
				return err
			}
			return durable.WriteFile(fsys, at(name), b)
		}
	}
	for name, tt := range map[string]struct {
		spoil  func(durable.FS) error
		wrap   crooked
		config func(*Config)
		is     error
		says   []string
	}{
		"other parameters": {
			config: func(c *Config) { c.Lease += time.Second },
			is:     ErrParameters, says: []string{"ledger.lease", "set it back"},
		},
		"another version": {
			spoil: edit(formatName, func(b []byte) []byte { b[8] = 9; putCRC(b); return b }),
			is:    ErrVersion, says: []string{"FORMAT", "version 9", "run the program"},
		},
		"a foreign directory": {
			spoil: remove(formatName),
			is:    ErrForeign, says: []string{"FORMAT", "name the directory"},
		},
		"a foreign FORMAT": {
			spoil: edit(formatName, func([]byte) []byte { return []byte("hello") }),
			is:    ErrCorrupt, says: []string{"FORMAT", "offset 0", "any copy", "name another directory"},
		},
		"an append lock is missing": {
			spoil: remove(appendLockName(0)),
			is:    ErrMissing, says: []string{"locks/a00", "stop every process"},
		},
		"a sync lock is missing": {
			spoil: remove(syncLockName(0)),
			is:    ErrMissing, says: []string{"locks/s00", "stop every process"},
		},
		"a head is missing": {
			spoil: remove(shardDir(0) + "/" + headName),
			is:    ErrMissing, says: []string{"shard-00/head", "stop every process"},
		},
		"FORMAT may not be read": {
			wrap: crooked{deny: formatName},
			is:   ErrPermission, says: []string{"FORMAT", "0700"},
		},
		"the health may not be written": {
			wrap: crooked{deny: durable.HealthName},
			is:   ErrPermission, says: []string{"health", "0700"},
		},
		"a head may not be written": {
			wrap: crooked{deny: shardDir(0) + "/" + headName},
			is:   ErrPermission, says: []string{"shard-00/head", "0700"},
		},
		"an append lock may not be taken": {
			wrap: crooked{deny: appendLockName(0)},
			is:   ErrPermission, says: []string{"locks/a00", "0700"},
		},
		"a sync lock may not be taken": {
			wrap: crooked{deny: syncLockName(0)},
			is:   ErrPermission, says: []string{"locks/s00", "0700"},
		},
		"a segment may not be written": {
			wrap: crooked{deny: segSuffix},
			is:   ErrPermission, says: []string{"shard-00/00000000000", ".seg", "0700"},
		},
		"a snapshot may not be read": {
			wrap: crooked{deny: snapSuffix},
			is:   ErrPermission, says: []string{"shard-00/0000", ".snap", "0700"},
		},
		"the spare segment may not be written": {
			wrap: crooked{deny: spareName},
			is:   ErrPermission, says: []string{"shard-00/next.tmp", "0700"},
		},
		"a shard may not be listed": {
			wrap: crooked{denyList: shardDir(0)},
			is:   ErrPermission, says: []string{"shard-00", "0700"},
		},
		"a slot may not be taken": {
			wrap: crooked{deny: slotDir},
			is:   ErrPermission, says: []string{"slots", "0700"},
		},
		"no locks": {
			wrap: crooked{locks: "absent"},
			is:   ErrLocks, says: []string{"FORMAT", "local ext4"},
		},
		"locks that exclude nobody": {
			wrap: crooked{locks: "idle"},
			is:   ErrLocks, says: []string{"taken again", "local ext4"},
		},
		"a network file system": {
			wrap: crooked{kind: durable.Unsuitable},
			is:   durable.ErrUnsuitable, says: []string{"nfs", "local ext4"},
		},
		"it was moved": {
			spoil: func(fsys durable.FS) error {
				return durable.WriteFile(fsys, at(movedName), encodeMove(ledger.Move{From: [16]byte{1}, To: [16]byte{2}, Rows: 5, Digest: [32]byte{3}}))
			},
			is: ledger.ErrMoved, says: []string{"02000000", "configure where"},
		},
		"a mark that can't be read": {
			spoil: func(fsys durable.FS) error { return durable.WriteFile(fsys, at(movedName), []byte("moved, I think")) },
			is:    ErrCorrupt, says: []string{"MOVED", "configure where it went"},
		},
		"a copy": {
			spoil: func(fsys durable.FS) error {
				return durable.WriteFile(fsys, at(copyName), encodeMove(ledger.Move{From: [16]byte{1}, To: [16]byte{2}, Rows: 5, Digest: [32]byte{3}}))
			},
			is: ErrCopy, says: []string{"COPY", "ledger restore"},
		},
		"a failed sync": {
			spoil: func(fsys durable.FS) error {
				return durable.WriteFile(fsys, at(durable.PoisonName), []byte("sync: it failed\n"))
			},
			is: durable.ErrPoisoned, says: []string{"POISON", "restart the machine", "A failed sync"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := s.disk.After(crashfs.KeepAll)
			if tt.spoil != nil {
				if err := tt.spoil(disk.Process()); err != nil {
					t.Fatal(err)
				}
			}
			before := contents(t, disk.Process(), testName)
			cfg := s.p.cfg
			if tt.config != nil {
				tt.config(&cfg)
			}
			tt.wrap.FS = disk.Process()
			l, err := openIn(t.Context(), cfg, tt.wrap, testName)
			if err == nil {
				_ = l.Close()
			}
			if !errors.Is(err, tt.is) {
				t.Fatalf("open: %v, want one that matches %v", err, tt.is)
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("open says %q, which does not name %q", err, want)
				}
			}
			report, err := verifyIn(t.Context(), durable.Sub(tt.wrap, testName))
			if err == nil {
				err = report.Err()
			}
			if err != nil && !errors.Is(err, tt.is) {
				t.Errorf("verify: %v, want one that matches %v", err, tt.is)
			}
			after := contents(t, disk.Process(), testName)
			for name, b := range before {
				if after[name] != b {
					t.Errorf("%s was changed", name)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files, and %d before", len(after), len(before))
			}
		})
	}
}

// TestDamageChangesNothing: a file that was cut off or altered stops its
// shard, and opening it leaves every byte of the logs as it was.
func TestDamageChangesNothing(t *testing.T) {
	t.Parallel()
	s := store(t)
	snapshot := snapshotIn(t, s.disk.After(crashfs.KeepAll).Process())
	// Where the log goes on behind it: what is before is not read any more.
	b := readFile(t, s.disk.After(crashfs.KeepAll).Process(), testName+"/shard-00/"+snapshot)
	behind := map[string]int{"000000000001.seg": int(binary.LittleEndian.Uint64(b[48:])), snapshot: 4096}
	for name, behind := range behind {
		for what, spoil := range map[string]func([]byte) []byte{
			"cut off": func(b []byte) []byte { return b[:behind+10] },
			"altered": func(b []byte) []byte { b[behind+50] ^= 0xff; return b },
			"emptied": func([]byte) []byte { return nil },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				disk := s.disk.After(crashfs.KeepAll)
				file := testName + "/shard-00/" + name
				fsys := disk.Process()
				b := spoil(readFile(t, fsys, file))
				if err := fsys.Remove(file); err != nil {
					t.Fatal(err)
				}
				if err := durable.WriteFile(fsys, file, b); err != nil {
					t.Fatal(err)
				}
				before := contents(t, fsys, testName+"/shard-00")
				l, err := openIn(t.Context(), s.p.cfg, disk.Process(), testName)
				if err != nil {
					t.Fatal(err)
				}
				_, _, err = l.Lookup(t.Context(), s.p.permanent(0).Key())
				err = errors.Join(err, l.Close())
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("lookup: %v, want ErrCorrupt", err)
				}
				for _, want := range []string{"shard-00/" + name, "offset", "keep the directory", "A corrupt shard"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("lookup says %q, which does not name %q", err, want)
					}
				}
				for name, b := range contents(t, disk.Process(), testName+"/shard-00") {
					if before[name] != b {
						t.Errorf("%s was changed", name)
					}
				}
			})
		}
	}
}

func snapshotIn(tb testing.TB, fsys durable.FS) string {
	tb.Helper()
	entries, err := fsys.ReadDir(testName + "/shard-00")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, snapSuffix) {
			return e.Name
		}
	}
	tb.Fatal("there is no snapshot")
	return ""
}

// TestARootOfVersionOneIsUpgraded: what an older program made is opened, its
// snapshots too, and the older program refuses it from then on.
func TestARootOfVersionOneIsUpgraded(t *testing.T) {
	t.Parallel()
	s := store(t)
	disk := s.disk.After(crashfs.KeepAll)
	fsys := disk.Process()
	b := readFile(t, fsys, testName+"/"+formatName)
	b[8] = 1
	putCRC(b)
	if err := durable.WriteFile(fsys, testName+"/"+formatName, b); err != nil {
		t.Fatal(err)
	}
	holder, err := fsys.OpenFile(testName+"/"+slotName(0), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := holder.TryLock(durable.Exclusive); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := openIn(t.Context(), s.p.cfg, disk.Process(), testName); !errors.Is(err, ledger.ErrInUse) {
		t.Fatalf("while an older process has it open: %v, want ErrInUse", err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := openIn(t.Context(), s.p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range s.rows {
		if got, ok, err := l.Lookup(t.Context(), key); err != nil || !ok || !got.Equal(want) {
			t.Errorf("row %s: %v, %v", key, ok, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if b := readFile(t, disk.Process(), testName+"/"+formatName); b[8] != 2 {
		t.Errorf("FORMAT is of version %d, want 2", b[8])
	}
}
