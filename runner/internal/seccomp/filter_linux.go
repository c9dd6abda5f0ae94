package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported: no filter was written for this processor.
var ErrUnsupported = errors.New("no system call filter for " + runtime.GOARCH)

// A policy is what the filter of one processor says.
type policy struct {
	// arch is the AUDIT_ARCH_ value of the native ABI.
	arch uint32
	// foreignBit marks numbers of a second ABI under the same arch; 0 for none.
	foreignBit uint32
	// newest is the highest number that this list knows.
	newest uint32
	// clone, clone3, socket and socketpair are numbers of calls with a rule of
	// their own.
	clone, clone3, socket, socketpair uint32
	// denied are numbers that fail with EPERM.
	denied []uint32
}

// namespaceFlags are the flags of clone that make a namespace. CLONE_NEWTIME
// is not among them: in clone its bit belongs to the exit signal.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Offsets into struct seccomp_data. Both processors are little-endian, so the
// low half of an argument comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArg0   = 16
)

// Install puts the calling thread, and every thread and process that it
// starts, under the filter for ever. The thread must have no_new_privs. Its
// error matches [ErrUnsupported] or is the kernel's.
func Install() error {
	p, ok := native()
	if !ok {
		return ErrUnsupported
	}
	prog, err := p.compile()
	if err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// compile lays the rules out as one straight run of comparisons: every jump
// is to the next one or to its own verdict, so none can go astray.
func (p policy) compile() ([]unix.SockFilter, error) {
	var out []unix.SockFilter
	load := func(offset uint32) {
		out = append(out, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
	}
	verdict := func(k uint32) { out = append(out, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}) }
	// unless skips the next n instructions when the comparison holds.
	unless := func(op uint16, k uint32, n uint8) {
		out = append(out, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: n, K: k})
	}
	// when skips the next n instructions when the comparison fails.
	when := func(op uint16, k uint32, n uint8) {
		out = append(out, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jf: n, K: k})
	}

	load(offsetArch)
	unless(unix.BPF_JEQ, p.arch, 1)
	verdict(unix.SECCOMP_RET_KILL_PROCESS)
	load(offsetNumber)
	if p.foreignBit != 0 {
		when(unix.BPF_JSET, p.foreignBit, 1)
		verdict(unix.SECCOMP_RET_KILL_PROCESS)
	}
	when(unix.BPF_JGT, p.newest, 1)
	verdict(fail(unix.ENOSYS))
	when(unix.BPF_JEQ, p.clone3, 1)
	verdict(fail(unix.ENOSYS))

	when(unix.BPF_JEQ, p.clone, 4)
	load(offsetArg0)
	when(unix.BPF_JSET, namespaceFlags, 1)
	verdict(fail(unix.EPERM))
	verdict(unix.SECCOMP_RET_ALLOW)

	unless(unix.BPF_JEQ, p.socket, 1)
	when(unix.BPF_JEQ, p.socketpair, 6)
	load(offsetArg0)
	unless(unix.BPF_JEQ, unix.AF_UNIX, 3)
	unless(unix.BPF_JEQ, unix.AF_INET, 2)
	unless(unix.BPF_JEQ, unix.AF_INET6, 1)
	verdict(fail(unix.EAFNOSUPPORT))
	verdict(unix.SECCOMP_RET_ALLOW)

	for _, number := range p.denied {
		when(unix.BPF_JEQ, number, 1)
		verdict(fail(unix.EPERM))
	}
	verdict(unix.SECCOMP_RET_ALLOW)
	if len(out) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("system call filter of %d instructions, at most %d", len(out), unix.BPF_MAXINSNS)
	}
	return out, nil
}

func fail(errno unix.Errno) uint32 {
	return unix.SECCOMP_RET_ERRNO | uint32(errno)&unix.SECCOMP_RET_DATA
}
