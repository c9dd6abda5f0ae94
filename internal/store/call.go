package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Call runs one query that is a transaction by itself, scans its first row
// into dest, and reports whether there was one: on PostgreSQL that is one
// round trip. If it returns nil, what the query did is on stable storage. A
// query that others' changes defeat is tried again, as by [DB.Write]; its
// errors are those of Write.
func (d *DB) Call(ctx context.Context, op, query string, args []any, dest ...any) (found bool, err error) {
	text, args := d.bind(query, args)
	err = d.again(ctx, op, func(ctx context.Context) error {
		if d.poisoned.Load() {
			return &Fault{Class: ErrPoisoned}
		}
		ctx, wait := watched(ctx)
		found, err = one(ctx, d.writer, text, args, dest)
		return d.noticed(wait.sure(called(err)))
	})
	return found && err == nil, err
}

// Ask runs one query that changes nothing, but for [Confirm], as [DB.Call]
// does.
func (d *DB) Ask(ctx context.Context, op, query string, args []any, dest ...any) (found bool, err error) {
	text, args := d.bind(query, args)
	err = d.again(ctx, op, func(ctx context.Context) error {
		ctx, wait := watched(ctx)
		found, err = one(ctx, d.reader, text, args, dest)
		return d.noticed(wait.sure(fault(err)))
	})
	return found && err == nil, err
}

// one runs a query to its very end, where the commit is: a row that was read
// may yet not be stored.
func one(ctx context.Context, pool *sql.DB, text string, args, dest []any) (found bool, err error) {
	rows, err := pool.QueryContext(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if found {
			continue
		}
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
		found = true
	}
	return found, rows.Err()
}

// called sorts the error of a query that commits itself. What never reached
// the server was not stored; for the rest it is as with a commit.
func called(err error) error {
	if err == nil {
		return nil
	}
	_, dial := errors.AsType[*pgconn.ConnectError](err)
	if dial || pgconn.SafeToRetry(err) || errors.Is(err, sql.ErrConnDone) {
		return fault(err)
	}
	return committed(err)
}
