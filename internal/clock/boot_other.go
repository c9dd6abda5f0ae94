//go:build !linux

package clock

import (
	"crypto/rand"
	"time"
)

// SystemBoot returns a boot clock of this process alone: Go's monotonic clock
// under a random id. To another process, and after a restart of this one, its
// instants belong to another start, so that a lease of theirs looks expired.
// One process is fenced rightly; several on one machine need an operating
// system whose boot id can be read.
func SystemBoot() (Boot, error) {
	return process{id: BootID("process-" + rand.Text()), start: time.Now()}, nil
}

type process struct {
	id    BootID
	start time.Time
}

// Now implements [Boot].
func (p process) Now() Instant { return Instant{Boot: p.id, Up: time.Since(p.start)} }
