package gitfetch

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is the attribute of ext2 to ext4 for a directory whose
// subdirectories have nothing to do with each other (chattr +T).
const topDir = 0x00020000

// spread tells the file system that what is in a directory need not be placed
// together. A checkout then does not have to step over every inode that the
// ones before it have just given back, which ext4 without a journal leaves
// unused for a while: that took most of the time of a fetch.
//
// It is a hint. A file system that takes none stays as it is, and whether it
// did changes nothing but speed; so its error is none of the workspace's.
func spread(root *os.Root, name string) {
	dir, err := root.Open(name)
	if err != nil {
		return
	}
	defer dir.Close()
	fd := int(dir.Fd())
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return
	}
	_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topDir))
}
