package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

// A Tx is a transaction. It is not safe for concurrent use, and means nothing
// after the function that it was given to has returned.
type Tx struct {
	db  *DB
	raw *sql.Tx
}

// Raw is the transaction for code that brings its own queries, such as a job
// queue's. It must neither commit nor roll back.
func (t *Tx) Raw() *sql.Tx { return t.raw }

// Kind says which database it is.
func (t *Tx) Kind() Kind { return t.db.kind }

// Exec runs a query and returns how many rows it changed. Its error is a
// [*Fault].
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	query, args = t.db.bind(query, args)
	result, err := t.raw.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fault(err)
	}
	n, err := result.RowsAffected()
	return n, fault(err)
}

// One scans the first row of a query into dest, and reports whether there was
// one. Its error is a [*Fault].
func (t *Tx) One(ctx context.Context, query string, args []any, dest ...any) (found bool, err error) {
	err = t.Each(ctx, query, args, func(scan func(...any) error) error {
		if found {
			return nil
		}
		found = true
		return scan(dest...)
	})
	return found && err == nil, err
}

// Each calls row for each row of a query, which scans it by its argument. An
// error of row ends it and is returned as it is; other errors are [*Fault]s.
func (t *Tx) Each(ctx context.Context, query string, args []any, row func(scan func(...any) error) error) error {
	query, args = t.db.bind(query, args)
	rows, err := t.raw.QueryContext(ctx, query, args...)
	if err != nil {
		return fault(err)
	}
	defer rows.Close()
	scan := func(dest ...any) error { return fault(rows.Scan(dest...)) }
	for rows.Next() {
		if err := row(scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fault(err)
	}
	return fault(rows.Close())
}

// errWait is the cause of the end of what took longer than [Options.Wait].
var errWait = errors.New("took longer than the database may take")

// Write runs fn in a transaction that stores all that fn did, or nothing: if
// Write returns nil, it is on stable storage. An error of fn that matches
// [ErrBusy] means that fn was defeated by others' changes: it is called again,
// in a new transaction, a bounded number of times; so is one whose transaction
// was. Other errors of fn are returned as they are, but for a reason that they
// get if they are of the database. A failure to commit matches
// [ErrUnknownOutcome] unless the database said that it stored nothing; it is
// not tried again.
func (d *DB) Write(ctx context.Context, op string, fn func(context.Context, *Tx) error) error {
	return d.run(ctx, op, d.writer, &sql.TxOptions{}, fn)
}

// Read runs fn in a transaction that sees one state of the database. Its
// errors are those of [DB.Write].
func (d *DB) Read(ctx context.Context, op string, fn func(context.Context, *Tx) error) error {
	o := &sql.TxOptions{ReadOnly: true}
	if d.kind == Postgres {
		o.Isolation = sql.LevelRepeatableRead
	}
	return d.run(ctx, op, d.reader, o, fn)
}

func (d *DB) run(ctx context.Context, op string, pool *sql.DB, o *sql.TxOptions, fn func(context.Context, *Tx) error) error {
	return d.again(ctx, op, func(ctx context.Context) error { return d.once(ctx, pool, o, fn) })
}

// again does what others' changes may defeat, within the time of one
// transaction.
func (d *DB) again(ctx context.Context, op string, once func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.opts.Wait, errWait)
	defer cancel()
	var err error
	for try := 1; ; try++ {
		err = once(ctx)
		if err == nil || !errors.Is(err, ErrBusy) || errors.Is(err, ErrUnknownOutcome) || try >= d.opts.Tries || !pause(ctx, try) {
			break
		}
	}
	if f, ok := errors.AsType[*Fault](err); ok && f.Class == context.DeadlineExceeded && context.Cause(ctx) == errWait {
		err = &Fault{Class: ErrUnavailable, Code: errWait.Error(), Unknown: f.Unknown}
	}
	return reasoned(op, err)
}

// pause waits before a further try, longer each time, and reports whether
// there may be one.
func pause(ctx context.Context, try int) bool {
	longest := time.Millisecond << min(try, 7)
	timer := time.NewTimer(rand.N(longest))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (d *DB) once(ctx context.Context, pool *sql.DB, o *sql.TxOptions, fn func(context.Context, *Tx) error) error {
	if !o.ReadOnly && d.poisoned.Load() {
		return &Fault{Class: ErrPoisoned}
	}
	ctx, wait := watched(ctx)
	raw, err := pool.BeginTx(ctx, o)
	if err != nil {
		return d.noticed(fault(err))
	}
	defer func() {
		// After a commit there is nothing to undo, and after a lost connection
		// the server does it.
		_ = raw.Rollback()
	}()
	if err := fn(ctx, &Tx{db: d, raw: raw}); err != nil {
		return d.noticed(err)
	}
	if o.ReadOnly {
		return nil
	}
	return d.noticed(wait.sure(committed(raw.Commit())))
}

// noticed remembers a failed sync.
func (d *DB) noticed(err error) error {
	if errors.Is(err, ErrPoisoned) {
		d.poisoned.Store(true)
	}
	return err
}

// committed sorts the error of a commit: only an answer of the database itself
// says that nothing was stored.
func committed(err error) error {
	if err == nil {
		return nil
	}
	f := *fault(err).(*Fault)
	f.Unknown = f.Class != ErrBusy && f.Class != ErrFull && !errors.Is(&f, ErrConstraint)
	return &f
}
