//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

// control runs f on the descriptor, again for as long as a signal interrupts
// it.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = raw.Control(func(fd uintptr) {
		for {
			if callErr = f(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the one way in which Control itself fails
	}
	return callErr
}

// flock reports whether the lock was taken: always, unless wait is false.
func flock(file *os.File, mode LockMode, wait bool) (bool, error) {
	how := unix.LOCK_EX
	if mode == Shared {
		how = unix.LOCK_SH
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	err := control(file, func(fd int) error { return unix.Flock(fd, how) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func funlock(file *os.File) error {
	return control(file, func(fd int) error { return unix.Flock(fd, unix.LOCK_UN) })
}

func syncDir(path string) error {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return errors.Join(ErrSyncNotTried, pathCause(err))
	}
	return errors.Join(syncFull(d), d.Close())
}
