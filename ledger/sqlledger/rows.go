package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// rowsPage is how many rows are read at a time.
const rowsPage = 1000

// A storedRow is a row of ledger_rows as it was read.
type storedRow struct {
	key, evaluation               string
	part, state, fence, replayEnd int64
	body                          []byte
}

const storedColumns = "key, part, state, evaluation, fence, replay_end, body"

func (s *storedRow) scan(scan func(...any) error) error {
	return scan(&s.key, &s.part, &s.state, &s.evaluation, &s.fence, &s.replayEnd, &s.body)
}

// row is what is stored, held to its columns. Its error matches [ErrCorrupt].
func (s *storedRow) row(owner func(fencepost.DeliveryKey) int) (ledger.Row, error) {
	r, err := ledger.DecodeRow(s.body)
	if err != nil {
		return ledger.Row{}, fmt.Errorf("row %s: %w: %w", s.key, ErrCorrupt, err)
	}
	var replayEnd int64
	if end, bounded := r.Lifetime.End(); bounded {
		replayEnd = store.Micros(end)
	}
	if r.Key.Hex() != s.key || int64(r.State) != s.state || r.Evaluation.String() != s.evaluation ||
		int64(r.Fence.Uint64()) != s.fence || replayEnd != s.replayEnd || int64(owner(r.Key)) != s.part {
		return ledger.Row{}, fmt.Errorf("row %s: its columns and its body differ: %w", s.key, ErrCorrupt)
	}
	return r, nil
}

// eachStored calls f for every row of a table, in the order of their keys.
func eachStored(ctx context.Context, tx *store.Tx, table string, f func(storedRow) error) error {
	after := ""
	for {
		n := 0
		err := tx.Each(ctx, "select "+storedColumns+" from "+table+" where key > ? order by key limit ?", []any{after, int64(rowsPage)},
			func(scan func(...any) error) error {
				var s storedRow
				if err := s.scan(scan); err != nil {
					return err
				}
				n++
				after = s.key
				return f(s)
			})
		if err != nil || n < rowsPage {
			return err
		}
	}
}

// eachStill calls f for every row of a table as [ledger.Still] tells it, in the
// order of their keys. running is that of each part.
func eachStill(ctx context.Context, tx *store.Tx, table string, running []time.Duration, f func(ledger.Row) error) error {
	l := &Ledger{cfg: Config{Parts: len(running)}}
	return eachStored(ctx, tx, table, func(s storedRow) error {
		r, err := s.row(l.owner)
		if err != nil {
			return err
		}
		return f(ledger.Still(r, running[s.part]))
	})
}

// errEnough ends an iteration that nobody follows any more.
var errEnough = errors.New("stopped")

