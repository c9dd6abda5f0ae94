package sqlinbox

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/inbox/inboxtest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

// restarting is a server that a test restarts.
var postgres, restarting = pgtest.Server{Fast: true}, pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, restarting.Stop, func() error { return goleak.Find() }))
}

// testLease is short, so that takeovers are.
const testLease = time.Second

// A box is an inbox with a database of its own, as a process has it.
type box struct {
	*Inbox
	db      *store.DB
	running sync.WaitGroup
	stop    context.CancelFunc
}

func openDB(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: url, Connections: 4})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// openBox opens an inbox as a process does, without its upkeep.
func openBox(t testing.TB, url string, cfg Config) *box {
	t.Helper()
	b := &box{db: openDB(t, url)}
	if cfg.Lease == 0 {
		cfg.Lease = testLease
	}
	var err error
	if b.Inbox, err = Open(t.Context(), b.db, cfg); err != nil {
		t.Fatal(err)
	}
	b.stop = func() {}
	t.Cleanup(func() { b.kill(t) })
	return b
}

// run starts the upkeep.
func (b *box) run(t testing.TB) *box {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	b.stop = stop
	b.running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// kill ends the process without a word to others.
func (b *box) kill(t testing.TB) {
	b.stop()
	b.running.Wait()
	if err := b.db.Close(); err != nil {
		t.Error(err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t *testing.T, bounds inboxtest.Bounds) inboxtest.Harness {
		url := postgres.Database(t)
		cfg := Config{MaxEntries: bounds.Entries, MaxBody: bounds.Body, RetryAfter: bounds.RetryAfter, Look: 100 * time.Millisecond}
		return inboxtest.Harness{
			Open: func(t testing.TB) inboxtest.Box { return openBox(t, url, cfg).run(t) },
			Close: func(t testing.TB, b inboxtest.Box) {
				if err := b.(*box).Close(t.Context()); err != nil {
					t.Error(err)
				}
			},
			Kill: func(t testing.TB, b inboxtest.Box) { b.(*box).kill(t) },
			Damage: func(t testing.TB) {
				postgres.Exec(t, url, "update inbox_entries set body = set_byte(body, 200, get_byte(body, 200) # 1)")
			},
			Takeover: 2 * testLease,
		}
	})
}
