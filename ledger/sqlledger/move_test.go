package sqlledger

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// A database makes fixtures that no other test is connected to.
type database struct {
	name  string
	fresh func(testing.TB) *fixture
}

func databases(tb testing.TB) []database {
	return []database{
		{"sqlite", onSQLite},
		{"postgres", func(tb testing.TB) *fixture {
			return newFixture(tb, Config{URL: postgres.Database(tb)})
		}},
	}
}

// filled are the deliveries of a ledger with rows of every kind.
type filled struct {
	finished, bounded, leased, staged fencepost.AcceptedDelivery
	lease                             fencepost.Lease
}

// bring takes a delivery to a state.
func bring(tb testing.TB, l fencepost.Ledger, d fencepost.AcceptedDelivery, to ledger.State) fencepost.Lease {
	tb.Helper()
	c, err := l.Claim(tb.Context(), d)
	must0(tb, err)
	lease := c.(fencepost.Acquired).Lease
	if to == ledger.Leased {
		return lease
	}
	o, err := l.Stage(tb.Context(), d, lease, publication(tb, "of "+string(d.ID())))
	must0(tb, err)
	if to == ledger.Staged {
		return lease
	}
	_, err = l.Complete(tb.Context(), d, o.(fencepost.Staged).Staged)
	must0(tb, err)
	return lease
}

func fill(tb testing.TB, l fencepost.Ledger, now time.Time) filled {
	tb.Helper()
	f := filled{
		finished: ledgertest.Deliver(tb, ledgertest.Spec{ID: "finished"}),
		bounded:  ledgertest.Deliver(tb, ledgertest.Spec{ID: "bounded", Signed: now}),
		leased:   ledgertest.Deliver(tb, ledgertest.Spec{ID: "leased"}),
		staged:   ledgertest.Deliver(tb, ledgertest.Spec{ID: "staged"}),
	}
	bring(tb, l, f.finished, ledger.Done)
	bring(tb, l, f.bounded, ledger.Done)
	f.lease = bring(tb, l, f.leased, ledger.Leased)
	bring(tb, l, f.staged, ledger.Staged)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		bring(tb, l, ledgertest.Deliver(tb, ledgertest.Spec{ID: id}), ledger.Done)
	}
	return f
}

