package gate

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
)

// Sentinels that errors of lanes match.
var (
	// ErrUnknown: a write was sent and its answer is not known. Only a look-up
	// can tell.
	ErrUnknown = errors.New("outcome of the write is not known")
	// ErrNotYet: the provider does not show the commit yet, or not any more.
	ErrNotYet = errors.New("commit is not visible")
	// ErrOvertaken: what was shown of a result was taken back, or another one
	// has taken its place, because the head moved while it was being written.
	// Nothing of it is ever written again.
	ErrOvertaken = errors.New("the result was overtaken while it was being published")
)

// A WaitError is a failure that is known to last until a certain time, as
// clients of providers say it.
type WaitError = forge.WaitError

// errorf is an error of this package with a public reason.
func errorf(op string, why fencepost.Reason, format string, args ...any) error {
	return &fencepost.Error{Op: op, Reason: why, Err: fmt.Errorf(format, args...)}
}
