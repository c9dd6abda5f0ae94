// Package sourcedb is the [source.Store] over SQL (DESIGN §9): the rows of all
// sources on SQLite and on PostgreSQL, by the same queries.
//
// # What makes a write legal
//
// Each change of a source compares the version of its row, and raises it, in
// the first statement that it stores: of two that read the same rows one is
// refused and decides anew. Lock and run log are compared by token and fence
// on top, and what must be unique is so by a constraint. A row lock on
// PostgreSQL, and the write lock of SQLite, only save the loser the trouble;
// the suite passes without the former.
//
// # What is kept
//
// Ended run logs, done jobs, settled requests and resolved alerts are kept for
// a time, see [Store.Prune]. Delivery fences are kept for ever, as a signature
// over a body alone never ends.
package sourcedb
