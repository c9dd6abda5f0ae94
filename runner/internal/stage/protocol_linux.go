package stage

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/landlock"
)

// Name is the argument zero that turns the executable into a stage.
const Name = "fencepost-run"

// SocketFD is the stage's end of the protocol's socket.
const SocketFD = 3

// The kinds of messages.
const (
	KindBase    = 'B'
	KindConfig  = 'C'
	KindRequest = 'Q'
	KindReady   = 'R'
	KindGo      = 'G'
	KindExit    = 'X'
	KindKill    = 'K'
	KindDrained = 'D'
)

// MaxMessage bounds one message; it is below the kernel's default buffer.
const MaxMessage = 160 << 10

// OutputFDs are the descriptors that come with [KindReady] in namespaces, in
// this order: the working directory (O_PATH), report.json, result.json (both
// for reading).
const OutputFDs = 3

// MaxFDs bounds the descriptors of one message.
const MaxFDs = 8

// A Base tells a stage what to build before it knows of a run.
type Base struct {
	// Plain builds no mounts: the run happens on the host's own root.
	Plain bool
	// Binds, Links and Devices make the root.
	Binds   []Bind
	Links   []Link
	Devices []string
	// Leave lets go of the host right away: what the run adds comes as
	// detached mounts.
	Leave bool
}

// A Config tells a stage what to add for a run. With its message come
// descriptors, in this order: the program to copy (in namespaces only), one
// detached mount for each bind that wants one, and the doors of control groups.
type Config struct {
	// Strict ends the stage where a protection can't be had.
	Strict bool

	// Binds add the run's trees to the root.
	Binds []Bind
	// Scratch and Inodes bound the working directory's file system.
	Scratch, Inodes int64

	// Work is the working directory, Program what is executed in it. In
	// namespaces the program is first copied there.
	Work, Program string
	// Request, Report and Result are the contract's names in Work.
	Request, Report, Result string

	// Doors is how many control groups the program's thread joins.
	Doors int
	// Landlock is the kernel's version of it, 0 for none; Rules are applied.
	Landlock int
	Rules    []landlock.Rule
	// Limits are applied to the program.
	Limits Rlimits
}

// A Bind makes a directory or file of the host visible, read-only.
type Bind struct {
	// Source is the host's path; Target the path in the sandbox.
	Source, Target string
	// File: it is not a directory.
	File bool
	// Detached: a mount came with the message, and is moved to Target.
	Detached bool
}

// A Link is a symbolic link of the sandbox's root.
type Link struct{ Target, Text string }

// Rlimits are limits on each process of the program. Zero means none.
type Rlimits struct {
	// CPUSeconds is processor time.
	CPUSeconds uint64
	// FileBytes is the size of one file.
	FileBytes uint64
	// OpenFiles counts descriptors.
	OpenFiles uint64
	// Processes counts those of the user in the namespace.
	Processes uint64
	// DataBytes is private writable memory, where no control group bounds it.
	DataBytes uint64
}

// A Part is a piece of the sandbox that can fail by itself.
type Part string

// The parts.
const (
	PartMounts       Part = "mounts"
	PartScratch      Part = "scratch"
	PartNoNewPrivs   Part = "no_new_privs"
	PartCapabilities Part = "capabilities"
	PartLandlock     Part = "landlock"
	PartSeccomp      Part = "seccomp"
	PartRlimits      Part = "rlimits"
	PartSubreaper    Part = "subreaper"
	PartCgroup       Part = "cgroup"
)

// A Failure says which part could not be had, at which step, and the kernel's
// word for it.
type Failure struct {
	Part  Part
	Step  string
	Errno uint
}

// Error names part, step and cause.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s: %s: %v", f.Part, f.Step, unix.Errno(f.Errno))
}

// Unwrap returns the kernel's error number.
func (f *Failure) Unwrap() error { return unix.Errno(f.Errno) }

func failure(part Part, step string, err error) *Failure {
	errno, ok := errors.AsType[unix.Errno](err)
	if !ok {
		errno = unix.EIO
	}
	return &Failure{Part: part, Step: step, Errno: uint(errno)}
}

// Ready says that the sandbox stands, but for what failed. A stage whose
// Fatal is set ends after it.
type Ready struct {
	Failures []Failure
	Fatal    bool
}

// Exit says how the program ended.
type Exit struct {
	// Spawn is the error number of a program that could not be started; the
	// other fields are then zero.
	Spawn uint
	// Status is what wait(2) said.
	Status uint32
	// UserMicros and SystemMicros are processor time of the program and of
	// its reaped children, MaxRSSKiB the largest resident size of one.
	UserMicros, SystemMicros, MaxRSSKiB int64
}
