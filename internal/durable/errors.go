package durable

import (
	"errors"
	"fmt"
	"io/fs"
)

// Sentinels that errors of this package match.
var (
	// ErrPoisoned: a sync of this root failed, now or earlier, here or in
	// another process. [PoisonedError] has the details.
	ErrPoisoned = errors.New("root is poisoned by a failed sync")
	// ErrNoSpace: no room for bytes or names. [NoSpaceError] has the details.
	ErrNoSpace = errors.New("no space")
	// ErrReadOnly: the file system takes no writes.
	ErrReadOnly = errors.New("file system is read-only")
	// ErrLockReplaced: the path of a lock file names another file than the
	// one that was locked, so the lock excludes nobody.
	ErrLockReplaced = errors.New("lock file was replaced")
	// ErrNotLocked: Unlock of a file that is not locked.
	ErrNotLocked = errors.New("file is not locked")
	// ErrSyncNotTried: a sync failed before the system was asked for it, as
	// when no file descriptor was left for the directory. Nothing is lost by
	// trying again; a [Root] is not poisoned by it.
	ErrSyncNotTried = errors.New("sync was not tried")
	// ErrTooLarge: a file is longer than its reader allows.
	ErrTooLarge = errors.New("file is too large")
	// ErrUnsuitable: the file system can't keep what this package promises.
	// [UnsuitableError] has the details.
	ErrUnsuitable = errors.New("file system is not suitable")
)

// A PoisonedError says why a root takes no more changes. It matches
// [ErrPoisoned].
type PoisonedError struct {
	// Op is what failed, such as "sync 000001.seg", or "mark" when the mark
	// of an earlier failure was found.
	Op string
	// Err is the cause; with Op "mark" it holds the mark's text.
	Err error
	// Mark is not nil if the mark for other processes could not be set.
	Mark error
}

// Error names the operation, the cause and the mend.
func (e *PoisonedError) Error() string {
	s := fmt.Sprintf("%s: %v: this root takes no more writes", e.Op, e.Err)
	if e.Mark != nil {
		s += fmt.Sprintf(" (and its mark could not be set: %v)", e.Mark)
	}
	return s + "; " + mendPoison
}

// mendPoison is in short what docs/operations.md says.
const mendPoison = "stop the controller, mend the disk, restart the machine, verify what is stored, and only then remove POISON and health (docs/operations.md, A failed sync)"

// Is reports whether target is [ErrPoisoned].
func (e *PoisonedError) Is(target error) bool { return target == ErrPoisoned }

// Unwrap returns the cause.
func (e *PoisonedError) Unwrap() error { return e.Err }

// A NoSpaceError is a call that found no room. What had been written before
// it stays; nothing is poisoned. It matches [ErrNoSpace].
type NoSpaceError struct {
	// Op is the call: "write", "allocate", "create", "reserve".
	Op string
	// Name is the file's name inside its FS.
	Name string
	// Err is the system's error; it may be nil.
	Err error
}

// Error names the call and the file.
func (e *NoSpaceError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s %s: no space", e.Op, e.Name)
	}
	return fmt.Sprintf("%s %s: no space: %v", e.Op, e.Name, e.Err)
}

// Is reports whether target is [ErrNoSpace].
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// Unwrap returns the system's error.
func (e *NoSpaceError) Unwrap() error { return e.Err }

// An UnsuitableError is a file system that is refused. It matches
// [ErrUnsuitable].
type UnsuitableError struct {
	// Path is the directory that was looked at.
	Path string
	// Type is the file system's name, or its number where it has none here.
	Type string
	// Why says what it lacks, and Mend what to do about it.
	Why, Mend string
}

// Error says where, what, and the mend.
func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("%s is on %s: %s; %s", e.Path, e.Type, e.Why, e.Mend)
}

// Is reports whether target is [ErrUnsuitable].
func (e *UnsuitableError) Is(target error) bool { return target == ErrUnsuitable }

// opError names what failed on which file, in the form that os errors have.
func opError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	err = pathCause(err)
	if isNoSpace(err) {
		return &NoSpaceError{Op: op, Name: name, Err: err}
	}
	if isReadOnly(err) {
		err = errors.Join(ErrReadOnly, err)
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// pathCause takes the host's whole path off an error of package os: our own
// names are relative to the root, so that our errors can be shown.
func pathCause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
