package sqlinbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/inbox/inboxtest"
	"github.com/fencepost/fencepost/internal/store"
)

// losing makes a transaction whose answer is lost, stored or not.
func losing(write transaction, stored bool) transaction {
	return func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error {
		lost := &fencepost.Error{Op: op, Reason: fencepost.ReasonUnavailable, Err: store.ErrUnknownOutcome}
		if !stored {
			return lost
		}
		return errors.Join(write(ctx, op, fn), lost)
	}
}

func delivery(t testing.TB, id uint64) fencepost.AcceptedDelivery {
	return inboxtest.Accepted(t, id, "one", time.Time{}, time.Time{})
}

func (b *box) record(t testing.TB, id uint64) (inbox.Outcome, error) {
	t.Helper()
	return b.Record(t.Context(), delivery(t, id), inboxtest.Headers(), []byte("one"))
}

func (b *box) next(t testing.TB) inbox.Item {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	item, err := b.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCounted demands that the counters say what there is.
func wantCounted(t testing.TB, url string, entries int64) {
	t.Helper()
	db := openDB(t, url)
	defer func() { must(t, db.Close()) }()
	must(t, db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		var n, bytes, rows, stored int64
		_, err := tx.One(ctx, `select (select sum(entries)::bigint from inbox_parts), (select sum(bytes)::bigint from inbox_parts),
			(select count(*) from inbox_entries), (select coalesce(sum(length(body)), 0)::bigint from inbox_entries)`, nil, &n, &bytes, &rows, &stored)
		if n != rows || bytes != stored || rows != entries {
			t.Errorf("%d entries of %d bytes are counted, there are %d of %d; want %d", n, bytes, rows, stored, entries)
		}
		return err
	}))
}

// Invariant 3: what is answered is committed. Where the answer of the commit
// is lost, what is there is looked up, and nothing is guessed.
func TestARecordOfUnknownOutcomeIsLookedUp(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	b := openBox(t, url, Config{})
	write, confirm := b.write, b.confirm
	b.write = losing(write, false)
	if got, err := b.record(t, 1); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("not stored: %v, %v; want the error", got, err)
	}
	b.write, b.confirm = losing(write, true), losing(confirm, false)
	if got, err := b.record(t, 2); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("stored, and not to be looked up: %v, %v; want the error", got, err)
	}
	b.confirm = confirm
	if got, err := b.record(t, 3); err != nil || got != inbox.Accepted {
		t.Errorf("stored: %v, %v; want accepted", got, err)
	}
	b.write = write
	for id, want := range map[uint64]inbox.Outcome{1: inbox.Accepted, 2: inbox.Replayed, 3: inbox.Replayed} {
		if got, err := b.record(t, id); err != nil || got != want {
			t.Errorf("again %d: %v, %v; want %v", id, got, err, want)
		}
	}
	wantCounted(t, url, 3)
}

// A claim whose answer is lost keeps its entry from nobody.
func TestAClaimOfUnknownOutcomeIsGivenBack(t *testing.T) {
	t.Parallel()
	b := openBox(t, postgres.Database(t), Config{Lease: time.Minute, Look: 10 * time.Millisecond})
	_, err := b.record(t, 1)
	must(t, err)
	write := b.write
	b.write = losing(write, true)
	if _, found, err := b.take(t.Context()); found || !errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatalf("take = %v, %v; want nothing and the error", found, err)
	}
	b.write = write
	item := b.next(t)
	_, err = b.Read(t.Context(), item.ID)
	must(t, err)
	must(t, b.Done(t.Context(), item.ID))
}

func TestADoneOfUnknownOutcomeIsDoneOnce(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	b := openBox(t, url, Config{Lease: time.Minute})
	_, err := b.record(t, 1)
	must(t, err)
	item, write := b.next(t), b.write
	b.write = losing(write, true)
	if err := b.Done(t.Context(), item.ID); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatalf("Done = %v, want the error", err)
	}
	b.write = write
	if err := b.Done(t.Context(), item.ID); !errors.Is(err, inbox.ErrNotLeased) {
		t.Errorf("Done again = %v, want ErrNotLeased", err)
	}
	wantCounted(t, url, 0)
}

// Invariant 5, as far as an inbox has a part in it: a process that is silent
// for longer than its lease has nothing any more, and hears of it wherever it
// looks.
func TestAPausedProcessHasNothingAnyMore(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	paused := openBox(t, url, Config{Look: 10 * time.Millisecond})
	for id := range uint64(2) {
		_, err := paused.record(t, id)
		must(t, err)
	}
	had, also := paused.next(t), paused.next(t)
	other := openBox(t, url, Config{Look: 10 * time.Millisecond}).run(t)
	if item := other.next(t); item.Key != had.Key {
		t.Errorf("taken over %v, want the first, %v", item.Key, had.Key)
	}
	for what, err := range map[string]error{
		"Done": paused.Done(t.Context(), had.ID), "Release": paused.Release(t.Context(), also.ID),
	} {
		if !errors.Is(err, inbox.ErrNotLeased) {
			t.Errorf("%s = %v, want ErrNotLeased", what, err)
		}
	}
	if _, err := paused.Read(t.Context(), also.ID); !errors.Is(err, inbox.ErrNotLeased) {
		t.Errorf("Read = %v, want ErrNotLeased", err)
	}
	other.next(t)
	_, err := other.record(t, 3)
	must(t, err)
	// It goes on under another name.
	before := paused.name()
	if item := paused.next(t); item.Key != delivery(t, 3).Key() {
		t.Errorf("goes on with %v", item.Key)
	}
	if paused.name() == before {
		t.Error("it goes on under the name of the dead")
	}
}

