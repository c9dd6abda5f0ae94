package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// retiredConstraint refuses new rows of a trust set that was retired.
const retiredConstraint = "ledger_retired"

// refusedRetired reports whether a database refused a new row because its
// trust set was retired.
func refusedRetired(err error) bool {
	f, ok := errors.AsType[*store.Fault](err)
	return ok && f.Constraint == retiredConstraint
}

// The place of the trust mark in a row of version 2.
const (
	markedRow = "substr(body, 1, 1) = ?"
	markAt    = "substr(body, 101, 8)"
)

// rowMarked is the first byte of a row that has a trust mark.
var rowMarked = []byte{2}

// Trust counts the rows by the trust set that their deliveries were
// authenticated by. It reads all rows. Its errors are those of
// [fencepost.Ledger].
func (l *Ledger) Trust(ctx context.Context) (t ledger.Trust, err error) {
	err = l.db.Read(ctx, "ledger.trust", func(ctx context.Context, tx *store.Tx) (err error) {
		t, err = countTrust(ctx, tx)
		return err
	})
	if err != nil {
		return nil, opError("ledger.trust", err)
	}
	return t, nil
}

func countTrust(ctx context.Context, tx *store.Tx) (ledger.Trust, error) {
	t := ledger.Trust{}
	err := tx.Each(ctx, `select case when `+markedRow+` then `+markAt+` end, state, case when replay_end <> 0 then 1 else 0 end, count(*)
		from ledger_rows group by 1, 2, 3`, []any{rowMarked}, func(scan func(...any) error) error {
		var raw []byte
		var state, bounded, rows int64
		if err := scan(&raw, &state, &bounded, &rows); err != nil {
			return err
		}
		var mark ledger.TrustMark
		copy(mark[:], raw)
		sum := ledger.TrustRows{}
		switch {
		case bounded == 1 || mark.IsZero():
			sum.Other = int(rows)
		case ledger.State(state) == ledger.Done:
			sum.Retirable = int(rows)
		default:
			sum.Held = int(rows)
		}
		t.Add(mark, sum)
		return nil
	})
	if err != nil {
		return nil, err
	}
	marks, err := readRetired(ctx, tx)
	for _, mark := range marks {
		t.Retire(mark)
	}
	return t, err
}

// Retired are the marks of trust sets that were retired, sorted. Its errors
// are those of [fencepost.Ledger].
func (l *Ledger) Retired(ctx context.Context) (marks []ledger.TrustMark, err error) {
	err = l.db.Read(ctx, "ledger.retired", func(ctx context.Context, tx *store.Tx) (err error) {
		marks, err = readRetired(ctx, tx)
		return err
	})
	if err != nil {
		return nil, opError("ledger.retired", err)
	}
	return marks, nil
}

// retireRows is how many rows a transaction of a retirement removes.
const retireRows = 500

// Retire forgets the rows of a trust set that are done for ever, and durably
// refuses every new row of a delivery that it authenticated: such a claim is
// answered [fencepost.Expired]. The caller has made sure that no key of the set
// can authenticate anything any more: otherwise a delivery that was published
// would be taken for new under another set.
//
// What was removed before an error stays removed; saying it again goes on.
// Where a delivery of the set is leased or staged, the error matches
// [ledger.ErrHeld] and nothing was retired. It returns how many rows were.
func (l *Ledger) Retire(ctx context.Context, mark ledger.TrustMark) (int, error) {
	const op = "ledger.retire"
	if mark.IsZero() {
		return 0, fmt.Errorf("%s: no trust set: %w", op, ErrConfig)
	}
	err := l.db.Write(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		if l.db.Kind() == store.Postgres {
			// No claim is between its look at the retired marks and its insert,
			// and none begins before the mark is there.
			if _, err := tx.Exec(ctx, "lock table ledger_rows in share row exclusive mode"); err != nil {
				return err
			}
		}
		t, err := countTrust(ctx, tx)
		if err != nil {
			return err
		}
		if held := t[mark].Held; held > 0 {
			return &ledger.HeldError{Rows: held}
		}
		_, err = tx.Exec(ctx, "insert into ledger_retired (mark, at) values (?, {now}) on conflict (mark) do nothing", mark.String())
		return err
	})
	total := 0
	for err == nil {
		n := 0
		err = l.db.Write(ctx, op, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = retirePage(ctx, tx, mark)
			return err
		})
		if err != nil || n == 0 {
			break
		}
		total += n
	}
	if err != nil {
		return total, opError(op, err)
	}
	return total, nil
}

// retirePage removes some rows of a trust set, and returns how many.
func retirePage(ctx context.Context, tx *store.Tx, mark ledger.TrustMark) (int, error) {
	var keys []any
	parts := map[int64]int64{}
	err := tx.Each(ctx, `select key, part from ledger_rows
		where state = 3 and replay_end = 0 and `+markedRow+` and `+markAt+` = ? order by part, key limit ?`,
		[]any{rowMarked, mark[:], int64(retireRows)}, func(scan func(...any) error) error {
			var key string
			var part int64
			if err := scan(&key, &part); err != nil {
				return err
			}
			keys = append(keys, key)
			parts[part]++
			return nil
		})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	n, err := tx.Exec(ctx, "delete from ledger_rows where state = 3 and replay_end = 0 and key in ("+strings.Repeat(", ?", len(keys))[2:]+")", keys...)
	if err != nil {
		return 0, err
	}
	if n != int64(len(keys)) {
		return 0, defeated()
	}
	// In order, so that no two transactions wait for each other.
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		if _, err := tx.Exec(ctx, "update ledger_parts set row_count = row_count - ? where part = ?", parts[part], part); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}
