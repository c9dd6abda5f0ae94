package powercut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Kind is a file system that can be cut.
type Kind string

// The kinds.
const (
	Ext4  Kind = "ext4"
	XFS   Kind = "xfs"
	Btrfs Kind = "btrfs"
)

const (
	// imageBytes is the size of an image, which is sparse: the least that
	// mkfs.xfs takes is 300 MiB.
	imageBytes = 400 << 20
	// hostBytes is the size of the file system that holds an image and its
	// clone.
	hostBytes = 2 << 30
	// unmountWithin is how long an unmount may find the volume busy: calls
	// that the cut has failed take some time to return.
	unmountWithin = 30 * time.Second
	unmountEvery  = 20 * time.Millisecond
)

// shutdown is EXT4_IOC_SHUTDOWN, which XFS_IOC_GOINGDOWN equals; noLogFlush
// has the log not flushed before.
const (
	shutdown   = 0x8004587d
	noLogFlush = 2
)

// A Volume is a file system whose power can be cut. One goroutine uses it.
type Volume struct {
	tb      testing.TB
	kind    Kind
	options string
	image   string
	point   string
	mounted bool
	starts  uint64
	// host holds the image, where it is no file system of the machine's.
	host *Volume
	// next is the image after a cut by a clone.
	next string
}

// Make makes an empty file system below dir and mounts it with the options,
// which may be empty. Where the host can't, the test is skipped, and says what
// is missing. The volume is unmounted when the test ends.
func Make(tb testing.TB, dir string, kind Kind, options string) *Volume {
	tb.Helper()
	need(tb, kind)
	if kind != Btrfs {
		return create(tb, dir, kind, options, string(kind), imageBytes)
	}
	need(tb, XFS)
	host := create(tb, dir, XFS, "", "host", hostBytes)
	v := create(tb, host.point, kind, options, string(kind), imageBytes)
	v.host = host
	return v
}

// need skips the test where a volume can't be made.
func need(tb testing.TB, kind Kind) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("no power is cut here: mounting needs root")
	}
	for _, program := range []string{"mkfs." + string(kind), "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			tb.Skipf("no power is cut here: %v", err)
		}
	}
}

func create(tb testing.TB, dir string, kind Kind, options, name string, bytes int64) *Volume {
	tb.Helper()
	v := &Volume{
		tb: tb, kind: kind, options: options,
		image: filepath.Join(dir, name+".img"), point: filepath.Join(dir, name),
	}
	f, err := os.Create(v.image)
	if err == nil {
		err = errors.Join(f.Truncate(bytes), f.Close(), os.Mkdir(v.point, 0o700))
	}
	if err != nil {
		tb.Fatal(err)
	}
	if err := command(tb.Context(), "mkfs."+string(kind), "-q", v.image); err != nil {
		tb.Fatal(err)
	}
	if err := v.mount(); err != nil {
		tb.Skipf("no power is cut here: %v", err)
	}
	tb.Cleanup(v.Close)
	return v
}

// Close unmounts the volume and removes its image. Without it, the test's end
// does.
func (v *Volume) Close() {
	v.tb.Helper()
	err := v.unmount()
	if err == nil {
		err = os.RemoveAll(v.image)
	}
	if err != nil {
		v.tb.Error(err)
	}
	if v.host != nil {
		v.host.Close()
	}
}

// Path is where the volume is mounted.
func (v *Volume) Path() string { return v.point }

// Starts counts the starts of the machine, from 1: what a test's own clock
// takes for the id of this one.
func (v *Volume) Starts() uint64 { return v.starts }

func (v *Volume) mount() error {
	options := "loop"
	if v.options != "" {
		options += "," + v.options
	}
	err := command(v.tb.Context(), "mount", "-t", string(v.kind), "-o", options, v.image, v.point)
	v.mounted = err == nil
	v.starts++
	return err
}

func (v *Volume) unmount() error {
	if !v.mounted {
		return nil
	}
	ctx := context.WithoutCancel(v.tb.Context())
	waited := time.Duration(0)
	for ; ; waited += unmountEvery {
		err := unix.Unmount(v.point, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) || waited > unmountWithin {
			return errors.Join(fmt.Errorf("unmount %s: %w", v.point, err), command(ctx, "umount", "-l", v.point))
		}
		time.Sleep(unmountEvery)
	}
	v.mounted = false
	// The file system lives on while a namespace of mounts that was made
	// meanwhile, as for a sandbox, has it too: then a new mount would find it
	// as it was.
	for ; ; waited += unmountEvery {
		device, err := loopOf(v.image)
		if err != nil || device == "" {
			return err
		}
		if waited > unmountWithin {
			return fmt.Errorf("%s still has %s, %v after it was unmounted", device, v.image, waited)
		}
		time.Sleep(unmountEvery)
	}
}

// loopOf names the loop device of an image, or "".
func loopOf(image string) (string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // freed meanwhile
		}
		if strings.TrimSpace(string(text)) == image {
			return filepath.Base(filepath.Dir(filepath.Dir(name))), nil
		}
	}
	return "", nil
}

// Cut takes the power away. What uses the volume goes on, and fails, or
// writes what nobody will read.
func (v *Volume) Cut() {
	v.tb.Helper()
	var err error
	if v.kind == Btrfs {
		err = v.clone()
	} else {
		err = v.shutdown()
	}
	if err != nil {
		v.tb.Fatalf("cut the power of %s: %v", v.kind, err)
	}
}

func (v *Volume) shutdown() error {
	dir, err := os.Open(v.point)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, noLogFlush), dir.Close())
}

// clone keeps the device's bytes as they are now.
func (v *Volume) clone() (err error) {
	from, err := os.Open(v.image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	v.next = v.image + ".cut"
	to, err := os.Create(v.next)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlFileClone(int(to.Fd()), int(from.Fd())), to.Close())
}

// Restart starts the machine anew after a cut. Every process that had files
// open on the volume must have ended.
func (v *Volume) Restart() {
	v.tb.Helper()
	if err := v.unmount(); err != nil {
		v.tb.Fatal(err)
	}
	if v.next != "" {
		if err := os.Rename(v.next, v.image); err != nil {
			v.tb.Fatal(err)
		}
		v.next = ""
	}
	if err := v.mount(); err != nil {
		v.tb.Fatalf("the file system does not recover: %v", err)
	}
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
