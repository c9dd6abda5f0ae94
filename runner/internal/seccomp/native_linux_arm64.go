package seccomp

import "golang.org/x/sys/unix"

// native is the policy of 64-bit ARM. Its 32-bit ABI has another arch value.
func native() (policy, bool) {
	return policy{
		arch: unix.AUDIT_ARCH_AARCH64, newest: newestKnown,
		clone: unix.SYS_CLONE, clone3: unix.SYS_CLONE3, socket: unix.SYS_SOCKET, socketpair: unix.SYS_SOCKETPAIR,
		denied: denied(),
	}, true
}
