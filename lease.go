package fencepost

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An EvaluationID is given at the first claim of a delivery, survives every
// reclaim, and is the idempotency key towards the provider (DESIGN §1). The
// zero EvaluationID was never given.
type EvaluationID [16]byte

// NewEvaluationID draws an id from random, which must be a cryptographic
// source.
func NewEvaluationID(random io.Reader) (EvaluationID, error) {
	var id EvaluationID
	for id.IsZero() {
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return EvaluationID{}, fmt.Errorf("draw evaluation id: %w", err)
		}
	}
	return id, nil
}

// ParseEvaluationID reads "evl_" and 26 base32 characters. Its error matches
// [ErrMalformed].
func ParseEvaluationID(s string) (EvaluationID, error) {
	rest, ok := strings.CutPrefix(s, "evl_")
	raw, err := base32Lower.DecodeString(rest)
	if !ok || err != nil || len(raw) != len(EvaluationID{}) {
		return EvaluationID{}, fmt.Errorf("evaluation id: want evl_ and 26 characters of a-z and 2-7: %w", ErrMalformed)
	}
	id := EvaluationID(raw)
	if id.IsZero() || id.String() != s {
		return EvaluationID{}, fmt.Errorf("evaluation id: %w", ErrMalformed)
	}
	return id, nil
}

// IsZero reports whether id was never given.
func (id EvaluationID) IsZero() bool { return id == EvaluationID{} }

// String returns "evl_" and 26 base32 characters.
func (id EvaluationID) String() string { return "evl_" + base32Lower.EncodeToString(id[:]) }

// A Fence orders the leases of one delivery: each later one is higher, for
// ever, also across clean-up of the row. The zero Fence was never issued.
type Fence struct{ n uint64 }

// ParseFence turns a stored number into a fence. It refuses 0, so that a
// decoded row can't mean "no fence"; its error matches [ErrMalformed].
func ParseFence(n uint64) (Fence, error) {
	if n == 0 {
		return Fence{}, fmt.Errorf("fence 0: %w", ErrMalformed)
	}
	return Fence{n}, nil
}

// IsZero reports whether f was never issued.
func (f Fence) IsZero() bool { return f.n == 0 }

// Before reports whether f was issued before g.
func (f Fence) Before(g Fence) bool { return f.n < g.n }

// Uint64 is the number to store.
func (f Fence) Uint64() uint64 { return f.n }

// String returns the number in decimal.
func (f Fence) String() string { return strconv.FormatUint(f.n, 10) }

// A Lease is a temporary permission to run or to publish: evaluation, fence
// and deadline. It is a ticket, worth what the ledger's row says at the
// moment of each operation. The zero Lease permits nothing.
type Lease struct {
	evaluation EvaluationID
	fence      Fence
	window     time.Duration
	deadline   time.Time
}

// GrantLease is for implementations of [Ledger] alone: a lease that no row
// backs is answered [Lost] by every operation. Window is how long the lease
// lasts, counted from the start of the attempt that obtained it; deadline is
// the wall time of its end, for people. Its error matches [ErrZeroValue].
func GrantLease(e EvaluationID, f Fence, window time.Duration, deadline time.Time) (Lease, error) {
	if e.IsZero() || f.IsZero() || window <= 0 {
		return Lease{}, fmt.Errorf("grant lease: %w", ErrZeroValue)
	}
	return Lease{evaluation: e, fence: f, window: window, deadline: deadline.UTC().Round(0)}, nil
}

// Valid reports whether a ledger granted l.
func (l Lease) Valid() bool { return !l.fence.IsZero() }

// Evaluation is the id that survives every reclaim.
func (l Lease) Evaluation() EvaluationID { return l.evaluation }

// Fence is the number of the lease.
func (l Lease) Fence() Fence { return l.fence }

// Window is how long the lease lasts, counted from the start of the attempt
// that obtained or renewed it, on a clock that does not step.
func (l Lease) Window() time.Duration { return l.window }

// Deadline is the wall time of the lease's end, for people: no decision may
// rest on it.
func (l Lease) Deadline() time.Time { return l.deadline }

