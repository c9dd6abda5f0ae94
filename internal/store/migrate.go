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
	// ErrNoSchema: there is nothing of ours, and it is not this process's to
	// make it. It comes with [ErrOlderSchema].
	ErrNoSchema error = noSchema{}
)

type noSchema struct{}

func (noSchema) Error() string {
	return "the database has nothing of this program; name the one that has, or start `fencepost serve`, which makes it"
}

func (noSchema) Is(target error) bool { return target == ErrOlderSchema }

//go:embed migrations
var migrations embed.FS

// versions is where goose writes down which migrations there were, and steps
// where a migration itself does.
const versions, steps = "schema_versions", "schema_steps"

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
	known, err := d.kind.scripts()
	if err != nil {
		return opened("read migrations: %w", err)
	}
	for try := 1; ; try++ {
		err = d.migrateOnce(ctx, provider, known)
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

// migrateOnce looks at all that may refuse the database before its first
// change.
func (d *DB) migrateOnce(ctx context.Context, provider *goose.Provider, known []script) error {
	target := known[len(known)-1].version
	at, err := d.look(ctx, known)
	switch {
	case err != nil:
		return err
	case at > target:
		return opened("version %d, and %d is known: %w", at, target, ErrNewerSchema)
	case at == target:
		return nil
	case d.opts.Existing && at == 0:
		return opened("%w", ErrNoSchema)
	case d.opts.Existing:
		return opened("version %d, not %d: %w", at, target, ErrOlderSchema)
	}
	if err := d.mayMigrate(ctx, known); err != nil {
		return err
	}
	if d.opts.Before != nil {
		if err := d.survey(ctx, func(ctx context.Context, tx *Tx) error { return d.opts.Before(ctx, tx, at) }); err != nil {
			return err
		}
	}
	if _, err := d.writer.ExecContext(ctx, "create table if not exists "+steps+" (version bigint primary key)"); err != nil {
		return fmt.Errorf("migrate: %w", fault(err))
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate from version %d: %w", at, fault(err))
	}
	at, err = d.look(ctx, known)
	if err == nil && at != target {
		err = &Fault{Class: ErrBusy}
	}
	return err
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
