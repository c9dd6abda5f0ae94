//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package gitfetch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// hardLink gives the file name of the open directory from a second name in to.
// It follows no link: of one it would make a second name.
func hardLink(from *os.File, name string, to *os.File, as string) error {
	return unix.Linkat(int(from.Fd()), name, int(to.Fd()), as, 0)
}

// isTooManyLinks reports whether a file has as many names as it can have.
func isTooManyLinks(err error) bool { return errors.Is(err, unix.EMLINK) }
