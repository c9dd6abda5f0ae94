package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pressly/goose/v3"
)

// Errors of [Open] about the schema.
var (
	// ErrNewerSchema: a later version of this program has changed the schema.
	ErrNewerSchema = errors.New("the database's schema is of a later version of this program; run that one")
	// ErrForeignSchema: there are tables of our names that somebody else made.
	ErrForeignSchema = errors.New("the schema has tables of these names that this program did not make; give it a database or schema of its own")
	// ErrOlderSchema: the schema is older, and it is not this process's to
	// migrate.
	ErrOlderSchema = errors.New("the database's schema is older than this program; start the server of this version first")
)

//go:embed migrations
var migrations embed.FS

// versions is where goose writes down which migrations there were.
const versions = "schema_versions"

// migrateTries is how often a migration is tried that another process may have
// made meanwhile.
const migrateTries = 8

// migrate brings the schema up to date, each migration in a transaction of its
// own. What keeps two processes apart is in the database, and the same in
// both: a migration's first statement inserts its number into schema_steps. A
// second process waits there for the first one's transaction, is refused by
// the primary key if that was stored, and takes its place if it was not.
func (d *DB) migrate(ctx context.Context) error {
	scripts, err := fs.Sub(migrations, "migrations/"+d.kind.String())
	if err != nil {
		return opened("%w", err)
	}
	provider, err := goose.NewProvider(d.gooseDialect(), d.writer, scripts,
		goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return opened("read migrations: %w", err)
	}
	sources := provider.ListSources()
	target := sources[len(sources)-1].Version
	for try := 1; ; try++ {
		err = d.migrateOnce(ctx, provider, target)
		if err == nil || !tryAgain(err) || try >= migrateTries || !pause(ctx, try+2) {
			return reasoned("open database", foreign(err))
		}
	}
}

// foreign names what explains that a table is there which was to be made, when
// no other process can have made it any more.
func foreign(err error) error {
	if f, ok := errors.AsType[*Fault](err); ok && slices.Contains([]string{"42P07", "42710", "1"}, f.Code) {
		return fmt.Errorf("%w: %w", ErrForeignSchema, err)
	}
	return err
}

// tryAgain says whether another process at the same work explains err.
func tryAgain(err error) bool {
	f, ok := errors.AsType[*Fault](err)
	if !ok {
		return false
	}
	// There is such a table already, or its type; on SQLite this has only the
	// general code.
	return f.Class == ErrBusy || f.Class == ErrDuplicate || slices.Contains([]string{"42P07", "42710", "1"}, f.Code)
}

func (d *DB) migrateOnce(ctx context.Context, provider *goose.Provider, target int64) error {
	at, err := d.schemaVersion(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read the schema's version: %w", err)
	case at > target:
		return opened("version %d, and %d is known: %w", at, target, ErrNewerSchema)
	case at == target:
		return nil
	case d.opts.Existing:
		return opened("version %d, not %d: %w", at, target, ErrOlderSchema)
	}
	if _, err := d.writer.ExecContext(ctx, "create table if not exists schema_steps (version bigint primary key)"); err != nil {
		return fmt.Errorf("migrate: %w", fault(err))
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate from version %d: %w", at, fault(err))
	}
	at, err = d.schemaVersion(ctx)
	if err == nil && at != target {
		err = &Fault{Class: ErrBusy}
	}
	return err
}

// schemaVersion is the newest migration that was stored; 0 for none.
func (d *DB) schemaVersion(ctx context.Context) (version int64, err error) {
	err = d.Read(ctx, "read the schema's version", func(ctx context.Context, tx *Tx) error {
		version = 0
		query := "select count(*) from sqlite_schema where type = 'table' and name = ?"
		if d.kind == Postgres {
			query = "select count(*) from pg_tables where schemaname = current_schema() and tablename = ?"
		}
		var n int64
		if _, err := tx.One(ctx, query, []any{versions}, &n); err != nil || n == 0 {
			return err
		}
		_, err := tx.One(ctx, "select coalesce(max(version_id), 0) from "+versions, nil, &version)
		return err
	})
	return version, err
}

func (d *DB) gooseDialect() goose.Dialect {
	if d.kind == Postgres {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

// Exclusive runs fn in a transaction that no other of the same name runs
// beside, in any process: a row of the name is changed first, which the others
// wait for. It is for the migrations of libraries that bring their own schema.
// Its errors are those of [DB.Write].
func (d *DB) Exclusive(ctx context.Context, name string, fn func(context.Context, *Tx) error) error {
	return d.Write(ctx, name, func(ctx context.Context, tx *Tx) error {
		const take = `insert into schema_turns (name, turns) values (?, 1)
			on conflict (name) do update set turns = schema_turns.turns + 1`
		if _, err := tx.Exec(ctx, take, name); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}
