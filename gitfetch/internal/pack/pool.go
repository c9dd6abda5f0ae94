package pack

import (
	"math/bits"
	"sync"

	"github.com/fencepost/fencepost/gitfetch/internal/inflate"
)

const (
	// resident is the largest object or delta text that is held in memory
	// whole; what is larger goes through the spool.
	resident = 1 << 20
	// poolBytes is how much of such memory is in use at a time, for what comes
	// in and for what is made of it each.
	poolBytes = 3 << 20
	// poolSpare is how much is kept for the next.
	poolSpare = poolBytes

	leastClass = 10 // a piece of memory is two to the power of its class
	mostClass  = 21
)

// A Content is the bytes of one object in memory, which is used again after
// its release.
type Content struct {
	Bytes []byte
	mem   []byte
	pool  *pool
}

// Release gives the memory back. Nothing may use Bytes any more.
func (c *Content) Release() { c.pool.put(c) }

// A pool gives out memory up to a bound, and makes who wants more wait. Safe
// for concurrent use.
type pool struct {
	mu    sync.Mutex
	freed sync.Cond
	used  int                                    // guarded by mu
	spare int                                    // guarded by mu
	free  [mostClass - leastClass + 1][]*Content // guarded by mu
}

func newPool() *pool {
	p := &pool{}
	p.freed.L = &p.mu
	return p
}

// get returns memory for size bytes, at most [resident], and for what an
// inflater writes beyond them.
func (p *pool) get(size int) *Content {
	class := max(bits.Len(uint(size+inflate.Slack-1)), leastClass)
	n := 1 << class
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.used > 0 && p.used+n > poolBytes {
		p.freed.Wait()
	}
	p.used += n
	if free := &p.free[class-leastClass]; len(*free) > 0 {
		c := (*free)[len(*free)-1]
		*free = (*free)[:len(*free)-1]
		p.spare -= n
		c.Bytes = c.mem[:size]
		return c
	}
	mem := make([]byte, n)
	return &Content{Bytes: mem[:size], mem: mem, pool: p}
}

func (p *pool) put(c *Content) {
	n := len(c.mem)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.spare+n <= poolSpare {
		class := bits.Len(uint(n)) - 1
		p.free[class-leastClass] = append(p.free[class-leastClass], c)
		p.spare += n
	}
	p.freed.Signal()
}
