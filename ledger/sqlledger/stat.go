package sqlledger

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// A Stat counts what a ledger holds.
type Stat struct {
	// UUID is the ledger's, 32 hexadecimal digits.
	UUID string
	// Rows are counted by state; Capacity is the most there can be.
	Leased, Staged, Done, Capacity int
	// OldestLeased and OldestStaged are the wall times, in whole seconds,
	// since which the oldest row has been in that state; zero if there is
	// none.
	OldestLeased, OldestStaged time.Time
	// Parts is the number of counters; Full of them have no room for a new
	// row.
	Parts, Full int
	// Fence is the highest that was ever handed out in any part.
	Fence uint64
}

// Rows is the number of all rows.
func (s Stat) Rows() int { return s.Leased + s.Staged + s.Done }

// String is for people.
func (s Stat) String() string {
	return fmt.Sprintf("%d of %d rows (%d leased, %d staged, %d done), %d of %d parts full",
		s.Rows(), s.Capacity, s.Leased, s.Staged, s.Done, s.Full, s.Parts)
}

// Stat reads the counters, and an index of what is leased or staged: what it
// costs grows with those, not with the rows that are done. Its errors are
// those of [fencepost.Ledger].
func (l *Ledger) Stat(ctx context.Context) (Stat, error) {
	var st Stat
	err := l.db.Read(ctx, "ledger.stat", func(ctx context.Context, tx *store.Tx) (err error) {
		st, err = l.stat(ctx, tx)
		return err
	})
	if err != nil {
		return Stat{}, opError("ledger.stat", err)
	}
	return st, nil
}

// Ages says how old the rows are, as [ledger.CountAges] does. The database
// reads all of them. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Ages(ctx context.Context, now time.Time) (a ledger.Ages, err error) {
	err = l.db.Read(ctx, "ledger.ages", func(ctx context.Context, tx *store.Tx) error {
		a = ledger.Ages{}
		return tx.Each(ctx, `select state, min(since), sum(case when replay_end = 0 and since >= ? then 1 else 0 end) from ledger_rows group by state`,
			[]any{now.Add(-ledger.GrowthWindow).Unix()}, func(scan func(...any) error) error {
				var state, since, permanent int64
				if err := scan(&state, &since, &permanent); err != nil {
					return err
				}
				oldest := time.Unix(since, 0).UTC()
				a.Permanent += int(permanent)
				if a.Oldest.IsZero() || oldest.Before(a.Oldest) {
					a.Oldest = oldest
				}
				switch ledger.State(state) {
				case ledger.Leased:
					a.OldestLeased = oldest
				case ledger.Staged:
					a.OldestStaged = oldest
				case ledger.Unclaimed, ledger.Done:
				}
				return nil
			})
	})
	if err != nil {
		return ledger.Ages{}, opError("ledger.ages", err)
	}
	return a, nil
}

func (l *Ledger) stat(ctx context.Context, tx *store.Tx) (Stat, error) {
	st := Stat{UUID: l.uuid, Capacity: l.cfg.Capacity}
	err := tx.Each(ctx, "select row_count, row_limit, last_fence from ledger_parts", nil, func(scan func(...any) error) error {
		var rows, limit, fence int64
		if err := scan(&rows, &limit, &fence); err != nil {
			return err
		}
		st.Parts++
		st.Done += int(rows)
		st.Fence = max(st.Fence, uint64(fence))
		if rows >= limit {
			st.Full++
		}
		return nil
	})
	if err != nil {
		return st, err
	}
	return st, tx.Each(ctx, "select state, count(*), min(since) from ledger_rows where state < 3 group by state", nil, func(scan func(...any) error) error {
		var state, rows, since int64
		if err := scan(&state, &rows, &since); err != nil {
			return err
		}
		st.Done -= int(rows)
		oldest := time.Unix(since, 0).UTC()
		if ledger.State(state) == ledger.Leased {
			st.Leased, st.OldestLeased = int(rows), oldest
		} else {
			st.Staged, st.OldestStaged = int(rows), oldest
		}
		return nil
	})
}
