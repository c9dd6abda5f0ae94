package early

import (
	"os"

	"github.com/fencepost/fencepost/runner/internal/stage"
)

// The one init of the project, because the time before main is what it is
// about. It depends on few packages so that it comes early: Go takes packages
// whose imports are ready in the order of their paths.
func init() {
	if status, ok := stage.Play(); ok {
		os.Exit(status)
	}
}
