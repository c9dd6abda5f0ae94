package sqlledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// An Incoming is a ledger in the making, in tables that no statement of a
// ledger finds. It implements [ledger.Target].
type Incoming struct {
	cfg  Config
	db   *store.DB
	head ledger.Head
	rows int
}

var _ ledger.Target = (*Incoming)(nil)

// Receive opens the database where a ledger is to arrive, and makes its tables
// if there are none. cfg is what the ledger will be opened with. Its error
// matches [ErrVolatile], says that the file system does not lock or keep, or is
// the database's.
func Receive(ctx context.Context, cfg Config) (*Incoming, error) {
	if err := cfg.checkVolume(); err != nil {
		return nil, err
	}
	db, err := openStore(ctx, cfg, func(o *store.Options) {
		o.Before = func(ctx context.Context, tx *store.Tx, _ int64) error { return checkSettings(ctx, tx, cfg.Volatile) }
	})
	if err != nil {
		return nil, err
	}
	if err := checkDurable(ctx, db, cfg.Volatile); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if cfg, err = cfg.withDefaults(db.Kind()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Incoming{cfg: cfg, db: db}, nil
}

// Close closes the connections. What has not arrived stays, for the next try.
func (in *Incoming) Close() error { return in.db.Close() }

func (in *Incoming) move(ctx context.Context, want string) (m ledger.Move, err error) {
	err = in.db.Read(ctx, "ledger.receive", func(ctx context.Context, tx *store.Tx) error {
		state, there, err := readMove(ctx, tx)
		m = ledger.Move{}
		if state == want {
			m = there
		}
		return err
	})
	return m, err
}

// Arriving implements [ledger.Target].
func (in *Incoming) Arriving(ctx context.Context) (ledger.Move, error) {
	return in.move(ctx, statePrepared)
}

// Arrived implements [ledger.Target].
func (in *Incoming) Arrived(ctx context.Context) (ledger.Move, error) { return in.move(ctx, stateHere) }

// Begin implements [ledger.Target].
func (in *Incoming) Begin(ctx context.Context, h ledger.Head) ([16]byte, error) {
	const op = "ledger.receive"
	if h.Window != in.cfg.Window {
		return [16]byte{}, opError(op, differentWindow(h.Window, in.cfg.Window))
	}
	if h.Fence >= 1<<62 {
		return [16]byte{}, opError(op, fmt.Errorf("fence %d is too high for a database: %w", h.Fence, ErrConfig))
	}
	var uuid [16]byte
	if _, err := io.ReadFull(in.cfg.Random, uuid[:]); err != nil {
		return [16]byte{}, fmt.Errorf("draw a uuid: %w", err)
	}
	err := in.db.Write(ctx, op, func(ctx context.Context, tx *store.Tx) error { return in.begin(ctx, tx, h, uuid) })
	if err != nil {
		return [16]byte{}, opError(op, err)
	}
	in.head, in.rows = h, 0
	return uuid, nil
}

func differentWindow(made, given fencepost.ReplayWindow) error {
	var errs []error
	if made.MaxSignedAge != given.MaxSignedAge {
		errs = append(errs, &ParameterError{Field: "replay.max_signed_age", Made: made.MaxSignedAge.String(), Given: given.MaxSignedAge.String()})
	}
	if made.MaxQueueAge != given.MaxQueueAge {
		errs = append(errs, &ParameterError{Field: "replay.max_queue_age", Made: made.MaxQueueAge.String(), Given: given.MaxQueueAge.String()})
	}
	return &fencepost.Error{Op: "ledger.receive", Reason: fencepost.ReasonParameters, Err: errors.Join(errs...)}
}

// begin empties the tables of what an interrupted move has left and takes
// their names away.
func (in *Incoming) begin(ctx context.Context, tx *store.Tx, h ledger.Head, uuid [16]byte) error {
	state, _, err := readMove(ctx, tx)
	if err != nil {
		return err
	}
	if state != stateIncoming && state != statePrepared {
		if err := in.beginAnew(ctx, tx, state); err != nil {
			return err
		}
	}
	for _, table := range []string{"ledger_rows_held", "ledger_parts_held", "ledger_root", "ledger_retired"} {
		if _, err := tx.Exec(ctx, "delete from "+table); err != nil {
			return err
		}
	}
	c := in.cfg
	_, err = tx.Exec(ctx, `insert into ledger_root (id, uuid, lease_ns, capacity, signed_age_ns, queue_age_ns, parts, made_at)
		values (1, ?, ?, ?, ?, ?, ?, {now})`,
		hex.EncodeToString(uuid[:]), int64(c.Lease), int64(c.Capacity), int64(c.Window.MaxSignedAge), int64(c.Window.MaxQueueAge), int64(c.Parts))
	if err != nil {
		return err
	}
	var closed int64
	if !h.Closed.IsZero() {
		closed = h.Closed.UnixNano()
	}
	for n := range c.Parts {
		_, err := tx.Exec(ctx, "insert into ledger_parts_held (part, row_limit, last_fence, closed_ns) values (?, ?, ?, ?)",
			int64(n), int64(c.limit(n)), int64(h.Fence), closed)
		if err != nil {
			return err
		}
	}
	return writeMove(ctx, tx, stateIncoming, ledger.Move{From: h.UUID, To: uuid})
}

// beginAnew takes a database in which there is no ledger, or one that was
// never used.
func (in *Incoming) beginAnew(ctx context.Context, tx *store.Tx, state string) error {
	if state == stateMoved {
		return &ShutError{
			Kind: ledger.ErrNotEmpty, Why: "the rows of one that was moved away are still here",
			Mend: "name another database or schema, or drop the tables ledger_rows_held and ledger_parts_held with all other ledger_ tables' rows once the copy is not needed",
		}
	}
	if err := alone(ctx, tx); err != nil {
		return err
	}
	var rows, fences int64
	if _, err := tx.One(ctx, "select (select count(*) from (select 1 from ledger_rows limit 1) r), (select coalesce(max(last_fence), 0) from ledger_parts)", nil, &rows, &fences); err != nil {
		return err
	}
	if rows > 0 || fences > 0 {
		return &ShutError{Kind: ledger.ErrNotEmpty, Mend: "name a database or schema without a ledger"}
	}
	return shut(ctx, tx)
}

// insertRows is how many rows one statement inserts.
const insertRows = 64

// Put implements [ledger.Target].
func (in *Incoming) Put(ctx context.Context, rows []ledger.Row) error {
	if in.rows += len(rows); in.rows > in.cfg.Capacity {
		return opError("ledger.receive", fmt.Errorf("more than %d rows: %w; give it a larger ledger.capacity", in.cfg.Capacity, ErrConfig))
	}
	err := in.db.Write(ctx, "ledger.receive", func(ctx context.Context, tx *store.Tx) error {
		for rest := rows; len(rest) > 0; rest = rest[min(insertRows, len(rest)):] {
			if err := in.insert(ctx, tx, rest[:min(insertRows, len(rest))]); err != nil {
				return err
			}
		}
		return nil
	})
	return opError("ledger.receive", err)
}

func (in *Incoming) insert(ctx context.Context, tx *store.Tx, rows []ledger.Row) error {
	const columns = 9
	owner := &Ledger{cfg: in.cfg}
	args := make([]any, 0, columns*len(rows))
	for _, r := range rows {
		body, err := ledger.AppendRow(nil, r)
		if err != nil {
			return err
		}
		var token [16]byte
		if _, err := io.ReadFull(in.cfg.Random, token[:]); err != nil {
			return fmt.Errorf("draw a token: %w", err)
		}
		var replayEnd int64
		if end, bounded := r.Lifetime.End(); bounded {
			replayEnd = store.Micros(end)
		}
		args = append(args, r.Key.Hex(), int64(owner.owner(r.Key)), int64(r.State), r.Evaluation.String(), int64(r.Fence.Uint64()),
			replayEnd, r.Since.Unix(), hex.EncodeToString(token[:]), body)
	}
	values := strings.Repeat(", (?, ?, ?, ?, ?, ?, ?, ?, ?)", len(rows))[2:]
	_, err := tx.Exec(ctx, "insert into ledger_rows_held (key, part, state, evaluation, fence, replay_end, since, token, body) values "+values, args...)
	return err
}

// Prepare implements [ledger.Target].
func (in *Incoming) Prepare(ctx context.Context, m ledger.Move) error {
	err := in.db.Write(ctx, "ledger.receive", func(ctx context.Context, tx *store.Tx) error {
		// More rows than a part may have are kept; it takes no new ones.
		_, err := tx.Exec(ctx, `update ledger_parts_held set
			row_limit = (select case when count(*) > row_limit then count(*) else row_limit end from ledger_rows_held r where r.part = ledger_parts_held.part),
			row_count = (select count(*) from ledger_rows_held r where r.part = ledger_parts_held.part)`)
		if err != nil {
			return err
		}
		// Not before the rows: bounded ones of a retired set come, too.
		for _, mark := range in.head.Retired {
			if _, err := tx.Exec(ctx, "insert into ledger_retired (mark, at) values (?, {now})", mark.String()); err != nil {
				return err
			}
		}
		return writeMove(ctx, tx, statePrepared, m)
	})
	return opError("ledger.receive", err)
}

// Rows implements [ledger.Target].
func (in *Incoming) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] {
	return readRows(ctx, in.db, "ledger.receive", func(ctx context.Context, tx *store.Tx, f func(ledger.Row) error) error {
		return eachStill(ctx, tx, "ledger_rows_held", make([]time.Duration, in.cfg.Parts), f)
	})
}

// Arrive implements [ledger.Target].
func (in *Incoming) Arrive(ctx context.Context, m ledger.Move) error {
	err := in.db.Write(ctx, "ledger.arrive", func(ctx context.Context, tx *store.Tx) error {
		state, there, err := readMove(ctx, tx)
		if err != nil {
			return err
		}
		if there != m || state != statePrepared {
			return &ShutError{Kind: ledger.ErrIncoming, Why: "another move is under way", Mend: "end that one first"}
		}
		if err := unshut(ctx, tx); err != nil {
			return err
		}
		return writeMove(ctx, tx, stateHere, m)
	})
	return opError("ledger.arrive", err)
}
