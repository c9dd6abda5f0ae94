package pgtest

import (
	"fmt"
	"path"
	"testing"
	"time"
)

// A Clock moves the time of one database: what clock_timestamp answers there.
type Clock struct {
	server   *Server
	database string
}

// Clock gives a database that [Server.Database] made, and that nothing has
// connected to yet, a clock that a test moves: a function of the same name,
// which the search path finds first.
func (s *Server) Clock(t testing.TB, database string) *Clock {
	t.Helper()
	s.Exec(t, database, `
		create schema moved;
		create table moved.step (by interval not null);
		insert into moved.step values ('0');
		create function moved.clock_timestamp() returns timestamptz language sql volatile
			as 'select pg_catalog.clock_timestamp() + (select by from moved.step)';
		alter database `+name(database)+` set search_path = public, moved, pg_catalog;`)
	return &Clock{server: s, database: database}
}

// name is the name of the database of a URL.
func name(database string) string {
	base := path.Base(database)
	for i, c := range base {
		if c == '?' {
			return base[:i]
		}
	}
	return base
}

// Elapse moves the clock forward, or with a negative duration back.
func (c *Clock) Elapse(t testing.TB, d time.Duration) {
	t.Helper()
	c.server.Exec(t, c.database, fmt.Sprintf("update moved.step set by = by + interval '%d microseconds'", d.Microseconds()))
}
