package gate

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// A lineKey names what is worked on one at a time: a request of a gate.
type lineKey struct {
	gate   Name
	number int64
}

// A task is a recorded delivery on its way through the pool. It belongs to the
// schedule while it waits, and to one worker while it is worked on.
type task struct {
	ticket Ticket
	// What was learnt of it when it was last taken up; zero before.
	key      fencepost.DeliveryKey
	line     lineKey
	reason   fencepost.Reason
	retries  int       // since it was last done well; drives the backoff
	failures int       // publications that failed
	hidden   time.Time // since when the provider has not shown the commit
	stall    stall     // the alert that tells of its wait
	taken    bool      // up, once at least

	visible time.Time // not before
	seq     uint64    // order of arrival
	index   int       // in the heap; -1 elsewhere
}

// A schedule holds the tasks that wait, each until its time, and lets one task
// of a line through at a time. Of those that wait for their line the newest
// goes first: it makes the older ones superseded without a call.
type schedule struct {
	now func() time.Time
	// ahead bounds the tasks that were never taken up.
	ahead int

	mu sync.Mutex
	// Guarded by mu:
	waiting taskHeap
	byKey   map[fencepost.DeliveryKey]*task // of those that wait
	lines   map[lineKey]*line
	seq     uint64
	held    int           // tasks in all, those being worked on included
	fresh   int           // tasks that were never taken up
	changed chan struct{} // closed and replaced at each change
}

// A line is in use while a task of it is worked on.
type line struct {
	busy   bool
	parked []*task
}

func newSchedule(now func() time.Time, ahead int) *schedule {
	return &schedule{
		now: now, ahead: ahead, byKey: map[fencepost.DeliveryKey]*task{}, lines: map[lineKey]*line{}, changed: make(chan struct{}),
	}
}

// announce is called with mu held.
func (s *schedule) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// add takes a new task, visible at once.
func (s *schedule) add(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	t.seq = s.seq
	s.held++
	s.fresh++
	s.push(t)
}

// push is called with mu held.
func (s *schedule) push(t *task) {
	heap.Push(&s.waiting, t)
	if !t.key.IsZero() {
		s.byKey[t.key] = t
	}
	s.announce()
}

// room waits until fewer than limit tasks are held, and few enough wait to be
// taken up at all.
func (s *schedule) room(ctx context.Context, limit int) error {
	for {
		s.mu.Lock()
		free, changed := s.held < limit && s.fresh < s.ahead, s.changed
		s.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// next waits for a task whose time has come and whose line, if it is known, is
// free, and takes that line. ctx's end ends the wait.
func (s *schedule) next(ctx context.Context) (*task, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		t, wait, changed := s.take()
		if t != nil {
			return t, nil
		}
		if err := waitFor(ctx, wait, changed); err != nil {
			return nil, err
		}
	}
}

// waitFor waits for a change, or for wait to pass where it is not negative.
func waitFor(ctx context.Context, wait time.Duration, changed <-chan struct{}) error {
	var fire <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		fire = timer.C
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-fire:
	}
	return nil
}

// take returns a task that may be worked on, or how long the first one has to
// wait (negative: there is none) and what tells of a change.
func (s *schedule) take() (*task, time.Duration, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() > 0 {
		t := s.waiting[0]
		if wait := t.visible.Sub(s.now()); wait > 0 {
			return nil, wait, s.changed
		}
		heap.Pop(&s.waiting)
		if s.byKey[t.key] == t {
			delete(s.byKey, t.key)
		}
		if !t.taken {
			t.taken = true
			s.fresh--
			s.announce() // to who waits for room
		}
		if t.line == (lineKey{}) || s.occupy(t) {
			return t, 0, nil
		}
	}
	return nil, -1, s.changed
}

// occupy takes t's line, or parks t on it. It is called with mu held.
func (s *schedule) occupy(t *task) bool {
	l, ok := s.lines[t.line]
	if !ok {
		l = &line{}
		s.lines[t.line] = l
	}
	if l.busy {
		l.parked = append(l.parked, t)
		return false
	}
	l.busy = true
	return true
}

// enter takes the line of a task whose line was not known before. If it is in
// use, t is parked on it and false returned: t is not the caller's any more.
func (s *schedule) enter(t *task, k lineKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.line == k {
		return true
	}
	s.vacate(t)
	t.line = k
	return s.occupy(t)
}

// again gives a task back until its time, and frees its line.
func (s *schedule) again(t *task, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(t)
	t.visible = at
	s.push(t)
}

// drop forgets a task that is done, and frees its line.
func (s *schedule) drop(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(t)
	s.held--
	s.announce()
}

// vacate frees a task's line and lets the newest of those that wait for it
// through. It is called with mu held.
func (s *schedule) vacate(t *task) {
	l, ok := s.lines[t.line]
	if !ok {
		return
	}
	l.busy = false
	if len(l.parked) == 0 {
		delete(s.lines, t.line)
		return
	}
	newest := slices.MaxFunc(l.parked, func(a, b *task) int {
		return cmp.Or(a.ticket.Received.Compare(b.ticket.Received), cmp.Compare(a.seq, b.seq))
	})
	l.parked = slices.DeleteFunc(l.parked, func(p *task) bool { return p == newest })
	newest.visible = time.Time{}
	s.push(newest)
}

// wake makes a waiting task visible now, and reports whether there is one.
func (s *schedule) wake(key fencepost.DeliveryKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.byKey[key]
	if !ok {
		return false
	}
	t.visible = s.now()
	heap.Fix(&s.waiting, t.index)
	s.announce()
	return true
}

// A taskHeap is ordered by visibility, then by arrival.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }

func (h taskHeap) Less(i, j int) bool {
	if !h[i].visible.Equal(h[j].visible) {
		return h[i].visible.Before(h[j].visible)
	}
	return h[i].seq < h[j].seq
}

func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
