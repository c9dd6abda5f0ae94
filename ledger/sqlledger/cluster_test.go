package sqlledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// TestAServerThatForgetsIsRefused, each setting by its name, with the mend.
func TestAServerThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	fast := postgres.Database(t)
	pg := pgtest.Server{}
	t.Cleanup(func() { must0(t, pg.Stop()) })
	safe := pg.Database(t)
	clock := ledgertest.NewClock()
	for name, c := range map[string]struct {
		url      string
		volatile bool
		setting  string
	}{
		"no fsync":                  {fast, false, "fsync"},
		"no fsync, for a trial":     {fast, true, ""},
		"no synchronous commit":     {fast + "&synchronous_commit=off", true, "synchronous_commit"},
		"standbys not waited for":   {safe + "&synchronous_commit=local", false, "synchronous_commit"},
		"as it should be":           {safe, false, ""},
		"standbys have it in force": {safe + "&synchronous_commit=remote_apply", false, ""},
	} {
		l, err := Open(t.Context(), Config{URL: c.url, Volatile: c.volatile, Now: clock.Now, Instant: clock.Instant})
		if c.setting == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			must0(t, l.Close())
			continue
		}
		s, ok := errors.AsType[*SettingError](err)
		if !ok || s.Setting != c.setting || !strings.Contains(s.Mend, c.setting) || !errors.Is(err, ErrVolatile) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
			t.Errorf("%s: %v, want a SettingError of %s", name, err, c.setting)
		}
	}
}

// fencesOutliveAFailover: on another timeline than the part's last fence was
// handed out on, which a promoted standby begins, fences start beyond all that
// were handed out and lost with the old primary; and so they do in another
// cluster, which a dump was loaded into.
func fencesOutliveAFailover(t *testing.T, fresh maker) {
	f := fresh(t)
	f.cfg.Parts = 1
	l, d := f.ledger(), permanent(t, "a")
	takeOver := func() uint64 {
		f.elapse(l.cfg.Lease + 1)
		return acquire(t, l, d).Fence().Uint64()
	}
	first := acquire(t, l, d).Fence().Uint64()
	if second := takeOver(); second != first+1 {
		t.Errorf("fence %d after %d on one timeline", second, first)
	}
	f.exec(l, "update ledger_parts set timeline = 'FFFFFFFF'")
	third := takeOver()
	if third>>40 != first>>40+1 {
		t.Errorf("fence %d on another timeline, after %d", third, first+1)
	}
	if fourth := takeOver(); fourth != third+1 {
		t.Errorf("fence %d after %d on one timeline", fourth, third)
	}
	f.exec(l, "update ledger_root set cluster = 'another'")
	l = f.ledger()
	if fifth := takeOver(); fifth>>40 != third>>40+1 {
		t.Errorf("fence %d in another cluster, after %d", fifth, third+1)
	}
}

// TestARestoredDumpRepeatsNoFence: who holds a lease from before is refused
// for good, also when the dump came back to the very server that made it.
func TestARestoredDumpRepeatsNoFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{URL: postgres.Database(t)})
	f.cfg.Parts = 1
	l, d := f.ledger(), permanent(t, "a")
	before := acquire(t, l, permanent(t, "before the dump"))
	old := f.cfg.URL
	f.cfg.URL = postgres.Database(t)
	postgres.Dump(t, old, f.cfg.URL)
	// Not in the dump: its fence is the next one that the dump knows of.
	lost := acquire(t, l, d)
	l = f.ledger()
	again := acquire(t, l, d)
	if again.Fence().Uint64()>>40 != lost.Fence().Uint64()>>40+1 {
		t.Errorf("fence %v from the dump, after %v that it does not know of", again.Fence(), lost.Fence())
	}
	if n, err := l.Renew(t.Context(), d, lost); err != nil || n != (fencepost.Renewal)(fencepost.Lost{}) {
		t.Errorf("renew: %T, %v; want Lost", n, err)
	}
	n, err := l.Renew(t.Context(), permanent(t, "before the dump"), before)
	must[fencepost.Renewed](t, n, err)
	// Opened again, it is where it was.
	next := acquire(t, f.ledger(), permanent(t, "next"))
	if next.Fence().Uint64() != again.Fence().Uint64()+1 {
		t.Errorf("fence %v after %v", next.Fence(), again.Fence())
	}
}

// theServersClockJumpsUnderMany: running time is what passed, however the
// server's clock goes and however many processes look.
func theServersClockJumpsUnderMany(t *testing.T, fresh maker) {
	f := fresh(t)
	var processes []*Ledger
	for range 4 {
		processes = append(processes, f.ledger())
	}
	for i := range 12 {
		f.elapse(15 * time.Second)
		f.step([]time.Duration{time.Hour, -time.Minute, 20 * time.Second}[i%3])
		must0(t, processes[i%4].CleanUp(t.Context()))
	}
	var most, least int64
	_, err := f.ledger().db.Ask(t.Context(), "test", "select max(running_ns), min(running_ns) from ledger_parts", nil, &most, &least)
	must0(t, err)
	if time.Duration(most) != 3*time.Minute || most != least {
		t.Errorf("%v and %v of running time, want 3m", time.Duration(most), time.Duration(least))
	}
}

