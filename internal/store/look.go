package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A script is one migration.
type script struct {
	version int64
	// tables are those that it makes, others what else it makes that has a name.
	tables, others []string
}

// makes finds what a migration makes, in the one way in which they write it.
var makes = regexp.MustCompile(`(?m)^create (?:unique )?(table|index|function|trigger|view) (\w+)`)

// scripts lists the migrations, which are numbered by their names' first
// digits.
func (k Kind) scripts() ([]script, error) {
	dir := "migrations/" + k.String()
	files, err := fs.ReadDir(migrations, dir)
	if err != nil {
		return nil, err
	}
	var all []script
	for _, f := range files {
		text, err := fs.ReadFile(migrations, path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		digits, _, _ := strings.Cut(f.Name(), "_")
		s := script{}
		if s.version, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return nil, err
		}
		for _, m := range makes.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "table" {
				s.tables = append(s.tables, m[2])
			} else {
				s.others = append(s.others, m[2])
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// bookkeeping are the tables that say which migrations there were, and the
// columns by which they are told from somebody else's.
var bookkeeping = map[string][]string{
	steps:    {"version"},
	versions: {"id", "is_applied", "tstamp", "version_id"},
}

// held is what the names of a ledger's tables end in while it is elsewhere.
const held = "_held"

// look reads which migration was stored last, 0 for none, and changes nothing.
// Its error matches [ErrForeignSchema] if there is something of our names that
// neither this program nor a later version made, and [ErrCorrupt] if a table of
// ours is gone.
func (d *DB) look(ctx context.Context, scripts []script) (version int64, err error) {
	err = d.survey(ctx, func(ctx context.Context, tx *Tx) (err error) {
		version, err = d.lookIn(ctx, tx, scripts)
		return err
	})
	return version, err
}

func (d *DB) lookIn(ctx context.Context, tx *Tx, scripts []script) (version int64, err error) {
	there, columns, err := d.names(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, table := range []string{steps, versions} {
		slices.Sort(columns[table])
		if there[table] && !slices.Equal(columns[table], bookkeeping[table]) {
			return 0, foreignName(table)
		}
	}
	var stepped int64
	switch {
	case there[versions] && !there[steps]:
		return 0, foreignName(versions)
	case there[versions]:
		const both = "select coalesce((select max(version_id) from " + versions + "), 0), coalesce((select max(version) from " + steps + "), 0)"
		_, err = tx.One(ctx, both, nil, &version, &stepped)
	case there[steps]:
		_, err = tx.One(ctx, "select coalesce(max(version), 0) from "+steps, nil, &stepped)
	}
	if err != nil {
		return 0, err
	}
	// A migration stores its step and its version together.
	if stepped != version {
		return 0, foreignName(versions)
	}
	return version, whole(there, scripts, version)
}

// whole holds what is there to what the version has.
func whole(there map[string]bool, scripts []script, version int64) error {
	newest := scripts[len(scripts)-1].version
	for _, s := range scripts {
		if s.version > version {
			for _, name := range slices.Concat(s.tables, s.others) {
				if there[name] || there[name+held] {
					return foreignName(name)
				}
			}
			continue
		}
		for _, name := range s.tables {
			// What a later version has made of them is its own affair.
			if version <= newest && !there[name] && !there[name+held] {
				return opened("the table %s is gone: %w", name, &Fault{Class: ErrCorrupt})
			}
		}
	}
	return nil
}

func foreignName(name string) error {
	return opened("there is a %s that is somebody else's: %w", name, ErrForeignSchema)
}

// names are all that the schema has, of whatever kind, as a type is in the way
// of a table, too; and the columns of the tables of our bookkeeping.
func (d *DB) names(ctx context.Context, tx *Tx) (there map[string]bool, columns map[string][]string, err error) {
	query := `select lower(name), '' from sqlite_schema
		union all select lower(s.name), c.name from sqlite_schema s, pragma_table_info(s.name) c where s.type = 'table' and lower(s.name) in (?, ?)`
	if d.kind == Postgres {
		// The schema is asked for once, not for each name of the server's own.
		query = `with here as materialized (select current_schema()::regnamespace as oid)
			select relname::text, '' from pg_class where relnamespace = (select oid from here)
			union all select typname::text, '' from pg_type where typnamespace = (select oid from here)
			union all select proname::text, '' from pg_proc where pronamespace = (select oid from here)
			union all select c.relname::text, a.attname::text from pg_class c join pg_attribute a on c.oid = a.attrelid and a.attnum > 0 and not a.attisdropped
				where c.relnamespace = (select oid from here) and c.relkind = 'r' and c.relname in (?, ?)`
	}
	there, columns = map[string]bool{}, map[string][]string{}
	err = tx.Each(ctx, query, []any{steps, versions}, func(scan func(...any) error) error {
		var name, column string
		err := scan(&name, &column)
		there[name] = true
		if column != "" {
			columns[name] = append(columns[name], column)
		}
		return err
	})
	return there, columns, err
}

// mayMigrate refuses a user who would have to stop half-way. Its error matches
// [ErrDenied]. A SQLite file that can't be written refuses the first change.
func (d *DB) mayMigrate(ctx context.Context, scripts []script) error {
	if d.kind != Postgres {
		return nil
	}
	ours := []string{steps, versions}
	for _, s := range scripts {
		ours = append(ours, s.tables...)
	}
	return d.Read(ctx, "open database", func(ctx context.Context, tx *Tx) error {
		var schema, create bool
		_, err := tx.One(ctx, "select current_schema() is not null, coalesce(has_schema_privilege(current_schema(), 'create'), false)", nil, &schema, &create)
		if err != nil {
			return err
		}
		if !schema {
			return opened("the search path names no schema that is there: %w", &Fault{Class: ErrDenied})
		}
		if !create {
			return opened("its user may make nothing in the schema: %w", &Fault{Class: ErrDenied})
		}
		return tx.Each(ctx, `select relname::text from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r'
				and not pg_has_role(relowner, 'usage') order by 1`, nil, func(scan func(...any) error) error {
			var name string
			if err := scan(&name); err != nil || !slices.Contains(ours, name) {
				return err
			}
			return opened("%s is another user's, and only its owner may alter it: %w", name, &Fault{Class: ErrDenied})
		})
	})
}

// survey runs fn in a transaction that reads. On SQLite it has a connection of
// its own, which asks for none of the settings that would change the file.
func (d *DB) survey(ctx context.Context, fn func(context.Context, *Tx) error) error {
	const op = "read the schema"
	if d.kind == Postgres {
		return d.Read(ctx, op, fn)
	}
	once := func(pool *sql.DB) error {
		err := d.run(ctx, op, pool, &sql.TxOptions{ReadOnly: true}, fn)
		return errors.Join(err, fault(pool.Close()))
	}
	pool, err := d.surveyor(true)
	if err != nil {
		return err
	}
	err = once(pool)
	if f, ok := errors.AsType[*Fault](err); ok && slices.Contains(interrupted, f.Code) {
		// A process was killed in a change, which whoever opens the file next
		// has to undo.
		if pool, err = d.surveyor(false); err == nil {
			err = once(pool)
		}
	}
	return err
}
