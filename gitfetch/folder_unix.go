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
	facts := factsOf(&st)
	return facts.stamp, facts.device, err
}

// create makes a file, which must not exist, to be written.
func (d folder) create(name string, perm fs.FileMode) (*os.File, error) {
	fd, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// factsOf keeps of a mode what tells a plain file from others.
func factsOf(st *unix.Stat_t) facts {
	mode := fs.FileMode(st.Mode & 0o777)
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&(unix.S_ISUID|unix.S_ISGID|unix.S_ISVTX) != 0 {
		mode |= fs.ModeIrregular
	}
	// The types of these fields differ between systems.
	return facts{stamp{ino: uint64(st.Ino), mtime: st.Mtim.Nano()}, uint64(st.Dev), st.Size, mode}
}

// look returns what a name stands for, which may be a link.
func (d folder) look(name string) (facts, error) {
	var st unix.Stat_t
	err := again("fstatat", name, func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return factsOf(&st), err
}

func (d folder) remove(name string) error {
	return again("unlinkat", name, func() error { return unix.Unlinkat(d.fd, name, 0) })
}

// link makes a second name of a file. Of a link it makes one of the link.
func (d folder) link(from folder, name, as string) error {
	return again("linkat", name, func() error { return unix.Linkat(from.fd, name, d.fd, as, 0) })
}

// read fills p with what a regular file begins with, and returns how much of p
// that took.
func (d folder) read(name string, p []byte) (n int, err error) {
	fd, st, err := d.openRegular(name)
	if err != nil {
		return 0, err
	}
	// That there is no more than its size need not be asked for again: whoever
	// lengthens it now might as well have come later.
	p = p[:min(int64(len(p)), st.Size)]
	for n < len(p) && err == nil {
		var got int
		err = again("read", name, func() (err error) {
			got, err = unix.Read(fd, p[n:])
			return err
		})
		if got <= 0 {
			break
		}
		n += got
	}
	return n, errors.Join(err, unix.Close(fd))
}

// openRegular opens a regular file; what else there may be does not make it
// wait.
func (d folder) openRegular(name string) (fd int, st unix.Stat_t, err error) {
	fd, err = d.open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, st, err
	}
	err = again("fstat", name, func() error { return unix.Fstat(fd, &st) })
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		return -1, st, errors.Join(err, unix.Close(fd))
	}
	return fd, st, nil
}

// file is openRegular for who needs more than its begin.
func (d folder) file(name string) (*os.File, error) {
	fd, _, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// isTooManyLinks reports whether a file has as many names as it can have.
func isTooManyLinks(err error) bool { return errors.Is(err, unix.EMLINK) }
