package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// eachDeliveryIsAcquiredOnce: two processes, many workers, all after the
// same deliveries. No fence of a part is handed out twice.
func eachDeliveryIsAcquiredOnce(t *testing.T, fresh maker) {
	f := fresh(t)
	const workers, deliveries = 8, 24
	processes := []*Ledger{f.ledger(), f.ledger()}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		count = map[fencepost.DeliveryKey]int{}
		given = map[string]fencepost.DeliveryKey{}
	)
	for w := range workers {
		group.Go(func() {
			l := processes[w%2]
			for i := range deliveries {
				d := permanent(t, fmt.Sprint((i+3*w)%deliveries))
				c, err := l.Claim(t.Context(), d)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				a, ok := c.(fencepost.Acquired)
				if !ok {
					continue
				}
				name := fmt.Sprint(l.owner(d.Key()), " ", a.Lease.Fence())
				mu.Lock()
				count[d.Key()]++
				if other, twice := given[name]; twice {
					t.Errorf("part and fence %s went to %s and %s", name, other, d.Key())
				}
				given[name] = d.Key()
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for key, n := range count {
		if n != 1 {
			t.Errorf("%s was acquired %d times", key, n)
		}
	}
	if st, err := processes[0].Stat(t.Context()); err != nil || st.Rows() != deliveries || len(count) != deliveries {
		t.Errorf("%v, %v, %d acquired; want %d rows", st, err, len(count), deliveries)
	}
}

// capacityHoldsUnderContention: however many claim at once, there are
// never more rows than were allowed, and the count is that of the rows.
func capacityHoldsUnderContention(t *testing.T, fresh maker) {
	f := fresh(t)
	f.cfg.Capacity = 12
	const workers, deliveries = 6, 8
	processes := []*Ledger{f.ledger(), f.ledger()}
	var group sync.WaitGroup
	acquired := make([]int, workers)
	for w := range workers {
		group.Go(func() {
			for i := range deliveries {
				c, err := processes[w%2].Claim(t.Context(), permanent(t, fmt.Sprint(w, "-", i)))
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				switch c.(type) {
				case fencepost.Acquired:
					acquired[w]++
				case fencepost.Full:
				case fencepost.BindingConflict, fencepost.Busy, fencepost.Completed, fencepost.Expired, fencepost.Publish:
					t.Errorf("claim answered %T", c)
				}
			}
		})
	}
	group.Wait()
	sum := 0
	for _, n := range acquired {
		sum += n
	}
	var rows int64
	must0(t, processes[0].db.Read(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select count(*) from ledger_rows", nil, &rows)
		return err
	}))
	st, err := processes[1].Stat(t.Context())
	if err != nil || sum != 12 || st.Rows() != 12 || rows != 12 || st.Full != 2 {
		t.Errorf("%d acquired, %d rows, %v, %v; want 12, all parts full", sum, rows, st, err)
	}
}

// whatWasReadMustStillBeThere: any change of the row, or of what a claim
// rests on, between the read and the write of a transaction defeats it. On
// PostgreSQL nothing but the comparison is in the way.
func whatWasReadMustStillBeThere(t *testing.T, fresh maker) {
	type scene struct {
		f    *fixture
		l    *Ledger
		d    fencepost.AcceptedDelivery
		held fencepost.Lease
	}
	for name, between := range map[string]func(t *testing.T, s scene){
		"nothing": func(*testing.T, scene) {},
		"renewed": func(t *testing.T, s scene) {
			s.f.elapse(time.Second)
			n, err := s.l.Renew(t.Context(), s.d, s.held)
			must[fencepost.Renewed](t, n, err)
		},
		"staged": func(t *testing.T, s scene) {
			o, err := s.l.Stage(t.Context(), s.d, s.held, publication(t, "other"))
			must[fencepost.Staged](t, o, err)
		},
		"taken over": func(t *testing.T, s scene) {
			s.f.elapse(s.l.cfg.Lease + 1)
			acquire(t, s.l, s.d)
		},
		"replay end moved": func(t *testing.T, s scene) {
			s.f.elapse(1000)
			if r, err := s.l.Repeat(t.Context(), s.f.bounded("a")); err != nil || r != ledger.RepeatKnown {
				t.Fatalf("repeat: %v, %v", r, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			l, other := f.ledger(), f.ledger()
			d := f.bounded("a")
			held := acquire(t, l, d)
			own, err := l.newChange()
			must0(t, err)
			first := true
			err = l.db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
				if !first {
					return errors.New("tried again")
				}
				first = false
				seen, err := l.read(ctx, tx.One, d.Key())
				if err != nil {
					return err
				}
				between(t, scene{f, other, d, held})
				req := ledger.StageRequest{Delivery: d, Lease: held, Publication: publication(t, "late")}
				next, _ := ledger.Decide(seen.row, req, l.moment(seen), ledger.Fresh{})
				return seen.put(ctx, tx, next, own.token)
			})
			if (err == nil) != (name == "nothing") {
				t.Errorf("the change was stored: %v", err == nil)
			}
			row, _, lookupErr := l.Lookup(t.Context(), d.Key())
			must0(t, lookupErr)
			late := row.State == ledger.Staged && row.Publication.Equal(publication(t, "late"))
			if late != (name == "nothing") {
				t.Errorf("the row is %v, late value %v", row.State, late)
			}
		})
	}
}

// aClaimRestsOnItsPart: a clean-up or a last place taken between the read
// and the write of a claim defeats it.
func aClaimRestsOnItsPart(t *testing.T, fresh maker) {
	for name, change := range map[string]string{
		"closed later": "update ledger_parts set closed_ns = closed_ns + 1",
		"full":         "update ledger_parts set row_count = row_limit",
		"restored":     "update ledger_parts set last_fence = 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			l := f.ledger()
			f.exec(l, "update ledger_parts set last_fence = 7")
			err := l.db.Write(t.Context(), "test", func(ctx context.Context, tx *store.Tx) error {
				seen, err := l.read(ctx, tx.One, permanent(t, "a").Key())
				if err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, change); err != nil {
					return err
				}
				if _, err = seen.draw(ctx, tx); !errors.Is(err, store.ErrBusy) {
					t.Errorf("draw: %v, want ErrBusy", err)
				}
				return nil
			})
			must0(t, err)
		})
	}
}
