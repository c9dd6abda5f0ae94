// Package sqlledger keeps a ledger in a SQL database: a SQLite file that the
// processes of one machine share, or PostgreSQL, shared by many machines.
//
// # An operation
//
// On SQLite each is one transaction. It reads the delivery's row and its
// part's counters in one statement; asks [ledger.Decide]; and stores the row
// that it is told, comparing key, state, evaluation, fence and token with what
// was read. The token is drawn anew for each change, so that the comparison
// fails after any other change; then the operation is decided anew, on what is
// there now. An answer that changes nothing writes nothing.
//
// On PostgreSQL each is one statement, which is one round trip: a call of a
// function of the database that reads, decides by the same table, and stores
// under the same comparison. What is answered is decided once more here, by
// [ledger.Decide] on what the function saw, and the digest of the row that it
// stored must be that of the row which Decide says; else the operation ends in
// an error that matches [ErrCorrupt]. A test holds both to the same answers and
// rows over all states, bounds and comparisons. Two cases take a second round
// trip: a connection that was idle for over a second is asked whether it
// still lives, and the claim of a lease that this process itself gave up
// ([Ledger.Abandon]) is told whose it is by the first one.
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
// clock that jumped ahead removes nothing. On PostgreSQL no server's clock is
// in it: a process knows how much there was when it looked last, and how much
// its own boot-time clock has seen pass since, and the most that any process
// knows is what there is. While no process has the ledger open, it stands
// still, and rows stay longer.
//
// # What failures do
//
// Where it is not known whether a commit was stored, the row is read again. If
// it holds the token of that very change, the answer is given; else the
// operation ends in an error that matches no answer, and a later claim tells.
// Nothing is guessed from what the row looks like, and no change is sent again.
//
// On PostgreSQL with synchronous standbys a commit whose wait for them was cut
// short, by the end of its session or of the server, is seen by everybody, and
// the standbys may lack it. So what is read back, and every answer that rests on
// a row as it was found, is confirmed by a commit of its own, which waits for
// the standbys and thereby for all before it; and a commit of which the server
// warns that its wait was canceled is one whose outcome is unknown.
//
// A PostgreSQL server that runs without fsync or full_page_writes is refused,
// and so is a connection string that turns synchronous_commit down; what user,
// database or server say of it is overruled for the session ([SettingError]).
//
// # Failing over
//
// A standby that is promoted must have every commit that was answered, or
// deliveries that were done are done again: set synchronous_standby_names, and
// promote only a standby that is named there. The ledger can't see which
// standby an operator promotes, and does not ask.
//
// What it does hold, also when a standby is promoted that lacks the last
// commits, is that fences never repeat (invariant 5): the first fence that a
// part hands out on another timeline, which every promotion and every
// recovery of a backup begins, lies beyond all that the old one may have
// handed out, and so does the first one after a dump was loaded, into another
// cluster or into the same one. So a holder whose lease was lost with the old primary is refused
// for good, and is never taken for a later one. A data directory that was
// copied while the server was stopped and put back begins no timeline: recover
// it as a backup. Nor are rows that were loaded into tables that were there told
// from others: let the dump make its tables.
package sqlledger
