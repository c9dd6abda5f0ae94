package sqlledger

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/internal/abandoned"
)

// A Ledger is one process's view of a ledger in a database. It implements
// [fencepost.Ledger] and is safe for concurrent use; other processes, on
// PostgreSQL of any machine, may have the same one open. It starts no
// goroutine of its own: whoever has it open runs [Ledger.Run].
type Ledger struct {
	cfg  Config
	db   *store.DB
	uuid string
	// shared: the database is not this ledger's to close.
	shared bool
	// perform does an operation; tests let it lose answers.
	perform func(context.Context, ledger.Request, change) (ledger.Answer, error)
	// page is how many rows a transaction of a clean-up looks at.
	page int
	// upkeep is why the last clean-up of Run did not go well.
	upkeep atomic.Pointer[error]

	mu sync.Mutex
	// seen is what this process knows of each part's running time, on
	// PostgreSQL. Guarded by mu.
	seen []witness

	// abandoned are the leases that [Ledger.Abandon] was told of.
	abandoned abandoned.Leases
}

var _ fencepost.Ledger = (*Ledger)(nil)

// Open opens the ledger in a database, and makes its tables and the ledger
// where there is none. Its errors match [ErrConfig], [ErrParameters] (with
// [fencepost.ReasonParameters]), [ErrVolatile] or [fencepost.ErrMalformed],
// say that the schema is of another version, or have one of the contract's
// reasons. A database that is refused is not changed.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.located()
	if err != nil {
		return nil, err
	}
	if err := cfg.checkVolume(); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{
		Path: cfg.Path, URL: cfg.URL, Now: cfg.Now, Wait: cfg.Wait, Connections: cfg.Connections, Tries: tries, Before: Before(cfg),
	})
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

// OpenOn is [Open] on a database that this module's own program has open for
// other parts, too, and closes itself. Path, URL, Wait and Connections of cfg
// are not looked at: they are the database's.
func OpenOn(ctx context.Context, db *store.DB, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults(db.Kind())
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	l.shared = true
	return l, nil
}

// open opens the ledger in db. cfg has its defaults.
func open(ctx context.Context, db *store.DB, cfg Config) (*Ledger, error) {
	l := &Ledger{cfg: cfg, db: db, page: cleanUpRows, seen: make([]witness, cfg.Parts)}
	l.perform = l.transact
	if db.Kind() == store.Postgres {
		l.perform = l.call
	}
	if err := checkDurable(ctx, db, cfg.Volatile); err != nil {
		return nil, err
	}
	if err := l.openRoot(ctx); err != nil {
		return nil, err
	}
	for n := range cfg.Parts {
		if err := l.lookAt(ctx, n); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Close closes the connections, unless they are shared. Operations under way
// end with an error, which means unknown; what was answered is durable.
func (l *Ledger) Close() error {
	if l.shared {
		return nil
	}
	return l.db.Close()
}

// Health looks at memory alone. After a failed sync of a SQLite file it is
// poisoned for good in this process. A part of a database is never stopped by
// itself: a row that does not verify is named by the operations on it.
func (l *Ledger) Health() ledger.Health {
	var h ledger.Health
	if err := l.db.Check(); err != nil {
		h.Poisoned = &fencepost.Error{Op: "ledger.health", Reason: fencepost.ReasonPoisoned, Err: err}
	}
	if p := l.upkeep.Load(); p != nil {
		h.Maintenance = *p
	}
	return h
}

// MayKnow reports whether there may be a row of key, from memory and at once:
// always, as nothing of a database is kept in memory. Whoever needs to know
// asks [Ledger.Repeat], or claims.
func (l *Ledger) MayKnow(fencepost.DeliveryKey) bool { return true }

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
	s, err := l.see(ctx, op, key)
	if err != nil {
		return ledger.Row{}, false, opError(op, err)
	}
	return s.row, s.row.State != ledger.Unclaimed, nil
}

// A change is what one operation may store: its evaluation id, if it is the
// first claim, and a token that no other change bears.
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

// tokenOf is the token that a change of row to next bears. One that only moves
// the replay end, beside an answer to a claim that says nothing of that, bears
// it backwards: from what it stored, its answer can't be told.
func (c change) tokenOf(req ledger.Request, row, next ledger.Row) string {
	if _, claim := req.(ledger.ClaimRequest); !claim || next.Fence != row.Fence {
		return c.token
	}
	b := []byte(c.token)
	slices.Reverse(b)
	return string(b)
}

func (l *Ledger) do(ctx context.Context, req ledger.Request) (ledger.Answer, error) {
	if err := ledger.Check(req, l.cfg.Window); err != nil {
		return ledger.Answer{}, err
	}
	own, err := l.newChange()
	if err != nil {
		return ledger.Answer{}, opError(req.Op(), err)
	}
	answer, err := l.perform(ctx, req, own)
	if _, claim := req.(ledger.ClaimRequest); claim && refusedRetired(err) {
		return ledger.Answer{Claim: fencepost.Expired{}}, nil
	}
	// After a failed sync, what can be read may still be lost.
	if errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrPoisoned) {
		if recalled, ok := l.recall(ctx, req, own); ok {
			return recalled, nil
		}
	}
	if err != nil {
		return ledger.Answer{}, opError(req.Op(), err)
	}
	return answer, nil
}

// transact is an operation as a transaction that reads, decides and stores.
func (l *Ledger) transact(ctx context.Context, req ledger.Request, own change) (answer ledger.Answer, err error) {
	err = l.db.Write(ctx, req.Op(), func(ctx context.Context, tx *store.Tx) (err error) {
		answer, err = l.step(ctx, tx, req, own)
		return err
	})
	return answer, err
}

// step is an operation inside its transaction.
func (l *Ledger) step(ctx context.Context, tx *store.Tx, req ledger.Request, own change) (ledger.Answer, error) {
	s, err := l.read(ctx, tx.One, req.On().Key())
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
	return answer, s.put(ctx, tx, next, own.tokenOf(req, s.row, next))
}

// owner is the number of the part that a key belongs to. Keys are digests: any
// part of them is spread evenly.
func (l *Ledger) owner(key fencepost.DeliveryKey) int {
	return int(binary.LittleEndian.Uint32(key[len(key)-4:]) % uint32(l.cfg.Parts))
}

// opError gives an error the reason that may be shown to anyone; nil stays nil.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return err
	}
	reason := fencepost.ReasonUnavailable
	if errors.Is(err, ErrCorrupt) {
		reason = fencepost.ReasonCorrupt
	}
	return &fencepost.Error{Op: op, Reason: reason, Err: err}
}
