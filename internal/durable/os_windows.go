package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func isReadOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

func syncData(f *os.File) error { return f.Sync() }

// syncDir does nothing: NTFS writes names through its own journal, and a
// directory can't be flushed.
func syncDir(string) error { return nil }

func writeVec(f *os.File, parts [][]byte, off int64) (int, error) {
	return writeEach(f, parts, off)
}

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// lockAt is the one byte that is locked. Locks are mandatory here, so it lies
// where no file has bytes.
const lockAt = 1<<31 - 1

func flock(f *os.File, mode LockMode, wait bool) (bool, error) {
	var flags uint32
	if mode == Exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func funlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{OffsetHigh: lockAt})
}

func volumeOf(dir string) (Volume, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Volume{}, err
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(abs) + `\`)
	if err != nil {
		return Volume{}, err
	}
	var name [windows.MAX_PATH + 1]uint16
	var flags uint32
	err = windows.GetVolumeInformation(root, nil, 0, nil, nil, &flags, &name[0], uint32(len(name)))
	if err != nil {
		return Volume{}, err
	}
	var free, total uint64
	if err := windows.GetDiskFreeSpaceEx(root, &free, &total, nil); err != nil {
		return Volume{}, err
	}
	v := Volume{
		Type:       strings.ToLower(windows.UTF16ToString(name[:])),
		Durability: Unsuitable,
		Free:       int64(free), Total: int64(total),
		ReadOnly: flags&windows.FILE_READ_ONLY_VOLUME != 0,
	}
	switch v.Type {
	case "ntfs", "refs":
		v.Durability = Durable
	}
	return v, nil
}
