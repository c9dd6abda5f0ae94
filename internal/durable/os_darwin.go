package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return syncFull(f) }

// syncFull asks the drive to empty its cache too; fsync(2) does not.
func syncFull(f *os.File) error {
	return control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		return err
	})
}

func writeVec(f *os.File, parts [][]byte, off int64) (int, error) {
	return writeEach(f, parts, off)
}

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func volumeOf(dir string) (Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Volume{}, err
	}
	v := Volume{
		Type:       unix.ByteSliceToString(st.Fstypename[:]),
		Durability: Unsuitable,
		Free:       int64(st.Bavail) * int64(st.Bsize),
		Total:      int64(st.Blocks) * int64(st.Bsize),
		ReadOnly:   st.Flags&unix.MNT_RDONLY != 0,
	}
	switch v.Type {
	case "apfs", "hfs":
		v.Durability = Durable
	}
	return v, nil
}
