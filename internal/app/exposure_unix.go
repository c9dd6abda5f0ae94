//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"
)

// checkExposure refuses a directory whose owner is somebody else, or that
// others than its owner can write to or read: raw deliveries lie in it.
func checkExposure(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at data_dir: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o, others can reach it: %w; chmod 700 it", dir, perm, ErrExposed)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, this is user %d: %w; chown it, or run as that user", dir, sys.Uid, os.Geteuid(), ErrExposed)
	}
	return nil
}
