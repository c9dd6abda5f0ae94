// Package store opens the database that holds what several parts, and on
// PostgreSQL several machines, share: it brings the schema up to date, runs
// transactions, tells the time, and sorts errors (DESIGN §9, §12).
//
// There are two databases with one SQL. Queries are written once, with `?`
// for arguments and `{now}` for the store's clock in microseconds; columns are
// of two types, text and 64-bit integers, but for the encoding of a ledger's
// row, which is bytes. What differs stands in dialect.go,
// sqlite.go and postgres.go.
//
// # Who may change what
//
// Nothing here is a lock that decides ownership. On SQLite a write transaction
// holds the database's write lock from its beginning; on PostgreSQL it is read
// committed. Both only say who waits. A change is legal because it compares
// what was read in the statement that stores it.
//
// # Errors
//
// Texts of drivers name hosts, users and values, so none is kept: a [Fault]
// has the database's code, the class it belongs to and, for a constraint, its
// name. Errors of this package have a [fencepost.Reason].
package store
