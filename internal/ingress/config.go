package ingress

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// A Config bounds a [Server]. Zero fields have their defaults.
type Config struct {
	// MaxBody is the largest body in bytes, 1 or more; default 25 MiB. A
	// larger one is answered 413.
	MaxBody int64
	// MaxHeaders is how many header pairs a request may have, Host and the
	// like included; default 128. More are answered 431.
	MaxHeaders int
	// MaxHeaderBytes bounds all names and values together; default 64 KiB.
	// More are answered 431.
	MaxHeaderBytes int
	// BodyMemory is the budget of all bodies in memory, in bytes, MaxBody or
	// more; default 256 MiB.
	BodyMemory int64
	// BodyWait is how long a request waits for room in BodyMemory before it
	// is answered 503 full; default 5 s.
	BodyWait time.Duration
	// MaxConnections is how many connections there are at once; default
	// 1024. Further ones wait to be accepted.
	MaxConnections int
	// HeaderTimeout is how long the headers may take; default 10 s.
	HeaderTimeout time.Duration
	// BodyTimeout is how long the whole body may take, from when there is
	// room for it; default 30 s.
	BodyTimeout time.Duration
	// StallTimeout is how long each 256 KiB of a body may take, or its last
	// part; default 10 s, at most BodyTimeout.
	StallTimeout time.Duration
	// WriteTimeout is how long all from the end of the headers to the end of
	// the answer may take; default 60 s. It should be the sum of BodyWait,
	// BodyTimeout, RecordTimeout and the time to send a few hundred bytes.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may idle between requests;
	// default 60 s.
	IdleTimeout time.Duration
	// RecordTimeout is how long recording may take before the answer is 503
	// unavailable; default 8 s. Providers wait 5 to 10 s.
	RecordTimeout time.Duration
	// RetryAfter is what a 503 tells the sender to wait; default 10 s,
	// rounded up to seconds.
	RetryAfter time.Duration
	// Drain is how long requests in flight may finish once the server stops;
	// default 15 s. What is recorded by then is answered.
	Drain time.Duration
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxBody, 25<<20)
	setDefault(&c.MaxHeaders, 128)
	setDefault(&c.MaxHeaderBytes, 64<<10)
	setDefault(&c.BodyMemory, max(256<<20, c.MaxBody))
	setDefault(&c.BodyWait, 5*time.Second)
	setDefault(&c.MaxConnections, 1024)
	setDefault(&c.HeaderTimeout, 10*time.Second)
	setDefault(&c.BodyTimeout, 30*time.Second)
	setDefault(&c.StallTimeout, min(10*time.Second, c.BodyTimeout))
	setDefault(&c.WriteTimeout, 60*time.Second)
	setDefault(&c.IdleTimeout, 60*time.Second)
	setDefault(&c.RecordTimeout, 8*time.Second)
	setDefault(&c.RetryAfter, 10*time.Second)
	setDefault(&c.Drain, 15*time.Second)
	return c
}

// validate lists every fault; its error matches [fencepost.ErrMalformed].
func (c Config) validate() error {
	var faults []error
	check := func(bad bool, text string) {
		if bad {
			faults = append(faults, fmt.Errorf("ingress: %s: %w", text, fencepost.ErrMalformed))
		}
	}
	check(c.MaxBody < 1, "max body must be at least 1 byte")
	check(c.BodyMemory < c.MaxBody, "body memory must be at least max body")
	check(c.MaxHeaders < 1, "max headers must be at least 1")
	check(c.MaxHeaderBytes < 1, "max header bytes must be at least 1")
	check(c.MaxConnections < 1, "max connections must be at least 1")
	check(c.StallTimeout > c.BodyTimeout, "stall timeout must be at most body timeout")
	for name, d := range map[string]time.Duration{
		"body wait": c.BodyWait, "header timeout": c.HeaderTimeout, "body timeout": c.BodyTimeout,
		"stall timeout": c.StallTimeout, "write timeout": c.WriteTimeout, "idle timeout": c.IdleTimeout,
		"record timeout": c.RecordTimeout, "retry after": c.RetryAfter, "drain": c.Drain,
	} {
		check(d <= 0, name+" must be more than 0")
	}
	return errors.Join(faults...)
}
