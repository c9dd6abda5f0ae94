package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// Config bounds an inbox. Zero fields have their defaults.
type Config struct {
	// MaxEntries is the most entries that are not done, of this process and
	// of those it has adopted; default 100,000. At the limit new ones are
	// [ErrFull].
	MaxEntries int
	// MaxBytes is the most bytes of segment files that entries may take;
	// default 4 GiB, at least two segments. Marks may take one segment more,
	// so that a full inbox can be emptied.
	MaxBytes int64
	// MaxBody is the longest body in bytes; default 25 MiB. A longer one is
	// [fencepost.ErrTooLarge].
	MaxBody int
	// SegmentBytes is the size of a segment; default 64 MiB. An entry that
	// needs more gets a segment of its own size.
	SegmentBytes int64
	// MinFree is what is left free on the file system, in bytes, for those
	// who finish the work; default 64 MiB, -1 for none. Below it new entries
	// are [ErrFull].
	MinFree int64
	// RetryAfter is what a [FullError] tells the sender; default 10 s.
	RetryAfter time.Duration
	// AdoptEvery is how often the logs of dead processes are looked for;
	// default 5 s.
	AdoptEvery time.Duration
	// Settle is how long after the last commit marks are written and segments
	// removed; default 100 ms.
	Settle time.Duration
	// Gather is how long a commit waits for more requests, at most, while
	// several come at once; default 2 ms, negative for not at all.
	Gather time.Duration
	// NotDurable accepts a file system that keeps nothing over a restart,
	// for tests and trials.
	NotDurable bool
	// OnDamage is told of each damage when it is found; it may be nil. It
	// must not call the inbox.
	OnDamage func(*frame.CorruptError)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxEntries, 100_000)
	setDefault(&c.MaxBytes, 4<<30)
	setDefault(&c.MaxBody, 25<<20)
	setDefault(&c.SegmentBytes, 64<<20)
	setDefault(&c.MinFree, 64<<20)
	setDefault(&c.RetryAfter, 10*time.Second)
	setDefault(&c.AdoptEvery, 5*time.Second)
	setDefault(&c.Settle, 100*time.Millisecond)
	setDefault(&c.Gather, 2*time.Millisecond)
	if c.OnDamage == nil {
		c.OnDamage = func(*frame.CorruptError) {}
	}
	return c
}

// minSegment is the least size of a segment, in bytes.
const minSegment = 16 << 10

func (c Config) validate() error {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, fmt.Errorf("inbox: %s: %w", text, fencepost.ErrMalformed))
		}
	}
	check(c.MaxEntries < 1, "max entries must be at least 1")
	check(c.SegmentBytes < minSegment, "segment must be at least 16 KiB")
	check(c.MaxBytes < 2*c.SegmentBytes, "max bytes must be at least two segments")
	check(c.MaxBody < 1 || c.MaxBody > maxBody, "max body must be 1 byte to 512 MiB")
	check(c.RetryAfter < 0 || c.AdoptEvery < 0 || c.Settle < 0, "durations must be positive")
	return errors.Join(errs...)
}

// Sentinels that errors of this package match.
var (
	// ErrFull: there is no room for a new entry now. [FullError] has the
	// details.
	ErrFull = errors.New("inbox is full")
	// ErrClosed: the inbox is closed.
	ErrClosed = errors.New("inbox is closed")
	// ErrNotLeased: the item was not handed out, or is done or released.
	ErrNotLeased = errors.New("item is not leased")
	// ErrCorrupt: the bytes of an entry are not those that were recorded. In
	// files it comes as a [frame.CorruptError].
	ErrCorrupt = frame.ErrCorrupt
	// ErrVersion: the directory holds another version's inbox, or none.
	ErrVersion = errors.New("not an inbox of this version")
	// ErrNoSlot: as many processes use the inbox as can.
	ErrNoSlot = errors.New("all slots of the inbox are in use")
)

// A FullError is an entry that was refused for want of room; nothing of it
// was recorded. It matches [ErrFull].
type FullError struct {
	// Bound names what is exhausted: "entries", "bytes" or "disk".
	Bound string
	// RetryAfter is how long the sender should wait.
	RetryAfter time.Duration
	// Err is the system's error, where there is one.
	Err error
}

// Error names the bound.
func (e *FullError) Error() string {
	s := "inbox is full: no room for more " + e.Bound
	if e.Bound == BoundDisk {
		s = "inbox is full: the disk has no room"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is [ErrFull].
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Unwrap returns the system's error.
func (e *FullError) Unwrap() error { return e.Err }

// What a [FullError] names.
const (
	BoundEntries = "entries"
	BoundBytes   = "bytes"
	BoundDisk    = "disk"
)

// An Outcome is the answer to [Inbox.Record].
type Outcome int

const (
	// Accepted: the entry is new, and on stable storage.
	Accepted Outcome = iota + 1
	// Replayed: an entry that is not done yet has this key and binding, and
	// is on stable storage. If the repeat is to be recognised for longer
	// than that entry, it was recorded too.
	Replayed
	// Conflict: an entry that is not done yet has this key and another
	// binding. Nothing was recorded.
	Conflict
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Replayed:
		return "replayed"
	case Conflict:
		return "conflict"
	}
	return "none"
}
