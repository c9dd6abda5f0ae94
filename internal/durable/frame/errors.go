package frame

import (
	"errors"
	"fmt"
)

// Sentinels that errors of this package match.
var (
	// ErrBad: the bytes at a place are not the next frame. Whether that is
	// the end of the log or damage is for [Reader.Judge].
	ErrBad = errors.New("not a valid frame")
	// ErrCorrupt: bytes that were promised as synced do not verify.
	// [CorruptError] has the place.
	ErrCorrupt = errors.New("corrupt")
	// ErrTooLarge: a payload is over the bound.
	ErrTooLarge = errors.New("payload is too large")
)

// A CorruptError says where stored bytes that were promised as synced do not
// verify. It matches [ErrCorrupt].
type CorruptError struct {
	// File is the segment's name inside its FS.
	File string
	// Offset is where its valid bytes end.
	Offset int64
	// Why is what shows that more was there; without any content.
	Why string
}

// Error names file, offset and evidence.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at offset %d: %s", e.File, e.Offset, e.Why)
}

// Is reports whether target is [ErrCorrupt].
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A badError says what is wrong with a frame. It matches [ErrBad].
type badError struct{ why string }

func (e *badError) Error() string        { return "not a valid frame: " + e.why }
func (e *badError) Is(target error) bool { return target == ErrBad }
