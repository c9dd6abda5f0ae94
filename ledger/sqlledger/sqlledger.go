package sqlledger

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/internal/abandoned"
)

// A Ledger is one process's view of a ledger in a database. It implements
// [fencepost.Ledger] and is safe for concurrent use; other processes, on
// PostgreSQL of any machine, may have the same one open. It starts no
// goroutine of its own: whoever has it open calls [Ledger.CleanUp] now and
// then, every minute say.
type Ledger struct {
	cfg  Config
	db   *store.DB
	uuid string
	// write is the database's; tests let it lose answers.
	write func(context.Context, string, func(context.Context, *store.Tx) error) error
	// page is how many rows a transaction of a clean-up looks at.
	page int

	mu sync.Mutex
	// looked is when this process last looked at each part's running time,
	// by its own clock. Guarded by mu.
	looked []ledger.Instant

	// abandoned are the leases that [Ledger.Abandon] was told of.
	abandoned abandoned.Leases
}

var _ fencepost.Ledger = (*Ledger)(nil)

// Open opens the ledger in a database, and makes its tables and the ledger
// where there is none. Its errors match [ErrConfig], [ErrParameters] (with
// [fencepost.ReasonParameters]), [ErrVolatile] or [fencepost.ErrMalformed],
// say that the schema is of another version, or have one of the contract's
// reasons.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{
		Path: cfg.Path, URL: cfg.URL, Now: cfg.Now, Wait: cfg.Wait, Connections: cfg.Connections, Tries: tries,
	})
	if err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg, db: db, write: db.Write, page: cleanUpRows, looked: make([]ledger.Instant, cfg.Parts)}
	now := cfg.Instant()
	for n := range l.looked {
		l.looked[n] = now
	}
	if err := l.openRoot(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for n := range cfg.Parts {
		if err := l.lookAt(ctx, n); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return l, nil
}

// Close closes the connections. Operations under way end with an error, which
// means unknown; what was answered is durable.
func (l *Ledger) Close() error { return l.db.Close() }

// Health is nil while the ledger may be written. After a failed sync of a
// SQLite file it never is again in this process, and has
// [fencepost.ReasonPoisoned]. It looks at memory alone.
func (l *Ledger) Health() error {
	if err := l.db.Check(); err != nil {
		return &fencepost.Error{Op: "ledger.health", Reason: fencepost.ReasonPoisoned, Err: err}
	}
	return nil
}

// Claim implements [fencepost.Ledger].
func (l *Ledger) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	a, err := l.do(ctx, ledger.ClaimRequest{Delivery: d})
	return a.Claim, err
}

// Renew implements [fencepost.Ledger].
func (l *Ledger) Renew(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease) (fencepost.Renewal, error) {
	a, err := l.do(ctx, ledger.RenewRequest{Delivery: d, Lease: lease})
	return a.Renewal, err
}

// Stage implements [fencepost.Ledger].
func (l *Ledger) Stage(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	a, err := l.do(ctx, ledger.StageRequest{Delivery: d, Lease: lease, Publication: p})
	return a.Stage, err
}

// Complete implements [fencepost.Ledger].
func (l *Ledger) Complete(ctx context.Context, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	a, err := l.do(ctx, ledger.CompleteRequest{Delivery: d, Staged: s})
	return a.Completion, err
}

// Repeat tells whether d is known, without claiming it, and durably moves its
// row's replay end to d's where that is later: what *replayed* means in
// DESIGN §4. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error) {
	a, err := l.do(ctx, ledger.RepeatRequest{Delivery: d})
	return a.Repeat, err
}

