package runner

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// A runner that is the superuser runs programs as another user. Its private
// files are not that user's to read, so each is mounted with owners
// translated: what belongs to the superuser belongs to otherUser there.

// holdUsers makes the user namespace that says so. A process holds it until we
// have a descriptor of it.
func (p *parent) holdUsers() (*os.File, error) {
	attr := plain()
	attr.Pdeathsig = syscall.SIGKILL
	attr.Cloneflags = unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: otherUser, Size: 1}}
	attr.GidMappings = attr.UidMappings
	proc, ours, err := p.child(stage.HoldName, attr)
	if err != nil {
		return nil, err
	}
	defer func() {
		// It only waits for this; its end says nothing.
		_ = ours.close()
		_, _ = proc.Wait()
	}()
	users, err := os.Open("/proc/" + strconv.Itoa(proc.Pid) + "/ns/user")
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", hostpath.Strip(err))
	}
	return users, nil
}

// lend makes a detached, read-only mount of path in which the superuser's
// files belong to otherUser. It fails on file systems that can't translate.
func (b *linuxBackend) lend(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("detach mount: %w", err)
	}
	f := os.NewFile(uintptr(fd), "mount")
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(b.users.Fd()),
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		closeAll([]*os.File{f})
		return nil, fmt.Errorf("translate owners of mount: %w", err)
	}
	return f, nil
}
