package store

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost/fencepost"
)

// idleConnection is how long a connection of PostgreSQL stays unused.
const idleConnection = 5 * time.Minute

// longestConnect bounds the wait for a connection's start.
const longestConnect = time.Minute

// openPostgres makes the pool. Each setting is sent with each connection's
// start.
func (d *DB) openPostgres() error {
	config, err := pgx.ParseConfig(d.opts.URL)
	if err != nil {
		// What can't be parsed can't be told from a password either.
		return opened("not a connection string of PostgreSQL (postgres://…): %w", fencepost.ErrMalformed)
	}
	wait := strconv.FormatInt(d.opts.Wait.Milliseconds(), 10)
	for name, value := range map[string]string{
		"application_name": "fencepost", "timezone": "UTC",
		// The server gives up, also when we can't tell it to: a process that is
		// cut off must not hold rows.
		"statement_timeout": wait, "lock_timeout": wait, "idle_in_transaction_session_timeout": wait,
	} {
		if _, set := config.RuntimeParams[name]; !set {
			config.RuntimeParams[name] = value
		}
	}
	// A long wait is for long work, not for a server that is away.
	if longest := min(d.opts.Wait, longestConnect); config.ConnectTimeout == 0 || config.ConnectTimeout > longest {
		config.ConnectTimeout = longest
	}
	d.postgres = config
	d.writer = stdlib.OpenDB(*config, stdlib.OptionAfterConnect(raiseDurability))
	d.writer.SetMaxOpenConns(d.opts.Connections)
	d.writer.SetMaxIdleConns(d.opts.Connections)
	d.writer.SetConnMaxIdleTime(idleConnection)
	d.reader = d.writer
	return nil
}

// raiseDurability makes a session wait for stable storage, here and on
// synchronous standbys, where its user, database or server would not: what is
// stronger stays. What the connection string itself says is the session's
// source, and is left for whoever opens the database to refuse.
func raiseDurability(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `select set_config('synchronous_commit', 'on', false) from pg_settings
		where name = 'synchronous_commit' and source <> 'client' and setting in ('off', 'local', 'remote_write')`)
	return err
}

// CheckDurable refuses a PostgreSQL that answers a commit before it is on
// stable storage, here and on its synchronous standbys. Its error matches
// [ErrVolatile], or is one of [DB.Read].
func (d *DB) CheckDurable(ctx context.Context) error {
	if d.kind != Postgres {
		return nil
	}
	const op = "check the database"
	var mode string
	err := d.Read(ctx, op, func(ctx context.Context, tx *Tx) error {
		_, err := tx.One(ctx, "select current_setting('synchronous_commit')", nil, &mode)
		return err
	})
	if err == nil && mode != "on" && mode != "remote_apply" {
		err = reasoned(op, &Fault{Class: ErrVolatile})
	}
	return err
}
