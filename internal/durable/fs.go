package durable

import (
	"context"
	"io"
	"io/fs"
	"path"
)

// An FS is one directory tree on one file system. Names are slash-separated
// and relative to it, in the form of [fs.ValidPath]; "." is the tree itself.
// Nothing follows a name out of it but symbolic links that somebody else has
// put there.
//
// All methods may be called concurrently. Errors match those of io/fs
// ([fs.ErrNotExist], [fs.ErrExist]) and [ErrNoSpace]; EINTR and short
// transfers are dealt with inside and never come out. Nothing but Sync and
// SyncDir makes anything durable.
type FS interface {
	// OpenFile opens a file with the O_ flags of package os. Every file is
	// opened for random access: os.O_APPEND is refused.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Mkdir makes one directory.
	Mkdir(name string, perm fs.FileMode) error
	// Rename replaces newName by oldName in one step.
	Rename(oldName, newName string) error
	// Link gives a file a second name; it fails with [fs.ErrExist] if that
	// is taken.
	Link(oldName, newName string) error
	// Remove removes a file, or a directory that is empty.
	Remove(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]Info, error)
	// Stat describes what a name stands for.
	Stat(name string) (Info, error)
	// SyncDir makes all names in a directory durable, and the absence of
	// those removed from it.
	SyncDir(name string) error
	// Volume describes the file system.
	Volume() (Volume, error)
}

// A File is an open file. All methods may be called concurrently, save that
// Close must be the last.
type File interface {
	io.ReaderAt
	// WriteAt writes all of p, or says how much of it was written and why
	// not all.
	io.WriterAt
	// WriteVecAt writes the parts one after the other, beginning at off, as
	// WriteAt would write their concatenation. It does not keep the parts,
	// nor change them.
	WriteVecAt(parts [][]byte, off int64) (int, error)
	// Allocate makes the file at least size bytes long; what was never
	// written reads as zeros. Where the file system can, room for all of it
	// is taken now, so that later writes below size do not run out of it.
	Allocate(size int64) error
	// Truncate sets the file's length.
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable. An error is final: see
	// the package comment.
	Sync() error
	// Size returns the file's length in bytes.
	Size() (int64, error)
	// Lock takes the file's advisory lock, waiting for as long as another
	// open file holds it in a way that excludes mode, in this process or
	// another. The kernel frees the lock when the process ends. One File
	// holds its lock for one user at a time: a second Lock waits for Unlock.
	//
	// If ctx ends first, its cause is returned; a wait that is already in
	// the kernel is then given up in the background as soon as it ends.
	Lock(ctx context.Context, mode LockMode) error
	// TryLock is Lock without waiting. It reports whether the lock was taken.
	TryLock(mode LockMode) (bool, error)
	// Unlock frees the lock. [ErrNotLocked] if there is none.
	Unlock() error
	// Close frees the lock, if it is held, and the file.
	Close() error
}

// A LockMode is how a lock excludes others.
type LockMode int

const (
	// Exclusive excludes all others.
	Exclusive LockMode = iota + 1
	// Shared excludes those who want Exclusive.
	Shared
)

// An Info describes a name.
type Info struct {
	// Name is the last element of the path.
	Name string
	// Size is the length of a file in bytes; 0 for directories.
	Size int64
	// Dir is set for directories.
	Dir bool
}

// A Volume is what a file system says about itself.
type Volume struct {
	// Type is its name, such as "ext4", or its number in hexadecimal.
	Type string
	// Durability is what is known about its syncs.
	Durability Durability
	// Note is for people: what limits the durability. It may be empty.
	Note string
	// Free and Total are bytes; Free is what an unprivileged user may still
	// take.
	Free, Total int64
	// ReadOnly is set when the file system takes no writes, as after the
	// kernel has given up on it.
	ReadOnly bool
}

// Durability is what a file system's syncs are worth.
type Durability int

const (
	// Unsuitable: not known to sync and lock as this package needs.
	Unsuitable Durability = iota + 1
	// Volatile: locks work, but nothing survives a restart of the machine.
	Volatile
	// Durable: what was synced survives.
	Durable
)

