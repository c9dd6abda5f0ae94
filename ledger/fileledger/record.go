package fileledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// Types of frames. The payload of each begins with a stamp:
//
//	 0  8  the shard's running time, ns
//	 8  8  boot-time clock, ns
//	16 16  boot
//	32     put: a row (see package ledger)
//	       remove: delivery key, 32; closed through, ns since 1970, 8
//	       retire: trust mark, 8
//	       tick: nothing; it says that time has passed, and by its place in
//	       the log, that all before it was synced
const (
	framePut    = 1
	frameRemove = 2
	frameTick   = 3
	frameRetire = 4

	stampSize  = 32
	removeSize = stampSize + 32 + 8
	retireSize = stampSize + 8
	maxPayload = stampSize + ledger.MaxRowBytes
)

var errRecord = errors.New("malformed ledger record")

// A stamp says when a frame was made, on the clocks that can't be set.
type stamp struct {
	running time.Duration
	now     ledger.Instant
}

// at carries s on to now. Time between two starts of the machine is not
// known, so that it does not count.
func (s stamp) at(now ledger.Instant) stamp {
	next := stamp{running: s.running, now: now}
	if s.now.Boot == now.Boot {
		next.running += max(0, now.At-s.now.At)
	}
	return next
}

func (s stamp) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(s.running))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.now.At))
	return append(b, s.now.Boot[:]...)
}

func decodeStamp(b []byte) (stamp, []byte, error) {
	if len(b) < stampSize {
		return stamp{}, nil, fmt.Errorf("%w: no stamp", errRecord)
	}
	s := stamp{
		running: time.Duration(binary.LittleEndian.Uint64(b)),
		now: ledger.Instant{
			At: time.Duration(binary.LittleEndian.Uint64(b[8:])), Boot: ledger.BootID(b[16:stampSize]),
		},
	}
	if s.running < 0 || s.now.At < 0 {
		return stamp{}, nil, fmt.Errorf("%w: negative time", errRecord)
	}
	return s, b[stampSize:], nil
}

// A record is what a frame says: that a row is put, that one is removed, that
// those of a trust set are retired, or what time it is.
type record struct {
	stamp  stamp
	row    ledger.Row            // put; else zero
	key    fencepost.DeliveryKey // put and remove
	closed time.Time             // remove
	mark   ledger.TrustMark      // retire
}

func (r record) frameType() uint8 {
	switch {
	case !r.mark.IsZero():
		return frameRetire
	case r.key.IsZero():
		return frameTick
	case r.row.State == ledger.Unclaimed:
		return frameRemove
	}
	return framePut
}

func (r record) append(b []byte) ([]byte, error) {
	b = r.stamp.append(b)
	switch r.frameType() {
	case frameTick:
		return b, nil
	case framePut:
		return ledger.AppendRow(b, r.row)
	case frameRetire:
		return append(b, r.mark[:]...), nil
	}
	b = append(b, r.key[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(r.closed.UnixNano())), nil
}

// decodeRecord reads the payload of a frame. Its error matches errRecord or
// [ledger.ErrMalformedRow].
func decodeRecord(frameType uint8, payload []byte) (record, error) {
	s, rest, err := decodeStamp(payload)
	if err != nil {
		return record{}, err
	}
	r := record{stamp: s}
	switch frameType {
	case framePut:
		if r.row, err = ledger.DecodeRow(rest); err != nil {
			return record{}, err
		}
		r.key = r.row.Key
	case frameRemove:
		if len(payload) != removeSize {
			return record{}, fmt.Errorf("%w: removal of another length", errRecord)
		}
		r.key = fencepost.DeliveryKey(rest[:32])
		n := int64(binary.LittleEndian.Uint64(rest[32:]))
		if n <= 0 || r.key.IsZero() {
			return record{}, fmt.Errorf("%w: removal of nothing", errRecord)
		}
		r.closed = time.Unix(0, n).UTC()
	case frameRetire:
		if len(payload) != retireSize {
			return record{}, fmt.Errorf("%w: retirement of another length", errRecord)
		}
		if r.mark = ledger.TrustMark(rest); r.mark.IsZero() {
			return record{}, fmt.Errorf("%w: retirement of no trust set", errRecord)
		}
	case frameTick:
		if len(rest) > 0 {
			return record{}, fmt.Errorf("%w: tick of another length", errRecord)
		}
	default:
		return record{}, fmt.Errorf("%w: unknown type %d", errRecord, frameType)
	}
	return r, nil
}