func migrate(tb testing.TB, from, to Config) (m ledger.Move, err error) {
	tb.Helper()
	src, err := Hold(tb.Context(), from)
	if err != nil {
		return ledger.Move{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := Receive(tb.Context(), to)
	if err != nil {
		return ledger.Move{}, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	return ledger.Migrate(tb.Context(), src, dst)
}

func digestOf(tb testing.TB, l *Ledger) (d [32]byte, head ledger.Head) {
	tb.Helper()
	rows, readHead := l.Snapshot(tb.Context())
	sum, err := ledger.Digest(rows)
	must0(tb, err)
	head, err = readHead()
	must0(tb, err)
	return sum.Sum(), head
}

func TestAMoveBetweenDatabasesCarriesEverything(t *testing.T) {
	t.Parallel()
	all := databases(t)
	for _, from := range all {
		for _, to := range all {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				a, b := from.fresh(t), to.fresh(t)
				b.cfg.Parts, b.cfg.Capacity = 3, 30
				l := a.ledger()
				f := fill(t, l, a.readNow(t, l))
				digest, head := digestOf(t, l)
				a.closeAll()
				m, err := migrate(t, a.cfg, b.cfg)
				must0(t, err)
				if m.Digest != digest || m.Rows != 11 || m.From != head.UUID {
					t.Fatalf("move = %v, want 11 rows with digest %x", m, digest)
				}
				if _, err := Open(t.Context(), a.cfg); !errors.Is(err, ledger.ErrMoved) {
					t.Errorf("open what was moved: %v, want ErrMoved", err)
				}
				again, err := migrate(t, a.cfg, b.cfg)
				if err != nil || again != m {
					t.Errorf("said again: %v, %v; want the same move", again, err)
				}
				r, err := Verify(t.Context(), b.cfg)
				must0(t, err)
				if err := r.Err(); err != nil || r.Digest != digest || r.Rows != m.Rows {
					t.Errorf("verify: %v, %d rows, digest %x; want %x", err, r.Rows, r.Digest, digest)
				}
				checkArrived(t, b.ledger(), f, head.Fence)
			})
		}
	}
}

// readNow is the time by the clock that judges in the database.
func (f *fixture) readNow(tb testing.TB, l *Ledger) time.Time {
	tb.Helper()
	now, err := l.db.Now(tb.Context())
	must0(tb, err)
	return now
}

func checkArrived(tb testing.TB, l fencepost.Ledger, f filled, fence uint64) {
	tb.Helper()
	for _, d := range []fencepost.AcceptedDelivery{f.finished, f.bounded} {
		if c, err := l.Claim(tb.Context(), d); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
			tb.Errorf("what was done is answered %T, %v", c, err)
		}
	}
	// Its lease may still stand: the clock is the same, or another.
	row, ok, err := l.(interface {
		Lookup(context.Context, fencepost.DeliveryKey) (ledger.Row, bool, error)
	}).Lookup(tb.Context(), f.leased.Key())
	if err != nil || !ok || row.Evaluation != f.lease.Evaluation() || row.Fence != f.lease.Fence() || row.State != ledger.Leased {
		tb.Errorf("what was leased is %+v, %v, %v", row, ok, err)
	}
	row, ok, err = l.(interface {
		Lookup(context.Context, fencepost.DeliveryKey) (ledger.Row, bool, error)
	}).Lookup(tb.Context(), f.staged.Key())
	if err != nil || !ok || row.State != ledger.Staged || !bytes.Contains(row.Publication.Bytes(), []byte("of "+string(f.staged.ID()))) {
		tb.Errorf("what was staged is %+v, %v, %v", row, ok, err)
	}
	c, err := l.Claim(tb.Context(), ledgertest.Deliver(tb, ledgertest.Spec{ID: "new"}))
	if a, ok := c.(fencepost.Acquired); err != nil || !ok || a.Lease.Fence().Uint64() <= fence {
		tb.Errorf("a new claim is answered %+v, %v; want a fence above %d", c, err, fence)
	}
}

func TestAMoveRefusesWhatIsInTheWay(t *testing.T) {
	long(t)
	t.Parallel()
	for _, db := range databases(t) {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			a, b := db.fresh(t), db.fresh(t)
			l := a.ledger()
			fill(t, l, a.readNow(t, l))
			if db.name == "postgres" {
				if _, err := migrate(t, a.cfg, b.cfg); !errors.Is(err, ledger.ErrInUse) {
					t.Errorf("while it is open: %v, want ErrInUse", err)
				}
			}
			a.closeAll()
			bring(t, b.ledger(), ledgertest.Deliver(t, ledgertest.Spec{ID: "own"}), ledger.Leased)
			b.closeAll()
			if _, err := migrate(t, a.cfg, b.cfg); !errors.Is(err, ledger.ErrNotEmpty) {
				t.Errorf("onto another ledger: %v, want ErrNotEmpty", err)
			}
			other := b.cfg
			other.Window = fencepost.DefaultReplayWindow
			other.Window.MaxQueueAge += time.Hour
			if _, err := migrate(t, a.cfg, other); !errors.Is(err, ErrParameters) {
				t.Errorf("another window: %v, want ErrParameters", err)
			}
			empty := db.fresh(t)
			// Of its tables, as a server without gates has them.
			tables, err := store.Open(t.Context(), store.Options{Path: empty.cfg.Path, URL: empty.cfg.URL, Now: time.Now})
			must0(t, err)
			must0(t, tables.Close())
			if _, err := migrate(t, empty.cfg, b.cfg); !errors.Is(err, errNoLedger) {
				t.Errorf("of no ledger: %v, want errNoLedger", err)
			}
			a.ledger() // is as it was
		})
	}
}

// A cut ends a move before or after one of its steps, as a crash would.
type cut struct {
	ledger.Source
	ledger.Target
	at    int // 0 for the first step
	after bool
	steps int
	names []string
}

var errCut = errors.New("cut")