// MaxPublicationBytes bounds a [Publication]: 64 KiB, so that a staged row
// fits one ledger frame and a provider's summary limit.
const MaxPublicationBytes = 64 << 10

// A Publication is the exact bytes to publish, frozen before any external
// write, or none for an evaluation that ends without one. The zero
// Publication is neither, and is refused.
type Publication struct {
	kind   publicationKind
	reason Reason
	bytes  []byte
}

type publicationKind uint8

const (
	publishBytes publicationKind = iota + 1
	publishNone
)

// NewPublication freezes a copy of b, 1 to [MaxPublicationBytes] bytes. Its
// error matches [ErrZeroValue] or [ErrTooLarge].
func NewPublication(b []byte) (Publication, error) {
	if len(b) == 0 {
		return Publication{}, fmt.Errorf("publication of no bytes: %w", ErrZeroValue)
	}
	if len(b) > MaxPublicationBytes {
		return Publication{}, fmt.Errorf("publication of %d bytes, at most %d: %w", len(b), MaxPublicationBytes, ErrTooLarge)
	}
	return Publication{kind: publishBytes, bytes: slices.Clone(b)}, nil
}

// NoPublication ends an evaluation without an external write, for a reason
// that is not [ReasonNone]. Its error matches [ErrZeroValue].
func NoPublication(why Reason) (Publication, error) {
	if why == ReasonNone {
		return Publication{}, fmt.Errorf("no publication without a reason: %w", ErrZeroValue)
	}
	return Publication{kind: publishNone, reason: why}, nil
}

// Valid reports whether p was made.
func (p Publication) Valid() bool { return p.kind != 0 }

// None reports whether p ends the evaluation without an external write, and
// why.
func (p Publication) None() (why Reason, none bool) { return p.reason, p.kind == publishNone }

// Bytes returns a copy of the exact bytes; nil for none.
func (p Publication) Bytes() []byte { return slices.Clone(p.bytes) }

// Len is the number of bytes; 0 for none.
func (p Publication) Len() int { return len(p.bytes) }

// AppendTo appends the exact bytes to b; nothing for none.
func (p Publication) AppendTo(b []byte) []byte { return append(b, p.bytes...) }

// Equal reports whether p and q are the same value, byte for byte.
func (p Publication) Equal(q Publication) bool {
	return p.kind == q.kind && p.reason == q.reason && bytes.Equal(p.bytes, q.bytes)
}

// Digest is the SHA-256 of the canonical encoding of the value, domain
// "fencepost.publication/v1".
func (p Publication) Digest() [sha256.Size]byte {
	return NewEncoder("fencepost.publication/v1").
		Uint(uint64(p.kind)).Text(string(p.reason)).Bytes(p.bytes).Sum()
}

// A StagedPublication is a [Publication] that a ledger has frozen under an
// evaluation. After a crash it comes back from [Ledger.Claim] unchanged.
type StagedPublication struct {
	delivery    DeliveryKey
	evaluation  EvaluationID
	publication Publication
}

// RestoreStaged is for implementations of [Ledger] alone: a value that no
// row backs is answered [Lost] by [Ledger.Complete]. Its error matches
// [ErrZeroValue].
func RestoreStaged(d DeliveryKey, e EvaluationID, p Publication) (StagedPublication, error) {
	if d.IsZero() || e.IsZero() || !p.Valid() {
		return StagedPublication{}, fmt.Errorf("restore staged publication: %w", ErrZeroValue)
	}
	return StagedPublication{delivery: d, evaluation: e, publication: p}, nil
}

// Valid reports whether a ledger made s.
func (s StagedPublication) Valid() bool { return s.publication.Valid() }

// Delivery is the key it is staged under.
func (s StagedPublication) Delivery() DeliveryKey { return s.delivery }

// Evaluation is the idempotency key towards the provider.
func (s StagedPublication) Evaluation() EvaluationID { return s.evaluation }

// Publication is the frozen value.
func (s StagedPublication) Publication() Publication { return s.publication }

// Equal reports whether s and t are the same value, byte for byte.
func (s StagedPublication) Equal(t StagedPublication) bool {
	return s.delivery == t.delivery && s.evaluation == t.evaluation && s.publication.Equal(t.publication)
}
