package shelf

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// An Entry is what is told of a delivery.
type Entry struct {
	// Document is the staged result; nil for an end without one.
	Document []byte
	// Reason is why there is no result. It may be none: the delivery has ended,
	// and its result is kept no more.
	Reason fencepost.Reason
}

// Ended reports whether the delivery ended without a result.
func (e Entry) Ended() bool { return e.Document == nil }

// Size is what an entry counts for, in bytes.
func (e Entry) Size() int64 { return int64(headerSize + len(e.Document) + len(e.Reason)) }

// Limits bound a shelf. A zero field has its default.
type Limits struct {
	// Count is how many entries are kept; default 100,000.
	Count int64
	// TotalBytes is how much they may hold together; default 1 GiB.
	TotalBytes int64
	// TTL is how long an entry is kept at least, room permitting; it is removed
	// within a day after. Default 7 days.
	TTL time.Duration
}

// WithDefaults returns the limits with every zero field at its default.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.Count, 100_000)
	setDefault(&l.TotalBytes, 1<<30)
	setDefault(&l.TTL, 7*day)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Awaited is how long an entry is never evicted to make room: a job may still
// wait for it.
const Awaited = day

const day = 24 * time.Hour

// Check reports what can't be put on a shelf: its error is the caller's
// mistake and matches [fencepost.ErrMalformed], [fencepost.ErrZeroValue] or
// [fencepost.ErrTooLarge].
func Check(d fencepost.DeliveryID, document []byte) error {
	if _, err := fencepost.ParseDeliveryID(string(d)); err != nil {
		return err
	}
	switch n := len(document); {
	case n == 0:
		return fmt.Errorf("an empty result: %w", fencepost.ErrZeroValue)
	case n > fencepost.MaxPublicationBytes:
		return fmt.Errorf("a result of %d bytes, at most %d: %w", n, fencepost.MaxPublicationBytes, fencepost.ErrTooLarge)
	}
	return nil
}

// CheckEnd reports what can't be put on a shelf as an end; its errors are those
// of [Check], or match [fencepost.ErrMalformed].
func CheckEnd(d fencepost.DeliveryID, why fencepost.Reason) error {
	if _, err := fencepost.ParseDeliveryID(string(d)); err != nil {
		return err
	}
	if len(why) > maxReason {
		return fmt.Errorf("a reason of %d bytes, at most %d: %w", len(why), maxReason, fencepost.ErrTooLarge)
	}
	return nil
}

// The errors of a shelf that carry a reason of its own.
var (
	errOther   = errors.New("another result is told of for this delivery")
	errNoRoom  = errors.New("no room for a result: all that are kept may still be waited for")
	errDamaged = errors.New("what is told of this delivery is damaged")
)

// Conflict is the error of a Put where other bytes stand.
func Conflict(op string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonPublishConflict, Err: errOther}
}

// Full is the error of a Put or an End for which there is no room.
func Full(op string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonFull, Err: errNoRoom}
}

// Damaged is the error of a Get of what does not verify.
func Damaged(op string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonCorrupt, Err: errDamaged}
}

const (
	magic      = "FPRESULT\x01"
	headerSize = len(magic) + 1 + sha256.Size
	// maxEntry is the largest entry.
	maxEntry = headerSize + fencepost.MaxPublicationBytes
	// maxReason is the longest reason.
	maxReason = 64

	kindResult byte = 1
	kindEnd    byte = 2
)

// Sum is the digest that an entry is kept with, and verified by.
func (e Entry) Sum(d fencepost.DeliveryID) [sha256.Size]byte {
	kind, rest := e.parts()
	return fencepost.NewEncoder("fencepost.result/v1").Text(string(d)).Uint(uint64(kind)).Bytes(rest).Sum()
}

func (e Entry) parts() (kind byte, rest []byte) {
	if e.Ended() {
		return kindEnd, []byte(e.Reason)
	}
	return kindResult, e.Document
}

func encode(d fencepost.DeliveryID, e Entry) []byte {
	kind, rest := e.parts()
	sum := e.Sum(d)
	b := make([]byte, 0, headerSize+len(rest))
	b = append(b, magic...)
	b = append(b, kind)
	b = append(b, sum[:]...)
	return append(b, rest...)
}

// decode reads what encode wrote for the delivery; ok is false for all else.
func decode(d fencepost.DeliveryID, b []byte) (e Entry, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return Entry{}, false
	}
	rest := b[headerSize:]
	switch b[len(magic)] {
	case kindResult:
		e.Document = bytes.Clone(rest)
		if len(rest) == 0 {
			return Entry{}, false
		}
	case kindEnd:
		e.Reason = fencepost.Reason(rest)
		if len(rest) > maxReason {
			return Entry{}, false
		}
	default:
		return Entry{}, false
	}
	if sum := e.Sum(d); !bytes.Equal(sum[:], b[len(magic)+1:headerSize]) {
		return Entry{}, false
	}
	return e, true
}
