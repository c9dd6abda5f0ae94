//go:build unix

package durable

import (
	"errors"
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
	return errors.Join(err, callErr)
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
	d, err := os.Open(path)
	if err != nil {
		return errors.Join(ErrSyncNotTried, err)
	}
	return errors.Join(syncFull(d), d.Close())
}
