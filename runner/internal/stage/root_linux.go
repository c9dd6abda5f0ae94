package stage

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// pivot is a directory that every host has: the new root is mounted over it
// for the moment until it is the root. oldRoot is where the host's root stands
// meanwhile, above which all sources are found.
const (
	pivot   = "/dev"
	oldRoot = "/.host"
)

// rootOptions bound the root's own file system, which holds the program, the
// request, and mount points. Its size is left to the kernel: nobody but the
// stage can write to it.
const rootOptions = "mode=0755,nr_inodes=1024"

const hostname = "sandbox"

// buildBase replaces the process's root by a private one that holds the system
// directories and the devices.
func (s *stage) buildBase() error {
	if err := enterRoot(); err != nil {
		return err
	}
	for _, b := range s.base.Binds {
		if err := b.mount(-1); err != nil {
			return failure(PartMounts, "bind", err)
		}
	}
	for _, l := range s.base.Links {
		if err := mkdirAll(path.Dir(l.Target)); err != nil {
			return failure(PartMounts, "make directory", err)
		}
		if err := unix.Symlink(l.Text, l.Target); err != nil {
			return failure(PartMounts, "link", err)
		}
	}
	for _, d := range s.base.Devices {
		if err := bindDevice(d); err != nil {
			return failure(PartMounts, "bind device", err)
		}
	}
	if s.base.Leave {
		return leaveHost()
	}
	return nil
}

// buildRun adds what is the run's own: the program, its trees, and the working
// directory with the contract's files. Then nothing of the root can be changed.
//
// The request comes last: the runner still proves the trees while the rest is
// built.
func (s *stage) buildRun() error {
	if err := s.copyProgram(); err != nil {
		return failure(PartMounts, "copy program", err)
	}
	mounts := s.mounts
	for _, b := range s.cfg.Binds {
		detached := -1
		if b.Detached {
			detached, mounts = mounts[0], mounts[1:]
		}
		if err := b.mount(detached); err != nil {
			return failure(PartMounts, "bind", err)
		}
	}
	request, _, err := receive(s.sock, s.buf, KindRequest)
	if err != nil {
		return err
	}
	if err := s.buildWork(request[1:]); err != nil {
		return err
	}
	if !s.base.Leave {
		if err := leaveHost(); err != nil {
			return err
		}
	}
	if err := setattr("/", 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return failure(PartMounts, "make the root read-only", err)
	}
	return nil
}

// enterRoot makes an empty file system the root, with the host's below it.
func enterRoot() error {
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return failure(PartMounts, "set host name", err)
	}
	// Nothing that happens here may reach the host, nor the other way.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return failure(PartMounts, "make private", err)
	}
	if err := unix.Mount("fencepost", pivot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, rootOptions); err != nil {
		return failure(PartMounts, "mount root", err)
	}
	if err := unix.Mkdir(pivot+oldRoot, 0o700); err != nil {
		return failure(PartMounts, "make directory", err)
	}
	if err := unix.PivotRoot(pivot, pivot+oldRoot); err != nil {
		return failure(PartMounts, "change root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return failure(PartMounts, "change root", err)
	}
	return nil
}

// leaveHost lets go of the host's tree. After it the process can't name a file
// of the host that was not bound.
func leaveHost() error {
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return failure(PartMounts, "leave the host's root", err)
	}
	if err := unix.Rmdir(oldRoot); err != nil {
		return failure(PartMounts, "leave the host's root", err)
	}
	return nil
}

// copyProgram puts the program onto the root, which is made read-only later.
// The runner compared its digest and sealed it.
func (s *stage) copyProgram() error {
	if err := mkdirAll(path.Dir(s.cfg.Program)); err != nil {
		return err
	}
	out, err := unix.Open(s.cfg.Program, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, programMode)
	if err != nil {
		return err
	}
	var offset int64
	for {
		n, err := unix.Sendfile(out, s.program, &offset, copyChunk)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return errors.Join(err, unix.Close(out))
		}
		if err == nil && n == 0 {
			break
		}
	}
	return errors.Join(unix.Close(out), unix.Close(s.program))
}

const (
	programMode = 0o555
	copyChunk   = 1 << 20
)

func (b Bind) mount(detached int) error {
	if err := b.makeTarget(); err != nil {
		return err
	}
	if b.Detached {
		// Its attributes were set by the runner while it was detached.
		return unix.MoveMount(detached, "", unix.AT_FDCWD, b.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	// Recursive, because a file system that is mounted in the directory
	// would be refused otherwise: it may hide what the host wants hidden.
	if err := unix.Mount(oldRoot+b.Source, b.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return setattr(b.Target, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

func (b Bind) makeTarget() error {
	if b.File {
		if err := mkdirAll(path.Dir(b.Target)); err != nil {
			return err
		}
		err := touch(b.Target, 0o444)
		if errors.Is(err, unix.EEXIST) {
			// It lies in a directory that was bound before.
			return nil
		}
		return err
	}
	return mkdirAll(b.Target)
}

func bindDevice(name string) error {
	target := "/dev/" + name
	if err := mkdirAll("/dev"); err != nil {
		return err
	}
	if err := touch(target, 0o444); err != nil {
		return err
	}
	if err := unix.Mount(oldRoot+target, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return setattr(target, 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
}

// buildWork mounts the working directory and makes the contract's files in
// it, before any program exists that could be there first.
func (s *stage) buildWork(request []byte) error {
	work := s.cfg.Work
	if err := mkdirAll(work); err != nil {
		return failure(PartScratch, "make directory", err)
	}
	options := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", s.cfg.Scratch, s.cfg.Inodes)
	if err := unix.Mount("fencepost-scratch", work, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return failure(PartScratch, "mount", err)
	}
	// The request stands on the root, which is made read-only, and is bound
	// over its name.
	written, bound := "/"+s.cfg.Request, path.Join(work, s.cfg.Request)
	if err := writeFile(written, request); err != nil {
		return failure(PartScratch, "write request", err)
	}
	if err := touch(bound, 0o444); err != nil {
		return failure(PartScratch, "write request", err)
	}
	if err := unix.Mount(written, bound, "", unix.MS_BIND, ""); err != nil {
		return failure(PartScratch, "bind request", err)
	}
	if err := setattr(bound, 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
		return failure(PartScratch, "bind request", err)
	}
	return s.makeOutputs(work)
}

func (s *stage) makeOutputs(work string) error {
	dir, err := unix.Open(work, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return failure(PartScratch, "open", err)
	}
	s.outputs = append(s.outputs, dir)
	for _, name := range []string{s.cfg.Report, s.cfg.Result} {
		file := path.Join(work, name)
		if err := touch(file, 0o600); err != nil {
			return failure(PartScratch, "make output", err)
		}
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return failure(PartScratch, "open output", err)
		}
		s.outputs = append(s.outputs, fd)
	}
	return nil
}

func setattr(target string, flags uint, attr uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, target, flags, &unix.MountAttr{Attr_set: attr})
}

func mkdirAll(dir string) error {
	if dir == "/" {
		return nil
	}
	err := unix.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil
	case errors.Is(err, unix.ENOENT):
		if err := mkdirAll(path.Dir(dir)); err != nil {
			return err
		}
		return unix.Mkdir(dir, 0o755)
	}
	return err
}

func touch(file string, mode uint32) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func writeFile(file string, b []byte) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		b = b[n:]
	}
	return unix.Close(fd)
}