// TestRunCleansUp: at once, and after each pause; what does not go well is
// told, and no more once it goes well.
func TestRunCleansUp(t *testing.T) {
	long(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boot := ledger.BootID{1}
		start := time.Now()
		cfg := Config{
			Path: t.TempDir() + "/l.db", Now: time.Now,
			Instant: func() ledger.Instant { return ledger.Instant{Boot: boot, At: time.Since(start)} },
		}
		l, err := Open(t.Context(), cfg)
		must0(t, err)
		d := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Body: "b", Signed: time.Now()})
		finish(t, l, d)
		running, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := l.Run(running); err != nil {
				t.Errorf("run: %v", err)
			}
		})
		w := fencepost.DefaultReplayWindow
		time.Sleep(w.MaxSignedAge + w.MaxQueueAge + 2*DefaultMaintain)
		synctest.Wait()
		if st, err := l.Stat(t.Context()); err != nil || st.Rows() != 0 {
			t.Errorf("%v, %v; want no row", st, err)
		}
		finish(t, l, ledgertest.Deliver(t, ledgertest.Spec{ID: "c", Body: "b", Signed: time.Now()}))
		must0(t, l.db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Exec(ctx, "update ledger_rows set body = substr(body, 1, 90), replay_end = 1")
			return err
		}))
		time.Sleep(DefaultMaintain)
		synctest.Wait()
		if h := l.Health(); !errors.Is(h.Maintenance, ErrCorrupt) || !h.OK() {
			t.Errorf("health: %+v, want a clean-up that found a damaged row", h)
		}
		must0(t, l.db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Exec(ctx, "delete from ledger_rows")
			return err
		}))
		time.Sleep(DefaultMaintain)
		synctest.Wait()
		if h := l.Health(); h.Maintenance != nil {
			t.Errorf("health: %v after it went well", h.Maintenance)
		}
		stop()
		group.Wait()
		must0(t, l.Close())
	})
}

// aPoolIsShared: two ledgers' worth of operations on one pool, which the
// ledger leaves open.
func aPoolIsShared(t *testing.T, fresh maker) {
	f := fresh(t)
	db, err := store.Open(t.Context(), store.Options{Path: f.cfg.Path, URL: f.cfg.URL, Now: f.cfg.Now, Connections: 2})
	must0(t, err)
	defer db.Close()
	l, err := OpenOn(t.Context(), db, f.cfg)
	must0(t, err)
	d := permanent(t, "a")
	if !l.MayKnow(d.Key()) {
		t.Error("it knows of no row without asking")
	}
	finish(t, l, d)
	acquire(t, l, permanent(t, "b"))
	must0(t, l.Close())
	again, err := OpenOn(t.Context(), db, f.cfg)
	must0(t, err)
	st, err := again.Stat(t.Context())
	if err != nil || st.Leased != 1 || st.Done != 1 || st.Staged != 0 || st.OldestLeased.IsZero() || !st.OldestStaged.IsZero() || st.UUID != l.uuid {
		t.Errorf("%+v, %v; want one leased, one done", st, err)
	}
}

// A counter is a way to a server that counts what asks for an answer.
type counter struct {
	listener net.Listener
	asked    atomic.Int64
	group    sync.WaitGroup
}

func newCounter(t *testing.T, to string) *counter {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must0(t, err)
	c := &counter{listener: listener}
	c.group.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				t.Error(err)
				in.Close()
				return
			}
			c.group.Go(func() { defer out.Close(); c.forward(in, out) })
			c.group.Go(func() { defer in.Close(); _, _ = io.Copy(in, out) })
		}
	})
	t.Cleanup(func() { listener.Close(); c.group.Wait() })
	return c
}

