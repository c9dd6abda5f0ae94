package sqlinbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// Config bounds an inbox. Zero fields have their defaults.
type Config struct {
	// MaxEntries is the most entries that are not done, of all processes;
	// default 100,000. At the limit new ones are [inbox.ErrFull].
	MaxEntries int
	// MaxBytes is the most bytes that those may take; default 4 GiB.
	MaxBytes int64
	// MaxBody is the longest body in bytes; default 25 MiB, at most 512 MiB.
	MaxBody int
	// RetryAfter is what an [inbox.FullError] tells the sender; default 10 s.
	RetryAfter time.Duration
	// Lease is for how long a process that is silent is taken for alive, by
	// the server's clock: 1 s to 10 min, default 10 s. It says so five times
	// as often. After it, others are handed its entries.
	Lease time.Duration
	// Look is how often entries are looked for without news; default 1 s.
	Look time.Duration
	// OnRepeat is told of a delivery of which another process has recorded a
	// repeat while it is not done: somebody misses its result. It may be nil,
	// must return soon, and must not call the inbox.
	OnRepeat func(fencepost.DeliveryKey)
}

// Bounds of a [Config].
const (
	minLease, maxLease = time.Second, 10 * time.Minute
	maxBody            = 512 << 20
)

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.MaxEntries, 100_000)
	setDefault(&c.MaxBytes, 4<<30)
	setDefault(&c.MaxBody, 25<<20)
	setDefault(&c.RetryAfter, 10*time.Second)
	setDefault(&c.Lease, 10*time.Second)
	setDefault(&c.Look, time.Second)
	if c.OnRepeat == nil {
		c.OnRepeat = func(fencepost.DeliveryKey) {}
	}
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, fmt.Errorf("inbox: %s: %w", text, fencepost.ErrMalformed))
		}
	}
	check(c.MaxEntries < 1, "max entries must be at least 1")
	check(c.MaxBytes < 1, "max bytes must be at least 1")
	check(c.MaxBody < 1 || c.MaxBody > maxBody, "max body must be 1 byte to 512 MiB")
	check(c.RetryAfter < 0 || c.Look < 0, "durations must be positive")
	check(c.Lease < minLease || c.Lease > maxLease, "lease must be 1s to 10m")
	return c, errors.Join(errs...)
}
