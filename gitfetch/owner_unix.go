//go:build unix

package gitfetch

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByUs reports whether what info describes belongs to this process's
// user. In a directory that many may write to, others can make names like
// ours.
func ownedByUs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
