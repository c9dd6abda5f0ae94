// Package ledger is the table of DESIGN §5 as one pure function, so that
// every ledger decides alike and differs only in where it keeps its rows.
//
// An implementation of [fencepost.Ledger] does, for each operation and in
// one atomic step of its store:
//
//	err := ledger.Check(req, window)           // values nobody made, foreign replay window
//	next, answer := ledger.Decide(row, req, at, fresh)
//	if !next.Equal(row) { store next }         // CheckEdge(row, next) holds
//	make it durable, then give the answer
//
// and, whenever it likes, removes the rows that [Removable] names, keeping
// the latest replay end it removed for [Moment.ClosedThrough].
//
// The package does no I/O, reads no clock and draws nothing at random.
package ledger