// forward counts the messages of a client after which it waits: Sync and
// Query. PostgreSQL documentation, "Frontend/Backend Protocol".
func (c *counter) forward(in io.Reader, out io.Writer) {
	first := true
	for {
		head := make([]byte, 5)
		if first {
			head = head[:4]
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		length := head[len(head)-4:]
		n := int(length[0])<<24 | int(length[1])<<16 | int(length[2])<<8 | int(length[3])
		rest := make([]byte, n-4)
		if _, err := io.ReadFull(in, rest); err != nil {
			return
		}
		// A connection that was idle for over a second is asked whether it lives.
		if ping := bytes.HasPrefix(rest, []byte("-- ping")); !first && !ping && (head[0] == 'S' || head[0] == 'Q') {
			c.asked.Add(1)
		}
		first = false
		if _, err := out.Write(append(head, rest...)); err != nil {
			return
		}
	}
}

// anOperationIsOneRoundTrip, whatever it answers; but for the claim of a
// lease that this very process gave up, which takes two.
func anOperationIsOneRoundTrip(t *testing.T, fresh maker) {
	f := fresh(t)
	u, err := url.Parse(f.cfg.URL)
	must0(t, err)
	c := newCounter(t, u.Host)
	u.Host = c.listener.Addr().String()
	f.cfg.URL, f.cfg.Connections = u.String(), 1
	l := f.ledger()
	defer f.closeAll()
	acquire(t, l, permanent(t, "statements are prepared once"))
	_, _, err = l.Lookup(t.Context(), permanent(t, "x").Key())
	must0(t, err)
	costs := func(name string, want int64, op func()) {
		t.Helper()
		before := c.asked.Load()
		op()
		if got := c.asked.Load() - before; got != want {
			t.Errorf("%s: %d round trips, want %d", name, got, want)
		}
	}
	d, body := f.bounded("a"), strings.Repeat("x", 50_000)
	var lease fencepost.Lease
	var staged fencepost.StagedPublication
	costs("claim", 1, func() { lease = acquire(t, l, d) })
	costs("busy", 1, func() { c, err := l.Claim(t.Context(), d); must[fencepost.Busy](t, c, err) })
	f.elapse(time.Second)
	costs("renew", 1, func() { r, err := l.Renew(t.Context(), d, lease); must[fencepost.Renewed](t, r, err) })
	later := f.bounded("a")
	costs("repeat", 1, func() { _, err := l.Repeat(t.Context(), later); must0(t, err) })
	f.elapse(l.cfg.Lease + 1)
	costs("take over", 1, func() { lease = acquire(t, l, d) })
	costs("stage", 1, func() {
		o, err := l.Stage(t.Context(), d, lease, publication(t, body))
		staged = must[fencepost.Staged](t, o, err).Staged
	})
	costs("lost", 1, func() { r, err := l.Renew(t.Context(), d, lease); must[fencepost.Lost](t, r, err) })
	f.elapse(l.cfg.Lease + 1)
	costs("publish", 1, func() { c, err := l.Claim(t.Context(), d); must[fencepost.Publish](t, c, err) })
	costs("complete", 1, func() { c, err := l.Complete(t.Context(), d, staged); must[fencepost.Completed](t, c, err) })
	costs("completed", 1, func() { c, err := l.Claim(t.Context(), d); must[fencepost.Completed](t, c, err) })
	costs("lookup", 1, func() { _, _, err := l.Lookup(t.Context(), d.Key()); must0(t, err) })
	given := acquire(t, l, permanent(t, "given up"))
	l.Abandon(given)
	costs("claim after giving up", 2, func() { acquire(t, l, permanent(t, "given up")) })
}

// theFunctionComparesWhatItRead: whatever changes the row while an operation
// waits for it, the operation is decided anew, on what is there then.
func (s *server) theFunctionComparesWhatItRead(t *testing.T, fresh maker) {
	for name, c := range map[string]struct {
		change func(d fencepost.AcceptedDelivery, held fencepost.Lease) ledger.Request
		// elapse passes before the change.
		elapse time.Duration
		staged bool
	}{
		"renewed": {func(d fencepost.AcceptedDelivery, held fencepost.Lease) ledger.Request {
			return ledger.RenewRequest{Delivery: d, Lease: held}
		}, time.Second, true},
		"taken over": {func(d fencepost.AcceptedDelivery, _ fencepost.Lease) ledger.Request {
			return ledger.ClaimRequest{Delivery: d}
		}, DefaultLease + 1, false},
		"staged": {func(d fencepost.AcceptedDelivery, held fencepost.Lease) ledger.Request {
			return ledger.StageRequest{Delivery: d, Lease: held, Publication: publication(t, "other")}
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			l, other, d := f.ledger(), f.ledger(), permanent(t, "a")
			held := acquire(t, l, d)
			f.elapse(c.elapse)
			var group sync.WaitGroup
			defer group.Wait()
			late := make(chan fencepost.StageOutcome, 1)
			must0(t, other.db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
				own, err := other.newChange()
				must0(t, err)
				if _, err := other.step(ctx, tx, c.change(d, held), own); err != nil {
					return err
				}
				var pid int
				_, err = tx.One(ctx, "select pg_backend_pid()", nil, &pid)
				must0(t, err)
				group.Go(func() {
					o, err := l.Stage(t.Context(), d, held, publication(t, "late"))
					if err != nil {
						t.Error(err)
					}
					late <- o
				})
				return s.awaitBlocked(t, pid)
			}))
			_, staged := (<-late).(fencepost.Staged)
			row, _, err := l.Lookup(t.Context(), d.Key())
			is := row.State == ledger.Staged && row.Publication.Equal(publication(t, "late"))
			if err != nil || staged != c.staged || is != c.staged {
				t.Errorf("staged %v, the row is %v with the late value %v, %v", staged, row.State, is, err)
			}
		})
	}
}

// awaitBlocked returns when somebody waits for what the backend pid changed.
func (s *server) awaitBlocked(t *testing.T, pid int) error {
	for range 2000 {
		var n int
		err := s.admin.QueryRowContext(t.Context(), fmt.Sprintf("select count(*) from pg_stat_activity where %d = any(pg_blocking_pids(pid))", pid)).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("nobody waits")
}
