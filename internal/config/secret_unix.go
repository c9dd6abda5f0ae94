//go:build unix

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
)

// openSecret does not wait for a writer where the path is a pipe.
func openSecret(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
}

// guardFile refuses a file with which others than its owner may do what g
// forbids, and one whose owner is neither this process's user nor root.
func guardFile(info fs.FileInfo, path string, g guard) error {
	switch mode := info.Mode().Perm(); {
	case guard(mode)&g == 0:
	case g == unwritable:
		return fmt.Errorf("others may write it (mode %04o): chmod go-w %s", mode, shellQuote(path))
	default:
		return fmt.Errorf("others may read it (mode %04o): chmod 600 %s", mode, shellQuote(path))
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner can't be told on this system")
	}
	if uid := uint32(os.Geteuid()); owner.Uid != uid && owner.Uid != 0 {
		return fmt.Errorf("it belongs to user %d, not to this user %d: chown %d %s", owner.Uid, uid, uid, shellQuote(path))
	}
	return nil
}

// shellQuote makes a path fit to be pasted into a shell.
func shellQuote(path string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+@:,", r)
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
