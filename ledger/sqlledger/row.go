package sqlledger

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// serverBoot is the boot of every instant of a server's clock, which outlives
// restarts.
var serverBoot = ledger.BootID([]byte("sql server clock"))

// A part is a row of ledger_parts, as it was read.
type part struct {
	number, limit, rows, lastFence int64
	// closed and running are nanoseconds; seenBoot and seen the instant up to
	// which running is counted.
	closed, running, seen int64
	seenBoot              string
}

// A sight is everything that an operation rests on, read in one statement.
type sight struct {
	part  part
	row   ledger.Row
	token string
	wall  time.Time
	now   ledger.Instant
	key   fencepost.DeliveryKey
}

const (
	readSight = `select p.part, p.row_limit, p.row_count, p.last_fence, p.closed_ns, p.running_ns, p.seen_boot, p.seen_ns, {now},
		coalesce(r.state, 0), coalesce(r.evaluation, ''), coalesce(r.fence, 0), coalesce(r.token, ''), r.body`
	fromSight = ` from ledger_parts p left join ledger_rows r on r.key = ? where p.part = ?`
)

// An asker asks the database for one row, as [store.Tx.One] does.
type asker func(ctx context.Context, query string, args []any, dest ...any) (found bool, err error)

// see reads a key's row and its part in one statement by itself. What it
// returns is durable, here and on synchronous standbys.
func (l *Ledger) see(ctx context.Context, op string, key fencepost.DeliveryKey) (sight, error) {
	return l.read(ctx, func(ctx context.Context, _ string, args []any, dest ...any) (bool, error) {
		if l.db.Kind() != store.Postgres {
			return l.db.Ask(ctx, op, readSight+fromSight, args, dest...)
		}
		var confirmed string
		return l.db.Ask(ctx, op, readSight+", "+store.Confirm+fromSight, args, append(dest, &confirmed)...)
	}, key)
}

// read reads a key's row and its part. Its error is the database's, or
// matches [ErrCorrupt].
func (l *Ledger) read(ctx context.Context, ask asker, key fencepost.DeliveryKey) (sight, error) {
	s := sight{key: key}
	var now, state, fence int64
	var evaluation string
	var body []byte
	p := &s.part
	found, err := ask(ctx, readSight+fromSight, []any{key.Hex(), int64(l.owner(key))},
		&p.number, &p.limit, &p.rows, &p.lastFence, &p.closed, &p.running, &p.seenBoot, &p.seen, &now,
		&state, &evaluation, &fence, &s.token, &body)
	if err != nil {
		return s, err
	}
	if !found || p.lastFence < 0 {
		return s, fmt.Errorf("part %d is missing: %w", l.owner(key), ErrCorrupt)
	}
	s.wall, s.now = l.clock(now)
	return s, s.decode(state, evaluation, fence, body)
}

// decode is the row that was read, which must verify. Its error matches
// [ErrCorrupt].
func (s *sight) decode(state int64, evaluation string, fence int64, body []byte) (err error) {
	if state == 0 {
		return nil
	}
	if s.row, err = ledger.DecodeRow(body); err != nil {
		return fmt.Errorf("delivery %s: %w: %w", s.key, ErrCorrupt, err)
	}
	r := s.row
	if r.Key != s.key || int64(r.State) != state || r.Evaluation.String() != evaluation || int64(r.Fence.Uint64()) != fence || fence > s.part.lastFence {
		s.row = ledger.Row{}
		return fmt.Errorf("delivery %s: its columns and its body differ: %w", s.key, ErrCorrupt)
	}
	return nil
}

// clock is the time: the server's, in microseconds, or this machine's.
func (l *Ledger) clock(server int64) (wall time.Time, now ledger.Instant) {
	if l.db.Kind() == store.Postgres {
		wall = time.UnixMicro(server).UTC()
		return wall, ledger.Instant{Boot: serverBoot, At: time.Duration(wall.UnixNano())}
	}
	return l.cfg.Now().UTC().Round(0), l.cfg.Instant()
}

// since is how long after the part was last looked at now is; 0 if that was
// before the machine's last start.
func (p part) since(now ledger.Instant) time.Duration {
	if p.seenBoot != hex.EncodeToString(now.Boot[:]) {
		return 0
	}
	return max(0, now.At-time.Duration(p.seen))
}

func (l *Ledger) moment(s sight) ledger.Moment {
	at := ledger.Moment{
		Wall: s.wall, Now: s.now, Lease: l.cfg.Lease, NoRoom: s.part.rows >= s.part.limit,
		HolderDead: l.abandoned.Has(s.row.Evaluation, s.row.Fence),
		// If the server's clock has jumped ahead since the last look, this is
		// too much: the row then stays longer.
		Running: time.Duration(s.part.running) + s.part.since(s.now),
	}
	if l.db.Kind() == store.Postgres {
		// If it has jumped back, this process knows better.
		at.Running = max(at.Running, time.Duration(l.claimed(int(s.part.number))))
	}
	if s.part.closed > 0 {
		at.ClosedThrough = time.Unix(0, s.part.closed).UTC()
	}
	return at
}

// draw takes the next fence of the part, and for a new row its place. What it
// compares with the sight is what the decision rested on.
func (s sight) draw(ctx context.Context, tx *store.Tx) (fencepost.Fence, error) {
	created := int64(0)
	if s.row.State == ledger.Unclaimed {
		created = 1
	}
	var fence int64
	found, err := tx.One(ctx, `update ledger_parts set last_fence = last_fence + 1, row_count = row_count + ?
		where part = ? and closed_ns = ? and last_fence >= ? and row_count + ? <= row_limit returning last_fence`,
		[]any{created, s.part.number, s.part.closed, s.part.lastFence, created}, &fence)
	if err != nil {
		return fencepost.Fence{}, err
	}
	if !found {
		return fencepost.Fence{}, defeated()
	}
	return fencepost.ParseFence(uint64(fence))
}

// put stores next in place of what was seen, if that is still there.
func (s sight) put(ctx context.Context, tx *store.Tx, next ledger.Row, token string) error {
	body, err := ledger.AppendRow(make([]byte, 0, ledger.EncodedLen(next)), next)
	if err != nil {
		return err
	}
	var replayEnd int64
	if end, bounded := next.Lifetime.End(); bounded {
		replayEnd = store.Micros(end)
	}
	var n int64
	if s.row.State == ledger.Unclaimed {
		n, err = tx.Exec(ctx, `insert into ledger_rows (key, part, state, evaluation, fence, replay_end, since, token, body)
			values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (key) do nothing`,
			s.key.Hex(), s.part.number, int64(next.State), next.Evaluation.String(), int64(next.Fence.Uint64()), replayEnd, next.Since.Unix(), token, body)
	} else {
		n, err = tx.Exec(ctx, `update ledger_rows set state = ?, fence = ?, replay_end = ?, since = ?, token = ?, body = ?
			where key = ? and state = ? and evaluation = ? and fence = ? and token = ?`,
			int64(next.State), int64(next.Fence.Uint64()), replayEnd, next.Since.Unix(), token, body,
			s.key.Hex(), int64(s.row.State), s.row.Evaluation.String(), int64(s.row.Fence.Uint64()), s.token)
	}
	if err != nil {
		return err
	}
	if n != 1 {
		return defeated()
	}
	return nil
}

// defeated says that others changed what was read: the transaction stores
// nothing and is tried again.
func defeated() error { return &store.Fault{Class: store.ErrBusy} }
