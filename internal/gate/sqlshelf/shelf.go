package sqlshelf

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/store"
)

const (
	// expirePage is how many entries a transaction removes at most.
	expirePage = 500
	keySize    = 32
)

// A transaction is [store.DB.Write] or [store.DB.Read].
type transaction func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error

// A Shelf keeps results. It is safe for concurrent use, also by several
// processes over one database. After an error that is the database's, what was
// asked for may have been done.
type Shelf struct {
	limits shelf.Limits
	// write and read are the database's; tests let them lose answers.
	write, read transaction
}

// Open opens the shelf of a PostgreSQL database, and removes what has expired.
// Its error matches [fencepost.ErrMalformed] or [store.ErrVolatile], or is one
// of the database's.
func Open(ctx context.Context, db *store.DB, limits shelf.Limits) (*Shelf, error) {
	if db.Kind() != store.Postgres {
		return nil, fmt.Errorf("open results: need PostgreSQL: %w", fencepost.ErrMalformed)
	}
	if err := db.CheckDurable(ctx); err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	s := &Shelf{limits: limits.WithDefaults(), write: db.Write, read: db.Read}
	if err := s.Expire(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// PollKey returns the key that poll secrets are made from, the same for all
// processes of the database, and makes it when there is none.
func (s *Shelf) PollKey(ctx context.Context) (fencepost.Secret, error) {
	fresh := make([]byte, keySize)
	_, _ = rand.Read(fresh) // never fails
	var key []byte
	defer func() { clear(fresh); clear(key) }()
	err := s.write(ctx, "results.key", func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Exec(ctx, "insert into result_key (id, key) values (1, ?) on conflict (id) do nothing", fresh); err != nil {
			return err
		}
		_, err := tx.One(ctx, "select key from result_key where id = 1", nil, &key)
		return err
	})
	switch {
	case err != nil:
		return fencepost.Secret{}, fmt.Errorf("read key of results: %w", err)
	case len(key) != keySize:
		return fencepost.Secret{}, fmt.Errorf("read key of results: %w", shelf.Damaged("results.key"))
	}
	return fencepost.NewSecret(key), nil
}

// Put tells the result of a delivery, durably. Telling the same again does
// nothing, and a result takes the place of an end without one. An error with
// [fencepost.ReasonPublishConflict] means that another result is told of, one
// with [fencepost.ReasonFull] that there is no room; see also [shelf.Check].
func (s *Shelf) Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error {
	err := shelf.Check(d, document)
	if err == nil {
		err = s.change(ctx, "results.put", d, func(held *shelf.Entry) (shelf.Entry, bool, error) {
			switch {
			case held == nil || held.Ended():
				return shelf.Entry{Document: document}, true, nil
			case !bytes.Equal(held.Document, document):
				return shelf.Entry{}, false, shelf.Conflict("results.put")
			}
			return shelf.Entry{}, false, nil
		})
	}
	if err != nil {
		return fmt.Errorf("put result: %w", err)
	}
	return nil
}

// End tells durably that a delivery ended without a result, and why. It changes
// nothing where a result or an end is told of. An error with
// [fencepost.ReasonFull] means that there is no room.
func (s *Shelf) End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	err := shelf.CheckEnd(d, why)
	if err == nil {
		err = s.change(ctx, "results.end", d, func(held *shelf.Entry) (shelf.Entry, bool, error) {
			return shelf.Entry{Reason: why}, held == nil, nil
		})
	}
	if err != nil {
		return fmt.Errorf("put end: %w", err)
	}
	return nil
}

// change writes what decide makes of what stands for a delivery; nil where
// nothing does, or it is damaged.
func (s *Shelf) change(ctx context.Context, op string, d fencepost.DeliveryID, decide func(*shelf.Entry) (e shelf.Entry, write bool, err error)) error {
	return s.write(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		u, err := counted(ctx, tx)
		if err != nil {
			return err
		}
		old, found, err := look(ctx, tx, d)
		if err != nil {
			return err
		}
		var held *shelf.Entry
		if found && old.valid {
			held = &old.entry
		}
		e, write, err := decide(held)
		if err != nil || !write {
			return err
		}
		return s.replace(ctx, tx, u, op, d, e)
	})
}

