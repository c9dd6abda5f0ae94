package sqlinbox

import (
	"context"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/store"
)

const (
	// channel is what processes tell each other on: "" for there being
	// something to do, or the key of a delivery that was repeated.
	channel = "fencepost_inbox"
	// beats is how often in a lease a process says that it is alive.
	beats = 5
	// tellPause is the least time between two tellings: each wakes everybody,
	// and takes the server's one lock of notifications.
	tellPause = 50 * time.Millisecond
)

// Run, which must not be called twice, keeps this process's entries its own,
// has those of dead ones handed out again, and passes on what processes tell
// each other, until ctx ends or the inbox is closed. It returns nil. While the
// database does not work it tries again, which shows in [Inbox.Health].
func (b *Inbox) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { b.tell(ctx) })
	parts.Go(func() { b.listen(ctx) })
	beat := time.NewTicker(b.cfg.Lease / beats)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.shut:
			return nil
		case <-beat.C:
			err := b.round(ctx)
			if ctx.Err() != nil {
				return nil
			}
			b.mu.Lock()
			b.trouble = err
			b.mu.Unlock()
		}
	}
}

// round says that this process is alive, looks for those that are not, and
// measures the inbox.
func (b *Inbox) round(ctx context.Context) error {
	if b.begin() != nil {
		return nil // closed: Run ends next
	}
	defer b.users.Done()
	if err := b.beat(ctx); err != nil {
		return err
	}
	if err := b.bury(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// beat says that this process is alive. If it was taken for dead, it goes on
// under another name.
func (b *Inbox) beat(ctx context.Context) error {
	owner, alive := b.name(), false
	err := b.write(ctx, "inbox.beat", func(ctx context.Context, tx *store.Tx) error {
		n, err := tx.Exec(ctx, "update inbox_owners set expires_at = {now} + ? where owner = ?", b.cfg.Lease.Microseconds(), owner)
		alive = n == 1
		return err
	})
	if err != nil || alive {
		return err
	}
	b.claiming.Lock()
	defer b.claiming.Unlock()
	if b.name() != owner {
		return nil // a look for entries has noticed it, too
	}
	return b.enlist(ctx)
}

// bury removes those whose time has passed; their entries are nobody's then.
func (b *Inbox) bury(ctx context.Context) error {
	buried := int64(0)
	err := b.write(ctx, "inbox.bury", func(ctx context.Context, tx *store.Tx) (err error) {
		buried, err = tx.Exec(ctx, "delete from inbox_owners where expires_at <= {now}")
		return err
	})
	if buried > 0 {
		b.hint()
	}
	return err
}

// measure refreshes what Stats says.
func (b *Inbox) measure(ctx context.Context) error {
	var s inbox.Stats
	err := b.read(ctx, "inbox.measure", func(ctx context.Context, tx *store.Tx) error {
		var entries, bytes, oldest int64
		_, err := tx.One(ctx, `select coalesce(sum(entries), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
				coalesce((select received_ns from inbox_entries where owner is null order by received_ns, serial limit 1), 0) from inbox_parts`,
			nil, &entries, &bytes, &oldest)
		s = inbox.Stats{Entries: int(entries), Bytes: bytes}
		if oldest != 0 {
			s.Oldest = time.Unix(0, oldest).UTC()
		}
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats = s
	return nil
}

// tell tells other processes of news and of repeats. A telling that fails is
// not tried again: they look by themselves.
func (b *Inbox) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.told:
		}
		b.mu.Lock()
		payloads := make([]string, 0, 1+len(b.repeats))
		payloads = append(payloads, "")
		for key := range b.repeats {
			payloads = append(payloads, key.Hex())
		}
		clear(b.repeats)
		b.mu.Unlock()
		for _, payload := range payloads {
			if b.db.Notify(ctx, channel, payload) != nil {
				break
			}
		}
		pause(ctx, tellPause)
	}
}

// listen hears what others tell, for as long as ctx lasts.
func (b *Inbox) listen(ctx context.Context) {
	for ctx.Err() == nil {
		// An error says that it hears nothing for a while, which is no more
		// than a slower take-up; the beat tells of a database that is away.
		_ = b.db.Listen(ctx, channel, func() { signal(b.news) }, b.heard)
		pause(ctx, b.cfg.Look)
	}
}

func (b *Inbox) heard(payload string) {
	key, err := fencepost.ParseDeliveryKey(payload)
	if err != nil {
		signal(b.news)
		return
	}
	b.cfg.OnRepeat(key)
}

// pause waits, but no longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
