package durable

import (
	"errors"
	"io/fs"
	"testing"
)

// silentFS is a disk that has given up, and says so to changes alone.
type silentFS struct {
	FS
	gone *error
}

func (s silentFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return silentFile{f, s.gone}, err
}

type silentFile struct {
	File
	gone *error
}

func (f silentFile) Sync() error  { return nil }
func (f silentFile) probe() error { return *f.gone }

// A sync may succeed on a file system whose journal has just been given up.
func TestASyncWhoseDiskTakesNoChangeAfterItHasFailed(t *testing.T) {
	t.Parallel()
	var gone error
	r, err := OpenRoot(silentFS{OS(t.TempDir()), &gone})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := WriteFile(r, "a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	gone = &NoSpaceError{Op: "probe", Name: HealthName}
	if err := r.SyncDir("."); err != nil {
		t.Errorf("a disk that is only full: %v", err)
	}
	gone = ErrReadOnly
	if err := r.SyncDir("."); !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrReadOnly) {
		t.Errorf("SyncDir = %v, want ErrPoisoned by ErrReadOnly", err)
	}
	gone = nil
	if err := WriteFile(r, "b", []byte("b")); !errors.Is(err, ErrPoisoned) {
		t.Errorf("a later write: %v, want ErrPoisoned", err)
	}
}
