// Package sqlledger keeps a ledger in a SQL database: a SQLite file that the
// processes of one machine share, or PostgreSQL, shared by many machines.
//
// It is complete as a [fencepost.Ledger], and no command uses it: `fencepost
// serve` keeps its ledger in files (package fileledger), also with `database`.
// Of what fileledger has beside the contract, Repeat, Lookup, Abandon, CleanUp
// and a Stat of counters are here; an answer from memory alone (MayKnow), going
// through all rows, verifying them, and proof that another process has died
// are not.
//
// # An operation
//
// Each is one transaction. It reads the delivery's row, its part's counters
// and, on PostgreSQL, the server's clock in one statement; asks
// [ledger.Decide]; and stores the row that it is told, comparing key, state,
// evaluation, fence and token with what was read. The token is drawn anew for
// each change, so that the comparison fails after any other change; then the
// operation is decided anew, on what is there now. An answer that changes
// nothing writes nothing.
//
// No lock decides. On SQLite a transaction has the write lock from its
// beginning; on PostgreSQL it is read committed and locks only what it
// writes. Both say who waits; the comparison says who may.
//
// # Fences and capacity
//
// A ledger has parts, and a delivery belongs to the part that its key
// selects. A part has a counter of fences, which only grows whatever is
// cleaned up, and a counter of rows. Both are changed in the transaction that
// hands out the lease, so that claims in one part wait for each other's
// commits; those in different parts don't.
//
// # Time
//
// On SQLite, leases are timed by the machine's boot-time clock, as in
// fileledger: no step of the wall clock touches them, and a restart of the
// machine ends them. On PostgreSQL, the server's clock times leases and
// judges replay ends: clocks of clients don't matter, and a restart of the
// server ends no lease. A step of the server's clock ahead ends leases early,
// a step back makes them last longer; neither lets a stale holder stage,
// since that is compared and not timed.
//
// Clean-up also asks a second clock, the ledger's running time, so that a wall
// clock that jumped ahead removes nothing. On PostgreSQL that is what a
// process's own monotonic clock has seen pass between its calls of
// [Ledger.CleanUp], and never more than the server's did: where no process
// calls it, rows stay longer.
//
// # What failures do
//
// Where it is not known whether a commit was stored, the row is read again. If
// it holds the token of that very change, the answer is given; else the
// operation ends in an error that matches no answer, and a later claim tells.
// Nothing is guessed from what the row looks like, and no change is sent again.
//
// What PostgreSQL answers is as durable as it is set up to be: a server with
// synchronous_commit off is refused, but fsync and the replication of a server
// that fails over are its operator's.
package sqlledger
