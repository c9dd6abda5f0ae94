package ledgertest

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/fencepost/fencepost/ledger"
)

// A Clock is the time of a test: a wall clock that can jump, and a clock
// since boot that can't. Both stand still unless they are moved. It is safe
// for concurrent use.
type Clock struct {
	mu    sync.Mutex
	wall  time.Time
	since time.Duration
	boot  uint64
}

// NewClock starts at 2026-10-01T12:00:00Z, one hour after boot.
func NewClock() *Clock {
	return &Clock{wall: time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC), since: time.Hour, boot: 1}
}

// Now reads the wall clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Instant reads the clock since boot.
func (c *Clock) Instant() ledger.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := ledger.Instant{At: c.since}
	binary.LittleEndian.PutUint64(i.Boot[:], c.boot)
	return i
}

// Elapse lets d pass on both clocks.
func (c *Clock) Elapse(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.since += d
}

// StepWall makes the wall clock alone jump by d, in either direction.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// Restart starts the machine anew: another boot, a minute old; the wall clock
// has moved on by a minute.
func (c *Clock) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot++
	c.since = time.Minute
	c.wall = c.wall.Add(time.Minute)
}
