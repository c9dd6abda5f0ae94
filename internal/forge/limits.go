package forge

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// Limits bound what a [Client] does. The zero value of a field is its default.
type Limits struct {
	// RequestTimeout bounds one request with its answer; 100 ms to 2 min,
	// default 5 s.
	RequestTimeout time.Duration
	// MaxAnswer is the largest answer in bytes; 64 KiB to 256 MiB, default
	// 8 MiB. A larger one is [fencepost.ReasonProvider].
	MaxAnswer int64
	// MaxPages is how many pages of one list are read; 1 to 1000, default 20.
	// A longer list is [fencepost.ReasonProvider].
	MaxPages int
	// MaxQuiet is the longest that the server can ask us to leave it alone;
	// 1 s to 1 h, default 10 min.
	MaxQuiet time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.RequestTimeout == 0 {
		l.RequestTimeout = 5 * time.Second
	}
	if l.MaxAnswer == 0 {
		l.MaxAnswer = 8 << 20
	}
	if l.MaxPages == 0 {
		l.MaxPages = 20
	}
	if l.MaxQuiet == 0 {
		l.MaxQuiet = 10 * time.Minute
	}
	return l
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
	check(l.MaxPages >= 1 && l.MaxPages <= 1000, "max_pages", "1 to 1000")
	check(l.MaxQuiet >= time.Second && l.MaxQuiet <= time.Hour, "max_quiet", "1s to 1h")
	return errors.Join(errs...)
}
