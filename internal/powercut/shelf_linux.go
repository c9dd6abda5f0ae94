package powercut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// fillerName is the file that takes all room.
const fillerName = "filler"

// fillerBlock is how much of it is written at a time.
const fillerBlock = 4096

// A Shelf is memory for the images of volumes. While it is full, a device
// whose image it holds fails: what has to be written to a new place of it is
// an error of the device, which is told to whoever syncs.
type Shelf struct {
	tb    testing.TB
	point string
}

// NewShelf makes a shelf of so many bytes in a new directory below dir. Where
// the host can't, the test is skipped.
func NewShelf(tb testing.TB, dir string, bytes int64) *Shelf {
	tb.Helper()
	need(tb, Ext4)
	s := &Shelf{tb: tb, point: filepath.Join(dir, "shelf")}
	if err := os.Mkdir(s.point, 0o700); err != nil {
		tb.Fatal(err)
	}
	size := "size=" + strconv.FormatInt(bytes, 10)
	if err := command(tb.Context(), "mount", "-t", "tmpfs", "-o", size, "shelf", s.point); err != nil {
		tb.Skipf("no disk fails here: %v", err)
	}
	tb.Cleanup(func() {
		if err := command(context.WithoutCancel(tb.Context()), "umount", s.point); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Path is where images are put.
func (s *Shelf) Path() string { return s.point }

// Fill takes all room that is left, and Empty gives it back.
func (s *Shelf) Fill() {
	s.tb.Helper()
	if err := fill(s.point); err != nil {
		s.tb.Fatal(err)
	}
}

// Empty ends what Fill began.
func (s *Shelf) Empty() {
	s.tb.Helper()
	if err := os.Remove(filepath.Join(s.point, fillerName)); err != nil {
		s.tb.Fatal(err)
	}
}

// Fill takes all room that is left on the volume, and Empty gives it back.
func (v *Volume) Fill() {
	v.tb.Helper()
	if err := fill(v.point); err != nil {
		v.tb.Fatal(err)
	}
}

// Empty ends what Fill began.
func (v *Volume) Empty() {
	v.tb.Helper()
	if err := os.Remove(filepath.Join(v.point, fillerName)); err != nil {
		v.tb.Fatal(err)
	}
}

// fill makes a file that grows until there is no room: at first as a whole,
// as far as one can tell how much there is.
func fill(dir string) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, fillerName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size := int64(0)
	for step := int64(1 << 30); step >= fillerBlock; {
		err := unix.Fallocate(int(f.Fd()), 0, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("fill %s: %w", dir, err)
		}
	}
	return nil
}
