// Package source keeps content fresh: a push to a configured branch, or one
// that was missed and found, becomes one fenced run that gives a sink the
// exact tree of the branch's head (DESIGN §9).
//
// # The parts
//
// What may happen to a source is decided by functions of values: [OnPush],
// [OnObservation], [OnBegin], [OnPause], [OnEnd], [OnWatch] and [OnFreshness]
// take a [Snapshot] of its rows and return the [Change] to store. A [Store]
// reads the one and writes the other in one transaction, each row compared
// with what was read in the statement that changes it; so nobody's lock is
// needed for a write to be legal, and two stores can't differ in their rules.
//
// [Intake] turns authenticated pushes into runs. A [Worker] carries out one
// attempt of a run: it proves repository and head anew, fetches, and gives
// the checkout to a [Sink], under a [Hold] that it renews. The [Reconciler]
// observes every source again and again, since pushes get lost. The
// [Watchdog] ends what a dead worker left, and judges freshness; it depends
// on neither queue nor leader, as an alarm must not depend on what it
// watches.
package source