// rowsOf is an iteration over what each calls its argument for.
func rowsOf(op string, each func(f func(ledger.Row) error) error) iter.Seq2[ledger.Row, error] {
	return func(yield func(ledger.Row, error) bool) {
		err := each(func(r ledger.Row) error {
			if !yield(r, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(ledger.Row{}, opError(op, err))
		}
	}
}

// readRows is [rowsOf] in one transaction, which is not begun again once there
// was a row: that row would come twice.
func readRows(ctx context.Context, db *store.DB, op string, each func(ctx context.Context, tx *store.Tx, f func(ledger.Row) error) error) iter.Seq2[ledger.Row, error] {
	return rowsOf(op, func(f func(ledger.Row) error) error {
		begun := false
		return db.Read(ctx, op, func(ctx context.Context, tx *store.Tx) error {
			if begun {
				return errors.New("others were in the way of the transaction that read the rows")
			}
			return each(ctx, tx, func(r ledger.Row) error {
				begun = true
				return f(r)
			})
		})
	})
}

// runningTimes are those of the parts of a table, as far as they were counted.
func runningTimes(ctx context.Context, tx *store.Tx, table string) ([]time.Duration, error) {
	var running []time.Duration
	err := tx.Each(ctx, "select part, running_ns from "+table+" order by part", nil, func(scan func(...any) error) error {
		var part, ns int64
		if err := scan(&part, &ns); err != nil {
			return err
		}
		if part != int64(len(running)) {
			return fmt.Errorf("part %d is missing: %w", len(running), ErrCorrupt)
		}
		running = append(running, time.Duration(ns))
		return nil
	})
	if err == nil && len(running) == 0 {
		err = fmt.Errorf("there are no parts: %w", ErrCorrupt)
	}
	return running, err
}

// readHead reads what a ledger is beside its rows, from the parts in a table.
func readHead(ctx context.Context, tx *store.Tx, table string) (ledger.Head, error) {
	r, found, err := getRoot(ctx, tx)
	if err != nil {
		return ledger.Head{}, err
	}
	if !found {
		return ledger.Head{}, errNoLedger
	}
	h := ledger.Head{
		Lease: time.Duration(r.lease), Capacity: int(r.capacity),
		Window: fencepost.ReplayWindow{MaxSignedAge: time.Duration(r.signed), MaxQueueAge: time.Duration(r.queue)},
	}
	if !unhex(h.UUID[:], r.uuid) {
		return ledger.Head{}, fmt.Errorf("the ledger's uuid is malformed: %w", ErrCorrupt)
	}
	var fence, closed int64
	if _, err := tx.One(ctx, "select coalesce(max(last_fence), 0), coalesce(max(closed_ns), 0) from "+table, nil, &fence, &closed); err != nil {
		return ledger.Head{}, err
	}
	h.Fence = uint64(fence)
	if closed > 0 {
		h.Closed = time.Unix(0, closed).UTC()
	}
	h.Retired, err = readRetired(ctx, tx)
	return h, err
}

func readRetired(ctx context.Context, tx *store.Tx) (marks []ledger.TrustMark, err error) {
	err = tx.Each(ctx, "select mark from ledger_retired order by mark", nil, func(scan func(...any) error) error {
		var text string
		var m ledger.TrustMark
		if err := scan(&text); err != nil {
			return err
		}
		if !unhex(m[:], text) {
			return fmt.Errorf("a retired mark is malformed: %w", ErrCorrupt)
		}
		marks = append(marks, m)
		return nil
	})
	return marks, err
}

// Rows goes through all rows in the order of their keys, as one moment shows
// them. An error ends it. The transaction lasts for as long as the iteration.
func (l *Ledger) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] {
	return readRows(ctx, l.db, "ledger.rows", func(ctx context.Context, tx *store.Tx, f func(ledger.Row) error) error {
		return eachStored(ctx, tx, "ledger_rows", func(s storedRow) error {
			r, err := s.row(l.owner)
			if err != nil {
				return err
			}
			return f(r)
		})
	})
}

// Snapshot gives rows and head of a ledger that goes on meanwhile, for a copy:
// rows as [ledger.Still] tells them, in the order of their keys, as one moment
// shows them. head reads what the ledger is when it is called: only after the
// rows does it surely know of every fence that they hold.
func (l *Ledger) Snapshot(ctx context.Context) (rows iter.Seq2[ledger.Row, error], head func() (ledger.Head, error)) {
	rows = readRows(ctx, l.db, "ledger.snapshot", func(ctx context.Context, tx *store.Tx, f func(ledger.Row) error) error {
		running, err := runningTimes(ctx, tx, "ledger_parts")
		if err != nil {
			return err
		}
		return eachStill(ctx, tx, "ledger_rows", running, f)
	})
	head = func() (h ledger.Head, err error) {
		err = l.db.Read(ctx, "ledger.head", func(ctx context.Context, tx *store.Tx) (err error) {
			h, err = readHead(ctx, tx, "ledger_parts")
			return err
		})
		if err != nil {
			return ledger.Head{}, opError("ledger.head", err)
		}
		return h, nil
	}
	return rows, head
}

// A Held is a ledger in one transaction that has it to itself: nobody changes
// or reads it until it ends. It implements [ledger.Source].
type Held struct {
	db      *store.DB
	tx      *store.Tx
	ctx     context.Context // of the transaction
	moved   ledger.Move
	running []time.Duration

	leave chan ledger.Move // closed by Close
	ended chan error       // how the transaction ended
	done  bool
}

var _ ledger.Source = (*Held)(nil)

// errLetGo ends a transaction that was to change nothing.
var errLetGo = errors.New("let go")

// Hold takes the ledger of a database for itself. Of cfg, Path, URL, Wait and
// Now are looked at; Wait bounds all of it. Its error matches [ledger.ErrInUse]
// while other processes are connected, or is the database's; a ledger that was
// moved can be held.
func Hold(ctx context.Context, cfg Config) (*Held, error) {
	const op = "ledger.hold"
	// What is not there is not made.
	db, err := openStore(ctx, cfg, func(o *store.Options) { o.Existing = true })
	if err != nil {
		return nil, err
	}
	h := &Held{db: db, leave: make(chan ledger.Move), ended: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		first := true
		h.ended <- db.Write(ctx, op, func(ctx context.Context, tx *store.Tx) error {
			if !first {
				return errors.New("others were in the way of the transaction that held the ledger")
			}
			first = false
			return h.hold(ctx, tx, ready)
		})
	}()
	select {
	case <-ready:
		return h, nil
	case err := <-h.ended:
		return nil, errors.Join(opError(op, err), db.Close())
	}
}

// openStore opens the database that cfg names, with one connection for each
// use.
func openStore(ctx context.Context, cfg Config, more func(*store.Options)) (*store.DB, error) {
	cfg, err := cfg.located()
	if err != nil {
		return nil, err
	}
	o := store.Options{Path: cfg.Path, URL: cfg.URL, Now: cfg.Now, Wait: cfg.Wait, Connections: 1, Tries: tries}
	more(&o)
	return store.Open(ctx, o)
}

// hold is the transaction.
func (h *Held) hold(ctx context.Context, tx *store.Tx, ready chan<- struct{}) error {
	state, m, err := readMove(ctx, tx)
	if err != nil {
		return err
	}
	switch state {
	case stateMoved:
		h.moved = m
	case stateIncoming, statePrepared:
		return checkHere(ctx, tx)
	default:
		if _, found, err := getRoot(ctx, tx); err != nil {
			return err
		} else if !found {
			return errNoLedger
		}
		if err := alone(ctx, tx); err != nil {
			return err
		}
		if h.running, err = runningTimes(ctx, tx, "ledger_parts"); err != nil {
			return err
		}
	}
	h.tx, h.ctx = tx, ctx
	close(ready)
	select {
	case m, ok := <-h.leave:
		if !ok {
			return errLetGo
		}
		if err := shut(ctx, tx); err != nil {
			return err
		}
		return writeMove(ctx, tx, stateMoved, m)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Head implements [ledger.Source].
func (h *Held) Head(context.Context) (ledger.Head, error) {
	return readHead(h.ctx, h.tx, "ledger_parts")
}

// Rows implements [ledger.Source].
func (h *Held) Rows(context.Context) iter.Seq2[ledger.Row, error] {
	return rowsOf("ledger.rows", func(f func(ledger.Row) error) error {
		return eachStill(h.ctx, h.tx, "ledger_rows", h.running, f)
	})
}

// Moved implements [ledger.Source].
func (h *Held) Moved(context.Context) (ledger.Move, error) { return h.moved, nil }

// Leave implements [ledger.Source]: the one step is the transaction's commit.
func (h *Held) Leave(ctx context.Context, m ledger.Move) error {
	select {
	case h.leave <- m:
	case err := <-h.ended:
		h.done = true
		return opError("ledger.leave", errors.Join(errors.New("the ledger is not held any more"), err))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h.done = true
	return opError("ledger.leave", <-h.ended)
}

// Close lets the ledger go, unless it has left.
func (h *Held) Close() error {
	var err error
	if !h.done {
		close(h.leave)
		if err = <-h.ended; errors.Is(err, errLetGo) {
			err = nil
		}
		h.done = true
	}
	return errors.Join(err, h.db.Close())
}
