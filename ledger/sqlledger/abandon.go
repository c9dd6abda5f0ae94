package sqlledger

import "github.com/fencepost/fencepost"

// Abandon says that this process has stopped to work under a lease, so that a
// claim through this Ledger need not wait for its deadline: its holder is as
// good as dead. The claim gets a new fence, as always. Nothing is written:
// other processes wait for the deadline, and so does this one once it has
// forgotten.
//
// The caller must not use the lease any more. If it does, it is told Lost
// from the takeover on.
func (l *Ledger) Abandon(lease fencepost.Lease) {
	l.abandoned.Add(lease)
}
