package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// Sizes of the concurrent rounds: enough for every pair of operations to
// meet, few enough to be checked in milliseconds.
const (
	roundClients    = 8
	roundDeliveries = 6
	roundOperations = 40
)

func concurrencyRows() []row {
	return []row{
		{"concurrency/many-claim-one/one-Acquired", 0, func(w *world) {
			d := w.permanent("a")
			answers := make([]fencepost.Claim, 32)
			w.each(len(answers), func(i int) (err error) {
				answers[i], err = w.h.Ledger.Claim(w.Context(), d)
				return err
			})
			count := map[string]int{}
			for _, a := range answers {
				count[fmt.Sprintf("%T", a)]++
			}
			if count[acquired] != 1 || count[busy] != len(answers)-1 {
				w.Fatalf("answers %v, want one Acquired and %d Busy", count, len(answers)-1)
			}
		}},
		{"concurrency/many-stage-one/one-value", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			answers := make([]fencepost.StageOutcome, 32)
			w.each(len(answers), func(i int) (err error) {
				answers[i], err = w.h.Ledger.Stage(w.Context(), d, l, w.publication(fmt.Sprint("result ", i)))
				return err
			})
			winner := -1
			for i, a := range answers {
				if _, ok := a.(fencepost.Staged); ok && winner >= 0 {
					w.Fatalf("results %d and %d are both staged", winner, i)
				} else if ok {
					winner = i
				}
			}
			if winner < 0 {
				w.Fatal("nobody staged")
			}
			w.passLease()
			w.publish(d, l, fmt.Sprint("result ", winner))
		}},
		{"concurrency/while-time-stands/linearizable", 0, func(w *world) {
			w.round([]fencepost.Ledger{w.h.Ledger}, false)
		}},
		{"concurrency/while-leases-pass/linearizable", 0, func(w *world) {
			w.round([]fencepost.Ledger{w.h.Ledger}, true)
		}},
		{"concurrency/two-processes/linearizable", peer, func(w *world) {
			w.round([]fencepost.Ledger{w.h.Ledger, w.h.Peer()}, true)
		}},
	}
}

// each runs f(0) to f(n-1) at once and fails the row on an error.
func (w *world) each(n int, f func(int) error) {
	w.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			w.Fatal(err)
		}
	}
}

// round lets clients do as they like with few deliveries, and checks what
// they were answered.
func (w *world) round(ledgers []fencepost.Ledger, timePasses bool) {
	w.Helper()
	var h History
	pool := &leasePool{leases: map[fencepost.DeliveryKey][]fencepost.Lease{}}
	var deliveries []fencepost.AcceptedDelivery
	for i := range roundDeliveries {
		deliveries = append(deliveries, w.permanent(fmt.Sprint(i)))
	}
	deliveries = append(deliveries, w.conflicting("0"))
	values := []fencepost.Publication{w.publication("one"), w.publication("two")}

	w.each(roundClients, func(i int) error {
		c := client{
			w: w, ledger: h.Client(i, ledgers[i%len(ledgers)]), pool: pool, values: values,
			random: rand.New(rand.NewPCG(uint64(i), 1)),
		}
		for range roundOperations {
			if timePasses && c.random.IntN(12) == 0 {
				w.h.Elapse(w.h.Lease/3 + time.Millisecond)
			}
			if err := c.act(deliveries[c.random.IntN(len(deliveries))]); err != nil {
				return err
			}
		}
		return nil
	})
	h.Check(w, timePasses)
	if h.Len() != roundClients*roundOperations {
		w.Errorf("%d operations recorded, want %d", h.Len(), roundClients*roundOperations)
	}
}

// client is one of those in a round.
type client struct {
	w      *world
	ledger fencepost.Ledger
	pool   *leasePool
	values []fencepost.Publication
	random *rand.Rand
}

// act does one thing with d, under any lease that anybody ever had for it.
func (c *client) act(d fencepost.AcceptedDelivery) error {
	ctx, l := c.w.Context(), c.pool.pick(d, c.random)
	value := c.values[c.random.IntN(len(c.values))]
	kind := c.random.IntN(10)
	if !l.Valid() || kind < 3 {
		answer, err := c.ledger.Claim(ctx, d)
		switch a := answer.(type) {
		case fencepost.Acquired:
			c.pool.put(d, a.Lease)
		case fencepost.Publish:
			c.pool.put(d, a.Lease)
		case fencepost.Busy, fencepost.Completed, fencepost.BindingConflict, fencepost.Full, fencepost.Expired:
		}
		return err
	}
	switch {
	case kind < 6:
		_, err := c.ledger.Renew(ctx, d, l)
		return err
	case kind < 9:
		_, err := c.ledger.Stage(ctx, d, l, value)
		return err
	}
	s, err := fencepost.RestoreStaged(d.Key(), l.Evaluation(), value)
	if err != nil {
		return err
	}
	_, err = c.ledger.Complete(ctx, d, s)
	return err
}

// leasePool remembers every lease that was handed out.
type leasePool struct {
	mu     sync.Mutex
	leases map[fencepost.DeliveryKey][]fencepost.Lease // guarded by mu
}

func (p *leasePool) put(d fencepost.AcceptedDelivery, l fencepost.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases[d.Key()] = append(p.leases[d.Key()], l)
}

// pick prefers the newest.
func (p *leasePool) pick(d fencepost.AcceptedDelivery, random *rand.Rand) fencepost.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.leases[d.Key()]
	if len(all) == 0 {
		return fencepost.Lease{}
	}
	if random.IntN(3) > 0 {
		return all[len(all)-1]
	}
	return all[random.IntN(len(all))]
}