func (c *cut) step(name string, do func() error) error {
	n := c.steps
	c.steps++
	c.names = append(c.names, name)
	if n == c.at && !c.after {
		return errCut
	}
	if err := do(); err != nil {
		return err
	}
	if n == c.at {
		return errCut
	}
	return nil
}

func (c *cut) Begin(ctx context.Context, h ledger.Head) (id [16]byte, err error) {
	err = c.step("begin", func() (err error) { id, err = c.Target.Begin(ctx, h); return err })
	return id, err
}

func (c *cut) Put(ctx context.Context, rows []ledger.Row) error {
	return c.step("put", func() error { return c.Target.Put(ctx, rows) })
}

func (c *cut) Prepare(ctx context.Context, m ledger.Move) error {
	return c.step("prepare", func() error { return c.Target.Prepare(ctx, m) })
}

func (c *cut) Leave(ctx context.Context, m ledger.Move) error {
	return c.step("leave", func() error { return c.Source.Leave(ctx, m) })
}

func (c *cut) Arrive(ctx context.Context, m ledger.Move) error {
	return c.step("arrive", func() error { return c.Target.Arrive(ctx, m) })
}

// Rows is of the one or the other.
func (c *cut) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] { return c.Target.Rows(ctx) }

type source struct{ *cut }

func (s source) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] { return s.Source.Rows(ctx) }

// TestAMoveThatIsCutShortGoesOn: each step is one transaction, so a crash is
// before or after it. The source counts until it has left.
func TestAMoveThatIsCutShortGoesOn(t *testing.T) {
	long(t)
	t.Parallel()
	for _, db := range databases(t) {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			for at := range 5 {
				for _, after := range []bool{false, true} {
					cutAndGoOn(t, db, at, after)
				}
			}
		})
	}
}

func cutAndGoOn(t *testing.T, db database, at int, after bool) {
	t.Helper()
	a, b := db.fresh(t), db.fresh(t)
	l := a.ledger()
	f := fill(t, l, a.readNow(t, l))
	digest, head := digestOf(t, l)
	a.closeAll()
	src, err := Hold(t.Context(), a.cfg)
	must0(t, err)
	dst, err := Receive(t.Context(), b.cfg)
	must0(t, err)
	c := &cut{Source: src, Target: dst, at: at, after: after}
	_, err = ledger.Migrate(t.Context(), source{c}, c)
	what := c.names[len(c.names)-1]
	if !errors.Is(err, errCut) || len(c.names) != at+1 {
		t.Fatalf("cut at step %d: %v after %v", at, err, c.names)
	}
	must0(t, errors.Join(src.Close(), dst.Close()))
	left := at > 3 || at == 3 && after
	arrived := at == 4 && after
	if l, err := Open(t.Context(), a.cfg); left != errors.Is(err, ledger.ErrMoved) || !left && err != nil {
		t.Fatalf("cut at %s (after: %v): open the source: %v; left: %v", what, after, err, left)
	} else if err == nil {
		must0(t, l.Close())
	}
	begun := at > 0 || after
	l, err = Open(t.Context(), b.cfg)
	switch {
	case arrived:
		must0(t, err)
		must0(t, l.Close())
	case begun:
		if !errors.Is(err, ledger.ErrIncoming) {
			t.Fatalf("cut at %s (after: %v): open the target: %v, want ErrIncoming", what, after, err)
		}
	default:
		must0(t, err) // nothing was begun: it is a ledger of its own, unused
		must0(t, l.Close())
	}
	if _, err := migrate(t, a.cfg, b.cfg); err != nil {
		t.Fatalf("cut at %s (after: %v): said again: %v", what, after, err)
	}
	l = b.ledger()
	if got, _ := digestOf(t, l); got != digest {
		t.Fatalf("cut at %s (after: %v): digest %x, want %x", what, after, got, digest)
	}
	checkArrived(t, l, f, head.Fence)
	b.closeAll()
}

