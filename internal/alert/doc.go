// Package alert keeps what an operator must look at: reason-coded alerts,
// each with an opaque subject, a status, an age and a count (DESIGN §10).
//
// A [Book] is the durable list. Raising writes a row, a log line and a
// metric; resolving does the same when the cause is gone. An [Alertmanager]
// tells a Prometheus Alertmanager of it, again and again, until it took it.
//
// # The file
//
// A book is one file, "alerts", replaced as a whole by each change:
//
//	fencepost.alerts/v1 <sha256 of what follows, 64 hex digits>\n
//	{"alerts":[{"code":…,"subject":…,"status":…,"since":…,"until":…,"count":…},…]}\n
//
// The replacement is atomic, so there are no torn tails: a file whose sum is
// wrong is corrupt, and the book isn't opened. Beside it lies "lock", which
// the one process that has the book open holds.
package alert
