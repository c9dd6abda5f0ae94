// Package pgtest runs a PostgreSQL server for the tests of a package, and
// gives each test a database of its own.
//
//	var postgres pgtest.Server
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, &postgres)) }
//
//	func TestSomething(t *testing.T) { url := postgres.Database(t) }
//
// A machine without PostgreSQL fails these tests; it doesn't skip them. `make
// deps` installs it.
package pgtest
