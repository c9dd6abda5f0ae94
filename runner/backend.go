package runner

import (
	"context"
	"os"
)

// A backend starts programs in the way of one system. It is immutable and safe
// for concurrent use.
type backend interface {
	// roots are the trees as a program will see them.
	roots() roots
	// start makes everything but the program, which waits for launch. The
	// session's methods are called from the same goroutine.
	start(ctx context.Context, s spec) (session, error)
	// close releases what the backend holds.
	close() error
}

// roots are the directories of the trees in a request.
type roots struct{ candidate, action string }

// A spec is what to start.
type spec struct {
	job     *Job
	request []byte
	dir     *runDir
}

// A session is one program, waiting, running or ended.
type session interface {
	// protections says which are on.
	protections() []ProtectionState
	// launch lets the program go.
	launch() error
	// ended yields one ending.
	ended() <-chan ending
	// drain kills the whole process tree and returns when it is proven gone.
	// Its error matches ErrDrain when that took longer than DrainLimit. It
	// may be called at any time after start, once.
	drain() error
	// unaltered checks after drain that the program is still the pinned one;
	// its error matches ErrTampered.
	unaltered() error
	// outputs are read after drain.
	outputs() outputs
	// memoryKills is known after drain.
	memoryKills() int
	// release gives back what the session holds, after drain. Its error
	// means that something of the run remains.
	release() error
}

// An ending is how the program ended by itself: exit, or else why it could not
// be started or was lost sight of.
type ending struct {
	exit *ProgramExit
	err  error
}

// outputs are the files that the controller made and kept open.
type outputs interface {
	// open returns the kept handle, for reading; the session closes it.
	open(name string) *os.File
	// replaced reports whether the name stands for another file now.
	replaced(name string) bool
}
