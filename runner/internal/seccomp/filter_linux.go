package seccomp

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
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

// compile makes a binary search over the numbers: the kernel runs a new filter
// for every number there is, to remember which it can allow without asking, so
// a long list of comparisons costs a third of a millisecond at every start.
func (p policy) compile() ([]unix.SockFilter, error) {
	prog := []unix.SockFilter{
		load(offsetArch),
		jump(unix.BPF_JEQ, p.arch, 1, 0),
		verdict(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
	}
	search, err := search(p.ranges())
	if err != nil {
		return nil, err
	}
	return append(prog, search...), nil
}

// A numberRange says what to do with the numbers from its first one to the
// next range's.
type numberRange struct {
	first uint32
	code  []unix.SockFilter
}

// ranges covers all numbers in order; neighbours differ.
func (p policy) ranges() []numberRange {
	single := map[uint32][]unix.SockFilter{
		p.clone3:     {verdict(fail(unix.ENOSYS))},
		p.clone:      cloneRule(),
		p.socket:     familyRule(),
		p.socketpair: familyRule(),
	}
	for _, n := range p.denied {
		single[n] = []unix.SockFilter{verdict(fail(unix.EPERM))}
	}
	var out []numberRange
	add := func(first uint32, code ...unix.SockFilter) {
		if len(out) == 0 || !slices.Equal(out[len(out)-1].code, code) {
			out = append(out, numberRange{first, code})
		}
	}
	next := uint32(0)
	for _, n := range slices.Sorted(maps.Keys(single)) {
		if n > next {
			add(next, verdict(unix.SECCOMP_RET_ALLOW))
		}
		add(n, single[n]...)
		next = n + 1
	}
	if next <= p.newest {
		add(next, verdict(unix.SECCOMP_RET_ALLOW))
	}
	add(p.newest+1, verdict(fail(unix.ENOSYS)))
	if p.foreignBit != 0 {
		add(p.foreignBit, verdict(unix.SECCOMP_RET_KILL_PROCESS))
	}
	return out
}

// search compares the loaded number with the middle of the ranges, over and
// over. A jump reaches 255 instructions far, which is enough for some hundred
// ranges; more are an error here, not a wrong filter.
func search(ranges []numberRange) ([]unix.SockFilter, error) {
	if len(ranges) == 1 {
		return ranges[0].code, nil
	}
	middle := len(ranges) / 2
	below, err := search(ranges[:middle])
	if err != nil {
		return nil, err
	}
	above, err := search(ranges[middle:])
	if err != nil {
		return nil, err
	}
	if len(below) > 255 {
		return nil, fmt.Errorf("system call filter: jump over %d instructions", len(below))
	}
	out := []unix.SockFilter{jump(unix.BPF_JGE, ranges[middle].first, uint8(len(below)), 0)}
	return append(append(out, below...), above...), nil
}

func cloneRule() []unix.SockFilter {
	return []unix.SockFilter{
		load(offsetArg0),
		jump(unix.BPF_JSET, namespaceFlags, 0, 1),
		verdict(fail(unix.EPERM)),
		verdict(unix.SECCOMP_RET_ALLOW),
	}
}

func familyRule() []unix.SockFilter {
	return []unix.SockFilter{
		load(offsetArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 3, 0),
		jump(unix.BPF_JEQ, unix.AF_INET, 2, 0),
		jump(unix.BPF_JEQ, unix.AF_INET6, 1, 0),
		verdict(fail(unix.EAFNOSUPPORT)),
		verdict(unix.SECCOMP_RET_ALLOW),
	}
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips yes instructions when the comparison holds, and else no.
func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func verdict(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

func fail(errno unix.Errno) uint32 {
	return unix.SECCOMP_RET_ERRNO | uint32(errno)&unix.SECCOMP_RET_DATA
}
