package ledger

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	bolt "go.etcd.io/bbolt"
	_ "modernc.org/sqlite" // the driver
)

// A store does what a ledger does to a delivery, each step durable before it
// returns: claim it under a fence, stage a value under that fence, complete
// it, and in the end remove what is complete.
type store interface {
	// Cycle takes one delivery from claim to done.
	Cycle(ctx context.Context, key [32]byte, value []byte) error
	// Clean removes all that are done, and reports how many.
	Clean(ctx context.Context) (int64, error)
	Close() error
}

var errLost = errors.New("lost")

// sqliteStore is modernc.org/sqlite with one connection that writes, as
// SQLite has one writer: WAL, synchronous FULL, immediate transactions,
// prepared statements. sqlite.org/wal.html, sqlite.org/pragma.html
type sqliteStore struct {
	db                                   *sql.DB
	counter, claim, stage, complete, end *sql.Stmt
}

func newSQLite(ctx context.Context, path string) (*sqliteStore, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, `
		create table fences (id integer primary key, last integer not null) strict;
		insert into fences values (1, 0);
		create table rows (key blob primary key, state integer not null, fence integer not null, deadline integer not null, value blob) strict, without rowid;`)
	s := &sqliteStore{db: db}
	for query, stmt := range map[string]**sql.Stmt{
		"update fences set last = last + 1 where id = 1 returning last":                       &s.counter,
		"insert into rows values (?, 1, ?, ?, null) on conflict do nothing":                   &s.claim,
		"update rows set state = 2, value = ?3 where key = ?1 and state = 1 and fence = ?2":   &s.stage,
		"update rows set state = 3, value = null where key = ?1 and state = 2 and fence = ?2": &s.complete,
		"delete from rows where state = 3":                                                    &s.end,
	} {
		if err == nil {
			*stmt, err = db.PrepareContext(ctx, query)
		}
	}
	return s, err
}

func (s *sqliteStore) Cycle(ctx context.Context, key [32]byte, value []byte) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var fence int64
	if err := tx.StmtContext(ctx, s.counter).QueryRowContext(ctx).Scan(&fence); err != nil {
		return err
	}
	if err := changed(tx.StmtContext(ctx, s.claim).ExecContext(ctx, key[:], fence, time.Now().Add(time.Minute).UnixNano())); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	// One statement is one transaction.
	if err := changed(s.stage.ExecContext(ctx, key[:], fence, value)); err != nil {
		return err
	}
	return changed(s.complete.ExecContext(ctx, key[:], fence))
}

func changed(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err == nil && n != 1 {
		err = errLost
	}
	return err
}

func (s *sqliteStore) Clean(ctx context.Context) (int64, error) {
	r, err := s.end.ExecContext(ctx)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (s *sqliteStore) Close() error { return s.db.Close() }

// boltStore is bbolt; what many do at once goes through Batch, as its README
// advises, which calls a function again if another one of its batch fails.
type boltStore struct{ db *bolt.DB }

var bucket = []byte("rows")

func newBolt(path string) (*boltStore, error) {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, err
	}
	return &boltStore{db}, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(bucket)
		return err
	})
}

func (s *boltStore) Cycle(_ context.Context, key [32]byte, value []byte) error {
	var fence uint64
	row := func(state byte, value []byte) []byte {
		b := binary.LittleEndian.AppendUint64([]byte{state}, fence)
		return append(binary.LittleEndian.AppendUint64(b, uint64(time.Now().Add(time.Minute).UnixNano())), value...)
	}
	err := s.db.Batch(func(tx *bolt.Tx) (err error) {
		b := tx.Bucket(bucket)
		if b.Get(key[:]) != nil {
			return errLost
		}
		if fence, err = b.NextSequence(); err != nil {
			return err
		}
		return b.Put(key[:], row(1, nil))
	})
	for state := byte(1); state < 3 && err == nil; state++ {
		err = s.db.Batch(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucket)
			now := b.Get(key[:])
			if len(now) < 9 || now[0] != state || binary.LittleEndian.Uint64(now[1:]) != fence {
				return errLost
			}
			if state == 1 {
				return b.Put(key[:], row(2, value))
			}
			return b.Put(key[:], row(3, nil))
		})
	}
	return err
}

func (s *boltStore) Clean(context.Context) (n int64, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if v[0] == 3 {
				if err := c.Delete(); err != nil {
					return err
				}
				n++
			}
		}
		return nil
	})
	return n, err
}

func (s *boltStore) Close() error { return s.db.Close() }

// pgStore is PostgreSQL through pgx's own pool: one prepared statement, one
// round trip and one commit a step, and a sequence for the fences.
type pgStore struct{ pool *pgxpool.Pool }

const (
	pgClaim    = "insert into rows values ($1, 1, nextval('fences'), clock_timestamp() + interval '1 minute', null) on conflict do nothing returning fence"
	pgStage    = "update rows set state = 2, value = $3 where key = $1 and state = 1 and fence = $2"
	pgComplete = "update rows set state = 3, value = null where key = $1 and state = 2 and fence = $2"
)

func newPostgres(ctx context.Context, url string, connections int) (*pgStore, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(connections), int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `
		create sequence fences;
		create table rows (key bytea primary key, state smallint not null, fence bigint not null, deadline timestamptz not null, value bytea) with (fillfactor = 70);`,
		pgx.QueryExecModeSimpleProtocol)
	return &pgStore{pool}, err
}

func (s *pgStore) Cycle(ctx context.Context, key [32]byte, value []byte) error {
	var fence int64
	if err := s.pool.QueryRow(ctx, pgClaim, key[:]).Scan(&fence); err != nil {
		return err
	}
	for _, step := range []struct {
		query string
		args  []any
	}{{pgStage, []any{key[:], fence, value}}, {pgComplete, []any{key[:], fence}}} {
		tag, err := s.pool.Exec(ctx, step.query, step.args...)
		if err == nil && tag.RowsAffected() != 1 {
			err = errLost
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *pgStore) Clean(ctx context.Context) (int64, error) {
	tag, err := s.pool.Exec(ctx, "delete from rows where state = 3")
	return tag.RowsAffected(), err
}

func (s *pgStore) Close() error { s.pool.Close(); return nil }

// A load is how many cycles there were, and how long each took.
type load struct {
	n    int
	took time.Duration
	each []time.Duration
}

// drive has workers take deliveries through a store for so long.
func drive(ctx context.Context, s store, prefix string, workers int, d time.Duration) (load, error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		l     load
		errs  []error
	)
	value := make([]byte, 512)
	start := time.Now()
	for w := range workers {
		group.Go(func() {
			var each []time.Duration
			var err error
			for i := 0; err == nil && time.Since(start) < d; i++ {
				began := time.Now()
				if err = s.Cycle(ctx, keyOf(fmt.Sprint(prefix, w, ".", i)), value); err == nil {
					each = append(each, time.Since(began))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			l.each = append(l.each, each...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	l.took, l.n = time.Since(start), len(l.each)
	return l, errors.Join(errs...)
}
