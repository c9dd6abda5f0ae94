// Package clock reads the machine's clocks so that no step of one, back or
// forth, does harm (DESIGN §2, invariant 18).
//
// There are two. [Wall] tells people's time and never goes back: it dates
// receipts, expiries and signed ages. A [Boot] clock tells how long the
// machine has been up, also while it slept, and which start of the machine
// that counts from: it times leases, between processes of one machine. An
// instant of another start is incomparable, which to a lease means that its
// holder is dead.
//
// This is the only package that calls [time.Now].
package clock

import (
	"fmt"
	"sync"
	"time"
)

// A Wall is a wall clock whose readings never go back. It is safe for
// concurrent use.
//
// When the system's clock is set back, by an operator or a time server, Wall
// goes on from its last reading at half the speed of the system's monotonic
// clock, until the system's clock has caught up with it: it neither repeats
// a time nor stands still, and a wrong step forward is worked off. Steps
// forward are followed at once.
type Wall struct {
	read func() time.Time

	mu   sync.Mutex
	raw  time.Time // last reading of read
	last time.Time // last answer
}

// NewWall returns a Wall over read, which is [time.Now] outside of tests. Its
// readings are never before floor, which may be zero: a time that is known to
// have passed, such as the latest one that was stored.
func NewWall(read func() time.Time, floor time.Time) *Wall {
	return &Wall{read: read, last: floor}
}

// System returns a Wall over the system's clock.
func System() *Wall { return NewWall(time.Now, time.Time{}) }

// Now returns the time in UTC, never before an earlier answer. It carries no
// monotonic reading, so that it equals itself after being stored.
func (w *Wall) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	raw := w.read()
	var passed time.Duration
	if !w.raw.IsZero() {
		// By the monotonic clock, where both have its reading.
		passed = max(raw.Sub(w.raw), 0)
	}
	w.raw = raw
	if now := raw.UTC().Round(0); now.After(w.last) {
		w.last = now
	} else {
		// Rounded up: whoever waits for a time and looks again and again gets
		// there.
		w.last = w.last.Add((passed + 1) / 2)
	}
	return w.last
}

// A BootID names one start of the machine. Two of them are the same start if
// they are equal; the zero BootID names none.
type BootID string

// An Instant is a moment of one start of the machine.
type Instant struct {
	// Boot is the start.
	Boot BootID
	// Up is the time since then, with the time that the machine slept.
	Up time.Duration
}

// Sub returns how long after j i is. ok is false if they belong to different
// starts and can't be compared.
func (i Instant) Sub(j Instant) (d time.Duration, ok bool) {
	if i.Boot != j.Boot {
		return 0, false
	}
	return i.Up - j.Up, true
}

// Add returns the instant d later, of the same start.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Boot, i.Up + d} }

// Reached reports whether now is at or after the deadline i: also when now
// belongs to another start, since nothing of the earlier one is alive.
func (i Instant) Reached(now Instant) bool {
	d, ok := now.Sub(i)
	return !ok || d >= 0
}

// String is for people.
func (i Instant) String() string { return fmt.Sprintf("%v of boot %s", i.Up, i.Boot) }

// A Boot is a clock of the machine's current start. Its readings never go
// back, and no step of the wall clock moves them. It is safe for concurrent
// use.
type Boot interface {
	Now() Instant
}
