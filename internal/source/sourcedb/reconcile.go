package sourcedb

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// chosen are the sources that are due, each part found by an index of its own.
// A source whose last look lies ahead was planned by a clock that went back
// since: nothing of the plan counts.
const chosen = `select id as due_id, version as due_version from (
		select id, version, next_check from (select id, version, next_check from sources
			where enabled = 1 and next_check <= {now} and check_until <= {now} order by next_check, id limit ?) as planned
		union
		select id, version, next_check from (select id, version, next_check from sources
			where enabled = 1 and tried_at > {now} order by tried_at, id limit ?) as ahead
	) as due order by next_check, id limit ?`

const (
	// What another process claims between the choice and the change has another
	// version then.
	claimDue = `update sources set tried_at = {now}, check_until = {now} + ?, version = version + 1
		from (` + chosen + `) as c where id = c.due_id and version = c.due_version
		returning ` + sourceColumns

	// What was seen was so when the look was claimed, at the latest.
	storeChecks = `update sources set observed = c.column3, observed_at = tried_at, trouble = '',
			next_check = {now} + c.column4, check_until = 0, version = version + 1
		from (values `
	checkValues     = `(cast(? as text), cast(? as bigint), cast(? as text), cast(? as bigint))`
	storeChecksTail = `) as c where sources.id = c.column1 and sources.version = c.column2`
)

// chunk is how many rows one statement changes at most.
const chunk = 256

// Due implements [source.Store]. It sets TriedAt to the time of the claim.
func (s *Store) Due(ctx context.Context, limit int, claim time.Duration) (rows []source.SourceRow, err error) {
	err = s.db.Write(ctx, "claim due sources", func(ctx context.Context, tx *store.Tx) error {
		rows = rows[:0]
		return tx.Each(ctx, claimDue, []any{claim.Microseconds(), limit, limit, limit}, func(scan func(...any) error) error {
			row, err := scanSource(scan)
			rows = append(rows, row)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b source.SourceRow) int {
		return cmp.Or(a.NextCheck.Compare(b.NextCheck), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return rows, nil
}

func scanSource(scan scanner) (source.SourceRow, error) {
	var row sourceRow
	if err := scan(row.dest()...); err != nil {
		return source.SourceRow{}, err
	}
	var d decoder
	return row.decode(&d), d.err
}

// Checked implements [source.Store].
func (s *Store) Checked(ctx context.Context, all []source.Check) error {
	if len(all) == 0 {
		return nil
	}
	// In one order everywhere, so that no two wait for each other.
	all = slices.SortedFunc(slices.Values(all), func(a, b source.Check) int { return compareIDs(a.Source.ID, b.Source.ID) })
	return s.db.Write(ctx, "store checks", func(ctx context.Context, tx *store.Tx) error {
		for part := range slices.Chunk(all, chunk) {
			args := make([]any, 0, 4*len(part))
			for _, c := range part {
				args = append(args, c.Source.ID.String(), c.Source.Version, commitText(c.Observed), c.Next.Microseconds())
			}
			if _, err := tx.Exec(ctx, storeChecks+repeat(checkValues, len(part))+storeChecksTail, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

func compareIDs(a, b fencepost.SourceID) int { return slices.Compare(a[:], b[:]) }

// repeat is a list of n times the same values.
func repeat(values string, n int) string {
	return strings.Repeat(values+", ", n-1) + values
}
