package fileledger

import "github.com/fencepost/fencepost"

// Abandon says that this process has stopped to work under a lease, so that a
// claim through this Ledger need not wait for its deadline: its holder is
// proven dead as far as that lease goes. The claim gets a new fence, as
// always. Nothing is written: other processes wait for the deadline, and so
// does this one where it abandons more than it takes over.
//
// The caller must not use the lease any more. If it does, it is told Lost
// from the takeover on.
func (l *Ledger) Abandon(lease fencepost.Lease) {
	l.abandoned.Add(lease)
}
