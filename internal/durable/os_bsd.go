//go:build unix && !linux && !darwin

package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return syncFull(f) }

func syncFull(f *os.File) error { return control(f, unix.Fsync) }

func writeVec(f *os.File, parts [][]byte, off int64) (int, error) {
	return writeEach(f, parts, off)
}

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// volumeOf knows no file system here, so every root is refused until
// somebody has looked at one.
func volumeOf(string) (Volume, error) {
	return Volume{Type: "unknown", Durability: Unsuitable}, nil
}
