package sqlledger

import (
	"context"
	"path/filepath"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/store"
)

// The migrations that made what [Before] reads.
const (
	rootVersion  = 2
	movesVersion = 5
)

// Before is what [store.Options.Before] is to be for a database in which a
// ledger is then opened with cfg: what [OpenOn] would refuse is refused before
// there are tables, or they are changed.
func Before(cfg Config) func(context.Context, *store.Tx, int64) error {
	return func(ctx context.Context, tx *store.Tx, version int64) error {
		cfg, err := cfg.withDefaults(tx.Kind())
		if err != nil {
			return err
		}
		if err := checkSettings(ctx, tx, cfg.Volatile); err != nil {
			return err
		}
		if version >= movesVersion {
			if err := checkHere(ctx, tx); err != nil {
				return err
			}
		}
		if version < rootVersion {
			return nil
		}
		r, found, err := getRoot(ctx, tx)
		if err != nil || !found {
			return err
		}
		return r.differs(cfg)
	}
}

// checkDurable refuses a server whose answers are not durable. Its errors are
// [SettingError]s.
func checkDurable(ctx context.Context, db *store.DB, volatile bool) error {
	return db.Read(ctx, opOpen, func(ctx context.Context, tx *store.Tx) error { return checkSettings(ctx, tx, volatile) })
}

func checkSettings(ctx context.Context, tx *store.Tx, volatile bool) error {
	bad, err := tx.Undurable(ctx)
	if err != nil {
		return err
	}
	for _, s := range bad {
		if s.Server && volatile {
			continue
		}
		return &fencepost.Error{
			Op: opOpen, Reason: fencepost.ReasonUnavailable, Err: &SettingError{Setting: s.Name, Value: s.Value, Mend: s.Mend},
		}
	}
	return nil
}

// checkVolume refuses a SQLite file on a file system that does not lock, or
// does not keep what was synced; in a trial it need not keep it over a restart.
// Its error matches [durable.ErrUnsuitable] or [durable.ErrReadOnly].
func (c Config) checkVolume() error {
	if c.Path == "" {
		return nil
	}
	look := c.volume
	if look == nil {
		look = durable.OS
	}
	_, err := durable.CheckVolume(look(filepath.Dir(c.Path)), "the ledger's directory", c.Volatile)
	if err != nil {
		return &fencepost.Error{Op: opOpen, Reason: fencepost.ReasonUnavailable, Err: err}
	}
	return nil
}
