// Package trial runs the whole system on this machine and tells what happens:
// a simulated forge with a real Git server, a real controller in a process of
// its own, a real repository, a real check.
//
// It is what `fencepost try` runs. Nothing is simulated but the forge: events
// are signed and delivered over HTTP, the controller is killed with SIGKILL,
// and each step is believed only after the forge's own state was read.
package trial
