package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// A Report is what [Verify] found.
type Report struct {
	// Head is what the ledger is.
	Head ledger.Head
	// Parts are in order.
	Parts []PartReport
	// Rows and Digest are of all rows, as [ledger.RowsDigest] has them; zero
	// if some do not verify.
	Rows   int
	Digest [32]byte
}

// A PartReport is what [Verify] found in one part.
type PartReport struct {
	// Number is the part's.
	Number int
	// Rows are counted by state; Limit is the most there can be.
	Leased, Staged, Done, Limit int
	// Fence is the last that was handed out.
	Fence uint64
	// Err says what does not verify; nil if all does. It matches [ErrCorrupt].
	Err error
}

// Err joins what does not verify in any part, or is nil.
func (r Report) Err() error {
	var errs []error
	for _, p := range r.Parts {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("part %d: %w", p.Number, p.Err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return opError("ledger.verify", errors.Join(errs...))
}

// maxFaults bounds what a report says of one part.
const maxFaults = 8

// Verify reads every row of the ledger in a database and holds it to its
// columns, its part and its part's counters, as one moment shows them; it
// changes nothing, and other processes go on meanwhile. Of cfg, Path, URL,
// Wait and Now are looked at. The error is about the database; what the rows
// hold is in the report.
func Verify(ctx context.Context, cfg Config) (r Report, err error) {
	db, err := openStore(ctx, cfg, func(o *store.Options) { o.Existing = true })
	if err != nil {
		return Report{}, err
	}
	r, err = VerifyOn(ctx, db)
	return r, errors.Join(err, db.Close())
}

// VerifyOn is [Verify] on a database that is open.
func VerifyOn(ctx context.Context, db *store.DB) (r Report, err error) {
	err = db.Read(ctx, "ledger.verify", func(ctx context.Context, tx *store.Tx) (err error) {
		r, err = verify(ctx, tx)
		return err
	})
	if err != nil {
		return Report{}, opError("ledger.verify", err)
	}
	return r, nil
}

// A checking is a verification under way.
type checking struct {
	owner   func(fencepost.DeliveryKey) int
	parts   []PartReport
	running []time.Duration
	faults  []int
	digest  ledger.RowsDigest
}

func verify(ctx context.Context, tx *store.Tx) (Report, error) {
	if err := checkHere(ctx, tx); err != nil {
		return Report{}, err
	}
	head, err := readHead(ctx, tx, "ledger_parts")
	if err != nil {
		return Report{}, err
	}
	c := &checking{}
	if c.running, err = runningTimes(ctx, tx, "ledger_parts"); err != nil {
		return Report{}, err
	}
	c.owner = (&Ledger{cfg: Config{Parts: len(c.running)}}).owner
	c.parts, c.faults = make([]PartReport, len(c.running)), make([]int, len(c.running))
	counts := make([]int, len(c.running))
	err = tx.Each(ctx, "select part, row_count, row_limit, last_fence from ledger_parts order by part", nil, func(scan func(...any) error) error {
		var part, rows, limit, fence int64
		if err := scan(&part, &rows, &limit, &fence); err != nil {
			return err
		}
		c.parts[part] = PartReport{Number: int(part), Limit: int(limit), Fence: uint64(fence)}
		counts[part] = int(rows)
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	if err := eachStored(ctx, tx, "ledger_rows", c.row); err != nil {
		return Report{}, err
	}
	for n := range c.parts {
		p := &c.parts[n]
		if rows := p.Leased + p.Staged + p.Done; rows != counts[n] && p.Err == nil {
			c.fault(n, fmt.Errorf("it counts %d rows, and has %d: %w", counts[n], rows, ErrCorrupt))
		}
	}
	r := Report{Head: head, Parts: c.parts}
	if r.Err() == nil {
		r.Rows, r.Digest = c.digest.Rows(), c.digest.Sum()
	}
	return r, nil
}

// row checks one row.
func (c *checking) row(s storedRow) error {
	if s.part < 0 || s.part >= int64(len(c.parts)) {
		c.fault(0, fmt.Errorf("row %s is of part %d, which there is not: %w", s.key, s.part, ErrCorrupt))
		return nil
	}
	p := &c.parts[s.part]
	r, err := s.row(c.owner)
	if err == nil && r.Fence.Uint64() > p.Fence {
		err = fmt.Errorf("row %s has a fence that was not handed out: %w", s.key, ErrCorrupt)
	}
	if err == nil {
		err = c.digest.Add(ledger.Still(r, c.running[s.part]))
	}
	if err != nil {
		c.fault(int(s.part), err)
		return nil
	}
	switch r.State {
	case ledger.Leased:
		p.Leased++
	case ledger.Staged:
		p.Staged++
	default:
		p.Done++
	}
	return nil
}

func (c *checking) fault(part int, err error) {
	if c.faults[part]++; c.faults[part] <= maxFaults {
		c.parts[part].Err = errors.Join(c.parts[part].Err, err)
	}
}
