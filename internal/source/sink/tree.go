package sink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/gitfetch"
)

// everyFiles is after how many files it is asked whether to go on.
const everyFiles = 256

// arrange makes a checkout what is to be served: files that are not wanted go,
// and the modes let readers in. Everything goes through handles that follow no
// link out of the checkout.
func arrange(ctx context.Context, dir string, sel *selection, mode fs.FileMode, chmodFiles bool) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return hostless(err)
	}
	defer func() { err = errors.Join(hostless(err), hostless(root.Close())) }()
	dirs := directories(sel.files)
	if err := removeLeft(ctx, root, sel.left, dirs); err != nil {
		return err
	}
	top, err := root.Stat(".")
	if err != nil {
		return err
	}
	// A directory whose group is inherited keeps handing it on.
	mode |= top.Mode() & fs.ModeSetgid
	if runtime.GOOS == "windows" {
		return nil // its modes say nothing of readers
	}
	for i, name := range slices.Sorted(maps.Keys(dirs)) {
		if i%everyFiles == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := root.Chmod(name, mode); err != nil {
			return err
		}
	}
	if !chmodFiles {
		return nil
	}
	return chmodAll(ctx, root, sel.files, mode.Perm())
}

// directories are those that files are in, "." included.
func directories(files []gitfetch.File) map[string]bool {
	dirs := map[string]bool{".": true}
	for _, f := range files {
		for dir := path.Dir(f.Path); !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// removeLeft removes files, and the directories that are empty then.
func removeLeft(ctx context.Context, root *os.Root, left []gitfetch.File, stay map[string]bool) error {
	gone := map[string]bool{}
	for i, f := range left {
		if i%everyFiles == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := root.Remove(f.Path); err != nil {
			return err
		}
		for dir := path.Dir(f.Path); !stay[dir] && !gone[dir]; dir = path.Dir(dir) {
			gone[dir] = true
		}
	}
	// What is deeper is longer than what it is in.
	deepest := slices.SortedFunc(maps.Keys(gone), func(a, b string) int { return len(b) - len(a) })
	for _, dir := range deepest {
		if err := root.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// chmodAll gives files the readers that a directory's mode has.
func chmodAll(ctx context.Context, root *os.Root, files []gitfetch.File, dirMode fs.FileMode) error {
	for i, f := range files {
		if i%everyFiles == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		mode := dirMode & 0o444
		if f.Mode == gitfetch.ModeProgram {
			mode = dirMode & 0o555
		}
		info, err := root.Lstat(f.Path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Mode().Perm() == mode {
			continue
		}
		if err := root.Chmod(f.Path, mode); err != nil {
			return err
		}
	}
	return nil
}

// identical reports whether a tree that is served has just the files of a
// checkout, byte for byte and with the same modes, and nothing else.
func identical(ctx context.Context, served, checkout string, sel *selection) (_ bool, err error) {
	a, err := os.OpenRoot(served)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, hostless(err)
	}
	defer func() { err = errors.Join(err, hostless(a.Close())) }()
	b, err := os.OpenRoot(checkout)
	if err != nil {
		return false, hostless(err)
	}
	defer func() { err = errors.Join(err, hostless(b.Close())) }()
	count := 0
	if err := fs.WalkDir(a.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			count++
		}
		return err
	}); err != nil || count != len(sel.files) {
		// What can't be read is not what it should be.
		return false, nil
	}
	for i, f := range sel.files {
		if i%everyFiles == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		same, err := sameFile(a, b, f.Path)
		if err != nil || !same {
			return false, hostless(err)
		}
	}
	return true, nil
}

// sameFile compares one file. An error is the checkout's.
func sameFile(a, b *os.Root, name string) (bool, error) {
	y, err := b.Lstat(name)
	if err != nil {
		return false, err
	}
	x, err := a.Lstat(name)
	if err != nil || x.Mode().Type() != y.Mode().Type() {
		return false, nil
	}
	// Who may read is the place's business; that nobody may write, and whether
	// it is a program, are the tree's.
	if x.Mode().IsRegular() && (x.Mode()&0o222 != 0 || x.Mode()&0o100 != y.Mode()&0o100) {
		return false, nil
	}
	if os.SameFile(x, y) {
		return true, nil
	}
	if y.Mode().Type() == fs.ModeSymlink {
		want, err := b.Readlink(name)
		if err != nil {
			return false, err
		}
		got, err := a.Readlink(name)
		return err == nil && got == want, nil
	}
	if x.Size() != y.Size() {
		return false, nil
	}
	return sameBytes(a, b, name)
}

func sameBytes(a, b *os.Root, name string) (same bool, err error) {
	y, err := b.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	x, err := a.Open(name)
	if err != nil {
		return false, nil
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, end := io.ReadFull(y, p)
		if end != nil && !errors.Is(end, io.EOF) && !errors.Is(end, io.ErrUnexpectedEOF) {
			return false, end
		}
		m, other := io.ReadFull(x, q)
		if m != n || (other == nil) != (end == nil) || !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
		if end != nil {
			return true, nil
		}
	}
}

// removeAll removes what a slash-separated name below a directory stands for.
// It follows no link. A directory that somebody has closed to us is opened.
func removeAll(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return hostless(err)
	}
	err = root.RemoveAll(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrPermission) {
		err = errors.Join(reopen(root, filepath.FromSlash(name)), root.RemoveAll(filepath.FromSlash(name)))
	}
	return errors.Join(hostless(err), hostless(root.Close()))
}

// reopen gives the owner access to every directory below name.
func reopen(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := root.Chmod(name, 0o700); err != nil {
			return err
		}
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, reopen(dir, e.Name()))
		}
	}
	return errors.Join(err, dir.Close())
}

// hostless is err without the paths of the host that errors of package os
// carry.
func hostless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return &pathlessError{op: e.Op, err: e.Err}
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return &pathlessError{op: e.Op, err: e.Err}
	}
	return err
}

type pathlessError struct {
	op  string
	err error
}

func (e *pathlessError) Error() string { return strings.TrimSpace(e.op + ": " + e.err.Error()) }
func (e *pathlessError) Unwrap() error { return e.err }
