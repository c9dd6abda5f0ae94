//go:build unix

package gitfetch

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A folder is an open directory of a tree that is being made. Names are single
// components, and no link is followed: not at the last component, which is all
// there is. It does with one system call what a root does with several.
type folder struct {
	fd int
	of *os.File // what fd is of, if it is of something else
}

// folderOf returns the directory itself.
func folderOf(dir *os.Root) (folder, error) {
	f, err := dir.Open(".")
	if err != nil {
		return folder{}, err
	}
	return folder{fd: int(f.Fd()), of: f}, nil
}

func (d folder) close() error {
	if d.of != nil {
		return d.of.Close()
	}
	return unix.Close(d.fd)
}

// again repeats a call that a signal has interrupted.
func again(op, name string, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
}

func (d folder) mkdir(name string) error {
	return again("mkdirat", name, func() error { return unix.Mkdirat(d.fd, name, uint32(dirPerm)) })
}

func (d folder) folder(name string) (folder, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return folder{fd: fd}, err
}

func (d folder) open(name string, flags int, perm fs.FileMode) (fd int, err error) {
	err = again("openat", name, func() (err error) {
		fd, err = unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm))
		return err
	})
	return fd, err
}

// write makes a file, which must not exist, with that content, and returns by
// what it is recognised.
func (d folder) write(name string, perm fs.FileMode, content []byte) (s stamp, device uint64, err error) {
	fd, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, perm)
	if err != nil {
		return stamp{}, 0, err
	}
	for len(content) > 0 && err == nil {
		err = again("write", name, func() error {
			n, err := unix.Write(fd, content)
			content = content[max(n, 0):]
			return err
		})
	}
	var st unix.Stat_t
	if err == nil {
		err = again("fstat", name, func() error { return unix.Fstat(fd, &st) })
	}
	// It is closed whatever this says, and a second time would close another.
	if closing := unix.Close(fd); closing != nil && err == nil {
		err = &fs.PathError{Op: "close", Path: name, Err: closing}
	}
	// The types of these fields differ between systems.
	return stamp{ino: uint64(st.Ino), mtime: st.Mtim.Nano()}, uint64(st.Dev), err
}
