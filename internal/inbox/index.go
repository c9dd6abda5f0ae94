package inbox

import (
	"cmp"
	"container/heap"
	"iter"
	"time"

	"github.com/fencepost/fencepost"
)

// An entry is what is kept in memory of a recorded request. Its fields are
// guarded by the inbox's mu, save those that never change once it is made.
type entry struct {
	key      fencepost.DeliveryKey // never changes
	binding  fencepost.Binding     // never changes
	received int64                 // Unix nanoseconds; never changes
	end      int64                 // of the replay lifetime, 0 for permanent; never changes
	log      *journal              // never changes
	serial   uint64                // set when it is stored

	state state
	// flight is what to wait for while the entry is not stored yet.
	flight *batch
	// seg, offset and size are where its frame is, once it is stored.
	seg    *segment
	offset int64
	size   int64

	// at is the place in the heap of those that are ready.
	at int
}

type state uint8

const (
	// flying: its bytes are on their way to stable storage.
	flying state = iota + 1
	// ready: to be handed out.
	ready
	// leased: handed out.
	leased
	// gone: done, or never stored.
	gone
)

func (e *entry) id() ItemID { return ItemID{slot: e.log.slot, serial: e.serial} }

func (e *entry) item() Item {
	return Item{ID: e.id(), Key: e.key, Received: time.Unix(0, e.received).UTC()}
}

// An index knows every entry that is not done. It is guarded by the inbox's
// mu.
type index struct {
	// byKey holds one entry of each key: of several with one binding the one
	// to be recognised longest, of several bindings the first.
	byKey  map[fencepost.DeliveryKey]*entry
	queue  queue
	leased map[ItemID]*entry
	// count is how many entries are flying, ready or leased.
	count int
	// bytes is what the frames of stored entries take.
	bytes int64
}

func newIndex() index {
	return index{byKey: map[fencepost.DeliveryKey]*entry{}, leased: map[ItemID]*entry{}}
}

// enter counts an entry; it becomes the one of its key unless there is one.
func (x *index) enter(e *entry) {
	x.count++
	if x.byKey[e.key] == nil {
		x.byKey[e.key] = e
	}
}

// place gives an entry the place of the frame that a request has stored.
func (x *index) place(e *entry, r *request) { x.placeAt(e, r.seg, r.offset, r.size()) }

func (x *index) placeAt(e *entry, seg *segment, offset, size int64) {
	e.seg, e.offset, e.size = seg, offset, size
	seg.live++
	x.bytes += size
}

// unplace takes an entry's place away.
func (x *index) unplace(e *entry) {
	e.seg.live--
	x.bytes -= e.size
}

// store makes an entry ready, which has its place on stable storage.
func (x *index) store(e *entry) {
	e.flight = nil
	e.state = ready
	heap.Push(&x.queue, e)
}

// drop forgets an entry.
func (x *index) drop(e *entry) {
	switch e.state {
	case ready:
		heap.Remove(&x.queue, e.at)
		x.unplace(e)
	case leased:
		delete(x.leased, e.id())
		x.unplace(e)
	}
	if x.byKey[e.key] == e {
		delete(x.byKey, e.key)
	}
	e.state, e.flight = gone, nil
	x.count--
}

// lease hands out the entry that was received first.
func (x *index) lease() *entry {
	if len(x.queue) == 0 {
		return nil
	}
	e := heap.Pop(&x.queue).(*entry)
	e.state = leased
	x.leased[e.id()] = e
	return e
}

// release puts a leased entry back.
func (x *index) release(e *entry) {
	delete(x.leased, e.id())
	e.state = ready
	heap.Push(&x.queue, e)
}

// stored yields every entry that has a place on stable storage.
func (x *index) stored() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range x.queue {
			if !yield(e) {
				return
			}
		}
		for _, e := range x.leased {
			if !yield(e) {
				return
			}
		}
	}
}

// A queue is a heap of entries in order of receipt, and of recording for the
// same instant.
type queue []*entry

// Len implements [heap.Interface].
func (q queue) Len() int { return len(q) }

// Less implements [heap.Interface].
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	return cmp.Or(cmp.Compare(a.received, b.received),
		cmp.Compare(a.log.slot, b.log.slot), cmp.Compare(a.serial, b.serial)) < 0
}

// Swap implements [heap.Interface].
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.at = len(*q)
	*q = append(*q, e)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
