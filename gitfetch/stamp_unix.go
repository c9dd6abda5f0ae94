//go:build unix

package gitfetch

import (
	"io/fs"
	"os"
	"syscall"
)

// stampOf returns by what a file is recognised, and the device that it is on.
func stampOf(info fs.FileInfo) (_ stamp, device uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Ino == 0 {
		return stamp{}, 0, false
	}
	// The types of these fields differ between systems.
	return stamp{ino: uint64(st.Ino), mtime: info.ModTime().UnixNano()}, uint64(st.Dev), true
}

// deviceOf returns the device of an open directory; 0 where it has none.
func deviceOf(root *os.Root) uint64 {
	info, err := root.Stat(".")
	if err != nil {
		return 0
	}
	_, device, _ := stampOf(info)
	return device
}
