//go:build unix

package sink

import (
	"os"
	"syscall"
)

// sameDevice reports whether two directories are on one file system.
func sameDevice(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	s, ok := x.Sys().(*syscall.Stat_t)
	t, too := y.Sys().(*syscall.Stat_t)
	return ok && too && s.Dev == t.Dev, nil
}
