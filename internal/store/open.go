package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A DB is an open database. It is safe for concurrent use.
type DB struct {
	kind Kind
	opts Options
	// writer and reader are the same pool on PostgreSQL.
	writer, reader *sql.DB
	// statements holds each query's [statement].
	statements sync.Map
	// postgres is how a connection is made; nil on SQLite.
	postgres *pgx.ConnConfig
	poisoned atomic.Bool
}

// Open opens a database and, unless it is another's or foreign, brings its
// schema up to date; two processes may do so at once. It does not wait for a server that is
// away. Its errors match [fencepost.ErrMalformed], [ErrNewerSchema] or
// [ErrOlderSchema], or are those of [DB.Write].
func Open(ctx context.Context, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &DB{kind: Postgres, opts: o}
	if o.Path != "" {
		d.kind = SQLite
		err = d.openSQLite()
	} else {
		err = d.openPostgres()
	}
	if err != nil {
		return nil, err
	}
	if o.Foreign {
		return d, nil
	}
	if err := d.migrate(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes all connections. What is under way ends with an error.
func (d *DB) Close() error {
	err := d.writer.Close()
	if d.reader != d.writer {
		err = errors.Join(d.reader.Close(), err)
	}
	if err != nil {
		return opened("close: %w", fault(err))
	}
	return nil
}

// Check is nil while the database may be written, and matches [ErrPoisoned]
// once a sync has failed: then it never may again.
func (d *DB) Check() error {
	if d.poisoned.Load() {
		return &Fault{Class: ErrPoisoned}
	}
	return nil
}

// Kind says which database it is.
func (d *DB) Kind() Kind { return d.kind }

// Writer is the pool for what changes rows. On SQLite it has one connection,
// whose transactions hold the write lock from their beginning: whoever has one
// open must not ask for another.
func (d *DB) Writer() *sql.DB { return d.writer }

// Reader is the pool for what only reads.
func (d *DB) Reader() *sql.DB { return d.reader }

// Now is the store's clock, in whole microseconds.
func (d *DB) Now(ctx context.Context) (time.Time, error) {
	if d.kind == SQLite {
		return FromMicros(Micros(d.opts.Now())), nil
	}
	var us int64
	err := d.Read(ctx, "read clock", func(ctx context.Context, tx *Tx) error {
		_, err := tx.One(ctx, "select {now}", nil, &us)
		return err
	})
	return FromMicros(us), err
}
