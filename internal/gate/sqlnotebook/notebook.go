package sqlnotebook

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/store"
)

// buckets is how many parts notes and heads are spread over.
const buckets = 64

// Limits bound a [Notebook]. The zero value of a field is its default.
type Limits struct {
	// Notes and Heads are how many rows one of the 64 buckets of that kind
	// holds; default 256 each.
	Notes, Heads int
}

// A transaction is [store.DB.Write] or [store.DB.Read].
type transaction func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error

// A Notebook is the notes of one database. It is safe for concurrent use, also
// by several processes. Its errors have a [fencepost.Reason]; after an error
// that is the database's, the change may have been made.
type Notebook struct {
	limits struct{ notes, heads int64 }
	// write and read are the database's; tests let them lose answers.
	write, read transaction
}

var (
	_ gate.Notes     = (*Notebook)(nil)
	_ gate.Standings = (*Notebook)(nil)
)

// Open opens the notebook of a PostgreSQL database. Its error matches
// [fencepost.ErrMalformed] or [store.ErrVolatile], or is one of the
// database's.
func Open(ctx context.Context, db *store.DB, limits Limits) (*Notebook, error) {
	if db.Kind() != store.Postgres {
		return nil, fmt.Errorf("open notebook: need PostgreSQL: %w", fencepost.ErrMalformed)
	}
	if err := db.CheckDurable(ctx); err != nil {
		return nil, fmt.Errorf("open notebook: %w", err)
	}
	n := &Notebook{write: db.Write, read: db.Read}
	n.limits.notes, n.limits.heads = orDefault(limits.Notes), orDefault(limits.Heads)
	return n, nil
}

func orDefault(n int) int64 {
	if n <= 0 {
		return 256
	}
	return int64(n)
}

func corrupt(what string) error {
	return &fencepost.Error{Op: "notebook.read", Reason: fencepost.ReasonCorrupt, Err: errors.New(what)}
}
