package simulation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// errGone is what every call of a dead process gets.
var errGone = errors.New("the process is gone")

// A call names what an actor is about to do. Two actors that wait at once
// never have the same name.
type call struct {
	// slot is the process, -1 for what belongs to none.
	slot int
	// delivery is its number, -1 where the call knows none.
	delivery int
	op       string
	// name and off are a file's.
	name string
	off  int64
	// disk is set for calls on the disk.
	disk bool
}

func compareCalls(a, b call) int {
	return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.delivery, b.delivery), cmp.Compare(a.op, b.op),
		cmp.Compare(a.name, b.name), cmp.Compare(a.off, b.off))
}

// An actor is a goroutine that waits for the token.
type actor struct {
	call
	process *process
	ready   chan order
	// lockEpoch is the epoch in which it found its lock taken: until another
	// one there is no use in trying; -1 for all others.
	lockEpoch int
}

// An order lets an actor go.
type order struct {
	gone bool
	// fault is what the call meets; the zero fault is none.
	fault fault
	// draw is a number of the seed for the call's own use.
	draw uint64
}

// A scheduler hands out the token.
type scheduler struct {
	arrived chan struct{} // has a token when somebody has come

	mu sync.Mutex
	// Guarded by mu:
	waiting []*actor // ordered by call
	free    []*actor
	epoch   int // of locks: it ends when one is freed
	ties    int // actors with one name
}

func newScheduler() *scheduler { return &scheduler{arrived: make(chan struct{}, 1)} }

// wait waits for the token, for p, whose death ends the wait, as does ctx,
// which may be nil.
func (s *scheduler) wait(ctx context.Context, p *process, c call, lockEpoch int) (order, error) {
	var done <-chan struct{}
	if ctx != nil {
		if err := context.Cause(ctx); err != nil {
			return order{}, err
		}
		done = ctx.Done()
	}
	s.mu.Lock()
	if p != nil && p.gone {
		s.mu.Unlock()
		return order{gone: true}, errGone
	}
	a := s.take()
	a.call, a.process, a.lockEpoch = c, p, lockEpoch
	i, same := slices.BinarySearchFunc(s.waiting, c, func(w *actor, c call) int { return compareCalls(w.call, c) })
	if same {
		s.ties++
		for i < len(s.waiting) && s.waiting[i].call == c {
			i++
		}
	}
	s.waiting = slices.Insert(s.waiting, i, a)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	select {
	case o := <-a.ready:
		s.give(a)
		if o.gone {
			return o, errGone
		}
		return o, nil
	case <-done:
	}
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(w *actor) bool { return w == a })
	s.mu.Unlock()
	return order{}, context.Cause(ctx)
}

// take is called with mu held.
func (s *scheduler) take() *actor {
	if n := len(s.free); n > 0 {
		a := s.free[n-1]
		s.free = s.free[:n-1]
		return a
	}
	return &actor{ready: make(chan order, 1)}
}

func (s *scheduler) give(a *actor) {
	s.mu.Lock()
	a.process = nil
	s.free = append(s.free, a)
	s.mu.Unlock()
}

// freed begins a new epoch of locks.
func (s *scheduler) freed() {
	s.mu.Lock()
	s.epoch++
	s.mu.Unlock()
}

func (s *scheduler) lockEpoch() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// able lists who could go on now, in the order of their calls, into buf.
func (s *scheduler) able(buf []*actor, now time.Duration) []*actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf = buf[:0]
	for _, a := range s.waiting {
		if a.lockEpoch == s.epoch || a.process != nil && a.process.stoppedUntil > now {
			continue
		}
		buf = append(buf, a)
	}
	return buf
}

// release lets an actor go.
func (s *scheduler) release(a *actor, o order) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(w *actor) bool { return w == a })
	s.mu.Unlock()
	a.ready <- o
}

// bury marks a process as gone and lets all of its actors know.
func (s *scheduler) bury(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.gone = true
	s.epoch++
	s.waiting = slices.DeleteFunc(s.waiting, func(a *actor) bool {
		if a.process != p {
			return false
		}
		a.ready <- order{gone: true}
		return true
	})
}
