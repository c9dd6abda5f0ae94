package store

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Confirm is an expression for queries on PostgreSQL that only read, and whose
// answer must be on the synchronous standbys, too: it makes the transaction one
// that writes, so that its commit waits for them, and with it for every commit
// before it. Without standbys it costs nothing.
//
// What can be read need not be there yet: a commit whose wait for the standbys
// was cut short, by the end of its session or of the server, is seen at once.
const Confirm = `case when current_setting('synchronous_standby_names') = '' then '' else pg_logical_emit_message(true, 'fencepost', '')::text end`

// A cutShort tells whether a commit stopped waiting for its standbys, which the
// server answers as if all were well but for a warning.
type cutShort struct{ atomic.Bool }

type cutShortKey struct{}

// watched has what the server warns of under ctx told to the returned one.
func watched(ctx context.Context) (context.Context, *cutShort) {
	c := new(cutShort)
	return context.WithValue(ctx, cutShortKey{}, c), c
}

// sure is err, or that the outcome is unknown if it is nil and the wait was
// cut short.
func (c *cutShort) sure(err error) error {
	if err == nil && c.Load() {
		return &Fault{Class: ErrUnavailable, Code: warning, Unknown: true}
	}
	return err
}

// warning is the SQLSTATE of a warning without one of its own, which that is.
const warning = "01000"

// A watcher leads from a connection, which hears a warning, to the query that
// is under way on it.
type watcher struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (watcher) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if c, ok := ctx.Value(cutShortKey{}).(*cutShort); ok {
		conn.PgConn().CustomData()[watchedBy] = c
	}
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (watcher) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	delete(conn.PgConn().CustomData(), watchedBy)
}

// watchedBy is the key of a connection's query.
const watchedBy = "fencepost"

// warned is told of every notice.
func warned(conn *pgconn.PgConn, n *pgconn.Notice) {
	if c, ok := conn.CustomData()[watchedBy].(*cutShort); ok && n.SeverityUnlocalized == "WARNING" && n.Code == warning {
		c.Store(true)
	}
}
