// Package contest has many processes work on the same deliveries of one
// ledger, while others kill them, stop them and step their clock, and holds
// what they were answered against the table: the history must be
// linearizable.
//
// A test binary is both: [Run] starts it again for each process, and
// [Process] is what those do, until they are killed.
package contest
