package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// An Identity names one process of one boot. The zero Identity names none.
type Identity struct {
	// PID is the number in the PID namespace of whoever made the identity.
	PID int
	// Start is when it started, in clock ticks since the boot.
	Start uint64
	// Boot is the id of the boot.
	Boot string
}

// Identify names the running process pid of the boot.
func Identify(pid int, boot string) (Identity, error) {
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("identify process: %w", err)
	}
	return Identity{PID: pid, Start: st.start, Boot: boot}, nil
}

// BootID is the kernel's random id of this boot.
func BootID() (string, error) {
	b, err := readSome("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ErrAlive: a process outlived the patience.
var ErrAlive = errors.New("process is alive")

// End waits until the process that id names has ended by itself, and when
// grace is over kills it and waits for as long as patience. It reports whether
// it had to. Its error matches [ErrAlive] when patience ended first.
func End(id Identity, grace, patience time.Duration) (killed bool, err error) {
	boot, err := BootID()
	if err != nil {
		return false, err
	}
	if id.PID <= 0 || id.Boot != boot {
		return false, nil
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open process: %w", err)
	}
	defer unix.Close(fd)
	// Only now does the number stand for one process: look at it after.
	st, err := readStat(id.PID)
	if err != nil || st.start != id.Start || st.state == 'Z' {
		return false, nil
	}
	if err := awaitEnd(fd, grace); !errors.Is(err, ErrAlive) {
		return false, err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("kill process: %w", err)
	}
	return true, awaitEnd(fd, patience)
}

func awaitEnd(fd int, patience time.Duration) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process: %w", err)
		case n == 0:
			return ErrAlive
		default:
			return nil
		}
	}
}

// KillDescendants sends one SIGKILL to every process that descends from
// ancestor. What was started meanwhile is left for the next call.
func KillDescendants(ancestor int) {
	parents := table()
	for pid := range parents {
		if descends(parents, pid, ancestor) {
			killDescendant(pid, ancestor)
		}
	}
}

// killDescendant holds the process by a descriptor and then looks again whose
// descendant it is: the number may have been used again since the table was
// read.
func killDescendant(pid, ancestor int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for up, hops := pid, 0; hops < maxDepth; hops++ {
		st, err := readStat(up)
		if err != nil || st.parent <= 1 {
			return
		}
		if st.parent == ancestor {
			// It may have ended by itself; the next look shows.
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			return
		}
		up = st.parent
	}
}

// maxDepth bounds a walk from a process up to its ancestor.
const maxDepth = 4096

// descends walks up from pid; the bound ends a walk over a table that changed
// under it.
func descends(parents map[int]int, pid, ancestor int) bool {
	for range len(parents) {
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == ancestor {
			return true
		}
		pid = parent
	}
	return false
}

// table maps every process to its parent.
func table() map[int]int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	parents := make(map[int]int, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			parents[pid] = st.parent
		}
	}
	return parents
}

type stat struct {
	state  byte
	parent int
	start  uint64
}

func readStat(pid int) (stat, error) {
	b, err := readSome("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

var errStat = errors.New("process status is not in the kernel's form")

// parseStat reads proc(5), /proc/pid/stat. The second field is a name in
// parentheses that the process chose itself: only what follows the last
// parenthesis can be trusted. State is field 3, parent 4, start 22.
func parseStat(b []byte) (stat, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, errStat
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errStat
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, errStat
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, errStat
	}
	return stat{state: fields[0][0], parent: parent, start: start}, nil
}

// readSome reads a file of the kernel, of at most 4 KiB.
func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, hostpath.Strip(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, 4<<10)); err != nil {
		return nil, hostpath.Strip(err)
	}
	return b.Bytes(), nil
}
