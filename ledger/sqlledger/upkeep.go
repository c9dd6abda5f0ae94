package sqlledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// cleanUpRows bounds the rows that one transaction of a clean-up removes: a
// part stands still for its duration.
const cleanUpRows = 200

// lookAt counts the time that has passed into a part's running time.
func (l *Ledger) lookAt(ctx context.Context, number int) error {
	return l.write(ctx, "ledger.open", func(ctx context.Context, tx *store.Tx) error {
		_, _, err := l.look(ctx, tx, number)
		return err
	})
}

// look locks a part, counts the time that has passed into its running time,
// and returns the part as it is then, with the wall time.
func (l *Ledger) look(ctx context.Context, tx *store.Tx, number int) (p part, wall time.Time, err error) {
	var now int64
	// On PostgreSQL the change is what waits for others, and what it returns
	// is as they left it.
	found, err := tx.One(ctx, `update ledger_parts set row_count = row_count where part = ?
		returning part, row_limit, row_count, last_fence, closed_ns, running_ns, seen_boot, seen_ns, {now}`,
		[]any{int64(number)}, &p.number, &p.limit, &p.rows, &p.lastFence, &p.closed, &p.running, &p.seenBoot, &p.seen, &now)
	if err == nil && !found {
		err = fmt.Errorf("part %d is missing: %w", number, ErrCorrupt)
	}
	if err != nil {
		return p, time.Time{}, err
	}
	wall, at := l.clock(now)
	passed := p.since(at)
	if l.db.Kind() == store.Postgres {
		passed = min(passed, l.passed(number))
	}
	p.running += int64(passed)
	p.seenBoot, p.seen = hex.EncodeToString(at.Boot[:]), int64(at.At)
	_, err = tx.Exec(ctx, "update ledger_parts set running_ns = ?, seen_boot = ?, seen_ns = ? where part = ?", p.running, p.seenBoot, p.seen, p.number)
	return p, wall, err
}

// passed is how much time this process has seen pass since it was last asked
// about that part. If the transaction that asks is not stored, that time is
// not counted at all.
func (l *Ledger) passed(number int) time.Duration {
	now := l.cfg.Instant()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.looked[number]
	l.looked[number] = now
	if last.Boot != now.Boot {
		return 0
	}
	return max(0, now.At-last.At)
}

// CleanUp removes the rows that may be removed: done, and past their bounded
// replay end on both clocks. It goes part by part, some rows a transaction;
// what was removed before an error or the end of ctx stays removed. Its errors
// are those of [fencepost.Ledger]; a row that does not verify is kept, and
// named by the error at the end.
func (l *Ledger) CleanUp(ctx context.Context) error {
	var errs []error
	for n := range l.cfg.Parts {
		if err := l.cleanUpPart(ctx, n); err != nil {
			errs = append(errs, opError("ledger.clean-up", err))
		}
	}
	return errors.Join(errs...)
}

func (l *Ledger) cleanUpPart(ctx context.Context, number int) error {
	var corrupt []error
	after := "" // the last key that was looked at
	for {
		var page []candidate
		err := l.write(ctx, "ledger.clean-up", func(ctx context.Context, tx *store.Tx) (err error) {
			page, err = l.cleanUpPage(ctx, tx, number, after)
			return err
		})
		if err != nil {
			return errors.Join(append(corrupt, err)...)
		}
		for _, c := range page {
			after = c.key
			if c.err != nil {
				corrupt = append(corrupt, c.err)
			}
		}
		if len(page) < l.page {
			return errors.Join(corrupt...)
		}
	}
}

// A candidate is a done row whose replay end has passed by the wall clock.
type candidate struct {
	key, token string
	fence      int64
	body       []byte
	// err says that the row does not verify.
	err error
}

// cleanUpPage removes what may be removed of the next rows of a part, and
// returns all that it looked at.
func (l *Ledger) cleanUpPage(ctx context.Context, tx *store.Tx, number int, after string) ([]candidate, error) {
	p, wall, err := l.look(ctx, tx, number)
	if err != nil {
		return nil, err
	}
	var page []candidate
	err = tx.Each(ctx, `select key, token, fence, body from ledger_rows
		where part = ? and state = 3 and replay_end <> 0 and replay_end <= ? and key > ? order by key limit ?`,
		[]any{p.number, store.Micros(wall), after, int64(l.page)}, func(scan func(...any) error) error {
			var c candidate
			err := scan(&c.key, &c.token, &c.fence, &c.body)
			page = append(page, c)
			return err
		})
	if err != nil {
		return nil, err
	}
	removed, closed := int64(0), p.closed
	for i := range page {
		c := &page[i]
		row, err := ledger.DecodeRow(c.body)
		if err != nil || row.Key.Hex() != c.key {
			c.err = fmt.Errorf("row %s: %w", c.key, errors.Join(ErrCorrupt, err))
			continue
		}
		if !ledger.Removable(row, wall, time.Duration(p.running)) {
			continue
		}
		n, err := tx.Exec(ctx, "delete from ledger_rows where key = ? and state = 3 and fence = ? and token = ?", c.key, c.fence, c.token)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			end, _ := row.Lifetime.End()
			removed, closed = removed+1, max(closed, end.UnixNano())
		}
	}
	if removed == 0 {
		return page, nil
	}
	_, err = tx.Exec(ctx, "update ledger_parts set row_count = row_count - ?, closed_ns = ? where part = ?", removed, closed, p.number)
	return page, err
}

// A Stat counts what a ledger holds.
type Stat struct {
	// UUID is the ledger's, 32 hexadecimal digits.
	UUID string
	// Rows is the number of rows in any state; Capacity the most there can be.
	Rows, Capacity int
	// Parts is the number of counters; Full of them have no room for a new
	// row.
	Parts, Full int
	// Fence is the highest that was ever handed out in any part.
	Fence uint64
}

// String is for people.
func (s Stat) String() string {
	return fmt.Sprintf("%d of %d rows, %d of %d parts full", s.Rows, s.Capacity, s.Full, s.Parts)
}

// Stat reads the counters; it costs the same however many rows there are. Its
// errors are those of [fencepost.Ledger].
func (l *Ledger) Stat(ctx context.Context) (Stat, error) {
	var st Stat
	err := l.db.Read(ctx, "ledger.stat", func(ctx context.Context, tx *store.Tx) error {
		st = Stat{UUID: l.uuid, Capacity: l.cfg.Capacity}
		return tx.Each(ctx, "select row_count, row_limit, last_fence from ledger_parts", nil, func(scan func(...any) error) error {
			var rows, limit, fence int64
			if err := scan(&rows, &limit, &fence); err != nil {
				return err
			}
			st.Rows += int(rows)
			st.Parts++
			st.Fence = max(st.Fence, uint64(fence))
			if rows >= limit {
				st.Full++
			}
			return nil
		})
	})
	if err != nil {
		return Stat{}, opError("ledger.stat", err)
	}
	return st, nil
}
