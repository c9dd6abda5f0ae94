package inbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// Frame types.
const (
	frameEntry  uint8 = 1
	frameMoved  uint8 = 2
	frameDone   uint8 = 3
	frameSynced uint8 = 4
)

const (
	entryVersion = 1
	serialSize   = 8
	// maxBody bounds bodies so that an entry always fits a frame.
	maxBody = 512 << 20
	// maxHeaders and maxText bound what an entry can hold beside its body.
	maxHeaders = 4096
	maxText    = 1 << 20
	// metaFixed is what an entry takes beside its texts, and 8 bytes for each
	// header.
	metaFixed = 1 + 8 + 8 + 32 + 32 + 4*4
	// maxReason bounds the reason of a done mark.
	maxReason = 64
)

// A Recorded is a request as it was received. Nothing of it is trusted: it
// is authenticated anew before it becomes work (DESIGN §4).
type Recorded struct {
	// Route is the entry point it came by.
	Route fencepost.RouteName
	// Received is the receipt time of then, UTC.
	Received time.Time
	// Anchor is the key that authenticated it then.
	Anchor fencepost.AnchorID
	// Headers are those that the route's verifier needs.
	Headers fencepost.Headers
	// Body is the exact body.
	Body []byte

	// Key, Binding and Lifetime are what was derived from it then.
	Key      fencepost.DeliveryKey
	Binding  fencepost.Binding
	Lifetime fencepost.ReplayLifetime
}

// appendMeta appends all of an entry but the body:
//
//	version   1
//	received  8  Unix nanoseconds
//	end       8  of the replay lifetime, likewise; 0 for permanent
//	key      32
//	binding  32
//	route     4  length, and that many bytes
//	anchor    4  likewise
//	headers   4  count, and for each the name and the value, likewise
//	body      4  length; the bytes follow
//
// Numbers are little-endian.
func appendMeta(b []byte, r Recorded) []byte {
	le := binary.LittleEndian
	b = append(b, entryVersion)
	b = le.AppendUint64(b, uint64(r.Received.UnixNano()))
	end, ok := r.Lifetime.End()
	b = le.AppendUint64(b, uint64(endNanos(end, ok)))
	b = append(b, r.Key[:]...)
	b = append(b, r.Binding[:]...)
	b = appendText(b, string(r.Route))
	b = appendText(b, string(r.Anchor))
	pairs := r.Headers.All()
	b = le.AppendUint32(b, uint32(len(pairs)))
	for _, p := range pairs {
		b = appendText(b, p.Name)
		b = appendText(b, p.Value)
	}
	return le.AppendUint32(b, uint32(len(r.Body)))
}

