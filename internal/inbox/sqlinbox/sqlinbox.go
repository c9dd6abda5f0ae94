package sqlinbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/store"
)

// A transaction is [store.DB.Write] or [store.DB.Read].
type transaction func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error

// An Inbox holds recorded requests until they are done, for all processes
// that open it. It is safe for concurrent use; [Inbox.Run] should run for as
// long as it is open.
type Inbox struct {
	cfg Config
	db  *store.DB
	// write, read and confirm are the database's, the last one to write what is
	// read back; tests let them lose answers.
	write, read, confirm transaction

	// users are calls under way, which Close waits for.
	users sync.WaitGroup
	// shut is closed by Close.
	shut chan struct{}
	// news has a token while entries may be ready, for one who waits.
	news chan struct{}
	// told has what other processes are to hear of, and a token of it.
	told chan struct{}

	// claiming is held while entries are taken, so that what the database
	// says this process has can be held against what it knows to have.
	claiming sync.Mutex
	// unsure: an entry may have been taken without this process knowing.
	// Guarded by claiming.
	unsure bool

	mu sync.Mutex
	// Guarded by mu.
	owner string
	// held is what was handed out and is not done: its version as it was read
	// last, by serial.
	held    map[uint64]int64
	repeats map[fencepost.DeliveryKey]struct{}
	stats   inbox.Stats
	// trouble is what the last round of upkeep could not do, looking what the
	// last look for entries could not.
	trouble, looking error
	// corrupt is how many entries were read that do not verify.
	corrupt int
	closed  bool
}

// Open opens the inbox of a PostgreSQL database. Close closes the inbox and
// leaves the database open. Its error matches [fencepost.ErrMalformed] or
// [store.ErrVolatile], or is one of the database's.
func Open(ctx context.Context, db *store.DB, cfg Config) (*Inbox, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if db.Kind() != store.Postgres {
		return nil, fmt.Errorf("open inbox: need PostgreSQL: %w", fencepost.ErrMalformed)
	}
	if err := db.CheckDurable(ctx); err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	b := &Inbox{
		cfg: cfg, db: db, write: db.Write, read: db.Read, confirm: db.Write,
		shut: make(chan struct{}), news: make(chan struct{}, 1), told: make(chan struct{}, 1),
		repeats: map[fencepost.DeliveryKey]struct{}{},
	}
	if err := errors.Join(b.enlist(ctx), b.measure(ctx)); err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	return b, nil
}

// begin counts a call that uses the database, unless the inbox is closed. The
// caller then calls users.Done.
func (b *Inbox) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return inbox.ErrClosed
	}
	b.users.Add(1)
	return nil
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *Inbox) name() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owner
}

// enlist takes a new name, under which this process has no entry.
func (b *Inbox) enlist(ctx context.Context) error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("draw an owner: %w", err)
	}
	owner := hex.EncodeToString(random[:])
	err := b.write(ctx, "inbox.enlist", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, "insert into inbox_owners (owner, expires_at) values (?, {now} + ?)", owner, b.cfg.Lease.Microseconds())
		return err
	})
	if err != nil {
		// It may be there, and passes away.
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner, b.held = owner, map[uint64]int64{}
	return nil
}

// Next hands out the entry that was received first among those that nobody
// has, waiting for one. Its error is ctx's cause, or [inbox.ErrClosed]: while
// the database does not work, it waits.
func (b *Inbox) Next(ctx context.Context) (inbox.Item, error) {
	look := time.NewTicker(b.cfg.Look)
	defer look.Stop()
	for {
		if err := context.Cause(ctx); err != nil {
			return inbox.Item{}, err
		}
		item, found, err := b.take(ctx)
		if errors.Is(err, inbox.ErrClosed) {
			return inbox.Item{}, err
		}
		if ctx.Err() == nil {
			b.mu.Lock()
			b.looking = err
			b.mu.Unlock()
		}
		if found {
			return item, nil
		}
		// After an error news is no reason to try again at once.
		news := b.news
		if err != nil {
			news = nil
		}
		select {
		case <-news:
		case <-look.C:
		case <-b.shut:
		case <-ctx.Done():
		}
	}
}

// take hands out one entry, if there is one.
func (b *Inbox) take(ctx context.Context) (inbox.Item, bool, error) {
	if err := b.begin(); err != nil {
		return inbox.Item{}, false, err
	}
	defer b.users.Done()
	b.claiming.Lock()
	defer b.claiming.Unlock()
	if b.unsure {
		if err := b.release(ctx); err != nil {
			return inbox.Item{}, false, err
		}
	}
	item, found, err := b.claim(ctx)
	if errors.Is(err, store.ErrConstraint) {
		// This process was taken for dead.
		if err = b.enlist(ctx); err == nil {
			item, found, err = b.claim(ctx)
		}
	}
	// Also what ctx cut off, or the way to the server, may be done there.
	b.unsure = err != nil
	return item, found, err
}

const claimFirst = `update inbox_entries set owner = ? where owner is null and serial =
		(select serial from inbox_entries where owner is null order by received_ns, serial limit 1 for update skip locked)
	returning serial, version, key, received_ns`

