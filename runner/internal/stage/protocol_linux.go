package stage

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/landlock"
)

// Name is the argument zero that turns the executable into a stage.
const Name = "fencepost-run"

// SocketFD is the stage's end of the protocol's socket.
const SocketFD = 3

// The kinds of messages.
const (
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

// A Config tells a stage what to build.
type Config struct {
	// Plain builds no mounts: paths below are the host's.
	Plain bool
	// Strict ends the stage at the first protection that can't be had.
	Strict bool

	// Binds, Links and Devices make the root of a namespaced run.
	Binds   []Bind
	Links   []Link
	Devices []string
	// Scratch and Inodes bound the working directory's file system.
	Scratch, Inodes int64

	// Work is the working directory, Program what is executed in it.
	Work, Program string

	// Landlock is the kernel's version of it, 0 for none; Rules are applied.
	Landlock int
	Rules    []landlock.Rule
	// Seccomp puts the program under the system call filter.
	Seccomp bool
	// Limits are applied to the program.
	Limits Rlimits
}

// A Bind makes a directory or file of the host visible, read-only.
type Bind struct {
	// Source is the host's path; FD a detached mount instead, where it is
	// not 0.
	Source string
	FD     int
	// Target is the path in the sandbox, File whether it is not a directory.
	Target string
	File   bool
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

// Encode makes a message of kind and JSON payload; a nil payload is none.
func Encode(kind byte, payload any) ([]byte, error) {
	if payload == nil {
		return []byte{kind}, nil
	}
	b, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encode stage message: %w", err)
	}
	return append([]byte{kind}, b...), nil
}

// Decode reads the payload of a message into v.
func Decode(message []byte, v any) error {
	if err := json.Unmarshal(message[1:], v); err != nil {
		return fmt.Errorf("decode stage message: %w", err)
	}
	return nil
}

// send writes one message with descriptors.
func send(sock int, message []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(sock, message, oob, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive reads one message of the wanted kind; io.EOF when the other side is
// gone.
func receive(sock int, want byte) ([]byte, error) {
	buf := make([]byte, MaxMessage+1)
	for {
		n, _, err := unix.Recvfrom(sock, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.EOF
		case n > MaxMessage || buf[0] != want:
			return nil, fmt.Errorf("stage message %q of %d bytes, want %q: %w", buf[0], n, want, unix.EPROTO)
		}
		return buf[:n], nil
	}
}