// replace writes an entry in place of what is there.
func (s *Shelf) replace(ctx context.Context, tx *store.Tx, u usage, op string, d fencepost.DeliveryID, e shelf.Entry) error {
	u, err := remove(ctx, tx, u, "delete from results where delivery = ? returning bytes", string(d))
	if err != nil {
		return err
	}
	const oldest = `delete from results where delivery = (select delivery from results
		where stored_at <= {now} - ? order by stored_at, delivery limit 1) returning bytes`
	for u.count >= s.limits.Count || u.bytes+e.Size() > s.limits.TotalBytes {
		before := u
		if u, err = remove(ctx, tx, u, oldest, shelf.Awaited.Microseconds()); err != nil {
			return err
		}
		if u == before {
			return shelf.Full(op)
		}
	}
	sum := e.Sum(d)
	var body any
	if !e.Ended() {
		body = e.Document
	}
	if _, err := tx.Exec(ctx, "insert into results (delivery, stored_at, bytes, digest, reason, body) values (?, {now}, ?, ?, ?, ?)",
		string(d), e.Size(), hex.EncodeToString(sum[:]), string(e.Reason), body); err != nil {
		return err
	}
	return count(ctx, tx, usage{u.count + 1, u.bytes + e.Size()})
}

type row struct {
	entry shelf.Entry
	valid bool
}

// look reads the entry of a delivery, and whether it verifies.
func look(ctx context.Context, tx *store.Tx, d fencepost.DeliveryID) (r row, found bool, err error) {
	var digest, reason string
	// One that is larger than any that was stored is none.
	found, err = tx.One(ctx, `select digest, reason, case when length(body) <= ? then body end from results where delivery = ?`,
		[]any{fencepost.MaxPublicationBytes, string(d)}, &digest, &reason, &r.entry.Document)
	if err != nil || !found {
		return row{}, found, err
	}
	r.entry.Reason = fencepost.Reason(reason)
	sum := r.entry.Sum(d)
	r.valid = hex.EncodeToString(sum[:]) == digest
	return r, true, nil
}

// Get returns what is told of a delivery, if anything is. Its error has
// [fencepost.ReasonCorrupt] where that is damaged.
func (s *Shelf) Get(ctx context.Context, d fencepost.DeliveryID) (shelf.Entry, bool, error) {
	var held row
	found := false
	err := s.read(ctx, "results.get", func(ctx context.Context, tx *store.Tx) (err error) {
		held, found, err = look(ctx, tx, d)
		return err
	})
	switch {
	case err != nil:
		return shelf.Entry{}, false, fmt.Errorf("get result: %w", err)
	case !found:
		return shelf.Entry{}, false, nil
	case !held.valid:
		return shelf.Entry{}, false, fmt.Errorf("get result: %w", shelf.Damaged("results.get"))
	}
	return held.entry, true, nil
}

// Expire removes what has outlived its TTL. Call it now and then.
func (s *Shelf) Expire(ctx context.Context) error {
	for removed := int64(expirePage); removed == expirePage; {
		err := s.write(ctx, "results.expire", func(ctx context.Context, tx *store.Tx) error {
			before, err := counted(ctx, tx)
			if err != nil {
				return err
			}
			left, err := remove(ctx, tx, before, `delete from results where delivery in
				(select delivery from results where stored_at <= {now} - ? order by stored_at, delivery limit ?) returning bytes`,
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
			return fmt.Errorf("expire results: %w", err)
		}
	}
	return nil
}

// Usage returns how many entries there are, and their bytes.
func (s *Shelf) Usage(ctx context.Context) (number, bytes int64, err error) {
	err = s.read(ctx, "results.usage", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select count, bytes from result_usage where id = 1", nil, &number, &bytes)
		return err
	})
	return number, bytes, err
}

type usage struct{ count, bytes int64 }

// counted takes the one row that counts, so that nobody else changes anything
// until the transaction's end.
func counted(ctx context.Context, tx *store.Tx) (u usage, err error) {
	_, err = tx.One(ctx, "update result_usage set count = count where id = 1 returning count, bytes", nil, &u.count, &u.bytes)
	return u, err
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
	_, err := tx.Exec(ctx, "update result_usage set count = ?, bytes = ? where id = 1", u.count, u.bytes)
	return err
}
