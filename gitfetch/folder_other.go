//go:build !unix

package gitfetch

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// A folder is an open directory of a tree that is being made. Names are single
// components, and no link is followed.
type folder struct{ root *os.Root }

// folderOf returns the directory itself.
func folderOf(dir *os.Root) (folder, error) {
	root, err := dir.OpenRoot(".")
	return folder{root}, err
}

func (d folder) close() error { return d.root.Close() }

func (d folder) mkdir(name string) error { return d.root.Mkdir(name, dirPerm) }

func (d folder) folder(name string) (folder, error) {
	root, err := openDir(d.root, name)
	return folder{root}, err
}

// write makes a file, which must not exist, with that content, and returns by
// what it is recognised.
func (d folder) write(name string, perm fs.FileMode, content []byte) (s stamp, device uint64, err error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return stamp{}, 0, err
	}
	_, err = f.Write(content)
	var info fs.FileInfo
	if err == nil {
		if info, err = f.Stat(); err == nil {
			s, device, _ = stampOf(info)
		}
	}
	return s, device, errors.Join(err, f.Close())
}

// create makes a file, which must not exist, to be written.
func (d folder) create(name string, perm fs.FileMode) (*os.File, error) {
	return d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

// look returns what a name stands for, which may be a link.
func (d folder) look(name string) (facts, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return facts{}, err
	}
	s, device, _ := stampOf(info)
	return facts{s, device, info.Size(), info.Mode()}, nil
}

func (d folder) remove(name string) error { return d.root.Remove(name) }

// link is not possible through open directories here.
func (d folder) link(folder, string, string) error { return errors.ErrUnsupported }

// read fills p with what a regular file begins with, and returns how much of p
// that took.
func (d folder) read(name string, p []byte) (int, error) {
	f, err := openRegular(d.root, name)
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(f, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, errors.Join(err, f.Close())
}

// file opens a regular file.
func (d folder) file(name string) (*os.File, error) { return openRegular(d.root, name) }

// isTooManyLinks reports whether a file has as many names as it can have.
func isTooManyLinks(error) bool { return false }
