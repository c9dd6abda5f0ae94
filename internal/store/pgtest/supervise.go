package pgtest

import (
	"os/exec"
	"runtime"
)

// supervise starts a command and waits for it in a goroutine that keeps its
// thread: on Linux the child is told when the thread that started it ends, not
// when the process does. exited is closed when the child has ended.
func supervise(cmd *exec.Cmd) (exited chan struct{}, err error) {
	started := make(chan error)
	exited = make(chan struct{})
	go func() {
		defer close(exited)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			// How it ended is in its log; that it ended is what counts.
			_ = cmd.Wait()
		}
	}()
	return exited, <-started
}
