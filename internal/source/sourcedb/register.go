package sourcedb

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

const (
	selectRegistered = `select id, key, revision, enabled, version from sources`

	// Another process may register the same sources at the same time.
	insertSources     = `insert into sources (id, key, revision, enabled, version, registered_at, next_check) values `
	newSource         = `(?, ?, '', 0, 1, {now}, {now})`
	insertSourcesTail = ` on conflict (id) do nothing`
	insertLocks       = `insert into source_locks (source) values `
	insertLocksTail   = ` on conflict (source) do nothing`

	renameSource = `update sources set key = ?, version = version + 1 where id = ? and version = ?`
)

// registered is what Register compares of a row.
type registered struct {
	key      fencepost.RouteName
	revision fencepost.SourceRevision
	enabled  bool
	version  int64
}

// Register implements [source.Store].
func (s *Store) Register(ctx context.Context, all []source.Registration) (changed []fencepost.SourceID, err error) {
	all = slices.SortedFunc(slices.Values(all), func(a, b source.Registration) int { return compareIDs(a.ID, b.ID) })
	err = s.db.Write(ctx, "register sources", func(ctx context.Context, tx *store.Tx) error {
		rows, err := registeredRows(ctx, tx)
		if err != nil {
			return err
		}
		changed = nil
		var add []fencepost.SourceID
		keys := map[fencepost.SourceID]fencepost.RouteName{}
		for _, r := range all {
			row, known := rows[r.ID]
			delete(rows, r.ID)
			if !known {
				add = append(add, r.ID)
				keys[r.ID] = r.Key
			} else if row.key != r.Key {
				if err := swap(ctx, tx, renameSource, string(r.Key), r.ID.String(), row.version); err != nil {
					return err
				}
			}
			if row.revision != r.Revision || row.enabled != r.Enabled {
				changed = append(changed, r.ID)
			}
		}
		changed = gone(changed, rows)
		return addSources(ctx, tx, add, keys)
	})
	if err != nil {
		return nil, contended(err)
	}
	return changed, nil
}

func registeredRows(ctx context.Context, tx *store.Tx) (map[fencepost.SourceID]registered, error) {
	rows := map[fencepost.SourceID]registered{}
	err := tx.Each(ctx, selectRegistered, nil, func(scan func(...any) error) error {
		var id, key, revision string
		var enabled, version int64
		if err := scan(&id, &key, &revision, &enabled, &version); err != nil {
			return err
		}
		var d decoder
		rows[parsed(&d, "id", id, fencepost.ParseSourceID)] = registered{
			key: fencepost.RouteName(key), revision: parsed(&d, "revision", revision, fencepost.ParseSourceRevision),
			enabled: enabled != 0, version: version,
		}
		return d.err
	})
	return rows, err
}

func addSources(ctx context.Context, tx *store.Tx, add []fencepost.SourceID, keys map[fencepost.SourceID]fencepost.RouteName) error {
	for part := range slices.Chunk(add, chunk) {
		var named, ids []any
		for _, id := range part {
			named = append(named, id.String(), string(keys[id]))
			ids = append(ids, id.String())
		}
		if _, err := tx.Exec(ctx, insertSources+repeat(newSource, len(part))+insertSourcesTail, named...); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertLocks+repeat("(?)", len(part))+insertLocksTail, ids...); err != nil {
			return err
		}
	}
	return nil
}

// gone adds the enabled ones that the configuration doesn't have any more.
func gone(changed []fencepost.SourceID, rows map[fencepost.SourceID]registered) []fencepost.SourceID {
	for id, row := range rows {
		if row.enabled {
			changed = append(changed, id)
		}
	}
	slices.SortFunc(changed, compareIDs)
	return changed
}
