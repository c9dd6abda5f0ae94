package receipt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
)

// A Kind says what an [Event] tells of.
type Kind string

// The kinds of events, in the order of a delivery's life.
const (
	// Received: authenticated, durably recorded and answered.
	Received Kind = "received"
	// Replayed: came again, and did nothing new.
	Replayed Kind = "replayed"
	// Refused: recorded, but it never becomes work.
	Refused Kind = "refused"
	// Claimed: a lease was granted.
	Claimed Kind = "claimed"
	// Refreshed: the gate was read at the provider.
	Refreshed Kind = "refreshed"
	// Fetched: a commit's files were fetched and verified.
	Fetched Kind = "fetched"
	// Ran: the program ended, and how.
	Ran Kind = "ran"
	// Staged: the publication is frozen.
	Staged Kind = "staged"
	// Published: one attempt to publish, and what came of it.
	Published Kind = "published"
	// Retrying: an attempt failed and another follows.
	Retrying Kind = "retrying"
	// Ended: done, and why.
	Ended Kind = "ended"
)

// An Event is one thing that happened to one delivery. No field may hold a
// secret, a body, a header, a path of the host or anything personal (DESIGN
// §2, invariant 16).
type Event struct {
	// At is when, UTC.
	At time.Time `json:"at"`
	// Delivery is whose; required.
	Delivery fencepost.DeliveryID `json:"delivery"`
	// Kind is required.
	Kind Kind `json:"event"`
	// Route, Anchor and Gate name configuration.
	Route  fencepost.RouteName `json:"route,omitempty"`
	Anchor fencepost.AnchorID  `json:"anchor,omitempty"`
	Gate   string              `json:"gate,omitempty"`
	// Evaluation, Fence and Attempt tell leases apart.
	Evaluation string `json:"evaluation,omitempty"`
	Fence      uint64 `json:"fence,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	// Reason is why it did not go well; empty where it did.
	Reason fencepost.Reason `json:"reason,omitempty"`
	// Took is how long it took, in nanoseconds.
	Took time.Duration `json:"took_ns,omitempty"`
	// Details are facts by name, in an order that reads well.
	Details []Detail `json:"details,omitempty"`
}

// A Detail is one named fact.
type Detail struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Detail returns the value of a detail, or "".
func (e Event) Detail(name string) string {
	for _, d := range e.Details {
		if d.Name == name {
			return d.Value
		}
	}
	return ""
}

// MaxEventBytes bounds one line of a journal: 16 KiB.
const MaxEventBytes = 16 << 10

// Errors about events.
var (
	// ErrEvent: an event without delivery, kind or time, or over
	// [MaxEventBytes].
	ErrEvent = errors.New("not a journal event")
	// ErrDamaged: a line whose checksum or form is wrong.
	ErrDamaged = errors.New("damaged journal line")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumDigits = 8

// appendLine appends e as one line.
func appendLine(b []byte, e Event) ([]byte, error) {
	if e.Delivery == "" || e.Kind == "" || e.At.IsZero() {
		return b, fmt.Errorf("delivery, kind or time is missing: %w", ErrEvent)
	}
	e.At = e.At.UTC().Round(0)
	// The text goes behind room for its sum.
	start := len(b)
	b = append(b, "00000000 "...)
	line, ok := appendPlain(b, e)
	if !ok {
		text, err := json.Marshal(e)
		if err != nil {
			return b[:start], fmt.Errorf("encode event: %w", err)
		}
		line = append(b, text...)
	}
	text := line[start+sumDigits+1:]
	if len(text) > MaxEventBytes {
		return line[:start], fmt.Errorf("%d bytes, at most %d: %w", len(text), MaxEventBytes, ErrEvent)
	}
	var sum [sumDigits / 2]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(text, castagnoli))
	hex.Encode(line[start:], sum[:])
	return append(line, '\n'), nil
}

// parseLine reads one line without its newline. Its error matches
// [ErrDamaged].
func parseLine(line []byte) (Event, error) {
	digits, text, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(digits) != sumDigits || len(text) > MaxEventBytes {
		return Event{}, fmt.Errorf("no checksum: %w", ErrDamaged)
	}
	sum, err := strconv.ParseUint(string(digits), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(text, castagnoli) {
		return Event{}, fmt.Errorf("wrong checksum: %w", ErrDamaged)
	}
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return Event{}, fmt.Errorf("not an event: %w", ErrDamaged)
	}
	if _, err := fencepost.ParseDeliveryID(string(e.Delivery)); err != nil || e.Kind == "" || e.At.IsZero() {
		return Event{}, fmt.Errorf("delivery, kind or time is missing: %w", ErrDamaged)
	}
	return e, nil
}
