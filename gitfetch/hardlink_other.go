//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package gitfetch

import (
	"errors"
	"os"
)

// hardLink is not possible between two open directories here.
func hardLink(*os.File, string, *os.File, string) error { return errors.ErrUnsupported }

func isTooManyLinks(error) bool { return false }
