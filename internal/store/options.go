package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// A Kind is which database it is. The zero Kind is none.
type Kind uint8

// The kinds.
const (
	SQLite Kind = iota + 1
	Postgres
)

// String returns "sqlite" or "postgres".
func (k Kind) String() string {
	switch k {
	case SQLite:
		return "sqlite"
	case Postgres:
		return "postgres"
	}
	return "none"
}

// Options say which database, and bound its use.
type Options struct {
	// Path is the file of a SQLite database on a local disk, in a directory
	// that exists. Either it or URL is required.
	Path string
	// URL is a connection string of PostgreSQL, 14 or later: postgres://… It
	// may hold a password and is never shown.
	URL string
	// Now is the clock that times everything on SQLite, where it is required;
	// it never goes back. On PostgreSQL the server's clock does.
	Now func() time.Time
	// Existing opens a database that another process keeps: it is neither made
	// nor migrated, and one with an older schema is refused, too.
	Existing bool
	// Foreign opens a database whose tables are somebody else's: nothing of
	// ours is made in it, and no version is looked for. Its SQLite file is made
	// if it is missing.
	Foreign bool
	// Before is asked when all else allows the schema to be made or changed,
	// with the version that is there, 0 for none. It only reads; its error ends
	// Open, which then has changed nothing.
	Before func(ctx context.Context, tx *Tx, version int64) error
	// Wait bounds one transaction, with the wait for locks and connections;
	// 100 ms to 24 h, default 10 s; beyond minutes it is for reading or writing
	// all of a table.
	Wait time.Duration
	// Connections are how many there are at once: on PostgreSQL in all, on
	// SQLite those that read, beside the one that writes. 1 to 1000, default
	// 16 and 4.
	Connections int
	// Tries is how often a transaction is tried that others' changes defeat; 1
	// to 100, default 10.
	Tries int
}

// The defaults of [Options].
const (
	DefaultWait                = 10 * time.Second
	DefaultPostgresConnections = 16
	DefaultSQLiteConnections   = 4
	DefaultTries               = 10
)

// withDefaults checks o. Its error matches [fencepost.ErrMalformed].
func (o Options) withDefaults() (Options, error) {
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Tries == 0 {
		o.Tries = DefaultTries
	}
	if o.Connections == 0 {
		o.Connections = DefaultPostgresConnections
		if o.Path != "" {
			o.Connections = DefaultSQLiteConnections
		}
	}
	fault := ""
	switch {
	case (o.Path == "") == (o.URL == ""):
		fault = "either a path or a URL"
	case o.Path != "" && o.Now == nil:
		fault = "a clock for SQLite"
	case o.Wait < 100*time.Millisecond || o.Wait > 24*time.Hour:
		fault = "wait must be 100ms to 24h"
	case o.Connections < 1 || o.Connections > 1000:
		fault = "connections must be 1 to 1000"
	case o.Tries < 1 || o.Tries > 100:
		fault = "tries must be 1 to 100"
	default:
		return o, nil
	}
	return o, fmt.Errorf("open database: need %s: %w", fault, fencepost.ErrMalformed)
}
