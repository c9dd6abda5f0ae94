package crashfs

import (
	"errors"
	"math/rand/v2"
)

// Sentinels that errors of this package match.
var (
	// ErrCrashed: the machine has crashed; nothing happens any more.
	ErrCrashed = errors.New("the machine has crashed")
	// ErrKilled: the calling process was killed.
	ErrKilled = errors.New("the process was killed")
)

// An Op names a call.
type Op string

// The calls of [durable.FS], [durable.File], [durable.Linker] and
// [durable.Tree].
const (
	OpOpen     Op = "open"
	OpMkdir    Op = "mkdir"
	OpRename   Op = "rename"
	OpLink     Op = "link"
	OpRemove   Op = "remove"
	OpReadDir  Op = "readdir"
	OpStat     Op = "stat"
	OpSyncDir  Op = "syncdir"
	OpVolume   Op = "volume"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpAllocate Op = "allocate"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpSize     Op = "size"
	OpLock     Op = "lock"
	OpUnlock   Op = "unlock"
	OpClose    Op = "close"
	OpSymlink  Op = "symlink"
	OpReadlink Op = "readlink"
	OpOpenTree Op = "opentree"
	OpSyncTree Op = "synctree"
)

// Changes reports whether the call can change what a later start finds.
func (o Op) Changes() bool {
	switch o {
	case OpOpen, OpMkdir, OpRename, OpLink, OpRemove, OpSyncDir,
		OpWrite, OpAllocate, OpTruncate, OpSync, OpSymlink, OpSyncTree:
		return true
	}
	return false
}

// A Call is one call of a process, before it happens.
type Call struct {
	// N counts the calls of the disk, from 1.
	N int
	// Op says which call it is, and Name its file.
	Op   Op
	Name string
	// Off and Len are the range of a read or write, in bytes.
	Off int64
	Len int
}

// A Fault is what happens at a call. The zero Fault lets it succeed.
type Fault struct {
	// Err makes the call fail, unless there is a crash. A Sync that fails
	// leaves its sectors clean and unwritten.
	Err error
	// Done makes a call that fails with Err happen all the same: the answer
	// was lost, not the call.
	Done bool
	// Crash crashes the machine, and Kill kills the calling process alone. A
	// Sync with Err and Kill has failed, and its process did not live to know.
	Crash, Kill When
	// Keep is how much happens before the failure, or before the crash or
	// death with [Inside]: bytes of a write, or sectors of a sync that fails.
	Keep int
}

// When is the moment of a crash or death at a call.
type When int

const (
	// Before the call happens.
	Before When = iota + 1
	// Inside it: Fault.Keep bytes of a write happen. Another call has not
	// happened, as with Before: a change of names is one step, and which
	// sectors of an unfinished sync arrive is up to the policy of
	// [Disk.After].
	Inside
	// After it has happened, before the caller knows.
	After
)

// A Plan gives calls their faults. It is called with the disk's lock held, so
// it must not call the disk.
type Plan func(Call) Fault

// CrashAt crashes the machine at call n; keep is how many bytes of a write
// happen if when is [Inside].
func CrashAt(n int, when When, keep int) Plan {
	return func(c Call) Fault {
		if c.N != n {
			return Fault{}
		}
		return Fault{Crash: when, Keep: keep}
	}
}

// KillAt kills the process that makes call n.
func KillAt(n int, when When, keep int) Plan {
	return func(c Call) Fault {
		if c.N != n {
			return Fault{}
		}
		return Fault{Kill: when, Keep: keep}
	}
}

// FailAt fails call n alone.
func FailAt(n int, err error) Plan {
	return func(c Call) Fault {
		if c.N != n {
			return Fault{}
		}
		return Fault{Err: err}
	}
}

// FailFrom fails call n and all later ones that [Op.Changes] is true for.
func FailFrom(n int, err error) Plan {
	return func(c Call) Fault {
		if c.N < n || !c.Op.Changes() {
			return Fault{}
		}
		return Fault{Err: err}
	}
}

// A Policy says what a crash leaves of the unsynced change number unit,
// counted from 0 in a fixed order. A change has versions, the oldest first;
// the result is how many of them happened: 0 for none.
type Policy func(unit, versions int) int

// LoseAll loses all that was not synced.
func LoseAll(int, int) int { return 0 }

// KeepAll keeps all: a crash that looks like a kill.
func KeepAll(_, versions int) int { return versions }

// LoseOne loses one change and keeps the others.
func LoseOne(lost int) Policy {
	return func(unit, versions int) int {
		if unit == lost {
			return 0
		}
		return versions
	}
}

// KeepOne keeps one change and loses the others.
func KeepOne(kept int) Policy {
	return func(unit, versions int) int {
		if unit == kept {
			return versions
		}
		return 0
	}
}

// Random keeps some version of each change, the same ones for the same seed.
func Random(seed uint64) Policy {
	return func(unit, versions int) int {
		r := rand.New(rand.NewPCG(seed, uint64(unit)))
		return r.IntN(versions + 1)
	}
}