func appendText(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// endNanos is how the end of a replay lifetime is kept; permanent is 0.
func endNanos(end time.Time, ok bool) int64 {
	if !ok {
		return 0
	}
	return end.UnixNano()
}

// EndsLater reports whether the replay lifetime that ends at a outlasts the
// one that ends at b, both in Unix nanoseconds and 0 for permanent.
func EndsLater(a, b int64) bool { return b != 0 && (a == 0 || a > b) }

// Decode reads what [Encode] returned: the payload of an entry. The body is
// part of payload. Its error matches [fencepost.ErrMalformed].
func Decode(payload []byte) (Recorded, error) {
	d := decoder{b: payload}
	version := d.take(1)
	received, end := int64(d.uint64()), int64(d.uint64())
	key, binding := d.take(32), d.take(32)
	r := Recorded{
		Route:  fencepost.RouteName(d.text()),
		Anchor: fencepost.AnchorID(d.text()),
	}
	count := d.uint32()
	if count > maxHeaders || int(count)*8 > len(d.b) {
		d.bad = true
		count = 0
	}
	pairs := make([]fencepost.Header, 0, count)
	for range count {
		pairs = append(pairs, fencepost.Header{Name: d.text(), Value: d.text()})
	}
	body := d.uint32()
	if d.bad || version[0] != entryVersion || int64(body) != int64(len(d.b)) || r.Route == "" {
		return Recorded{}, fmt.Errorf("inbox entry: %w", fencepost.ErrMalformed)
	}
	r.Received = time.Unix(0, received).UTC()
	if end != 0 {
		r.Lifetime = fencepost.BoundedUntil(time.Unix(0, end))
	}
	copy(r.Key[:], key)
	copy(r.Binding[:], binding)
	r.Headers = fencepost.NewHeaders(pairs)
	r.Body = d.b
	// There is one way to write an entry: headers out of order are none.
	meta := payload[:len(payload)-len(r.Body)]
	if r.Key.IsZero() || !bytes.Equal(meta, appendMeta(make([]byte, 0, len(meta)), r)) {
		return Recorded{}, fmt.Errorf("inbox entry: %w", fencepost.ErrMalformed)
	}
	return r, nil
}

// A decoder takes fields off the front of b; once one is missing, it is bad
// and gives zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *decoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }

func (d *decoder) text() string {
	n := d.uint32()
	if n > maxText {
		d.bad = true
		return ""
	}
	return string(d.take(int(n)))
}

// stored is what a frame says of an entry.
type stored struct {
	serial uint64
	Recorded
}

// decodeFrame reads an entry, or the copy of one, with its serial.
func decodeFrame(f frame.Frame) (stored, error) {
	s := stored{serial: f.LSN}
	payload := f.Payload
	if f.Type == frameMoved {
		if len(payload) < serialSize {
			return stored{}, fmt.Errorf("moved inbox entry: %w", fencepost.ErrMalformed)
		}
		s.serial, payload = binary.LittleEndian.Uint64(payload), payload[serialSize:]
		if s.serial >= f.LSN {
			return stored{}, fmt.Errorf("moved inbox entry: %w", fencepost.ErrMalformed)
		}
	}
	var err error
	s.Recorded, err = Decode(payload)
	return s, err
}

// encodeDone is the payload of a done mark.
func encodeDone(serial uint64, outcome fencepost.Reason) []byte {
	b := binary.LittleEndian.AppendUint64(nil, serial)
	return append(b, outcome[:min(len(outcome), maxReason)]...)
}

// decodeDone reads the payload of a done mark.
func decodeDone(payload []byte) (serial uint64, outcome fencepost.Reason, err error) {
	if len(payload) < serialSize || len(payload) > serialSize+maxReason {
		return 0, "", fmt.Errorf("done mark: %w", fencepost.ErrMalformed)
	}
	return binary.LittleEndian.Uint64(payload), fencepost.Reason(payload[serialSize:]), nil
}

// An ItemID names an entry until it is done: the slot whose log holds it, and
// its serial there.
type ItemID struct {
	slot   int
	serial uint64
}

// NewItemID is the name of an entry in a store that has one log for all
// processes, or none: its slot is 0. See package sqlinbox.
func NewItemID(serial uint64) ItemID { return ItemID{serial: serial} }

// Serial is the entry's number in its log.
func (id ItemID) Serial() uint64 { return id.serial }

// String returns the slot in three digits, a dash, and the serial.
func (id ItemID) String() string { return fmt.Sprintf("%03d-%d", id.slot, id.serial) }

// ParseItemID reads what [ItemID.String] returns. Its error matches
// [fencepost.ErrMalformed].
func ParseItemID(s string) (ItemID, error) {
	slot, serial, _ := strings.Cut(s, "-")
	n, slotErr := strconv.ParseUint(slot, 10, 16)
	m, serialErr := strconv.ParseUint(serial, 10, 64)
	id := ItemID{slot: int(n), serial: m}
	if slotErr != nil || serialErr != nil || id.String() != s {
		return ItemID{}, fmt.Errorf("inbox item id: %w", fencepost.ErrMalformed)
	}
	return id, nil
}
