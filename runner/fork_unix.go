//go:build unix

package runner

import "syscall"

// holdForks keeps this process from forking until release is called.
func holdForks() (release func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}
