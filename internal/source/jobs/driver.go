package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"
)

// driverOf returns River's driver for the database.
func driverOf(c Config, wake chan struct{}) riverdriver.Driver[*sql.Tx] {
	switch {
	case c.Dialect == SQLite:
		return sqliteDriver{riversqlite.New(c.DB), wake}
	case c.Listen != nil:
		return riverdatabasesql.NewWithPgxListener(c.DB, c.Listen)
	}
	return riverdatabasesql.New(c.DB)
}

// A sqliteDriver is River's, but for how it hears of new jobs: River polls a
// table of notices every 50 ms, to which each insert adds a row. Here one
// process alone works, and it knows when it has committed.
type sqliteDriver struct {
	*riversqlite.Driver
	wake chan struct{}
}

// GetListener implements [riverdriver.Driver].
func (d sqliteDriver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return localListener{d.wake}
}

// SupportsListenNotify implements [riverdriver.Driver]: no rows of notices.
func (sqliteDriver) SupportsListenNotify() bool { return false }

// A localListener turns wake-ups of this process into River's notices.
type localListener struct{ wake <-chan struct{} }

// WaitForNotification implements [riverdriver.Listener].
func (l localListener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.wake:
		return &riverdriver.Notification{Topic: "river_insert", Payload: `{"queue":"` + jobQueue + `"}`}, nil
	}
}

func (localListener) Close(context.Context) error            { return nil }
func (localListener) Connect(context.Context) error          { return nil }
func (localListener) Listen(context.Context, string) error   { return nil }
func (localListener) Ping(context.Context) error             { return nil }
func (localListener) Schema() string                         { return "" }
func (localListener) SetAfterConnectExec(string)             {}
func (localListener) Unlisten(context.Context, string) error { return nil }

// A timeSource gives River the process's clock. For what is stored and
// compared in rows, PostgreSQL's own is used.
type timeSource struct {
	now    func() time.Time
	server bool
}

// Now implements [rivertype.TimeGenerator].
func (s timeSource) Now() time.Time { return s.now() }

// NowOrNil implements [rivertype.TimeGenerator].
func (s timeSource) NowOrNil() *time.Time {
	if s.server {
		return nil
	}
	now := s.now()
	return &now
}
