package source

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/fencepost/fencepost"
)

// errPanic: a step panicked.
var errPanic = &fencepost.Error{Op: "source", Reason: fencepost.ReasonUnavailable, Err: errors.New("the step panicked")}

// caught is deferred by what runs in a goroutine of its own for one source. A
// panic is a bug of ours: it costs that source's attempt or look, and the log
// says where it was; what it panicked with may hold anything, and isn't shown.
func caught(log *slog.Logger, src *Source, panicked func()) {
	if v := recover(); v != nil {
		log.Error("source panicked", "source", string(src.Key), "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
		panicked()
	}
}
