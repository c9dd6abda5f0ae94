// Package abandoned remembers which leases a process holds and no longer works
// under, so that it need not wait for their deadlines itself.
package abandoned

import (
	"sync"

	"github.com/fencepost/fencepost"
)

// Max is how many leases are remembered; beyond it all are forgotten, and are
// waited for like those of others.
const Max = 10_000

// A name is a lease's: fences count in each part of a ledger anew.
type name struct {
	evaluation fencepost.EvaluationID
	fence      fencepost.Fence
}

// Leases are leases that were given up. The zero Leases is empty and ready; it
// is safe for concurrent use.
type Leases struct {
	mu  sync.Mutex
	all map[name]struct{} // guarded by mu
}

// Add remembers a lease; one that was never granted is none.
func (l *Leases) Add(lease fencepost.Lease) {
	if !lease.Valid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= Max {
		l.all = map[name]struct{}{}
	}
	l.all[name{lease.Evaluation(), lease.Fence()}] = struct{}{}
}

// Has reports whether the lease of that evaluation and fence was given up.
func (l *Leases) Has(e fencepost.EvaluationID, f fencepost.Fence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.all[name{e, f}]
	return ok
}
