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
	return l.db.Write(ctx, "ledger.open", func(ctx context.Context, tx *store.Tx) error {
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
	if l.db.Kind() == store.Postgres {
		p.running = l.witnessed(number, p.running)
	} else {
		p.running += int64(p.since(at))
	}
	p.seenBoot, p.seen = hex.EncodeToString(at.Boot[:]), int64(at.At)
	_, err = tx.Exec(ctx, "update ledger_parts set running_ns = ?, seen_boot = ?, seen_ns = ? where part = ?", p.running, p.seenBoot, p.seen, p.number)
	return p, wall, err
}

// A witness is what a process can swear to: that at an instant of its own
// clock, which nothing steps, a part had run for at least so long. The zero
// witness saw nothing.
type witness struct {
	at      ledger.Instant
	running int64 // nanoseconds
}

// claims is what w makes of a later instant.
func (w witness) claims(now ledger.Instant) int64 {
	if w.at.Boot != now.Boot {
		return 0
	}
	return w.running + int64(max(0, now.At-w.at.At))
}

// witnessed is a part's running time now, where stored says how much there was
// at the last look of anybody's. No server's clock is in it, and however many
// processes look, none counts what another one has: each only says how much
// there was when it looked last, and how much it has seen pass since.
func (l *Ledger) witnessed(number int, stored int64) int64 {
	now := l.cfg.Instant()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := witness{now, max(stored, l.seen[number].claims(now))}
	l.seen[number] = w
	return w.running
}

// claimed is what this process alone knows of a part's running time now.
func (l *Ledger) claimed(number int) int64 {
	now := l.cfg.Instant()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[number].claims(now)
}

// Run cleans up every [Config.Maintain], the first time at once, until ctx has
// ended, which is nil. What does not go well is in [Ledger.Health], and is
// tried again.
func (l *Ledger) Run(ctx context.Context) error {
	tick := time.NewTicker(l.cfg.Maintain)
	defer tick.Stop()
	for {
		err := l.CleanUp(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.upkeep.Store(nil)
		if err != nil {
			l.upkeep.Store(&err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
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
		err := l.db.Write(ctx, "ledger.clean-up", func(ctx context.Context, tx *store.Tx) (err error) {
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
