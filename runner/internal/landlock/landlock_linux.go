package landlock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Access is what a [Rule] allows beneath its path.
type Access uint8

// The kinds of access. The zero Access is refused.
const (
	// Read allows to read, to list and to execute.
	Read Access = iota + 1
	// Write allows all that Read does, and to make, change, rename and remove
	// everything but device nodes.
	Write
	// Device allows to read and to write what is there.
	Device
)

// A Rule allows access beneath a path that exists.
type Rule struct {
	Path   string
	Access Access
}

const (
	readAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	writeAccess = readAccess | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REFER

	deviceAccess = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE

	// fileAccess are the rights that a rule on a file may name.
	fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// Versions of the kernel's interface, by what came with them.
const (
	abiRefer    = 2
	abiTruncate = 3
	abiNet      = 4
	abiIoctl    = 5
	abiScope    = 6
)

// ABI asks the kernel for the version of its interface, 1 or more. Its error
// is the kernel's: ENOSYS where it was not built in, EOPNOTSUPP where it was
// switched off.
func ABI() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", errno)
	}
	return int(v), nil
}

// Restrict allows the calling thread, and all that it starts from then on,
// only what the rules say; with abi 4 also no TCP, with abi 6 also no signal
// and no abstract socket to a process outside. The thread must have
// no_new_privs. On an error nothing is restricted.
func Restrict(abi int, rules []Rule) error {
	attr, size := ruleset(abi)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: create ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, r := range rules {
		if err := add(int(fd), r, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

// ruleset handles all that the kernel's version knows, so that what no rule
// names is refused. The size tells the kernel how much of the struct counts.
func ruleset(abi int) (attr unix.LandlockRulesetAttr, size uintptr) {
	attr.Handled_access_fs = 1<<13 - 1
	size = 8
	if abi >= abiRefer {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= abiTruncate {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= abiNet {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = 16
	}
	if abi >= abiIoctl {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = 24
	}
	return attr, size
}

func add(ruleset int, r Rule, handled uint64) error {
	access, err := r.rights()
	if err != nil {
		return err
	}
	fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: open rule's path: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: rule's path: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= fileAccess
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: access & handled, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: add rule: %w", errno)
	}
	return nil
}

func (r Rule) rights() (uint64, error) {
	switch r.Access {
	case Read:
		return readAccess, nil
	case Write:
		return writeAccess, nil
	case Device:
		return deviceAccess, nil
	default:
		return 0, fmt.Errorf("landlock: rule without access: %w", unix.EINVAL)
	}
}
