package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// ErrMalformedRow is matched by the errors of [DecodeRow].
var ErrMalformedRow = errors.New("malformed ledger row")

// The canonical encoding of a row, all integers little-endian:
//
//	 0  1  version: 2 if it has a trust mark, else 1
//	 1  1  state, 1 leased, 2 staged, 3 done
//	 2  1  flags: 1 bounded lifetime, 2 no publication
//	 3  1  zero
//	 4 32  delivery key
//	36 32  binding
//	68 16  evaluation
//	84  8  fence
//	92  5  since, seconds from 1970
//	97  3  attempts
//	100    if version 2:
//	    8    trust mark, not zero
//	       if bounded:
//	    8    replay end, nanoseconds from 1970
//	    8    running end, nanoseconds
//	       if leased or staged:
//	   16    boot of the deadline
//	    8    deadline, nanoseconds
//	    8    until, nanoseconds from 1970
//	    4    holder's slot
//	    8    holder's epoch
//	       if staged or done:
//	   32    publication digest
//	       if staged:
//	    4    count n of the bytes that follow to the end of the row
//	    n    reason (if no publication) or publication
//
// A row has exactly one encoding, and [DecodeRow] takes no other.
const (
	rowPlain   = 1 // version of a row without a trust mark
	rowMarked  = 2
	rowFixed   = 100
	rowTrust   = 8
	rowBounded = 16
	rowTerm    = 44
	rowDigest  = 32

	flagBounded = 1
	flagNone    = 2
)

// MaxRowBytes bounds the encoding of a row.
const MaxRowBytes = rowFixed + rowTrust + rowBounded + rowTerm + rowDigest + 4 + fencepost.MaxPublicationBytes

// AppendRow appends the encoding of r to b. Its error matches
// [ErrIllegalRow]: only a legal row can be encoded, and an unclaimed one,
// which is stored nowhere, can't.
func AppendRow(b []byte, r Row) ([]byte, error) {
	if r.State == Unclaimed {
		return b, illegal("an unclaimed row is not stored")
	}
	if err := r.Validate(); err != nil {
		return b, err
	}
	why, none := r.Publication.None()
	if len(why) > fencepost.MaxPublicationBytes {
		return b, illegal("reason too long")
	}
	end, bounded := r.Lifetime.End()
	var flags byte
	if bounded {
		flags |= flagBounded
	}
	if none {
		flags |= flagNone
	}
	version := byte(rowPlain)
	if !r.Trust.IsZero() {
		version = rowMarked
	}
	b = append(b, version, byte(r.State), flags, 0)
	b = append(b, r.Key[:]...)
	b = append(b, r.Binding[:]...)
	b = append(b, r.Evaluation[:]...)
	b = u64(b, r.Fence.Uint64())
	b = u64(b, uint64(r.Since.Unix())|uint64(r.Attempts)<<40)
	if version == rowMarked {
		b = append(b, r.Trust[:]...)
	}
	if bounded {
		b = u64(b, uint64(end.UnixNano()))
		b = u64(b, uint64(r.RunningEnd))
	}
	switch r.State {
	case Leased:
		return appendTerm(b, r.Execution), nil
	case Staged:
		return AppendPublication(appendTerm(b, r.Publishing), r.Publication), nil
	default:
		return append(b, r.Published[:]...), nil
	}
}

