package cgroup

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// Limits of a group. A zero limit is refused.
type Limits struct {
	// Memory is in bytes, page cache and tmpfs included; swap is not added.
	Memory int64
	// Processes counts threads too.
	Processes int
}

// A Group bounds the processes in it. Its methods are not safe for concurrent
// use.
type Group struct {
	version int
	// dirs maps controllers to directories; in version 2 both are the same.
	dirs map[string]string
	// unified is the open directory of a version 2 group; nil else.
	unified *os.File
	// doors are the open files "tasks" of a version 1 group; nil else.
	doors []*os.File
}

// Parents are the directories that groups are made in, for a record that
// outlives us; see [Named].
func (h *Host) Parents() []string {
	return slices.Compact(slices.Sorted(maps.Values(h.parents)))
}

// maxGroups bounds the groups that one listing considers.
const maxGroups = 65536

// Named returns the directories of all groups in parents whose names begin so.
// A parent that is gone has none.
func Named(parents []string, prefix string) ([]string, error) {
	var out []string
	for _, parent := range parents {
		f, err := os.Open(parent)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list control groups: %w", hostpath.Strip(err))
		}
		names, err := f.Readdirnames(maxGroups)
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("list control groups: %w", hostpath.Strip(err))
		}
		for _, name := range names {
			if strings.HasPrefix(name, Prefix+prefix) {
				out = append(out, filepath.Join(parent, name))
			}
		}
	}
	return out, nil
}

// Create makes a group with a name that is new beneath h. It has no limits
// before [Group.Limit].
func (h *Host) Create(name string) (*Group, error) {
	g := &Group{version: h.version, dirs: map[string]string{}}
	for _, c := range []string{memory, pids} {
		parent, ok := h.parents[c]
		if !ok {
			continue
		}
		dir := filepath.Join(parent, Prefix+name)
		if g.version == 2 && len(g.dirs) > 0 {
			g.dirs[c] = dir
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("create control group: %w", hostpath.Strip(err)), g.Remove(0))
		}
		g.dirs[c] = dir
	}
	if err := g.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open control group: %w", err), g.Remove(0))
	}
	return g, nil
}

func (g *Group) open() error {
	for _, dir := range g.distinct() {
		if g.version == 2 {
			f, err := os.Open(dir)
			if err != nil {
				return hostpath.Strip(err)
			}
			g.unified = f
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return hostpath.Strip(err)
		}
		g.doors = append(g.doors, f)
	}
	return nil
}

// Limit sets the limits; it is called once.
func (g *Group) Limit(l Limits) error {
	if l.Memory <= 0 || l.Processes <= 0 {
		return fmt.Errorf("limit control group: %w", unix.EINVAL)
	}
	if err := g.limit(l); err != nil {
		return fmt.Errorf("limit control group: %w", err)
	}
	return nil
}

func (g *Group) limit(l Limits) error {
	mem, procs := strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.Processes)
	if dir, ok := g.dirs[pids]; ok {
		if err := writeValue(filepath.Join(dir, "pids.max"), procs); err != nil {
			return err
		}
	}
	dir, ok := g.dirs[memory]
	if !ok {
		return nil
	}
	if g.version == 2 {
		if err := writeValue(filepath.Join(dir, "memory.max"), mem); err != nil {
			return err
		}
		return writeOptional(filepath.Join(dir, "memory.swap.max"), "0")
	}
	if err := writeValue(filepath.Join(dir, "memory.limit_in_bytes"), mem); err != nil {
		return err
	}
	// Memory and swap together; the file is missing without swap accounting.
	return writeOptional(filepath.Join(dir, "memory.memsw.limit_in_bytes"), mem)
}

func writeOptional(path, value string) error {
	err := writeValue(path, value)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// BirthFD is the descriptor of the group to clone a process into, and false
// where a thread joins it by [Group.Doors].
func (g *Group) BirthFD() (int, bool) {
	if g.unified == nil {
		return 0, false
	}
	return int(g.unified.Fd()), true
}

// Doors are the files of a version 1 group that a thread joins it by: it writes
// 0 into each. There are none in version 2. They are closed with the group.
func (g *Group) Doors() []*os.File { return g.doors }

// Kill kills every process in the group; see the function [Kill].
func (g *Group) Kill(patience time.Duration) error { return Kill(g.distinct(), patience) }

// MemoryKills is how many processes the kernel killed for want of memory
// within the group; 0 where it does not say.
func (g *Group) MemoryKills() int {
	dir, ok := g.dirs[memory]
	if !ok {
		return 0
	}
	name := "memory.oom_control"
	if g.version == 2 {
		name = "memory.events"
	}
	text, err := readSmall(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// Remove removes the group, which must hold no process; it tries again for as
// long as patience lasts, since the kernel frees a group some time after its
// last process. A group that is gone already is no error.
func (g *Group) Remove(patience time.Duration) error {
	var errs []error
	if g.unified != nil {
		errs = append(errs, g.unified.Close())
		g.unified = nil
	}
	for _, f := range g.doors {
		errs = append(errs, f.Close())
	}
	g.doors = nil
	for _, dir := range g.distinct() {
		errs = append(errs, removeDir(dir, patience))
	}
	return errors.Join(errs...)
}

func (g *Group) distinct() []string {
	var dirs []string
	for _, c := range []string{memory, pids} {
		if dir, ok := g.dirs[c]; ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// removePause is how long a busy group is left alone before the next try.
const removePause = 2 * time.Millisecond

func removeDir(dir string, patience time.Duration) error {
	for waited := time.Duration(0); ; waited += removePause {
		// Not os.Remove, which tries to unlink first.
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || waited >= patience {
			return fmt.Errorf("remove control group: %w", err)
		}
		<-time.After(removePause)
	}
}

// Kill kills every process in the directories of a group, also of one that
// another process made, until patience ends; it reports whether none is left.
// Directories that are gone hold none.
func Kill(dirs []string, patience time.Duration) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, killDir(dir, patience))
	}
	return errors.Join(errs...)
}

// ErrAlive: processes of a group outlived the patience.
var ErrAlive = errors.New("processes are alive in control group")

func killDir(dir string, patience time.Duration) error {
	// No new process while we kill; the file is there with the pids
	// controller only.
	if err := writeOptional(filepath.Join(dir, "pids.max"), "0"); err != nil {
		return fmt.Errorf("freeze process count: %w", err)
	}
	for waited := time.Duration(0); ; waited += removePause {
		members, err := membersOf(dir)
		if errors.Is(err, os.ErrNotExist) || (err == nil && len(members) == 0) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list control group: %w", err)
		}
		if waited >= patience {
			return fmt.Errorf("%w: %d", ErrAlive, len(members))
		}
		for _, pid := range members {
			killMember(dir, pid)
		}
		<-time.After(removePause)
	}
}

func membersOf(dir string) ([]int, error) {
	text, err := readSmall(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var out []int
	for f := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// killMember holds the process by a descriptor before it looks again whether
// it is a member: a number that was reused in between is not killed. A failure
// shows in the next listing.
func killMember(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if members, err := membersOf(dir); err != nil || !slices.Contains(members, pid) {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// RemoveDirs removes directories of a group that another process made, as
// [Group.Remove].
func RemoveDirs(dirs []string, patience time.Duration) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeDir(dir, patience))
	}
	return errors.Join(errs...)
}
