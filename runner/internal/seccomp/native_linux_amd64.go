package seccomp

import "golang.org/x/sys/unix"

// native is the policy of x86-64. Numbers with bit 30 belong to the x32 ABI,
// which shares the arch value.
func native() (policy, bool) {
	return policy{
		arch: unix.AUDIT_ARCH_X86_64, foreignBit: 1 << 30, newest: newestKnown,
		clone: unix.SYS_CLONE, clone3: unix.SYS_CLONE3, socket: unix.SYS_SOCKET, socketpair: unix.SYS_SOCKETPAIR,
		denied: append(denied(),
			unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL,
			unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE),
	}, true
}
