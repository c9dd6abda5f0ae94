package simulation

import (
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A Kind is a kind of fault.
type Kind uint8

// The kinds of faults.
const (
	// Kill: a process ends between two calls, KillInCall: before, inside or
	// after one on the disk.
	Kill Kind = iota + 1
	KillInCall
	// CrashLost, CrashKept, CrashTorn: the machine loses power; of what was
	// not synced all is lost, all is kept, or some of each. CrashInCall: in
	// the middle of a call, and torn.
	CrashLost
	CrashKept
	CrashTorn
	CrashInCall
	// SyncError: a sync fails and its sectors are marked clean.
	SyncError
	// DiskFull: no room for a while.
	DiskFull
	// Stop: a process stops for longer than its lease, and goes on.
	Stop
	// Restart: a process is told to end, and another one starts.
	Restart
	// WallHour, WallDay: the wall clock is set, back or forth.
	WallHour
	WallDay
	// Suspend: the machine sleeps for longer than a lease: its clocks have
	// gone on, and no timer has.
	Suspend
	// BootPause: the clock that times leases stands still for a while.
	BootPause
	// Repeat: a delivery is sent once more, to any process.
	Repeat
	// GateMoved: a push, a new base or another rule.
	GateMoved
	// ProviderError, RateLimit: the provider does nothing, and says so.
	ProviderError
	RateLimit
	// AnswerLost: it does it and does not say so. AnswerLate: it says so
	// after a while. EffectLate: it does not say so and does it later.
	AnswerLost
	AnswerLate
	EffectLate
	// Lag: what was published does not show for a while.
	Lag
	lastKind = Lag
)

var kindNames = [...]string{
	Kill: "kill", KillInCall: "kill in a call", CrashLost: "crash, lost", CrashKept: "crash, kept", CrashTorn: "crash, torn",
	CrashInCall: "crash in a call", SyncError: "sync error", DiskFull: "disk full", Stop: "stopped", Restart: "restart",
	WallHour: "wall clock ±1 h", WallDay: "wall clock ±1 day", Suspend: "suspended", BootPause: "boot clock pause", Repeat: "repeat",
	GateMoved: "gate moved", ProviderError: "5xx", RateLimit: "rate limit", AnswerLost: "answer lost",
	AnswerLate: "answer late", EffectLate: "effect late", Lag: "lists lag",
}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// onDisk reports whether the fault comes at a call on the disk.
func (k Kind) onDisk() bool {
	return k == KillInCall || k == CrashInCall || k == SyncError
}

// ofProvider reports whether the fault comes at a call of the provider.
func (k Kind) ofProvider() bool { return k >= ProviderError }

// A Phase is where an evaluation is.
type Phase uint8

// The phases, in the order of an evaluation.
const (
	Recording Phase = iota + 1
	Claiming
	Beginning
	Fetching
	Running
	Refreshing
	Freezing
	Staging
	Looking
	Creating
	Remembering
	Completing
	Finishing
	lastPhase = Finishing
)

var phaseNames = [...]string{
	Recording: "record", Claiming: "claim", Beginning: "begin", Fetching: "fetch", Running: "run", Refreshing: "refresh",
	Freezing: "freeze", Staging: "stage", Looking: "look up", Creating: "create", Remembering: "remember",
	Completing: "complete", Finishing: "finish",
}

// String names the phase.
func (p Phase) String() string { return phaseNames[p] }

// Possible reports whether a fault of that kind can come in that phase: those
// of the provider come where it is called, and those of the disk where the
// evaluation calls it.
func Possible(k Kind, p Phase) bool {
	switch k {
	case KillInCall, CrashInCall, SyncError:
		return p != Fetching && p != Refreshing && p != Creating
	case EffectLate, Lag:
		return p == Creating
	case ProviderError, RateLimit, AnswerLost, AnswerLate:
		return p == Beginning || p == Refreshing || p == Looking || p == Creating
	}
	return true
}

// after is the phase of an evaluation that makes a call, having been in p.
func (p Phase) after(op string) Phase {
	switch op {
	case "record":
		return Recording
	case "read", "claim":
		return Claiming
	case "refresh":
		switch {
		case p <= Beginning:
			return Beginning
		case p <= Refreshing:
			return Refreshing
		}
		return Looking
	case "enter":
		return Beginning
	case "fetch":
		return Fetching
	case "run":
		return Running
	case "put":
		return Freezing
	case "advance", "stage":
		return Staging
	case "find":
		return Looking
	case "create":
		return Creating
	case "note":
		if p == Creating {
			return Remembering
		}
	case "complete":
		return Completing
	case "forget", "done":
		return Finishing
	}
	return p
}

// A fault is one that comes now.
type fault struct{ kind Kind }

// A planned fault comes once, some steps after an evaluation has reached a
// phase.
type planned struct {
	kind  Kind
	phase Phase
	skip  int
	draw  uint64
	// Set once the phase is reached: where, and in which evaluation.
	begun          bool
	slot, delivery int
}

// onDisk is the fault of the disk's call.
func (f fault) onDisk(draw uint64) crashfs.Fault {
	when := [...]crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After}[draw%3]
	keep := int(draw / 3 % 1200)
	switch f.kind {
	case KillInCall:
		return crashfs.Fault{Kill: when, Keep: keep}
	case CrashInCall:
		return crashfs.Fault{Crash: when, Keep: keep}
	case SyncError:
		return crashfs.Fault{Err: errIO, Keep: int(draw % 4)}
	case DiskFull:
		return crashfs.Fault{Err: durable.ErrNoSpace}
	}
	return crashfs.Fault{}
}

// policy says what a crash leaves.
func policy(k Kind, draw uint64) crashfs.Policy {
	switch k {
	case CrashLost:
		return crashfs.LoseAll
	case CrashKept:
		return crashfs.KeepAll
	}
	return crashfs.Random(draw)
}
