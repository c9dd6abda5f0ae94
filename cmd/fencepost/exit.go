package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/config"
)

// Exit codes (DESIGN §11).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage is matched by what is wrong with a command line.
var errUsage = errors.New("usage")

// errSilent: the command has said already what is to be said; only the exit
// code is left.
var errSilent = errors.New("reported")

// A usageError is a mistake in a command line.
type usageError struct{ err error }

func usage(err error) error { return &usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// takes is for a command that needs exactly these arguments.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		command := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		return usagef("%s takes %s, and has %d arguments", command, strings.Join(names, " "), len(args))
	}
}

func (e *usageError) Error() string        { return e.err.Error() }
func (e *usageError) Unwrap() error        { return e.err }
func (e *usageError) Is(target error) bool { return target == errUsage }

// exitCode is the one map from errors to exit codes.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), errors.Is(err, config.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// report says on stderr what went wrong, one line for each thing: what,
// where, and the mend.
func (m Main) report(err error) {
	switch {
	case err == nil, errors.Is(err, errSilent):
	case errors.Is(err, config.ErrInvalid):
		// Each line begins with the file's name already.
		fmt.Fprintln(m.Err, err)
	case errors.Is(err, errUsage):
		fmt.Fprintf(m.Err, "fencepost: %s; --help shows the usage\n", oneLine(err))
	default:
		fmt.Fprintf(m.Err, "fencepost: %s\n", oneLine(err))
	}
}

// oneLine keeps an error on its line, and control characters off the
// terminal.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, text)
}

// readAtMost reads r to its end, which must come within limit bytes.
func readAtMost(r io.Reader, limit int64, what string) ([]byte, error) {
	var b strings.Builder
	n, err := io.Copy(&b, io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", what, err)
	case n > limit:
		return nil, fmt.Errorf("read %s: it is longer than %d bytes", what, limit)
	}
	return []byte(b.String()), nil
}
