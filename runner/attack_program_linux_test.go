package runner_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/check"
)

// This file holds the acts of a program that attack the kernel's interface.

func init() {
	acts["who"] = func(*check.Request, []string) int { return tell(who()...) }
	acts["calls"] = func(*check.Request, []string) int { return tell(dangerousCalls()...) }
	acts["connect"] = func(_ *check.Request, a []string) int { return tell(connect(a[0], a[1])...) }
	acts["killinit"] = func(*check.Request, []string) int { return tell(killInit()...) }
	acts["mounts"] = func(_ *check.Request, a []string) int { return tell(mountFlags(a)...) }
	acts["isolated"] = func(_ *check.Request, a []string) int { return tell(isolated(number(a[0]))...) }
	acts["limits"] = func(*check.Request, []string) int { return tell(resourceLimits()...) }
	acts["foreign"] = func(*check.Request, []string) int { return foreignCall() }
}

func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 100)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), "leaked"), nil
}

func who() []string {
	groups, err := os.Getgroups()
	if err != nil {
		groups = []int{-1}
	}
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return []string{word(err)}
	}
	bounds := 0
	for c := range 64 {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil {
			bounds += has
		}
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		nnp = -1
	}
	filter, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil {
		filter = -1
	}
	_, _, setuid := unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0)
	_, _, setgid := unix.RawSyscall(unix.SYS_SETGID, 0, 0, 0)
	_, _, setgroups := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return []string{word(err)}
	}
	name := func(e unix.Errno) string {
		return map[bool]string{true: "operation not permitted", false: e.Error()}[e == unix.EPERM || e == unix.EINVAL]
	}
	return []string{
		fmt.Sprintf("uid %d %d", os.Getuid(), os.Geteuid()), fmt.Sprintf("gid %d %d", os.Getgid(), os.Getegid()), fmt.Sprintf("groups %v", groups),
		fmt.Sprintf("capabilities %d %d %d", data[0].Effective|data[1].Effective, data[0].Permitted|data[1].Permitted, data[0].Inheritable|data[1].Inheritable),
		fmt.Sprintf("bounds %d", bounds), fmt.Sprintf("no_new_privs %d", nnp), fmt.Sprintf("seccomp %d", filter),
		fmt.Sprintf("core %d %d", core.Cur, core.Max), "setuid " + name(setuid), "setgid " + name(setgid), "setgroups " + name(setgroups),
	}
}

// mountFlags tells how what stands at each path is mounted.
func mountFlags(paths []string) []string {
	var seen []string
	for _, path := range paths {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			seen = append(seen, word(err))
			continue
		}
		var flags []string
		for _, f := range []struct {
			bit  int64
			name string
		}{{unix.ST_RDONLY, "ro"}, {unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}} {
			if int64(st.Flags)&f.bit != 0 {
				flags = append(flags, f.name)
			}
		}
		seen = append(seen, strings.Join(flags, " "))
	}
	return seen
}

// isolated tells the name of the host, whether a shared memory segment of the
// host can be had, and the number of this process.
func isolated(key int) []string {
	name, err := os.Hostname()
	if err != nil {
		name = word(err)
	}
	_, err = unix.SysvShmGet(key, 4096, 0)
	return []string{name, word(err), fmt.Sprint(os.Getpid() < 20)}
}

func resourceLimits() []string {
	var seen []string
	for _, resource := range []int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_RTPRIO} {
		var l unix.Rlimit
		if err := unix.Getrlimit(resource, &l); err != nil {
			return []string{word(err)}
		}
		seen = append(seen, fmt.Sprintf("%d %d", l.Cur, l.Max))
	}
	return seen
}

