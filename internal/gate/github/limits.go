package github

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// Limits bound what a [Client] does. The zero value of a field is its default.
type Limits struct {
	// RequestTimeout bounds one request with its answer; 100 ms to 2 min,
	// default 10 s. It must lie well inside the ledger's lease.
	RequestTimeout time.Duration
	// MaxAnswer is the largest answer in bytes; default 8 MiB. A larger one is
	// [fencepost.ReasonProvider].
	MaxAnswer int64
	// ReadAttempts is how often a read is tried in all when GitHub fails or the
	// connection breaks; 1 to 10, default 3. Writes are never repeated.
	ReadAttempts int
	// ReadPause is the pause before the second attempt; it doubles with each.
	// Default 250 ms.
	ReadPause time.Duration
	// WriteInterval is the least time between the ends and beginnings of two
	// writes of one installation; default 1 s, negative for none. GitHub asks
	// for 1 s.
	WriteInterval time.Duration
	// MaxPages is how many pages of one list are read; a longer list is
	// [fencepost.ReasonProvider]. Default 20, of 100 items each.
	MaxPages int
	// CacheEntries and CacheBytes bound the answers that are kept to ask
	// whether they have changed; defaults 512 and 8 MiB.
	CacheEntries int
	CacheBytes   int64
	// TokenMargin is how long before its end an installation token is
	// replaced; default 5 min, at most 30 min.
	TokenMargin time.Duration
	// Reserve is the share of the hourly requests, in percent, that is left to
	// live work: with less than that remaining, sweeps wait. Default 20.
	Reserve int
	// NotYetVisible is how long a refresh waits for a test merge that matches
	// head and base, or for a commit; default 45 s.
	NotYetVisible time.Duration
	// VisiblePause is the pause before it asks again; it doubles with each up
	// to 8 s. Default 1 s.
	VisiblePause time.Duration
	// MaxRateLimitWait is the longest wait for a rate limit that a call of live
	// work takes upon itself; a longer one, and any of a sweep, is a
	// [gate.WaitError]. Default 30 s, negative for none.
	MaxRateLimitWait time.Duration
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.RequestTimeout, 10*time.Second)
	setDefault(&l.MaxAnswer, 8<<20)
	setDefault(&l.ReadAttempts, 3)
	setDefault(&l.ReadPause, 250*time.Millisecond)
	setDefault(&l.WriteInterval, time.Second)
	setDefault(&l.MaxPages, 20)
	setDefault(&l.CacheEntries, 512)
	setDefault(&l.CacheBytes, 8<<20)
	setDefault(&l.TokenMargin, 5*time.Minute)
	setDefault(&l.Reserve, 20)
	setDefault(&l.NotYetVisible, 45*time.Second)
	setDefault(&l.VisiblePause, time.Second)
	setDefault(&l.MaxRateLimitWait, 30*time.Second)
	return l
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate reports every value out of range; its error matches
// [fencepost.ErrMalformed]. Zero fields are their defaults.
func (l Limits) Validate() error {
	l = l.withDefaults()
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("limits.%s must be %s: %w", field, want, fencepost.ErrMalformed))
		}
	}
	check(l.RequestTimeout >= 100*time.Millisecond && l.RequestTimeout <= 2*time.Minute, "request_timeout", "100ms to 2m")
	check(l.MaxAnswer >= 64<<10 && l.MaxAnswer <= 256<<20, "max_answer", "64 KiB to 256 MiB")
	check(l.ReadAttempts >= 1 && l.ReadAttempts <= 10, "read_attempts", "1 to 10")
	check(l.ReadPause > 0 && l.ReadPause <= 5*time.Second, "read_pause", "above 0, at most 5s")
	check(l.WriteInterval <= time.Minute, "write_interval", "at most 1m")
	check(l.MaxPages >= 1 && l.MaxPages <= 1000, "max_pages", "1 to 1000")
	check(l.CacheEntries >= 1 && l.CacheEntries <= 100_000, "cache_entries", "1 to 100000")
	check(l.CacheBytes >= 1 && l.CacheBytes <= 1<<30, "cache_bytes", "1 to 1 GiB")
	check(l.TokenMargin > 0 && l.TokenMargin <= 30*time.Minute, "token_margin", "above 0, at most 30m")
	check(l.Reserve >= 1 && l.Reserve <= 90, "reserve", "1 to 90")
	check(l.NotYetVisible > 0 && l.NotYetVisible <= 10*time.Minute, "not_yet_visible", "above 0, at most 10m")
	check(l.VisiblePause > 0 && l.VisiblePause <= maxVisiblePause, "visible_pause", "above 0, at most 8s")
	check(l.MaxRateLimitWait <= 10*time.Minute, "max_rate_limit_wait", "at most 10m")
	return errors.Join(errs...)
}

// maxVisiblePause bounds the growing pause between two looks at a test merge.
const maxVisiblePause = 8 * time.Second
