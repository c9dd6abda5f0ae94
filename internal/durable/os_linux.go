package durable

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return control(f, unix.Fdatasync) }

func syncFull(f *os.File) error { return control(f, unix.Fsync) }

// maxVec is the most parts that one pwritev(2) takes (IOV_MAX).
const maxVec = 1024

func writeVec(f *os.File, parts [][]byte, off int64) (int, error) {
	total := 0
	err := control(f, func(fd int) error {
		n, err := vecAll(parts, off+int64(total), func(p [][]byte, off int64) (int, error) {
			return unix.Pwritev(fd, p, off)
		})
		total += n
		// After an interruption control calls again: only what is left.
		parts = skip(parts, n)
		return err
	})
	return total, err
}

// vecAll calls write until all parts are written, at most [maxVec] at a time.
// It does not change parts.
func vecAll(parts [][]byte, off int64, write func([][]byte, int64) (int, error)) (int, error) {
	total := 0
	for len(parts) > 0 {
		chunk := parts
		if len(chunk) > maxVec {
			chunk = chunk[:maxVec]
		}
		n, err := write(chunk, off+int64(total))
		n = max(n, 0)
		total += n
		if err != nil {
			return total, err
		}
		if n == 0 && size(chunk) > 0 {
			return total, io.ErrShortWrite
		}
		if n == size(chunk) {
			parts = parts[len(chunk):]
			continue
		}
		parts = skip(parts, n)
	}
	return total, nil
}

func size(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// skip returns parts less their first n bytes, in a new slice if the cut is
// inside of a part.
func skip(parts [][]byte, n int) [][]byte {
	for len(parts) > 0 && n >= len(parts[0]) {
		n -= len(parts[0])
		parts = parts[1:]
	}
	if n == 0 || len(parts) == 0 {
		return parts
	}
	rest := append([][]byte{parts[0][n:]}, parts[1:]...)
	return rest
}

// probe is one change that the file system has to take. Twice, because ext4
// swallows the first failure to begin one, and refuses everything from then on.
func probe(f *os.File) error {
	return control(f, func(fd int) error {
		for range 2 {
			// utimensat(2) of the descriptor itself, to now.
			if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, 0, 0, 0, 0); errno != 0 {
				return errno
			}
		}
		return nil
	})
}

func allocate(f *os.File, from, to int64) error {
	return control(f, func(fd int) error {
		return unix.Fallocate(fd, 0, from, to-from)
	})
}

// volumes is the allow-list (RELIABILITY §3.6).
var volumes = map[int64]struct {
	name       string
	durability Durability
}{
	unix.EXT4_SUPER_MAGIC:  {"ext4", Durable}, // also ext2 and ext3
	unix.XFS_SUPER_MAGIC:   {"xfs", Durable},
	unix.BTRFS_SUPER_MAGIC: {"btrfs", Durable},
	0x2fc12fc1:             {"zfs", Durable},
	unix.TMPFS_MAGIC:       {"tmpfs", Volatile},
	unix.RAMFS_MAGIC:       {"ramfs", Volatile},
}

// volumeOf leaves Durability 0 where the mount has to be looked at.
func volumeOf(dir string) (Volume, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return Volume{}, err
		}
	}
	block := int64(st.Bsize) //nolint:unconvert // int32 on some architectures
	v := Volume{
		Durability: Unsuitable,
		Free:       int64(st.Bavail) * block,
		Total:      int64(st.Blocks) * block,
		ReadOnly:   st.Flags&unix.ST_RDONLY != 0,
	}
	magic := int64(uint32(st.Type))
	switch known, ok := volumes[magic]; {
	case ok:
		v.Type, v.Durability = known.name, known.durability
	case magic == unix.OVERLAYFS_SUPER_MAGIC:
		v.Type, v.Durability = "overlay", 0
	default:
		v.Type = fmt.Sprintf("%#x", magic)
	}
	return v, nil
}

// mountOf tells a volatile overlay, whose syncs do nothing, from one that
// passes them on to the file system below.
func mountOf(dir string) mount {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mount{Unsuitable, "the overlay's mount options can't be read"}
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return mount{Unsuitable, "the directory's own path can't be told"}
	}
	if isVolatileMount(info, abs) {
		return mount{Volatile, "the overlay is mounted volatile"}
	}
	return mount{Durable, "an overlay is as durable as the file system below it; a volume of its own is better"}
}

// isVolatileMount looks up the mount that holds path in the text of
// /proc/self/mountinfo (proc(5)): the last one among those with the longest
// mount point.
func isVolatileMount(mountinfo []byte, path string) bool {
	longest, volatile := -1, false
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(line), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(tail) < 3 {
			continue
		}
		point := fields[4]
		if !holds(point, path) || len(point) < longest {
			continue
		}
		longest = len(point)
		volatile = hasOption(tail[2], "volatile")
	}
	return volatile
}

func holds(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want || strings.HasPrefix(o, want+"=") {
			return true
		}
	}
	return false
}

func syncVolume(dir *os.File) error { return control(dir, unix.Syncfs) }
