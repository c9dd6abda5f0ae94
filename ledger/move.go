package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"
	"time"

	"github.com/fencepost/fencepost"
)

// Errors of moving a ledger from one store to another.
var (
	// ErrMoved: the ledger was moved; it goes on in another place, and here
	// never again.
	ErrMoved = errors.New("ledger was moved")
	// ErrIncoming: a ledger is being moved here, or was before a crash.
	ErrIncoming = errors.New("ledger is not here yet")
	// ErrInUse: a process has the ledger open.
	ErrInUse = errors.New("ledger is in use")
	// ErrNotEmpty: there is another ledger where one is to go.
	ErrNotEmpty = errors.New("there is a ledger already")
	// ErrDigest: what was written is not what was read.
	ErrDigest = errors.New("digest of the rows differs")
)

// A Head is what a ledger is beside its rows.
type Head struct {
	// UUID names the ledger.
	UUID [16]byte
	// Lease, Capacity and Window are what it was made with.
	Lease    time.Duration
	Capacity int
	Window   fencepost.ReplayWindow
	// Fence is the highest that may ever have been handed out.
	Fence uint64
	// Closed is [Moment.ClosedThrough].
	Closed time.Time
	// Retired are the marks of trust sets that were retired, sorted.
	Retired []TrustMark
}

// Still is a row as it is told apart from the running time of the shard that
// it is in: its running end counts from now, which is running. A ledger whose
// running time begins at zero takes it as it is.
func Still(r Row, running time.Duration) Row {
	r.RunningEnd = max(0, r.RunningEnd-running)
	return r
}

// RowsDigest is the digest over all rows of a ledger, independent of where
// they are: SHA-256 of rows as [Still] tells them, in the order of their keys,
// each in its encoding, in the domain "fencepost.ledger-rows/v1" as
// [fencepost.Encoder] would write it. The zero RowsDigest is ready.
type RowsDigest struct {
	hash hash.Hash
	last fencepost.DeliveryKey
	buf  []byte
	rows int
}

// Add takes the next row. Its error matches [ErrIllegalRow]; also where the
// row is out of order.
func (d *RowsDigest) Add(r Row) error {
	if d.rows > 0 && bytes.Compare(r.Key[:], d.last[:]) <= 0 {
		return illegal("row " + r.Key.String() + " is out of order, or twice")
	}
	b, err := AppendRow(d.buf[:0], r)
	if err != nil {
		return err
	}
	d.begin()
	d.field(b)
	d.buf, d.last = b, r.Key
	d.rows++
	return nil
}

// Rows is how many were added.
func (d *RowsDigest) Rows() int { return d.rows }

// Sum is the digest of what was added so far.
func (d *RowsDigest) Sum() [32]byte {
	d.begin()
	return [32]byte(d.hash.Sum(nil))
}

func (d *RowsDigest) begin() {
	if d.hash == nil {
		d.hash = sha256.New()
		d.field([]byte("fencepost.ledger-rows/v1"))
	}
}

func (d *RowsDigest) field(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	d.hash.Write(n[:])
	d.hash.Write(b)
}

// A Move is one move of a ledger, written down at both ends. The zero Move is
// none.
type Move struct {
	// From and To name the ledgers.
	From, To [16]byte
	// Rows and Digest are of all rows.
	Rows   int
	Digest [32]byte
}

// IsZero reports whether m is none.
func (m Move) IsZero() bool { return m == Move{} }

// String names what was moved, for people.
func (m Move) String() string {
	return fmt.Sprintf("%d rows, digest %s, from ledger %s to %s", m.Rows, hex.EncodeToString(m.Digest[:]), hex.EncodeToString(m.From[:]), hex.EncodeToString(m.To[:]))
}

// A Source is a ledger that is held so that nobody changes it.
type Source interface {
	// Head reads what it is.
	Head(ctx context.Context) (Head, error)
	// Rows goes through all rows as [Still] tells them, in the order of their
	// keys. An error ends the iteration.
	Rows(ctx context.Context) iter.Seq2[Row, error]
	// Moved is the move that it went with; zero while it is here.
	Moved(ctx context.Context) (Move, error)
	// Leave marks it as moved, durably and in one step: when it returns nil,
	// no process ever opens it again.
	Leave(ctx context.Context, m Move) error
}

// A Target is where a ledger goes. Nobody can open it before Arrive.
type Target interface {
	// Arriving is the move whose rows are all here, durably; zero if there is
	// none.
	Arriving(ctx context.Context) (Move, error)
	// Arrived is the move that this ledger came with; zero if it did not.
	Arrived(ctx context.Context) (Move, error)
	// Begin forgets what an interrupted move has left, and takes the head of
	// what comes. It returns the UUID of the ledger that will be here. Its
	// error matches [ErrNotEmpty] if there is another.
	Begin(ctx context.Context, h Head) ([16]byte, error)
	// Put takes the next rows, in the order of their keys.
	Put(ctx context.Context, rows []Row) error
	// Prepare makes all durable, and the move [Target.Arriving].
	Prepare(ctx context.Context, m Move) error
	// Rows goes through the rows as they are stored, as [Source] does.
	Rows(ctx context.Context) iter.Seq2[Row, error]
	// Arrive opens the ledger to everybody, durably and in one step.
	Arrive(ctx context.Context, m Move) error
}

