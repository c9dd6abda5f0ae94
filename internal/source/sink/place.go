package sink

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/fencepost/fencepost/internal/durable"
)

// makePlace makes the holding place where it is missing, and lets readers pass
// through it, whatever the umask is.
func makePlace(fsys durable.FS, parent, dir string, readers fs.FileMode) error {
	if info, err := os.Lstat(filepath.Join(parent, dir)); err == nil && !info.IsDir() {
		return fmt.Errorf("holding place: %w", errNotOurs)
	}
	if err := durable.MkdirAll(fsys, path.Join(dir, treesName)); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, name := range []string{dir, path.Join(dir, treesName)} {
		full := filepath.Join(parent, filepath.FromSlash(name))
		info, err := os.Stat(full)
		if err != nil {
			return hostless(err)
		}
		// Readers pass, and get no list: the way to a tree is the link.
		want := readers&^0o044 | info.Mode()&fs.ModeSetgid
		if info.Mode()&(fs.ModePerm|fs.ModeSetgid) == want {
			continue
		}
		if err := os.Chmod(full, want); err != nil {
			return hostless(err)
		}
	}
	return nil
}

// trialName is a name of our own that the next sweep removes if we don't.
func trialName(random io.Reader) (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw name: %w", err)
	}
	return trialPrefix + hex.EncodeToString(b[:]), nil
}

// umaskDiffers reports whether files that are made for everybody to read come
// out with other readers than they should have.
func umaskDiffers(dir string, readers fs.FileMode, random io.Reader) (differs bool, err error) {
	name, err := trialName(random)
	if err != nil {
		return false, err
	}
	full := filepath.Join(dir, name)
	f, err := os.OpenFile(full, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o555)
	if err != nil {
		return false, hostless(err)
	}
	info, err := f.Stat()
	if err == nil {
		differs = info.Mode().Perm() != readers&0o555 && runtime.GOOS != "windows"
	}
	gone := os.Remove(full)
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil // swept away by whoever has the lock
	}
	return differs, hostless(errors.Join(err, f.Close(), gone))
}

// within reports whether path is dir or in it, by whatever name: it goes up
// from path and compares what the names stand for.
func within(path, dir string) (bool, error) {
	want, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return false, err
	}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if os.SameFile(info, want) {
			return true, nil
		}
		up := filepath.Dir(path)
		if up == path {
			return false, nil
		}
		path = up
	}
}
