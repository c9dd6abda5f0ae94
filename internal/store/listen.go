package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// closeListening bounds the end of a listening connection.
const closeListening = time.Second

// Listen calls heard with the payload of each notification of a channel, one
// at a time, until ctx has ended, which is nil, or the connection has. It has
// a connection of its own, and calls ready once it hears. What is said before
// that, or while there is no connection, is lost: it is a hint to look sooner,
// and whoever listens looks now and then all the same. channel is a name of
// the program's own. PostgreSQL alone can do this; its errors are those of
// [DB.Read].
func (d *DB) Listen(ctx context.Context, channel string, ready func(), heard func(payload string)) error {
	const op = "listen to the database"
	if d.kind != Postgres {
		return reasoned(op, &Fault{Class: ErrUnavailable, Code: "not PostgreSQL"})
	}
	conn, err := pgx.ConnectConfig(ctx, d.postgres.Copy())
	if err == nil {
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeListening)
			defer cancel()
			// What it may say is over anyway.
			_ = conn.Close(end)
		}()
		_, err = conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize())
	}
	if err == nil {
		ready()
	}
	for err == nil {
		err = hear(ctx, conn, heard)
	}
	if ctx.Err() != nil {
		return nil
	}
	return reasoned(op, fault(err))
}

// listenCheck is how long a listener hears nothing before it asks whether the
// connection still stands: one that is cut says nothing either.
const listenCheck = 15 * time.Second

// hear waits for one notification, or makes sure that the connection stands.
func hear(ctx context.Context, conn *pgx.Conn, heard func(string)) error {
	wait, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	said, err := conn.WaitForNotification(wait)
	switch {
	case err == nil:
		heard(said.Payload)
		return nil
	case ctx.Err() == nil && wait.Err() != nil:
		return ping(ctx, conn)
	}
	return err
}

// ping asks for an answer within [closeListening].
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, closeListening)
	defer cancel()
	return conn.Ping(ctx)
}

// Notify sends a payload, shorter than 8000 bytes, to all who listen to a
// channel, this process among them. Its errors are those of [DB.Write].
func (d *DB) Notify(ctx context.Context, channel, payload string) error {
	return d.Write(ctx, "notify", func(ctx context.Context, tx *Tx) error {
		var ignored string
		_, err := tx.One(ctx, "select pg_notify(?, ?)::text", []any{channel, payload}, &ignored)
		return err
	})
}
