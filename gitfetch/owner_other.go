//go:build !unix

package gitfetch

import "io/fs"

// ownedByUs reports true: there is no owner to compare.
func ownedByUs(fs.FileInfo) bool { return true }
