package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/internal/store"
)

// A table is the rows' table and the one with their state.
//
// docs/formats.md shows both.
type table struct {
	name, fence string
	source      string
	text        bool
	bare        bool // without content
}

func newTable(o RowsOptions) table {
	return table{name: o.Table, fence: o.Table + "_fence", source: o.Source.String(), text: o.Text, bare: o.NoContent}
}

// A column is one that a table must have.
type column struct {
	name, kind string
	// rest of its definition.
	rest string
}

func (t table) rowColumns(k store.Kind) []column {
	content := "text"
	if !t.text || t.bare {
		content = "blob"
		if k == store.Postgres {
			content = "bytea"
		}
	}
	return []column{
		{"path", "text", "not null primary key"},
		{"mode", "text", "not null"},
		{"digest", "text", "not null"},
		{"bytes", "bigint", "not null"},
		{"content", content, ""},
		{"commit_id", "text", "not null"},
		{"deleted_at", "bigint", ""},
	}
}

func (t table) fenceColumns() []column {
	return []column{
		{"id", "bigint", "not null primary key check (id = 1)"},
		{"source", "text", "not null"},
		{"fence", "bigint", "not null"},
		{"revision", "text", "not null"},
		{"commit_id", "text", "not null"},
		{"tree_id", "text", "not null"},
		{"content", "text", "not null"},
		{"applied_at", "bigint", "not null"},
	}
}

// create is the statement that makes a table.
func create(name string, columns []column) string {
	lines := make([]string, len(columns))
	for i, c := range columns {
		lines[i] = strings.TrimSpace("  " + c.name + " " + c.kind + " " + c.rest)
	}
	return "create table " + name + " (\n  " + strings.Join(lines, ",\n  ") + "\n)"
}

// ensureTries is how often it is tried to make the tables, while other
// processes may be making them.
const ensureTries = 3

// ensure makes the tables that are missing, and holds those that are there
// against what is needed. Its error matches [ErrPlace], or is the database's.
func (t table) ensure(ctx context.Context, db *store.DB) error {
	var err error
	for range ensureTries {
		err = db.Write(ctx, "prepare tables", func(ctx context.Context, tx *store.Tx) error {
			return t.ensureIn(ctx, tx)
		})
		if !errors.Is(err, store.ErrDuplicate) && !hasCode(err, "42P07") {
			break
		}
	}
	if err == nil {
		err = db.Write(ctx, "try tables", func(ctx context.Context, tx *store.Tx) error { return t.try(ctx, tx) })
		if errors.Is(err, errTried) {
			return nil
		}
	}
	return t.unfit(db.Kind(), err)
}

func (t table) ensureIn(ctx context.Context, tx *store.Tx) error {
	for name, columns := range map[string][]column{t.name: t.rowColumns(tx.Kind()), t.fence: t.fenceColumns()} {
		have, err := t.columns(ctx, tx, name)
		if err != nil {
			return err
		}
		if len(have) == 0 {
			if _, err := tx.Exec(ctx, create(name, columns)); err != nil {
				return err
			}
			continue
		}
		for _, c := range columns {
			if kind, ok := have[c.name]; !ok || kind != c.kind {
				return errShape
			}
		}
	}
	first := "insert into " + t.fence + " (id, source, fence, revision, commit_id, tree_id, content, applied_at) values (1, ?, 0, '', '', '', '', 0) on conflict (id) do nothing"
	if _, err := tx.Exec(ctx, first, t.source); err != nil {
		return err
	}
	var owner string
	found, err := tx.One(ctx, "select source from "+t.fence+" where id = 1", nil, &owner)
	switch {
	case err != nil:
		return err
	case !found:
		return errShape
	case owner != t.source:
		return errForeign
	}
	return nil
}

// columns returns the columns of a table with their types in lower case, none
// if there is no such table.
func (t table) columns(ctx context.Context, tx *store.Tx, name string) (map[string]string, error) {
	query := "select name, type from pragma_table_info(?)"
	if tx.Kind() == store.Postgres {
		query = "select attname::text, format_type(atttypid, atttypmod) from pg_attribute " +
			"where attrelid = to_regclass(?::text) and attnum > 0 and not attisdropped"
	}
	have := map[string]string{}
	err := tx.Each(ctx, query, []any{name}, func(scan func(...any) error) error {
		var column, kind string
		if err := scan(&column, &kind); err != nil {
			return err
		}
		have[column] = strings.ToLower(kind)
		return nil
	})
	return have, err
}

var (
	// errTried ends a trial whose changes are not wanted.
	errTried = errors.New("tried")
	// errShape: a table is not as it is needed.
	errShape = errors.New("the table has another shape")
)

// try does what an application does, for a path that no file has. What further
// columns, constraints, triggers and rights of the table refuse is found out
// now.
func (t table) try(ctx context.Context, tx *store.Tx) error {
	row := rowFile{digest: strings.Repeat("0", 64)}
	var content any
	if !t.bare {
		content = []byte{}
		if t.text {
			content = ""
		}
	}
	for range 2 { // made, and then changed
		if _, err := tx.Exec(ctx, t.upsert(1), t.values(row, content, "")...); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, t.softDelete(1), ""); err != nil {
		return err
	}
	return errTried
}

// hasCode reports whether the database answered with a code that begins so.
func hasCode(err error, prefix string) bool {
	f, ok := errors.AsType[*store.Fault](err)
	return ok && strings.HasPrefix(f.Code, prefix)
}

// unfit turns what the database says of the tables into what to do.
func (t table) unfit(k store.Kind, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForeign):
		return unfit(err, "the sink's table belongs to another source",
			"give each source a table of its own; if the other source is no more, drop the table and its _fence table")
	case errors.Is(err, errShape), errors.Is(err, store.ErrConstraint), hasCode(err, "42"), hasCode(err, "0A"), k == store.SQLite && hasCode(err, "1"):
		return unfit(err, "the sink's table can't be used as it is",
			"name another table, or give the user the rights to make it, or make it so: "+t.definition(k))
	}
	return err
}

// definition is what an administrator may run.
func (t table) definition(k store.Kind) string {
	text := fmt.Sprintf("%s; %s;", create(t.name, t.rowColumns(k)), create(t.fence, t.fenceColumns()))
	return strings.Join(strings.Fields(text), " ")
}

// upsert is the statement that puts that many rows.
func (t table) upsert(rows int) string {
	values := "(?, ?, ?, ?, ?, ?, null)"
	return "insert into " + t.name + " (path, mode, digest, bytes, content, commit_id, deleted_at) values " +
		values + strings.Repeat(", "+values, rows-1) +
		" on conflict (path) do update set mode = excluded.mode, digest = excluded.digest, bytes = excluded.bytes," +
		" content = excluded.content, commit_id = excluded.commit_id, deleted_at = null"
}

// values are the arguments of one row of an upsert.
func (t table) values(f rowFile, content any, commit string) []any {
	return []any{f.path, f.Mode.String(), f.digest, f.Size, content, commit}
}

// softDelete is the statement that marks that many rows.
func (t table) softDelete(rows int) string {
	return "update " + t.name + " set deleted_at = {now} where deleted_at is null and path in (?" + strings.Repeat(", ?", rows-1) + ")"
}