func TestRetireInADatabase(t *testing.T) {
	t.Parallel()
	for _, db := range databases(t) {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			fx := db.fresh(t)
			l := fx.ledger()
			f := fill(t, l, fx.readNow(t, l))
			for _, later := range []time.Duration{0, ledger.GrowthWindow + time.Hour} {
				now := fx.readNow(t, l).Add(later)
				counted, err := ledger.CountAges(l.Rows(t.Context()), now)
				must0(t, err)
				if ages, err := l.Ages(t.Context(), now); err != nil || ages != counted {
					t.Errorf("ages = %+v, %v; counted %+v", ages, err, counted)
				}
			}
			mark := ledger.MarkOf("test")
			trust, err := l.Trust(t.Context())
			must0(t, err)
			if got := trust[mark]; got != (ledger.TrustRows{Retirable: 8, Held: 2, Other: 1}) {
				t.Fatalf("trust = %+v", got)
			}
			if n, err := l.Retire(t.Context(), mark); !errors.Is(err, ledger.ErrHeld) || n != 0 {
				t.Fatalf("retire under way: %d, %v; want ErrHeld", n, err)
			}
			row, _, err := l.Lookup(t.Context(), f.staged.Key())
			must0(t, err)
			staged, err := row.Staged()
			must0(t, err)
			if _, err := l.Complete(t.Context(), f.staged, staged); err != nil {
				t.Fatal(err)
			}
			o, err := l.Stage(t.Context(), f.leased, f.lease, publication(t, "end"))
			must0(t, err)
			_, err = l.Complete(t.Context(), f.leased, o.(fencepost.Staged).Staged)
			must0(t, err)
			if n, err := l.Retire(t.Context(), mark); err != nil || n != 10 {
				t.Fatalf("retire: %d, %v; want 10", n, err)
			}
			if n, err := l.Retire(t.Context(), mark); err != nil || n != 0 {
				t.Fatalf("again: %d, %v; want 0", n, err)
			}
			// Known no more, and never new: also to a process that still trusts
			// the set.
			if c, err := l.Claim(t.Context(), f.finished); err != nil || c != fencepost.Claim(fencepost.Expired{}) {
				t.Errorf("what was retired is answered %T, %v; want Expired", c, err)
			}
			if c, err := l.Claim(t.Context(), f.bounded); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
				t.Errorf("a bounded row is answered %T, %v; want Completed", c, err)
			}
			fx.closeAll()
			r, err := Verify(t.Context(), fx.cfg)
			if err != nil || r.Err() != nil || r.Rows != 1 || len(r.Head.Retired) != 1 {
				t.Errorf("verify: %v, %v, %d rows, retired %v", err, r.Err(), r.Rows, r.Head.Retired)
			}
			// It moves along.
			to := db.fresh(t)
			if _, err := migrate(t, fx.cfg, to.cfg); err != nil {
				t.Fatal(err)
			}
			if c, err := to.ledger().Claim(t.Context(), f.finished); err != nil || c != fencepost.Claim(fencepost.Expired{}) {
				t.Errorf("after a move it is answered %T, %v; want Expired", c, err)
			}
		})
	}
}

func TestVerifyFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, db := range databases(t) {
		for name, spoil := range map[string]string{
			"a column":  "update ledger_rows set replay_end = 17 where key = (select min(key) from ledger_rows)",
			"a counter": "update ledger_parts set row_count = row_count - 1 where part = (select min(part) from ledger_parts where row_count > 0)",
			"a fence":   "update ledger_parts set last_fence = 0 where row_count > 0",
			"a body":    "update ledger_rows set body = substr(body, 1, 50) where key = (select max(key) from ledger_rows)",
		} {
			t.Run(db.name+" "+name, func(t *testing.T) {
				t.Parallel()
				f := db.fresh(t)
				l := f.ledger()
				fill(t, l, f.readNow(t, l))
				if r, err := VerifyOn(t.Context(), l.db); err != nil || r.Err() != nil {
					t.Fatalf("before: %v, %v", err, r.Err())
				}
				if _, err := l.db.Writer().ExecContext(t.Context(), spoil); err != nil {
					t.Fatal(err)
				}
				r, err := VerifyOn(t.Context(), l.db)
				must0(t, err)
				if !errors.Is(r.Err(), ErrCorrupt) || fencepost.ReasonOf(r.Err()) != fencepost.ReasonCorrupt {
					t.Errorf("verify says %v, want ErrCorrupt", r.Err())
				}
			})
		}
	}
}