// dangerousCalls makes each call in a form that would succeed, or fail in
// another way, if nothing stopped it.
func dangerousCalls() []string {
	runtime.LockOSThread()
	var seen []string
	try := func(name string, number uintptr, args ...uintptr) {
		args = append(args, make([]uintptr, 6)...)
		_, _, errno := unix.RawSyscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
		got := "ok"
		if errno != 0 {
			got = errno.Error()
		}
		seen = append(seen, name+": "+got)
	}
	text := func(s string) uintptr {
		b, err := unix.BytePtrFromString(s)
		if err != nil {
			return 0
		}
		return uintptr(unsafe.Pointer(b))
	}
	for _, flag := range []uintptr{
		unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP,
	} {
		try(fmt.Sprintf("unshare %#x", flag), unix.SYS_UNSHARE, flag)
		try(fmt.Sprintf("clone %#x", flag), unix.SYS_CLONE, flag|uintptr(unix.SIGCHLD))
	}
	try("clone3", unix.SYS_CLONE3)
	try("setns", unix.SYS_SETNS, 0, 0)
	try("mount", unix.SYS_MOUNT, text("none"), text("/work"), text("tmpfs"))
	try("umount", unix.SYS_UMOUNT2, text("/candidate"), unix.MNT_DETACH)
	try("remount", unix.SYS_MOUNT, 0, text("/candidate"), 0, unix.MS_REMOUNT|unix.MS_BIND)
	try("mount_setattr", unix.SYS_MOUNT_SETATTR)
	try("open_tree", unix.SYS_OPEN_TREE, 0, text("/"))
	try("move_mount", unix.SYS_MOVE_MOUNT)
	try("fsopen", unix.SYS_FSOPEN, text("tmpfs"))
	try("statmount", unix.SYS_STATMOUNT)
	try("pivot_root", unix.SYS_PIVOT_ROOT, text("."), text("."))
	try("chroot", unix.SYS_CHROOT, text("/work"))
	try("ptrace", unix.SYS_PTRACE, unix.PTRACE_TRACEME)
	try("process_vm_readv", unix.SYS_PROCESS_VM_READV, 1)
	try("pidfd_getfd", unix.SYS_PIDFD_GETFD)
	try("bpf", unix.SYS_BPF)
	try("perf_event_open", unix.SYS_PERF_EVENT_OPEN)
	try("userfaultfd", unix.SYS_USERFAULTFD, 1)
	try("io_uring_setup", unix.SYS_IO_URING_SETUP, 1)
	try("keyctl", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID)
	try("add_key", unix.SYS_ADD_KEY)
	try("request_key", unix.SYS_REQUEST_KEY)
	try("kexec_load", unix.SYS_KEXEC_LOAD)
	try("init_module", unix.SYS_INIT_MODULE)
	try("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT)
	try("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT)
	try("sethostname", unix.SYS_SETHOSTNAME)
	try("syslog", unix.SYS_SYSLOG, 3)
	try("socket vsock", unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM)
	try("socket netlink", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW)
	try("socket packet", unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW)
	try("socket alg", unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET)
	return seen
}

// connect tries to reach the host: a TCP listener, an abstract socket, and
// anything with a datagram. Last it tells whether an interface is up.
func connect(tcp, abstract string) []string {
	var seen []string
	for _, to := range [][2]string{{"tcp", tcp}, {"unix", abstract}, {"udp", "127.0.0.1:9"}} {
		c, err := net.Dial(to[0], to[1])
		if err == nil {
			_, err = c.Write([]byte("x"))
			_ = c.Close()
		}
		seen = append(seen, word(err))
	}
	// Interfaces are asked for through a socket call, since netlink is shut.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return append(seen, word(err))
	}
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return append(seen, word(err))
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return append(seen, word(err))
	}
	if ifr.Uint16()&unix.IFF_UP != 0 {
		return append(seen, "up")
	}
	return append(seen, "down")
}

// killInit signals the first process of the namespace, which would end the
// run, and looks for what it could get hold of.
func killInit() []string {
	var seen []string
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGSTOP, unix.SIGQUIT} {
		seen = append(seen, fmt.Sprintf("signal %d: %s", sig, word(unix.Kill(1, sig))))
	}
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return append(seen, "pidfd: "+word(err))
	}
	return append(seen, "pidfd: "+word(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)),
		"group: "+strings.Replace(word(unix.Kill(-1, unix.SIGTERM)), "no such process", "operation not permitted", 1))
}