// CheckVolume refuses a file system that can't keep promises: anything but
// ext4, XFS, btrfs, ZFS (on macOS APFS and HFS+, on Windows NTFS and ReFS),
// and overlays of such. tmpfs and its like are accepted only if volatileOK,
// which is for tests and trials. path is for the error alone.
//
// An overlay (a container's own layer) passes its syncs on to the file system
// below, which can't be seen from within, unless it was mounted volatile; it
// is accepted, and [Volume.Note] says that a volume would be better.
//
// RELIABILITY §3.6. The error matches [ErrUnsuitable] or [ErrReadOnly].
func CheckVolume(fsys FS, path string, volatileOK bool) (Volume, error) {
	v, err := fsys.Volume()
	if err != nil {
		return Volume{}, err
	}
	switch {
	case v.ReadOnly:
		return v, &fs.PathError{Op: "open", Path: path, Err: ErrReadOnly}
	case v.Durability == Durable, v.Durability == Volatile && volatileOK:
		return v, nil
	case v.Durability == Volatile:
		return v, &UnsuitableError{
			Path: path, Type: v.Type, Why: "it keeps nothing over a restart",
			Mend: "use a directory on ext4, XFS, btrfs or ZFS",
		}
	}
	return v, &UnsuitableError{
		Path: path, Type: v.Type, Why: "its syncs and locks can't be relied on",
		Mend: "use a directory on a local ext4, XFS, btrfs or ZFS",
	}
}

// Sub returns the tree below dir, which must exist before it is used.
func Sub(fsys FS, dir string) FS {
	if dir == "." {
		return fsys
	}
	return subFS{fsys, dir}
}

// subFS puts a directory in front of each name.
type subFS struct {
	fsys FS
	dir  string
}

func (s subFS) at(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join(s.dir, name), nil
}

func (s subFS) at2(op, a, b string) (string, string, error) {
	a, err := s.at(op, a)
	if err != nil {
		return "", "", err
	}
	b, err = s.at(op, b)
	return a, b, err
}

// OpenFile implements [FS].
func (s subFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	name, err := s.at("open", name)
	if err != nil {
		return nil, err
	}
	return s.fsys.OpenFile(name, flag, perm)
}

// Mkdir implements [FS].
func (s subFS) Mkdir(name string, perm fs.FileMode) error {
	name, err := s.at("mkdir", name)
	if err != nil {
		return err
	}
	return s.fsys.Mkdir(name, perm)
}

// Rename implements [FS].
func (s subFS) Rename(oldName, newName string) error {
	oldName, newName, err := s.at2("rename", oldName, newName)
	if err != nil {
		return err
	}
	return s.fsys.Rename(oldName, newName)
}

// Link implements [FS].
func (s subFS) Link(oldName, newName string) error {
	oldName, newName, err := s.at2("link", oldName, newName)
	if err != nil {
		return err
	}
	return s.fsys.Link(oldName, newName)
}

// Remove implements [FS].
func (s subFS) Remove(name string) error {
	name, err := s.at("remove", name)
	if err != nil {
		return err
	}
	return s.fsys.Remove(name)
}

// ReadDir implements [FS].
func (s subFS) ReadDir(name string) ([]Info, error) {
	name, err := s.at("readdir", name)
	if err != nil {
		return nil, err
	}
	return s.fsys.ReadDir(name)
}

// Stat implements [FS].
func (s subFS) Stat(name string) (Info, error) {
	name, err := s.at("stat", name)
	if err != nil {
		return Info{}, err
	}
	return s.fsys.Stat(name)
}

// SyncDir implements [FS].
func (s subFS) SyncDir(name string) error {
	name, err := s.at("syncdir", name)
	if err != nil {
		return err
	}
	return s.fsys.SyncDir(name)
}

// Volume implements [FS].
func (s subFS) Volume() (Volume, error) { return s.fsys.Volume() }