// Lookup returns the row of key, and false if there is none. What it says is
// durable. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Lookup(ctx context.Context, key fencepost.DeliveryKey) (row ledger.Row, known bool, err error) {
	const op = "ledger.lookup"
	if key.IsZero() {
		return ledger.Row{}, false, fmt.Errorf("%s: %w", op, fencepost.ErrZeroValue)
	}
	err = l.db.Read(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		s, err := l.read(ctx, tx, key)
		row, known = s.row, s.row.State != ledger.Unclaimed
		return err
	})
	if err != nil {
		return ledger.Row{}, false, opError(op, err)
	}
	return row, known, nil
}

// A change is what one operation may store: its evaluation id, if it is the
// first claim, and the token that no other change bears.
type change struct {
	evaluation fencepost.EvaluationID
	token      string
}

func (l *Ledger) newChange() (change, error) {
	id, err := fencepost.NewEvaluationID(l.cfg.Random)
	if err != nil {
		return change{}, err
	}
	var token [16]byte
	if _, err := io.ReadFull(l.cfg.Random, token[:]); err != nil {
		return change{}, fmt.Errorf("draw a token: %w", err)
	}
	return change{evaluation: id, token: hex.EncodeToString(token[:])}, nil
}

func (l *Ledger) do(ctx context.Context, req ledger.Request) (ledger.Answer, error) {
	if err := ledger.Check(req, l.cfg.Window); err != nil {
		return ledger.Answer{}, err
	}
	own, err := l.newChange()
	if err != nil {
		return ledger.Answer{}, opError(req.Op(), err)
	}
	var answer ledger.Answer
	err = l.write(ctx, req.Op(), func(ctx context.Context, tx *store.Tx) (err error) {
		answer, err = l.step(ctx, tx, req, own)
		return err
	})
	// After a failed sync, what can be read may still be lost.
	if errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrPoisoned) && l.stored(ctx, req, own) {
		err = nil
	}
	if err != nil {
		return ledger.Answer{}, opError(req.Op(), err)
	}
	return answer, nil
}

// step is an operation inside its transaction.
func (l *Ledger) step(ctx context.Context, tx *store.Tx, req ledger.Request, own change) (ledger.Answer, error) {
	s, err := l.read(ctx, tx, req.On().Key())
	if err != nil {
		return ledger.Answer{}, err
	}
	at := l.moment(s)
	fresh := ledger.Fresh{Evaluation: own.evaluation}
	if fresh.Fence, err = fencepost.ParseFence(uint64(s.part.lastFence) + 1); err != nil {
		return ledger.Answer{}, err
	}
	next, answer := ledger.Decide(s.row, req, at, fresh)
	if next.Equal(s.row) {
		return answer, nil
	}
	if next.Fence != s.row.Fence {
		// It hands out a lease: of whom the counter says, which others may
		// have moved on since it was read.
		if fresh.Fence, err = s.draw(ctx, tx); err != nil {
			return ledger.Answer{}, err
		}
		next, answer = ledger.Decide(s.row, req, at, fresh)
	}
	return answer, s.put(ctx, tx, next, own)
}

// stored reports whether the change of that token is known to be stored. That
// it isn't found proves nothing: the server may not have done it yet, or
// somebody may have changed the row after it.
func (l *Ledger) stored(ctx context.Context, req ledger.Request, own change) bool {
	var token string
	err := l.db.Read(ctx, req.Op(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select token from ledger_rows where key = ?", []any{req.On().Key().Hex()}, &token)
		return err
	})
	return err == nil && token == own.token
}

// owner is the number of the part that a key belongs to. Keys are digests: any
// part of them is spread evenly.
func (l *Ledger) owner(key fencepost.DeliveryKey) int {
	return int(binary.LittleEndian.Uint32(key[len(key)-4:]) % uint32(l.cfg.Parts))
}

// opError gives an error the reason that may be shown to anyone.
func opError(op string, err error) error {
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return err
	}
	reason := fencepost.ReasonUnavailable
	if errors.Is(err, ErrCorrupt) {
		reason = fencepost.ReasonCorrupt
	}
	return &fencepost.Error{Op: op, Reason: reason, Err: err}
}
