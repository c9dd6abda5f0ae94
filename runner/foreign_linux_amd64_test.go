package runner_test

import "golang.org/x/sys/unix"

const hasForeignABI = true

// foreignCall makes a call of the x32 ABI.
func foreignCall() int {
	_, _, errno := unix.RawSyscall(1<<30|unix.SYS_GETPID, 0, 0, 0)
	return int(errno)
}