// claim takes the first entry that nobody has.
func (b *Inbox) claim(ctx context.Context) (item inbox.Item, found bool, err error) {
	var serial, version, received int64
	var key string
	err = b.write(ctx, "inbox.next", func(ctx context.Context, tx *store.Tx) (err error) {
		found, err = tx.One(ctx, claimFirst, []any{b.name()}, &serial, &version, &key, &received)
		return err
	})
	if err != nil || !found {
		return inbox.Item{}, false, err
	}
	item = inbox.Item{ID: inbox.NewItemID(uint64(serial)), Received: time.Unix(0, received).UTC()}
	// A key that can't be read is damage: whoever reads the entry sees it.
	item.Key, _ = fencepost.ParseDeliveryKey(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[uint64(serial)] = version
	return item, true, nil
}

// release gives back what the database says this process has, and it does not
// know of: a claim whose answer was lost. claiming is held.
func (b *Inbox) release(ctx context.Context) error {
	b.mu.Lock()
	owner, known := b.owner, make(map[int64]bool, len(b.held))
	for serial := range b.held {
		known[int64(serial)] = true
	}
	b.mu.Unlock()
	return b.write(ctx, "inbox.next", func(ctx context.Context, tx *store.Tx) error {
		var lost []int64
		err := tx.Each(ctx, "select serial from inbox_entries where owner = ?", []any{owner}, func(scan func(...any) error) error {
			var serial int64
			err := scan(&serial)
			if !known[serial] {
				lost = append(lost, serial)
			}
			return err
		})
		for _, serial := range lost {
			if err == nil {
				_, err = tx.Exec(ctx, "update inbox_entries set owner = null where serial = ? and owner = ?", serial, owner)
			}
		}
		return err
	})
}

// notHeld says that an item is not this process's, or not any more.
func notHeld(id inbox.ItemID) error { return fmt.Errorf("inbox item %s: %w", id, inbox.ErrNotLeased) }

// changeOwn makes a change of an entry that this process has, which reports
// whether the database agreed.
func (b *Inbox) changeOwn(ctx context.Context, op string, id inbox.ItemID, change func(ctx context.Context, tx *store.Tx, owner string, version int64) (bool, error)) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.users.Done()
	b.mu.Lock()
	owner, version := b.owner, b.held[id.Serial()]
	b.mu.Unlock()
	if version == 0 {
		return notHeld(id)
	}
	own := false
	err := b.write(ctx, op, func(ctx context.Context, tx *store.Tx) (err error) {
		own, err = change(ctx, tx, owner, version)
		return err
	})
	if err != nil {
		return err
	}
	b.drop(owner, id)
	if !own {
		return notHeld(id)
	}
	return nil
}

// drop forgets an item that was handed out to owner.
func (b *Inbox) drop(owner string, id inbox.ItemID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == owner {
		delete(b.held, id.Serial())
	}
}

const giveBack = "update inbox_entries set owner = null where serial = ? and owner = ?"

// Release puts an item back, to be handed out again, here or elsewhere. Its
// error matches [inbox.ErrNotLeased] or [inbox.ErrClosed], or is one of the
// database's; then it may have been released.
func (b *Inbox) Release(ctx context.Context, id inbox.ItemID) error {
	err := b.changeOwn(ctx, "inbox.release", id, func(ctx context.Context, tx *store.Tx, owner string, _ int64) (bool, error) {
		n, err := tx.Exec(ctx, giveBack, int64(id.Serial()), owner)
		return n == 1, err
	})
	b.hint()
	return err
}

const remove = `with gone as (delete from inbox_entries where serial = ? and owner = ? and version = ? returning part, bytes),
	counted as (update inbox_parts p set entries = p.entries - 1, bytes = p.bytes - gone.bytes from gone where p.part = gone.part)
	select count(*) from gone`

// Done forgets an item for good, durably. One that a repeat with a later
// replay end has replaced since it was read is handed out again instead. Its
// error matches [inbox.ErrNotLeased] if another process has the item, or it is
// done, or [inbox.ErrClosed], or is one of the database's; then it may be done.
func (b *Inbox) Done(ctx context.Context, id inbox.ItemID) error {
	again := false
	err := b.changeOwn(ctx, "inbox.done", id, func(ctx context.Context, tx *store.Tx, owner string, version int64) (bool, error) {
		var gone int64
		_, err := tx.One(ctx, remove, []any{int64(id.Serial()), owner, version}, &gone)
		if err != nil || gone == 1 {
			return err == nil, err
		}
		n, err := tx.Exec(ctx, giveBack, int64(id.Serial()), owner)
		again = n == 1
		return again, err
	})
	if again {
		b.hint()
	}
	return err
}

// hint says that there may be something ready, here and elsewhere.
func (b *Inbox) hint() {
	signal(b.news)
	signal(b.told)
}

// Close waits for the calls under way and gives back what this process has.
// Later calls are [inbox.ErrClosed].
func (b *Inbox) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return inbox.ErrClosed
	}
	b.closed = true
	owner, stopped := b.owner, b.trouble
	b.mu.Unlock()
	close(b.shut)
	b.users.Wait()
	if stopped != nil {
		// Others will see that this process is silent.
		return nil
	}
	return b.write(ctx, "inbox.close", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, "delete from inbox_owners where owner = ?", owner)
		return err
	})
}
