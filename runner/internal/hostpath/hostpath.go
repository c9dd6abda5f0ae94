// Package hostpath keeps paths of the host out of error texts (DESIGN §2,
// invariant 16).
package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Strip returns err without the path that a call of package os put into it;
// what it wraps still matches. It is applied where the call was made: a path
// that is wrapped once more stays.
func Strip(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("%s: %w", l.Op, l.Err)
	}
	return err
}
