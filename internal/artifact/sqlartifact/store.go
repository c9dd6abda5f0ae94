package sqlartifact

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/store"
)

// expirePage is how many artifacts a transaction removes at most.
const expirePage = 500

// A transaction is [store.DB.Write] or [store.DB.Read].
type transaction func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error

// A Store keeps artifacts. It is safe for concurrent use, also by several
// processes over one database.
type Store struct {
	limits artifact.Limits
	// write and read are the database's; tests let them lose answers.
	write, read transaction
}

// Open opens the store in a PostgreSQL database, and removes what has expired.
// Its error matches [fencepost.ErrMalformed] or [store.ErrVolatile], or is one
// of the database's.
func Open(ctx context.Context, db *store.DB, limits artifact.Limits) (*Store, error) {
	if db.Kind() != store.Postgres {
		return nil, fmt.Errorf("open artifact store: need PostgreSQL: %w", fencepost.ErrMalformed)
	}
	if err := db.CheckDurable(ctx); err != nil {
		return nil, fmt.Errorf("open artifact store: %w", err)
	}
	s := &Store{limits: limits.WithDefaults(), write: db.Write, read: db.Read}
	if err := s.Expire(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// counted takes the one row that counts, so that nobody else stores or
// removes anything until the transaction's end.
func counted(ctx context.Context, tx *store.Tx) (u usage, err error) {
	_, err = tx.One(ctx, "update artifact_usage set count = count where id = 1 returning count, bytes", nil, &u.count, &u.bytes)
	return u, err
}

type usage struct{ count, bytes int64 }

// Put stores a copy of data, durably, and returns its reference. Storing the
// same bytes again only makes them last longer. Its error matches
// [artifact.ErrTooLarge], or is one of the database's; then they may be stored.
func (s *Store) Put(ctx context.Context, data []byte) (artifact.Ref, error) {
	size := int64(len(data))
	if size > s.limits.ArtifactBytes {
		return artifact.Ref{}, fmt.Errorf("put artifact of %d bytes, at most %d: %w", size, s.limits.ArtifactBytes, artifact.ErrTooLarge)
	}
	if size > s.limits.TotalBytes {
		return artifact.Ref{}, fmt.Errorf("put artifact: %d bytes do not fit into %d: %w", size, s.limits.TotalBytes, artifact.ErrTooLarge)
	}
	ref := artifact.RefOf(data)
	if data == nil {
		data = []byte{} // no bytes, which is not null
	}
	err := s.write(ctx, "artifact.put", func(ctx context.Context, tx *store.Tx) error {
		// What is there is believed if it is still what it was.
		n, err := tx.Exec(ctx, "update artifacts set stored_at = {now} where digest = ? and encode(sha256(body), 'hex') = digest", ref.Hex())
		if err != nil || n == 1 {
			return err
		}
		return s.insert(ctx, tx, ref, data)
	})
	if err != nil {
		return artifact.Ref{}, fmt.Errorf("put artifact: %w", err)
	}
	return ref, nil
}

// insert stores what is not there, or in place of what is damaged.
func (s *Store) insert(ctx context.Context, tx *store.Tx, ref artifact.Ref, data []byte) error {
	u, err := counted(ctx, tx)
	if err != nil {
		return err
	}
	if u, err = remove(ctx, tx, u, "delete from artifacts where digest = ? returning bytes", ref.Hex()); err != nil {
		return err
	}
	size := int64(len(data))
	for u.count >= s.limits.Count || u.bytes+size > s.limits.TotalBytes {
		before := u
		const oldest = `delete from artifacts where digest = (select digest from artifacts order by stored_at, digest limit 1) returning bytes`
		if u, err = remove(ctx, tx, u, oldest); err != nil {
			return err
		}
		if u == before {
			return &store.Fault{Class: store.ErrCorrupt, Code: "counted artifacts that are not there"}
		}
	}
	if _, err := tx.Exec(ctx, "insert into artifacts (digest, stored_at, bytes, body) values (?, {now}, ?, ?)", ref.Hex(), size, data); err != nil {
		return err
	}
	return count(ctx, tx, usage{u.count + 1, u.bytes + size})
}

// remove removes rows, and returns what is left.
func remove(ctx context.Context, tx *store.Tx, u usage, query string, args ...any) (usage, error) {
	err := tx.Each(ctx, query, args, func(scan func(...any) error) error {
		var bytes int64
		err := scan(&bytes)
		u = usage{u.count - 1, u.bytes - bytes}
		return err
	})
	return u, err
}

func count(ctx context.Context, tx *store.Tx, u usage) error {
	_, err := tx.Exec(ctx, "update artifact_usage set count = ?, bytes = ? where id = 1", u.count, u.bytes)
	return err
}

// Get returns the bytes that ref names. Its error matches [artifact.ErrGone]
// or [artifact.ErrDamaged], or is one of the database's.
func (s *Store) Get(ctx context.Context, ref artifact.Ref) ([]byte, error) {
	var data []byte
	found := false
	err := s.read(ctx, "artifact.get", func(ctx context.Context, tx *store.Tx) (err error) {
		// One that is larger than any that was stored is none.
		found, err = tx.One(ctx, "select case when length(body) <= ? then body end from artifacts where digest = ?",
			[]any{s.limits.ArtifactBytes, ref.Hex()}, &data)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get artifact: %w", err)
	case !found:
		return nil, fmt.Errorf("get artifact %s: %w", ref, artifact.ErrGone)
	case !ref.Names(data):
		return nil, fmt.Errorf("get artifact %s: %w", ref, artifact.ErrDamaged)
	}
	return data, nil
}

// Expire removes what has outlived its TTL. Call it now and then.
func (s *Store) Expire(ctx context.Context) error {
	for removed := int64(expirePage); removed == expirePage; {
		err := s.write(ctx, "artifact.expire", func(ctx context.Context, tx *store.Tx) error {
			before, err := counted(ctx, tx)
			if err != nil {
				return err
			}
			left, err := remove(ctx, tx, before, `delete from artifacts where digest in
				(select digest from artifacts where stored_at <= {now} - ? order by stored_at, digest limit ?) returning bytes`,
				s.limits.TTL.Microseconds(), expirePage)
			if err != nil {
				return err
			}
			removed = before.count - left.count
			if removed == 0 {
				return nil
			}
			return count(ctx, tx, left)
		})
		if err != nil {
			return fmt.Errorf("expire artifacts: %w", err)
		}
	}
	return nil
}

// Usage returns how many artifacts are stored, and their bytes.
func (s *Store) Usage(ctx context.Context) (number, bytes int64, err error) {
	err = s.read(ctx, "artifact.usage", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select count, bytes from artifact_usage where id = 1", nil, &number, &bytes)
		return err
	})
	return number, bytes, err
}
