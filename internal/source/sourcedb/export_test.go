package sourcedb

import (
	"context"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// Optimistic leaves out the row lock that only says who waits.
func Optimistic(s *Store) *Store {
	s.optimistic = true
	return s
}

// ErrMissed is that a row is not as it was read.
var ErrMissed = errMissed

// StoreStale stores a change that was decided on rows read before, in a
// transaction that is tried once.
func StoreStale(ctx context.Context, s *Store, snap source.Snapshot, c source.Change) (err error) {
	_ = s.db.Write(ctx, "store stale", func(ctx context.Context, tx *store.Tx) error {
		b := &Bound{s: s, tx: tx}
		if err = b.store(ctx, snap, c); err != nil {
			return errStop
		}
		return nil
	})
	return err
}

var errStop = context.Canceled

// Queries are those that run again and again, with their number of arguments.
var Queries = map[string]int{
	claimDue: 4, storeChecks + checkValues + storeChecksTail: 4, selectSource: 1, selectOpen: 1, selectRun: 1, selectDeliveries: 3,
	selectRequest: 2, selectNamed: 2, touchSource: 2, renewLock: 6, checkLock: 4, selectStale: 2, selectOpenAlerts: 1,
}
