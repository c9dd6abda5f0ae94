package sqlledger

import (
	"sync"

	"github.com/fencepost/fencepost"
)

// Abandon says that this process has stopped to work under a lease, so that a
// claim through this Ledger need not wait for its deadline: its holder is as
// good as dead. The claim gets a new fence, as always. Nothing is written:
// other processes wait for the deadline, and so does this one once it has
// forgotten.
//
// The caller must not use the lease any more. If it does, it is told Lost
// from the takeover on.
func (l *Ledger) Abandon(lease fencepost.Lease) {
	if lease.Valid() {
		l.abandoned.add(lease.Evaluation(), lease.Fence())
	}
}

// maxAbandoned bounds what is remembered; beyond it all is forgotten.
const maxAbandoned = 10_000

// An abandonment names a lease: fences count in each part anew.
type abandonment struct {
	evaluation fencepost.EvaluationID
	fence      fencepost.Fence
}

// abandonments are leases that this process holds and no longer works under.
type abandonments struct {
	mu  sync.Mutex
	all map[abandonment]struct{} // guarded by mu
}

func (a *abandonments) add(e fencepost.EvaluationID, f fencepost.Fence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil || len(a.all) >= maxAbandoned {
		a.all = map[abandonment]struct{}{}
	}
	a.all[abandonment{e, f}] = struct{}{}
}

func (a *abandonments) has(e fencepost.EvaluationID, f fencepost.Fence) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.all[abandonment{e, f}]
	return ok
}
