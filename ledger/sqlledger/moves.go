package sqlledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// States of ledger_moves.
const (
	stateMoved    = "moved"    // away from here
	stateIncoming = "incoming" // some rows are here
	statePrepared = "prepared" // all are, and are durable
	stateHere     = "here"     // it came from elsewhere, and is open
)

// A ShutError says that no ledger can be opened in a database, and what to do.
// It matches [ledger.ErrMoved], [ledger.ErrIncoming], [ledger.ErrNotEmpty] or
// [ledger.ErrInUse].
type ShutError struct {
	// Kind is one of those.
	Kind error
	// Why says more; may be empty.
	Why string
	// Mend says what to do.
	Mend string
}

// Error says what and the mend.
func (e *ShutError) Error() string {
	if e.Why == "" {
		return e.Kind.Error() + "; " + e.Mend
	}
	return e.Kind.Error() + ": " + e.Why + "; " + e.Mend
}

// Unwrap returns the kind.
func (e *ShutError) Unwrap() error { return e.Kind }

// readMove reads where the ledger is.
func readMove(ctx context.Context, tx *store.Tx) (state string, m ledger.Move, err error) {
	var from, to, digest string
	var rows int64
	found, err := tx.One(ctx, "select state, source, target, row_count, digest from ledger_moves where id = 1", nil, &state, &from, &to, &rows, &digest)
	if err != nil || !found {
		return "", ledger.Move{}, err
	}
	m.Rows = int(rows)
	if unhex(m.From[:], from) && unhex(m.To[:], to) && (digest == "" || unhex(m.Digest[:], digest)) {
		return state, m, nil
	}
	return "", ledger.Move{}, fmt.Errorf("the row of ledger_moves is malformed: %w", ErrCorrupt)
}

func unhex(to []byte, s string) bool {
	n, err := hex.Decode(to, []byte(s[:min(len(s), 2*len(to))]))
	return err == nil && n == len(to) && len(s) == 2*len(to)
}

// writeMove writes down where the ledger is.
func writeMove(ctx context.Context, tx *store.Tx, state string, m ledger.Move) error {
	digest := ""
	if m.Digest != [32]byte{} {
		digest = hex.EncodeToString(m.Digest[:])
	}
	_, err := tx.Exec(ctx, `insert into ledger_moves (id, state, source, target, row_count, digest, at) values (1, ?, ?, ?, ?, ?, {now})
		on conflict (id) do update set state = excluded.state, source = excluded.source, target = excluded.target,
			row_count = excluded.row_count, digest = excluded.digest, at = excluded.at`,
		state, hex.EncodeToString(m.From[:]), hex.EncodeToString(m.To[:]), int64(m.Rows), digest)
	return err
}

// checkHere refuses a database from which the ledger was moved, or to which it
// has not come yet.
func checkHere(ctx context.Context, tx *store.Tx) error {
	state, m, err := readMove(ctx, tx)
	if err != nil {
		return err
	}
	var shut error
	switch state {
	case stateMoved:
		shut = &ShutError{
			Kind: ledger.ErrMoved, Why: "it goes on as ledger " + hex.EncodeToString(m.To[:]),
			Mend: "configure where it was moved to, or end the move with `fencepost ledger migrate`",
		}
	case stateIncoming, statePrepared:
		shut = &ShutError{
			Kind: ledger.ErrIncoming, Why: "it comes from ledger " + hex.EncodeToString(m.From[:]),
			Mend: "end the move with the command that began it",
		}
	default:
		return nil
	}
	return &fencepost.Error{Op: "ledger.open", Reason: fencepost.ReasonUnavailable, Err: shut}
}

// shut takes the tables' names away, so that no statement finds them; unshut
// gives them back.
func shut(ctx context.Context, tx *store.Tx) error {
	_, err := tx.Exec(ctx, "alter table ledger_rows rename to ledger_rows_held")
	if err == nil {
		_, err = tx.Exec(ctx, "alter table ledger_parts rename to ledger_parts_held")
	}
	return err
}

func unshut(ctx context.Context, tx *store.Tx) error {
	_, err := tx.Exec(ctx, "alter table ledger_rows_held rename to ledger_rows")
	if err == nil {
		_, err = tx.Exec(ctx, "alter table ledger_parts_held rename to ledger_parts")
	}
	return err
}

// alone takes the tables so that nobody else reads or writes them until the
// transaction ends; on SQLite it has the database by itself. Its error matches
// [ledger.ErrInUse] while another session of this program is connected.
func alone(ctx context.Context, tx *store.Tx) error {
	if tx.Kind() != store.Postgres {
		return nil
	}
	var others int64
	_, err := tx.One(ctx, `select count(*) from pg_stat_activity
		where datname = current_database() and application_name = current_setting('application_name') and pid <> pg_backend_pid()`, nil, &others)
	if err != nil {
		return err
	}
	if others > 0 {
		return &ShutError{
			Kind: ledger.ErrInUse, Why: fmt.Sprintf("%d other connections of this program are open", others),
			Mend: "stop every `fencepost serve` of this database first",
		}
	}
	// Readers too: what read a row before may still change it.
	_, err = tx.Exec(ctx, "lock table ledger_rows, ledger_parts in access exclusive mode")
	return err
}

// A root is what a ledger was made with.
type root struct {
	uuid                           string
	lease, capacity, signed, queue int64
	parts                          int64
}

// getRoot reads the root; found is false if there is no ledger.
func getRoot(ctx context.Context, tx *store.Tx) (r root, found bool, err error) {
	found, err = tx.One(ctx, "select uuid, lease_ns, capacity, signed_age_ns, queue_age_ns, parts from ledger_root where id = 1",
		nil, &r.uuid, &r.lease, &r.capacity, &r.signed, &r.queue, &r.parts)
	return r, found, err
}

// errNoLedger: nobody has made a ledger in the database.
var errNoLedger = errors.New("there is no ledger in the database; `fencepost serve` makes one")
