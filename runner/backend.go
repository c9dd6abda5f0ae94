package runner

import (
	"context"
	"os"
)

// A backend starts programs in the way of one system. It is safe for
// concurrent use.
type backend interface {
	// roots are the trees as a program will see them.
	roots() roots
	// begin makes what a run needs before its checkouts are verified. Every
	// session is drained and released, whatever became of it.
	begin(l Limits) (session, error)
	// close releases what the backend holds.
	close() error
}

// roots are the directories of the trees in a request.
type roots struct{ candidate, action string }

// A requester waits until both checkouts are proven, and derives the request.
type requester func() ([]byte, error)

// A session is what surrounds one program: not there yet, waiting, running or
// ended. It is used by one goroutine.
type session interface {
	// load copies the program and compares its digest; see copyProgram.
	load(ctx context.Context, job *Job) error
	// prepare builds everything but the program, which waits for launch. It
	// asks for the request as late as it can.
	prepare(ctx context.Context, job *Job, request requester) error
	// protections says which are on, after prepare.
	protections() []ProtectionState
	// launch lets the program go.
	launch() error
	// ended yields one ending after launch.
	ended() <-chan ending
	// drain kills the whole process tree and returns when it is proven gone.
	// Its error matches ErrDrain when that took longer than DrainLimit. It is
	// called once.
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