func appendTerm(b []byte, t Term) []byte {
	b = append(b, t.Deadline.Boot[:]...)
	b = u64(b, uint64(t.Deadline.At))
	b = u64(b, uint64(t.Until.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, t.Holder.Slot)
	return u64(b, t.Holder.Epoch)
}

// AppendPublication appends a valid p as it stands in a staged row: digest,
// count, bytes.
func AppendPublication(b []byte, p fencepost.Publication) []byte {
	digest := p.Digest()
	b = append(b, digest[:]...)
	why, _ := p.None() // either why or the bytes are empty
	b = binary.LittleEndian.AppendUint32(b, uint32(len(why)+p.Len()))
	return p.AppendTo(append(b, why...))
}

// EncodedLen is the number of bytes that [AppendRow] appends for a legal r.
func EncodedLen(r Row) int {
	n := rowFixed
	if !r.Trust.IsZero() {
		n += rowTrust
	}
	if _, bounded := r.Lifetime.End(); bounded {
		n += rowBounded
	}
	switch r.State {
	case Leased:
		return n + rowTerm
	case Staged:
		why, _ := r.Publication.None()
		return n + rowTerm + rowDigest + 4 + len(why) + r.Publication.Len()
	default:
		return n + rowDigest
	}
}

// DecodeRow reads exactly one row and keeps nothing of b. It checks the
// digest of a staged publication. Its error matches [ErrMalformedRow], and
// the row is then zero.
func DecodeRow(b []byte) (Row, error) {
	d := decoder{rest: b}
	r, err := d.row()
	if err == nil && d.short {
		err = errors.New("short")
	}
	if err == nil && len(d.rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(d.rest))
	}
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return Row{}, fmt.Errorf("%w: %w", ErrMalformedRow, err)
	}
	return r, nil
}

// decoder reads fields off the front; past the end it reads zeros and
// remembers that it did.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.short, d.rest = true, nil
		return make([]byte, min(n, 64))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }

func (d *decoder) row() (Row, error) {
	var r Row
	head := d.take(4)
	if d.short || head[0] != rowPlain && head[0] != rowMarked || head[3] != 0 {
		return Row{}, errors.New("unknown version")
	}
	flags := head[2]
	r.State = State(head[1])
	if r.State < Leased || r.State > Done || flags&^(flagBounded|flagNone) != 0 ||
		flags&flagNone != 0 && r.State != Staged {
		return Row{}, errors.New("unknown state or flags")
	}
	r.Key = fencepost.DeliveryKey(d.take(32))
	r.Binding = fencepost.Binding(d.take(32))
	r.Evaluation = fencepost.EvaluationID(d.take(16))
	var err error
	if r.Fence, err = fencepost.ParseFence(d.u64()); err != nil {
		return Row{}, err
	}
	packed := d.u64()
	r.Since = time.Unix(int64(packed&(1<<40-1)), 0).UTC()
	r.Attempts = uint32(packed >> 40)
	if head[0] == rowMarked {
		if r.Trust = TrustMark(d.take(len(r.Trust))); r.Trust.IsZero() {
			return Row{}, errors.New("a trust mark of zeros")
		}
	}
	if flags&flagBounded != 0 {
		r.Lifetime = fencepost.BoundedUntil(time.Unix(0, int64(d.u64())))
		r.RunningEnd = time.Duration(d.u64())
	}
	switch r.State {
	case Leased:
		r.Execution = d.term()
	case Staged:
		r.Publishing = d.term()
		r.Publication, err = d.publication(flags&flagNone != 0)
	default:
		r.Published = [32]byte(d.take(32))
	}
	return r, err
}

func (d *decoder) term() Term {
	var t Term
	t.Deadline.Boot = BootID(d.take(16))
	t.Deadline.At = time.Duration(d.u64())
	t.Until = time.Unix(0, int64(d.u64())).UTC()
	t.Holder.Slot = d.u32()
	t.Holder.Epoch = d.u64()
	return t
}

func (d *decoder) publication(none bool) (fencepost.Publication, error) {
	digest := [32]byte(d.take(32))
	n := d.u32()
	if d.short || uint64(n) != uint64(len(d.rest)) {
		return fencepost.Publication{}, errors.New("publication of another length")
	}
	raw := d.take(int(n))
	p, err := fencepost.NewPublication(raw)
	if none {
		p, err = fencepost.NoPublication(fencepost.Reason(raw))
	}
	if err == nil && p.Digest() != digest {
		err = errors.New("publication does not match its digest")
	}
	return p, err
}

func u64(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }
