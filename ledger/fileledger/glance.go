package fileledger

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// glanceAge is how old what a shard has read of its log may be for a glance
// to say "no".
const glanceAge = time.Second

// A glance says from memory, without locks or waiting, whether a shard may
// have a row of a key. It is a Bloom filter (Bloom 1970) of every key that the
// shard ever read or wrote, so its "yes" is a guess, and its "no" is as old as
// the shard's last look at its log.
//
// Rows that were cleaned up or retired stay in it while the process lives: of
// a ledger that sees many times its capacity of bounded rows between two
// starts, it comes to say "yes" to everything, which costs each new delivery a
// look into the ledger, and no more.
type glance struct {
	bits []atomic.Uint64
	// read is the instant of that look on the boot-time clock, in
	// nanoseconds, plus one; 0: there was none yet.
	read atomic.Int64
	// blind is set while rows of a snapshot were not read yet, or where they
	// could not be: then every answer is "yes".
	blind atomic.Bool
}

const (
	glanceBits   = 12 // a key of capacity: about one false "yes" in 300
	glanceHashes = 6
)

func newGlance(capacity int) *glance {
	return &glance{bits: make([]atomic.Uint64, capacity*glanceBits/64+1)}
}

// places are the bits of a key. A key is a SHA-256, so any part of it is as
// good as a hash.
func (g *glance) places(key fencepost.DeliveryKey) (at [glanceHashes]uint64) {
	n := uint64(len(g.bits)) * 64
	for i := range at {
		at[i] = binary.LittleEndian.Uint64(key[4*i:]) % n
	}
	return at
}

func (g *glance) add(key fencepost.DeliveryKey) {
	for _, p := range g.places(key) {
		g.bits[p/64].Or(1 << (p % 64))
	}
}

func (g *glance) has(key fencepost.DeliveryKey) bool {
	for _, p := range g.places(key) {
		if g.bits[p/64].Load()&(1<<(p%64)) == 0 {
			return false
		}
	}
	return true
}

// looked says that the shard has read its log up to now.
func (g *glance) looked(now ledger.Instant) { g.read.Store(int64(now.At) + 1) }

// lately reports whether the shard has read its log within glanceAge.
func (g *glance) lately(now ledger.Instant) bool {
	at := g.read.Load()
	return !g.blind.Load() && at != 0 && now.At-time.Duration(at-1) <= glanceAge
}

// MayKnow reports, from memory and at once, whether there may be a row of key.
// False means that there was none [glanceAge] ago or later: only a row that
// another process has made since can be missed. Whoever needs to know asks
// [Ledger.Repeat], or claims.
func (l *Ledger) MayKnow(key fencepost.DeliveryKey) bool {
	s := l.shards[l.owner(key)]
	return s.broken.Load() != nil || !s.glance.lately(l.cfg.Instant()) || s.glance.has(key)
}

// remember has the glance know the rows of a snapshot. Of one that says no
// more than what this process has seen in the log, it knows them. Else it is
// blind until the table was read, which is long, and done without the lock, a
// piece at a time.
func (s *shard) remember(st *state) {
	for key := range st.rows {
		s.glance.add(key)
	}
	if st.snapshot > s.seen {
		s.glance.blind.Store(true)
	}
	s.reading, s.toRead = s.glance.blind.Load(), 0
}

// readOn reads the next piece of the table for the glance.
func (s *shard) readOn() error {
	t := s.state.done
	for range pieceBytes / blockSize {
		if s.toRead >= t.blocks() {
			s.reading = false
			s.glance.blind.Store(false)
			return nil
		}
		rows, err := t.block(s.toRead)
		if err != nil {
			// Whoever looks one of those rows up is told.
			s.reading = false
			return err
		}
		for size := t.layout.rowSize; len(rows) > 0; rows = rows[size:] {
			s.glance.add(fencepost.DeliveryKey(rows[:len(fencepost.DeliveryKey{})]))
		}
		s.toRead++
	}
	return nil
}
