package runner

import (
	"os"

	"github.com/fencepost/fencepost/runner/internal/stage"
)

// Init must be the first statement of main, or of TestMain: the runner starts
// the executable again to build sandboxes, and in such a process Init does
// that work and never returns. In any other it does nothing but give the value
// that [Open] asks for. In a large program package early saves time.
func Init() Entry {
	if status, ok := stage.Play(); ok {
		os.Exit(status)
	}
	return Entry{called: true}
}