// Also one whose upkeep goes on finds out, and loses no more than it had.
func TestABeatOfTheDeadTakesAnotherName(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	b := openBox(t, url, Config{Lease: time.Minute})
	before := b.name()
	must(t, b.beat(t.Context()))
	if b.name() != before {
		t.Error("a living process took another name")
	}
	postgres.Exec(t, url, "delete from inbox_owners")
	must(t, b.beat(t.Context()))
	if b.name() == before {
		t.Error("a process that was taken for dead kept its name")
	}
}

func TestNewsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	repeated := make(chan fencepost.DeliveryKey, 10)
	// It never looks by itself: what it finds, it was told of.
	b := openBox(t, url, Config{Look: time.Hour, OnRepeat: func(k fencepost.DeliveryKey) { repeated <- k }}).run(t)
	a := openBox(t, url, Config{}).run(t)
	got := make(chan inbox.Item, 1)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go func() {
		defer close(got)
		if item, err := b.Next(ctx); err == nil {
			got <- item
		}
	}()
	// Until it listens it hears nothing.
	for id := uint64(0); ; id++ {
		_, err := a.record(t, id)
		must(t, err)
		select {
		case item, ok := <-got:
			if !ok {
				t.Fatal("no news came")
			}
			if outcome, err := a.record(t, 0); err != nil || outcome != inbox.Replayed {
				t.Fatalf("the repeat: %v, %v", outcome, err)
			}
			select {
			case key := <-repeated:
				if key != item.Key {
					t.Errorf("told of %v, want %v", key, item.Key)
				}
			case <-ctx.Done():
				t.Error("no repeat was told of")
			}
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func TestARestartedServerStopsNobody(t *testing.T) {
	t.Parallel()
	server := &restarting
	url := server.Database(t)
	b := openBox(t, url, Config{Look: 10 * time.Millisecond}).run(t)
	_, err := b.record(t, 1)
	must(t, err)
	waited := make(chan inbox.Item, 2)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	item := b.next(t)
	waited <- item
	go func() {
		defer close(waited)
		if item, err := b.Next(ctx); err == nil {
			waited <- item
		}
	}()
	server.Restart(t)
	// Each try may meet one of the connections that the restart broke.
	for {
		outcome, err := b.record(t, 2)
		if err == nil {
			if outcome != inbox.Accepted && outcome != inbox.Replayed {
				t.Fatalf("recorded: %v", outcome)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("never recorded again: %v", err)
		}
	}
	<-waited
	if item, ok := <-waited; !ok || item.Key != delivery(t, 2).Key() && item.Key != delivery(t, 1).Key() {
		t.Errorf("handed out %v, %v", item.Key, ok)
	}
}

func TestOtherDatabasesAreRefused(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	volatile, err := store.Open(t.Context(), store.Options{URL: url + "&synchronous_commit=off", Connections: 2})
	must(t, err)
	defer func() { must(t, volatile.Close()) }()
	if _, err := Open(t.Context(), volatile, Config{}); !errors.Is(err, store.ErrVolatile) {
		t.Errorf("synchronous_commit off: %v, want ErrVolatile", err)
	}
	lite, err := store.Open(t.Context(), store.Options{Path: t.TempDir() + "/state.db", Now: time.Now})
	must(t, err)
	defer func() { must(t, lite.Close()) }()
	if _, err := Open(t.Context(), lite, Config{}); !errors.Is(err, fencepost.ErrMalformed) {
		t.Errorf("SQLite: %v, want ErrMalformed", err)
	}
	db := openDB(t, url)
	defer func() { must(t, db.Close()) }()
	for name, cfg := range map[string]Config{
		"no entries": {MaxEntries: -1}, "huge body": {MaxBody: 1 << 30}, "short lease": {Lease: time.Millisecond},
		"no bytes": {MaxBytes: -1}, "negative time": {RetryAfter: -1},
	} {
		if _, err := Open(t.Context(), db, cfg); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

func TestFullOfBytes(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	b := openBox(t, url, Config{MaxBytes: 600, Lease: time.Minute})
	recorded := uint64(0)
	var err error
	for ; err == nil && recorded < 100; recorded++ {
		_, err = b.record(t, recorded)
	}
	if full, ok := errors.AsType[*inbox.FullError](err); !ok || full.Bound != inbox.BoundBytes {
		t.Fatalf("Record = %v after %d, want full of bytes", err, recorded)
	}
	wantCounted(t, url, int64(recorded-1))
	must(t, b.Done(t.Context(), b.next(t).ID))
	if got, err := b.record(t, 1000); err != nil || got != inbox.Accepted {
		t.Errorf("with room again: %v, %v", got, err)
	}
}