// putRows is how many rows are handed over at a time.
const putRows = 512

// Digest goes through rows and digests them.
func Digest(rows iter.Seq2[Row, error]) (*RowsDigest, error) {
	d := &RowsDigest{}
	for r, err := range rows {
		if err == nil {
			err = d.Add(r)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Copy fills dst with the rows of a ledger whose head is h, makes them
// durable, reads them back and compares. dst is then ready to arrive.
func Copy(ctx context.Context, h Head, rows iter.Seq2[Row, error], dst Target) (Move, error) {
	m := Move{From: h.UUID}
	var err error
	if m.To, err = dst.Begin(ctx, h); err != nil {
		return Move{}, err
	}
	d := &RowsDigest{}
	page := make([]Row, 0, putRows)
	for r, err := range rows {
		if err == nil {
			err = d.Add(r)
		}
		if err != nil {
			return Move{}, fmt.Errorf("read the source: %w", err)
		}
		if page = append(page, r); len(page) == putRows {
			if err := dst.Put(ctx, page); err != nil {
				return Move{}, fmt.Errorf("write the target: %w", err)
			}
			page = page[:0]
		}
	}
	if err := dst.Put(ctx, page); err != nil {
		return Move{}, fmt.Errorf("write the target: %w", err)
	}
	m.Rows, m.Digest = d.Rows(), d.Sum()
	if err := dst.Prepare(ctx, m); err != nil {
		return Move{}, fmt.Errorf("write the target: %w", err)
	}
	return m, Compare(ctx, m, dst)
}

// Compare reads what a target has stored and holds it to m. Its error matches
// [ErrDigest].
func Compare(ctx context.Context, m Move, dst Target) error {
	got, err := Digest(dst.Rows(ctx))
	if err != nil {
		return fmt.Errorf("read the target back: %w", err)
	}
	if got.Rows() != m.Rows || got.Sum() != m.Digest {
		return fmt.Errorf("%w: %d rows were read and %d are stored; the source is as it was", ErrDigest, m.Rows, got.Rows())
	}
	return nil
}

// Migrate moves a ledger. A crash at any point leaves the source as the one
// that counts until its one durable step, [Source.Leave]; from then on it is
// refused for good, and saying Migrate again ends the move. Neither end can be
// opened in between.
//
//	copy all rows, make them durable      the source counts
//	read them back, compare the digest    the source counts
//	src.Leave                             the target counts, and is not open yet
//	dst.Arrive                            the target is open
func Migrate(ctx context.Context, src Source, dst Target) (Move, error) {
	left, err := src.Moved(ctx)
	if err != nil {
		return Move{}, err
	}
	if !left.IsZero() {
		return left, finish(ctx, left, dst)
	}
	h, err := src.Head(ctx)
	if err != nil {
		return Move{}, err
	}
	m, err := Copy(ctx, h, src.Rows(ctx), dst)
	if err != nil {
		return Move{}, err
	}
	if err := src.Leave(ctx, m); err != nil {
		return Move{}, fmt.Errorf("mark the source as moved: %w; say it again to go on", err)
	}
	return m, dst.Arrive(ctx, m)
}

// finish ends a move whose source has left.
func finish(ctx context.Context, left Move, dst Target) error {
	there, err := dst.Arrived(ctx)
	if err != nil || there == left {
		return err
	}
	arriving, err := dst.Arriving(ctx)
	if err != nil {
		return err
	}
	if arriving != left {
		return fmt.Errorf("%w: to ledger %s, which is not this target", ErrMoved, hex.EncodeToString(left.To[:]))
	}
	return dst.Arrive(ctx, left)
}

const (
	// fencesPerSecond is more than a ledger can hand out for long.
	fencesPerSecond = 1 << 17
	// CopyFences is how far above what its original had handed out when it was
	// begun a copy's own count stands: rows that came until the copy was made,
	// within nine hours, have fences between the two.
	CopyFences = 1 << 32
)

// fencesFrom is when the count of [Ahead] begins.
var fencesFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Ahead is the fence above which a ledger goes on that was brought back from a
// copy: what the original handed out after the copy was made is not known, nor
// what was by a ledger that was brought back from the same copy before. It is
// 2^17 for each second from 2020 to now, which no ledger gets to: each begins
// at zero or where Ahead of an earlier time let it go on, and hands out fewer.
// So nothing else goes into it, lest one ledger run ahead of the count and the
// next one be behind it. It rests on no ledger handing out as many for long,
// and on the clock not being before an earlier such reading.
//
// A fence that is above the count shows that the clock is wrong. Then it is
// the next multiple of 2^40 above that fence, and the second of two ledgers
// that are brought back so from one copy meets the fences of the first.
func Ahead(fence uint64, now time.Time) uint64 {
	since := max(0, now.Sub(fencesFrom))
	count := uint64(since/time.Second)*fencesPerSecond + uint64(since%time.Second)*fencesPerSecond/uint64(time.Second)
	if count >= fence {
		return count
	}
	return (fence>>40 + 1) << 40
}
