//go:build !unix

package gitfetch

import (
	"errors"
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
