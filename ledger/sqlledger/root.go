package sqlledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
)

const opOpen = "ledger.open"

// openRoot makes the ledger in a database that has none, and holds the one
// that is there against the configuration. Of several processes that make it,
// one does, and the others find it made.
func (l *Ledger) openRoot(ctx context.Context) error {
	var uuid [16]byte
	if _, err := io.ReadFull(l.cfg.Random, uuid[:]); err != nil {
		return fmt.Errorf("ledger.open: draw a uuid: %w", err)
	}
	return l.db.Write(ctx, opOpen, func(ctx context.Context, tx *store.Tx) error {
		if err := checkHere(ctx, tx); err != nil {
			return err
		}
		if err := l.makeRoot(ctx, tx, hex.EncodeToString(uuid[:])); err != nil {
			return err
		}
		if err := l.readRoot(ctx, tx); err != nil {
			return err
		}
		return l.enterCluster(ctx, tx)
	})
}

// timeline is the one that the server writes, which changes when a standby is
// promoted and when a backup is recovered.
const timeline = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"

// place is what no dump of the tables takes along: the cluster, and the numbers
// that it gave to the database and to a table when they were made.
const place = `(select system_identifier from pg_control_system())::text || '/' ||
	(select oid from pg_database where datname = current_database())::text || '/' || 'ledger_parts'::regclass::oid::text`

// enterCluster makes fences go on beyond all that were ever handed out, if the
// ledger has come to its place by a dump of its tables, from another cluster or
// from this one: what was handed out after the dump is not known here.
func (l *Ledger) enterCluster(ctx context.Context, tx *store.Tx) error {
	if l.db.Kind() != store.Postgres {
		return nil
	}
	var here, before string
	_, err := tx.One(ctx, "select "+place+", cluster from ledger_root", nil, &here, &before)
	if err != nil || here == before {
		return err
	}
	moved, err := tx.Exec(ctx, "update ledger_root set cluster = ? where cluster = ?", here, before)
	if err != nil {
		return err
	}
	if moved == 0 {
		// Another process did so; it may be one on yet another cluster.
		return defeated()
	}
	if before == "" {
		_, err = tx.Exec(ctx, "update ledger_parts set timeline = "+timeline)
	} else {
		_, err = tx.Exec(ctx, "update ledger_parts set last_fence = ((last_fence >> 40) + 1) << 40, timeline = "+timeline)
	}
	return err
}

// makeRoot inserts root and parts, if there is none.
func (l *Ledger) makeRoot(ctx context.Context, tx *store.Tx, uuid string) error {
	c := l.cfg
	made, err := tx.Exec(ctx, `insert into ledger_root (id, uuid, lease_ns, capacity, signed_age_ns, queue_age_ns, parts, made_at)
		values (1, ?, ?, ?, ?, ?, ?, {now}) on conflict (id) do nothing`,
		uuid, int64(c.Lease), int64(c.Capacity), int64(c.Window.MaxSignedAge), int64(c.Window.MaxQueueAge), int64(c.Parts))
	if err != nil || made == 0 {
		return err
	}
	for n := range c.Parts {
		if _, err := tx.Exec(ctx, "insert into ledger_parts (part, row_limit) values (?, ?)", int64(n), int64(c.limit(n))); err != nil {
			return err
		}
	}
	return nil
}

// readRoot reads what the ledger was made with, and names what differs.
func (l *Ledger) readRoot(ctx context.Context, tx *store.Tx) error {
	r, found, err := getRoot(ctx, tx)
	if err != nil {
		return err
	}
	if !found {
		// Between the insert that met it and now, somebody took it away.
		return &store.Fault{Class: store.ErrBusy}
	}
	l.uuid = r.uuid
	return r.differs(l.cfg)
}

// differs names each parameter of the ledger that is not cfg's.
func (r root) differs(cfg Config) error {
	var errs []error
	differ := func(field string, made, given any) {
		if made != given {
			errs = append(errs, &ParameterError{Field: field, Made: fmt.Sprint(made), Given: fmt.Sprint(given)})
		}
	}
	differ("ledger.lease", time.Duration(r.lease), cfg.Lease)
	differ("ledger.capacity", int(r.capacity), cfg.Capacity)
	differ("replay.max_signed_age", time.Duration(r.signed), cfg.Window.MaxSignedAge)
	differ("replay.max_queue_age", time.Duration(r.queue), cfg.Window.MaxQueueAge)
	differ("ledger.parts", int(r.parts), cfg.Parts)
	if len(errs) > 0 {
		return &fencepost.Error{Op: opOpen, Reason: fencepost.ReasonParameters, Err: errors.Join(errs...)}
	}
	return nil
}
