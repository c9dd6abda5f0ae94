// Package simulation runs whole controllers (several processes, their disk,
// their clocks, the provider) as one deterministic program that is drawn from
// one number, and holds what happened against the invariants.
//
// # What is real, and what is played
//
// Real are the inbox, the file ledger, the notebook, the artifact store and the
// whole gate pool with its schedule, leases, heartbeats and publication. They
// share one [crashfs.Disk], on which each process can be killed and the machine
// can lose power. Played are the provider, which is a [gate.Lane], the fetch
// and the program, whose results differ from run to run; and the senders.
//
// # One token
//
// Everything runs in a bubble of testing/synctest, whose time moves when
// nothing else can. That alone leaves the order of goroutines open. So each
// call that others could see the effect of (a change on the disk, a lock, any
// operation of the ledger, the notes, the provider) first waits for the
// scheduler, which waits until everybody waits, and then lets one of them go,
// by the seed. Between two such calls real code runs at will, several
// goroutines at once even: what they do there nobody else can tell apart.
// Reading the disk needs no token, since nothing changes while it is held by
// nobody; in some runs it takes one all the same, for more ways to interleave.
//
// The same seed gives the same trace, to the last call; [Result.Hash] is its
// digest.
//
// # The seed
//
// It draws the shape (processes, requests, deliveries), the faults with the
// phase of an evaluation at which each comes, and every choice of the
// scheduler. After the faults the world is calm, and every delivery must reach
// its end within [Patience].
//
// # What is outside
//
// The HTTP edge (its recorder is played in client.go as package app has it),
// the runner and the fetch, the GitHub lane, ledgers in SQL, and the making of
// an empty root, which draws names from the system's randomness. Clocks are
// read without a token: some are read under locks that a waiting reader would
// keep from everybody, and time stands still between two tokens anyway.
package simulation
