package sourcedb

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// stillHeld is what lock and log must be for a hold to stand. Its arguments
// are those of holdArgs.
const stillHeld = `source_locks.source = ? and source_locks.token = ? and source_locks.fence = ? and source_locks.run = ?
	and source_locks.expires_at > {now}
	and exists (select 1 from source_runs where source_runs.id = source_locks.run and source_runs.source = source_locks.source
		and source_runs.token = source_locks.token and source_runs.status = 'running')`

const (
	// An expiry never comes closer, but for one that a clock made which went
	// back since: a holder that dies must not keep its lock until then.
	renewLock = `update source_locks set renewed_at = {now},
			expires_at = case when expires_at > {now} + ? and renewed_at <= {now} then expires_at else {now} + ? end
		where ` + stillHeld + ` returning expires_at`
	checkLock = `select source_locks.expires_at from source_locks where ` + stillHeld
)

func holdArgs(h source.Hold) []any {
	return []any{h.Source.String(), hexText(h.Token[:]), int64(h.Fence), text(h.Run)}
}

// lost says at once what no row can hold.
func lost(h source.Hold) bool {
	return h.Token.IsZero() || h.Run.IsZero() || h.Fence == 0 || h.Fence > math.MaxInt64
}

// Renew implements [source.Store].
func (s *Store) Renew(ctx context.Context, h source.Hold, lease time.Duration) (time.Time, error) {
	if lost(h) {
		return time.Time{}, source.ErrLost
	}
	var expires int64
	err := s.db.Write(ctx, "renew hold", func(ctx context.Context, tx *store.Tx) error {
		args := append([]any{lease.Microseconds(), lease.Microseconds()}, holdArgs(h)...)
		found, err := tx.One(ctx, renewLock, args, &expires)
		if err == nil && !found {
			err = source.ErrLost
		}
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("renew hold: %w", err)
	}
	return at(expires), nil
}

// Holds implements [source.Store].
func (s *Store) Holds(ctx context.Context, h source.Hold) error {
	if lost(h) {
		return source.ErrLost
	}
	err := s.db.Read(ctx, "check hold", func(ctx context.Context, tx *store.Tx) error {
		var expires int64
		found, err := tx.One(ctx, checkLock, holdArgs(h), &expires)
		if err == nil && !found {
			err = source.ErrLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("check hold: %w", err)
	}
	return nil
}
