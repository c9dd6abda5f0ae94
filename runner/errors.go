package runner

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels that errors of this package match.
var (
	// ErrConfig: a configuration or a job is not within its rules.
	ErrConfig = errors.New("bad runner configuration")
	// ErrLost: the lease was refused, or could not be checked in time.
	ErrLost = errors.New("lease lost")
	// ErrSandbox: the sandbox can't be had; see [SandboxError].
	ErrSandbox = errors.New("sandbox not available")
	// ErrUnsupported: this system has no way to prove that a process tree
	// ended.
	ErrUnsupported = errors.New("programs can't be run on this system")
	// ErrCheckout: a checkout is not what it was when it was fetched, or not
	// the commit that the job names.
	ErrCheckout = errors.New("checkout does not verify")
	// ErrProgram: the action's program is missing, not a file, too large, or
	// not the pinned one.
	ErrProgram = errors.New("program is not the pinned one")
	// ErrWall: the wall limit passed.
	ErrWall = errors.New("wall limit passed")
	// ErrSignalled: the program was ended by a signal.
	ErrSignalled = errors.New("program was ended by a signal")
	// ErrStage: the process that builds the sandbox did not do its part.
	ErrStage = errors.New("sandbox process failed")
	// ErrSpawn: the program could not be started.
	ErrSpawn = errors.New("program could not be started")
	// ErrDrain: the process tree was not proven gone within [DrainLimit].
	ErrDrain = errors.New("process tree not proven gone")
	// ErrOutput: report or result are not what the contract asks for; the
	// outcome's reason says how.
	ErrOutput = errors.New("output against the contract")
	// ErrTampered: the program replaced an output's name, or was altered.
	ErrTampered = errors.New("run was tampered with")
	// ErrLeftover: processes of an earlier run can't be proven gone.
	ErrLeftover = errors.New("processes of an earlier run are alive")
	// ErrClosed: the runner is closed.
	ErrClosed = errors.New("runner is closed")
	// ErrBusy: the runner still has runs.
	ErrBusy = errors.New("runner has runs")
)

// A Missing is one protection that can't be had, and why.
type Missing struct {
	Protection Protection
	// Err is the kernel's answer.
	Err error
}

// A SandboxError names what the kernel or the host's rules lack for a sandbox.
// It matches [ErrSandbox] and each cause.
type SandboxError struct{ Missing []Missing }

// Error lists every missing protection with its cause in one line.
func (e *SandboxError) Error() string {
	items := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		items[i] = fmt.Sprintf("%s (%v)", m.Protection, m.Err)
	}
	return fmt.Sprintf("%v: missing %s", ErrSandbox, strings.Join(items, ", "))
}

// Unwrap returns [ErrSandbox] and the causes.
func (e *SandboxError) Unwrap() []error {
	errs := []error{ErrSandbox}
	for _, m := range e.Missing {
		errs = append(errs, m.Err)
	}
	return errs
}
