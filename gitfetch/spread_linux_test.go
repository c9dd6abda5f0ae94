package gitfetch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// flagsOf returns a directory's attributes, and whether its file system is
// one of those that have them.
func flagsOf(t *testing.T, dir string) (flags uint32, extended bool) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		return 0, false
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err = unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil {
		t.Fatal(err)
	}
	return flags, true
}

func TestCheckoutsOfAWorkspaceArePlacedApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := OpenWorkspace(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, extended := flagsOf(t, filepath.Join(dir, w.name))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !extended {
		t.Skip("this file system takes no hint")
	}
	if own&topDir == 0 {
		t.Errorf("the workspace has attributes %#x, want %#x among them", own, topDir)
	}
	if base, _ := flagsOf(t, dir); base&topDir != 0 {
		t.Errorf("the directory that is not its own has attributes %#x", base)
	}
}
