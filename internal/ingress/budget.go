package ingress

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// smallBody is the largest body that goes into the smaller part of the
// budget, in bytes.
const smallBody = 1 << 20

// errNoRoom: the budget had no room in time.
var errNoRoom = errors.New("no room for the body")

// A budget bounds the memory of all bodies together. Room is counted by the
// size of the buffer that a body gets, not of the body. Its buffers are used
// again.
type budget struct {
	wait time.Duration
	// sizes are the buffer sizes, ascending. The last is the largest body.
	sizes []int64
	// small is nil if the budget is too small to be split.
	small, large *pool
	waiting      atomic.Int64
}

// A buffer is room for one body. Its owner releases it once.
type buffer struct {
	bytes []byte
	pool  *pool
}

// A pool is one part of the budget with the buffers made in it. What is in use
// and what is kept for later never exceed the part together.
type pool struct {
	size int64
	sem  *semaphore.Weighted

	mu   sync.Mutex
	used int64              // guarded by mu: bytes of buffers in use
	kept int64              // guarded by mu: bytes of buffers in free
	free map[int64][][]byte // guarded by mu: by size
	idle bool               // guarded by mu: nothing was taken since the last trim
}

func newBudget(total, largest int64, wait time.Duration) *budget {
	b := &budget{wait: wait}
	for size := int64(4 << 10); size < largest; size *= 4 {
		b.sizes = append(b.sizes, size)
	}
	b.sizes = append(b.sizes, largest)
	part := min(total/4, total-largest)
	if part >= smallBody {
		b.small = newPool(part)
		total -= part
	}
	b.large = newPool(total)
	return b
}

func newPool(size int64) *pool {
	return &pool{size: size, sem: semaphore.NewWeighted(size), free: map[int64][][]byte{}}
}

// sizeFor is the size of the buffer for a body of n bytes, n no more than the
// largest.
func (b *budget) sizeFor(n int64) int64 {
	i, _ := slices.BinarySearch(b.sizes, n)
	return b.sizes[i]
}

// take returns a buffer for a body of n bytes, waiting for room if need be.
// Its error is [errNoRoom], or ctx's.
func (b *budget) take(ctx context.Context, n int64) (*buffer, error) {
	size := b.sizeFor(n)
	from := b.large
	if b.small != nil && size <= smallBody {
		from = b.small
		// Room that large bodies leave is for all.
		if !from.sem.TryAcquire(size) {
			if b.large.sem.TryAcquire(size) {
				return b.large.buffer(size), nil
			}
			return b.waitFor(ctx, from, size)
		}
		return from.buffer(size), nil
	}
	if from.sem.TryAcquire(size) {
		return from.buffer(size), nil
	}
	return b.waitFor(ctx, from, size)
}

func (b *budget) waitFor(ctx context.Context, from *pool, size int64) (*buffer, error) {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	limited, cancel := context.WithTimeoutCause(ctx, b.wait, errNoRoom)
	defer cancel()
	if from.sem.Acquire(limited, size) != nil {
		return nil, context.Cause(limited)
	}
	return from.buffer(size), nil
}

// inUse is how many bytes bodies take now.
func (b *budget) inUse() int64 {
	n := b.large.inUse()
	if b.small != nil {
		n += b.small.inUse()
	}
	return n
}

// trim drops buffers that nothing asked for since the last trim, so that an
// idle server is a small one.
func (b *budget) trim() {
	b.large.trim()
	if b.small != nil {
		b.small.trim()
	}
}

// buffer hands out a buffer for which the semaphore has room.
func (p *pool) buffer(size int64) *buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = false
	p.used += size
	if list := p.free[size]; len(list) > 0 {
		last := len(list) - 1
		bytes := list[last]
		list[last] = nil
		p.free[size] = list[:last]
		p.kept -= size
		return &buffer{bytes: bytes, pool: p}
	}
	// The semaphore says that there is room beside the buffers in use; what
	// is kept in other sizes may have to make way.
	if p.used+p.kept > p.size {
		clear(p.free)
		p.kept = 0
	}
	return &buffer{bytes: make([]byte, size), pool: p}
}

func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle {
		clear(p.free)
		p.kept = 0
	}
	p.idle = true
}

// release gives the room back. A nil buffer has none.
func (b *buffer) release() {
	if b == nil {
		return
	}
	size, p := int64(len(b.bytes)), b.pool
	p.mu.Lock()
	p.used -= size
	p.free[size] = append(p.free[size], b.bytes)
	p.kept += size
	p.mu.Unlock()
	// After the buffer is kept, so that who gets the room finds it.
	p.sem.Release(size)
	b.bytes = nil
}
