package sqlinbox

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/store"
)

// parts is how many counters of the inbox's size there are; the schema has
// them.
const parts = 32

// A request is a delivery on its way into the inbox.
type request struct {
	key, binding    string
	received, end   int64 // Unix nanoseconds; end is 0 for permanent
	part            int64
	digest          string
	entry           []byte
	entries, stored int64 // the inbox's bounds
}

// Record records a request durably and returns when it is committed. headers
// are those that the route's verifier needs. It keeps nothing of body.
//
// Its error matches [inbox.ErrFull], [inbox.ErrClosed],
// [fencepost.ErrTooLarge] or [fencepost.ErrZeroValue], or is ctx's cause or one
// of the database's. After an error the request may have been recorded all the
// same, unless it is [inbox.ErrFull].
func (b *Inbox) Record(ctx context.Context, d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) (inbox.Outcome, error) {
	entry, err := inbox.Encode(d, headers, body, b.cfg.MaxBody)
	if err != nil {
		return 0, err
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := b.begin(); err != nil {
		return 0, err
	}
	defer b.users.Done()
	key, binding := d.Key(), d.Binding()
	r := request{
		key: key.Hex(), binding: hex.EncodeToString(binding[:]), received: d.Received().UnixNano(),
		part: rand.Int64N(parts), digest: digest(entry), entry: entry,
		entries: int64(b.cfg.MaxEntries), stored: b.cfg.MaxBytes,
	}
	if end, bounded := d.Lifetime().End(); bounded {
		r.end = end.UnixNano()
	}
	var outcome inbox.Outcome
	err = b.write(ctx, "inbox.record", func(ctx context.Context, tx *store.Tx) (err error) {
		outcome, err = r.put(ctx, tx)
		return err
	})
	if errors.Is(err, store.ErrUnknownOutcome) && b.stands(ctx, r) {
		// Whoever wrote it: it is committed.
		outcome, err = inbox.Accepted, nil
	}
	if err != nil {
		return 0, b.refusal(err)
	}
	switch outcome {
	case inbox.Accepted:
		b.hint()
	case inbox.Replayed:
		b.repeated(key)
	}
	return outcome, nil
}

// refusal adds what the sender is told where there is no room.
func (b *Inbox) refusal(err error) error {
	if full, ok := errors.AsType[*inbox.FullError](err); ok {
		full.RetryAfter = b.cfg.RetryAfter
		return err
	}
	if errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnknownOutcome) {
		return &inbox.FullError{Bound: inbox.BoundDisk, RetryAfter: b.cfg.RetryAfter, Err: err}
	}
	return err
}

const insert = `with size as (select coalesce(sum(entries), 0)::bigint as entries, coalesce(sum(bytes), 0)::bigint as bytes from inbox_parts),
	fresh as (insert into inbox_entries (key, binding, received_ns, replay_end_ns, part, bytes, digest, body)
		select ?::text, ?::text, ?::bigint, ?::bigint, ?::bigint, ?::bigint, ?::text, ?::bytea
		from size where size.entries < ?::bigint and size.bytes + ?::bigint <= ?::bigint
		on conflict (key) do nothing returning serial),
	counted as (update inbox_parts set entries = entries + 1, bytes = bytes + ?::bigint where part = ?::bigint and exists (select from fresh))
	select (select count(*) from fresh), size.entries, size.bytes, coalesce(e.binding, ''), coalesce(e.replay_end_ns, 0)
	from size left join inbox_entries e on e.key = ?`

// put records a request in one statement, unless its delivery is there.
func (r request) put(ctx context.Context, tx *store.Tx) (inbox.Outcome, error) {
	size := int64(len(r.entry))
	var fresh, entries, bytes, end int64
	var binding string
	_, err := tx.One(ctx, insert, []any{
		r.key, r.binding, r.received, r.end, r.part, size, r.digest, r.entry, r.entries, size, r.stored, size, r.part, r.key,
	}, &fresh, &entries, &bytes, &binding, &end)
	switch {
	case err != nil:
		return 0, err
	case fresh == 1:
		return inbox.Accepted, nil
	case binding == "" && entries >= r.entries:
		return 0, &inbox.FullError{Bound: inbox.BoundEntries}
	case binding == "" && bytes+size > r.stored:
		return 0, &inbox.FullError{Bound: inbox.BoundBytes}
	case binding == "":
		// It was recorded by another process after this statement's beginning.
		return 0, &store.Fault{Class: store.ErrBusy}
	case binding != r.binding:
		return inbox.Conflict, nil
	case !inbox.EndsLater(r.end, end):
		// It is seen here, which does not say that it is on the standbys.
		_, err := tx.Exec(ctx, "select "+store.Confirm)
		return inbox.Replayed, err
	}
	// To be recognised for longer it has to be on the disk (DESIGN §4).
	return inbox.Replayed, r.replace(ctx, tx, end)
}

const replace = `with was as (select serial, part, bytes from inbox_entries where key = ? and binding = ? and replay_end_ns = ? for update),
	now as (update inbox_entries e set received_ns = ?, replay_end_ns = ?, version = e.version + 1, bytes = ?::bigint, digest = ?, body = ?
		from was where e.serial = was.serial returning was.part, was.bytes)
	update inbox_parts p set bytes = p.bytes + ?::bigint - now.bytes from now where p.part = now.part`

// replace puts a request in the place of its delivery's entry, which ends at
// end.
func (r request) replace(ctx context.Context, tx *store.Tx, end int64) error {
	size := int64(len(r.entry))
	n, err := tx.Exec(ctx, replace, r.key, r.binding, end, r.received, r.end, size, r.digest, r.entry, size)
	if err == nil && n != 1 {
		err = &store.Fault{Class: store.ErrBusy}
	}
	return err
}

// stands reports whether an entry is known to be stored, here and on
// synchronous standbys, that says all that r says. That it isn't found proves
// nothing.
func (b *Inbox) stands(ctx context.Context, r request) bool {
	var end int64
	found := false
	var confirmed string
	err := b.confirm(ctx, "inbox.record", func(ctx context.Context, tx *store.Tx) (err error) {
		found, err = tx.One(ctx, "select replay_end_ns, "+store.Confirm+" from inbox_entries where key = ? and binding = ?",
			[]any{r.key, r.binding}, &end, &confirmed)
		return err
	})
	return err == nil && found && !inbox.EndsLater(r.end, end)
}

// mostRepeats bounds the repeats that wait to be told; further ones are not.
const mostRepeats = 1000

// repeated has the others told of a repeat.
func (b *Inbox) repeated(key fencepost.DeliveryKey) {
	b.mu.Lock()
	if len(b.repeats) < mostRepeats {
		b.repeats[key] = struct{}{}
	}
	b.mu.Unlock()
	signal(b.told)
}
