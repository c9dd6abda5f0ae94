package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// verdictOf runs a filter over one call, as the kernel would.
func verdictOf(t *testing.T, prog []unix.SockFilter, arch, number uint32, arg0 uint64) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(prog); pc++ {
		ins := prog[pc]
		var holds bool
		switch ins.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch ins.K {
			case offsetNumber:
				a = number
			case offsetArch:
				a = arch
			case offsetArg0:
				a = uint32(arg0)
			default:
				t.Fatalf("load from offset %d", ins.K)
			}
			continue
		case unix.BPF_RET | unix.BPF_K:
			return ins.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			holds = a == ins.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			holds = a >= ins.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			holds = a&ins.K != 0
		default:
			t.Fatalf("instruction %d has code %#x", pc, ins.Code)
		}
		if holds {
			pc += int(ins.Jt)
		} else {
			pc += int(ins.Jf)
		}
	}
	t.Fatal("the filter ran off its end")
	return 0
}

func TestFilterGivesEachCallItsVerdict(t *testing.T) {
	t.Parallel()
	p, ok := native()
	if !ok {
		t.Skip("no filter for this processor: the runner says so and required mode refuses")
	}
	prog, err := p.compile()
	if err != nil {
		t.Fatal(err)
	}
	const allow, kill = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_KILL_PROCESS
	eperm, enosys, family := fail(unix.EPERM), fail(unix.ENOSYS), fail(unix.EAFNOSUPPORT)
	const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	for _, c := range []struct {
		name   string
		arch   uint32
		number uint32
		arg0   uint64
		want   uint32
	}{
		{"read", p.arch, unix.SYS_READ, 0, allow},
		{"execve", p.arch, unix.SYS_EXECVE, 0, allow},
		{"fork", p.arch, unix.SYS_CLONE, uint64(unix.SIGCHLD), allow},
		{"thread", p.arch, unix.SYS_CLONE, threadFlags, allow},
		{"clone user namespace", p.arch, unix.SYS_CLONE, unix.CLONE_NEWUSER | uint64(unix.SIGCHLD), eperm},
		{"clone pid namespace", p.arch, unix.SYS_CLONE, unix.CLONE_NEWPID, eperm},
		{"clone cgroup namespace", p.arch, unix.SYS_CLONE, unix.CLONE_NEWCGROUP | threadFlags, eperm},
		{"clone3", p.arch, unix.SYS_CLONE3, 0, enosys},
		{"unix socket", p.arch, unix.SYS_SOCKET, unix.AF_UNIX, allow},
		{"inet socket", p.arch, unix.SYS_SOCKET, unix.AF_INET, allow},
		{"inet6 socket", p.arch, unix.SYS_SOCKET, unix.AF_INET6, allow},
		{"netlink socket", p.arch, unix.SYS_SOCKET, unix.AF_NETLINK, family},
		{"packet socket", p.arch, unix.SYS_SOCKET, unix.AF_PACKET, family},
		{"vsock", p.arch, unix.SYS_SOCKET, unix.AF_VSOCK, family},
		{"kernel crypto socket", p.arch, unix.SYS_SOCKET, unix.AF_ALG, family},
		{"unix socketpair", p.arch, unix.SYS_SOCKETPAIR, unix.AF_UNIX, allow},
		{"vsock socketpair", p.arch, unix.SYS_SOCKETPAIR, unix.AF_VSOCK, family},
		{"mount", p.arch, unix.SYS_MOUNT, 0, eperm},
		{"unshare", p.arch, unix.SYS_UNSHARE, 0, eperm},
		{"ptrace", p.arch, unix.SYS_PTRACE, 0, eperm},
		{"bpf", p.arch, unix.SYS_BPF, 0, eperm},
		{"io_uring_setup", p.arch, unix.SYS_IO_URING_SETUP, 0, eperm},
		{"keyctl", p.arch, unix.SYS_KEYCTL, 0, eperm},
		{"newest known, denied", p.arch, p.newest, 0, eperm},
		{"newer than the list", p.arch, p.newest + 1, 0, enosys},
		{"far newer", p.arch, 1<<30 - 1, 0, enosys},
		{"32-bit ABI", unix.AUDIT_ARCH_I386, unix.SYS_READ, 0, kill},
		{"other processor", unix.AUDIT_ARCH_RISCV64, unix.SYS_READ, 0, kill},
	} {
		if got := verdictOf(t, prog, c.arch, c.number, c.arg0); got != c.want {
			t.Errorf("%s: verdict %#x, want %#x", c.name, got, c.want)
		}
	}
	if p.foreignBit != 0 {
		if got := verdictOf(t, prog, p.arch, p.foreignBit|unix.SYS_READ, 0); got != kill {
			t.Errorf("second ABI: verdict %#x, want %#x", got, kill)
		}
	}
	// Every number once: the search must not lose one between two others.
	for number := range p.newest + 16 {
		want := uint32(allow)
		switch {
		case slices.Contains(p.denied, number):
			want = eperm
		case number > p.newest || number == p.clone3:
			want = enosys
		}
		if got := verdictOf(t, prog, p.arch, number, unix.AF_UNIX); got != want {
			t.Errorf("call %d: verdict %#x, want %#x", number, got, want)
		}
	}
}

// The highest bits of an argument don't reach the flags of clone, and must
// not hide them from the filter either.
func TestFilterReadsTheLowHalfOfAnArgument(t *testing.T) {
	t.Parallel()
	p, ok := native()
	if !ok {
		t.Skip("no filter for this processor: the runner says so and required mode refuses")
	}
	prog, err := p.compile()
	if err != nil {
		t.Fatal(err)
	}
	if got := verdictOf(t, prog, p.arch, p.clone, 1<<40|unix.CLONE_NEWNS); got != fail(unix.EPERM) {
		t.Errorf("verdict %#x, want EPERM", got)
	}
}

func TestDeniedCallsAreListedOnce(t *testing.T) {
	t.Parallel()
	p, ok := native()
	if !ok {
		t.Skip("no filter for this processor: the runner says so and required mode refuses")
	}
	sorted := slices.Sorted(slices.Values(p.denied))
	if got := slices.Compact(slices.Clone(sorted)); len(got) != len(sorted) {
		t.Errorf("%d of %d numbers are doubled", len(sorted)-len(got), len(sorted))
	}
	for _, n := range sorted {
		if n > p.newest || n == p.clone || n == p.clone3 || n == p.socket || n == p.socketpair {
			t.Errorf("call %d is never reached in the list", n)
		}
	}
}
