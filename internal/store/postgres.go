package store

import (
	"context"
	"slices"
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
	config.Tracer, config.OnNotice = watcher{}, warned
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

// A Setting is one of a PostgreSQL server under which its answers are not
// durable.
type Setting struct {
	// Name is the server's for it, Value what it is, and Mend what to do.
	Name, Value, Mend string
	// Server: it is the whole server's, and a trial may do without it.
	Server bool
}

// durableSettings are those that must have one of these values for answers to
// be kept.
var durableSettings = []struct {
	Setting
	good []string
}{
	{Setting{
		Name: "fsync", Server: true,
		Mend: "what it has stored is lost or damaged when its machine stops; set fsync = on in postgresql.conf and reload",
	}, []string{"on"}},
	{Setting{
		Name: "full_page_writes", Server: true,
		Mend: "a page that is torn when its machine stops can't be repaired; set full_page_writes = on in postgresql.conf and reload",
	}, []string{"on"}},
	{Setting{
		Name: "synchronous_commit",
		Mend: "it answers before a commit is on stable storage, here and on its synchronous standbys; leave synchronous_commit out of the connection string",
	}, []string{"on", "remote_apply"}},
}

// Undurable are the settings under which a PostgreSQL server's answers are not
// durable; none on SQLite. Its errors are those of [DB.Read].
func (d *DB) Undurable(ctx context.Context, op string) (bad []Setting, err error) {
	if d.kind != Postgres {
		return nil, nil
	}
	err = d.Read(ctx, op, func(ctx context.Context, tx *Tx) error {
		bad, err = tx.Undurable(ctx)
		return err
	})
	return bad, err
}

// Undurable is [DB.Undurable] in a transaction. Its error is a [*Fault].
func (t *Tx) Undurable(ctx context.Context) (bad []Setting, err error) {
	if t.Kind() != Postgres {
		return nil, nil
	}
	for _, s := range durableSettings {
		if _, err := t.One(ctx, "select current_setting(?)", []any{s.Name}, &s.Value); err != nil {
			return nil, err
		}
		if !slices.Contains(s.good, s.Value) {
			bad = append(bad, s.Setting)
		}
	}
	return bad, nil
}

// CheckDurable refuses a PostgreSQL that answers a commit before it is on
// stable storage, here and on its synchronous standbys. Its error matches
// [ErrVolatile], or is one of [DB.Read].
func (d *DB) CheckDurable(ctx context.Context) error {
	const op = "check the database"
	bad, err := d.Undurable(ctx, op)
	for _, s := range bad {
		if !s.Server {
			return reasoned(op, &Fault{Class: ErrVolatile})
		}
	}
	return err
}
